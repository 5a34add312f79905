//! Reports how far a model is loaded to a function of the page.

use js_sys::Function;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use wasm_bindgen::JsValue;

thread_local! {
    /// The functions of running loads, by number. The library needs callbacks that can move to another thread, and JavaScript functions cannot, so
    /// the callbacks have only the number.
    static FUNCTIONS: RefCell<BTreeMap<u64, Function>> = const { RefCell::new(BTreeMap::new()) };
}

/// The number of a function. Dropping the last clone removes the function.
#[derive(Clone)]
pub struct Listener(Arc<Number>);

struct Number(u64);

impl Drop for Number {
    fn drop(&mut self) {
        FUNCTIONS.with_borrow_mut(|functions| functions.remove(&self.0));
    }
}

/// Registers a function `(stage, done, all)`.
pub fn listen(function: Function) -> Listener {
    FUNCTIONS.with_borrow_mut(|functions| {
        let id = functions.last_key_value().map_or(0, |(last, _)| last + 1);
        functions.insert(id, function);
        Listener(Arc::new(Number(id)))
    })
}

impl Listener {
    pub fn tell(&self, stage: &str, done: u64, all: u64) {
        let function = FUNCTIONS.with_borrow(|functions| functions.get(&self.0.0).cloned());
        if let Some(function) = function {
            // An error of the page's function does not stop the load.
            let _ = function.call3(&JsValue::NULL, &stage.into(), &(done as f64).into(), &(all as f64).into());
        }
    }
}
