//! Messages of the library in the console of the page.

use js_sys::{Array, Function, Reflect};
use log::{Level, LevelFilter, Log, Metadata, Record};
use wasm_bindgen::{JsCast, JsValue};

struct Console;

impl Log for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wingbeat") || metadata.level() <= Level::Error
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let method = match record.level() {
            Level::Error => "error",
            Level::Warn => "warn",
            _ => "debug",
        };
        let console = Reflect::get(&js_sys::global(), &"console".into()).unwrap_or(JsValue::UNDEFINED);
        if let Some(write) = Reflect::get(&console, &method.into()).ok().and_then(|method| method.dyn_into::<Function>().ok()) {
            // An error is ignored: without a console, no message can report it.
            let _ = write.apply(&console, &Array::of1(&format!("wingbeat: {}", record.args()).into()));
        }
    }

    fn flush(&self) {}
}

pub fn start() {
    // A second start in the same module finds the logger in place.
    let _ = log::set_logger(&Console);
    log::set_max_level(LevelFilter::Warn);
}

pub fn level(name: &str) {
    log::set_max_level(name.parse().unwrap_or(LevelFilter::Warn));
}
