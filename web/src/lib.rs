//! The binding of wingbeat for JavaScript. Every object of the library that JavaScript sees is here; requests, events and descriptions are JSON.
//!
//! The package `wingbeat` (web/js) is the API for users. It runs this module in a worker.

mod error;
mod events;
mod hasher;
mod logger;
mod options;
mod progress;
mod selftest;
mod source;

use crate::error::js;
use crate::options::LoadOptions;
use crate::source::Source;
use futures_core::Stream;
use js_sys::Function;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use wasm_bindgen::prelude::*;
use wingbeat::{Engine, Error, ModelSource, Request};

type JsResult<T> = std::result::Result<T, JsValue>;

/// The namespace of all states and requests: a page has one user.
const NAMESPACE: &str = "";

#[wasm_bindgen(start)]
fn start() {
    console_error_panic_hook::set_once();
    logger::start();
}

/// Returns the version of the package.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// Sets a variable such as `WINGBEAT_KERNELS`, which is an environment variable elsewhere. For tests and measurements, before a model is loaded.
#[wasm_bindgen]
pub fn set_variable(name: &str, value: &str) -> JsResult<()> {
    wingbeat::low_level::exec::environment::set(name, value).map_err(js)
}

/// Sets which messages go to the console: `off`, `error`, `warn`, `info` or `debug`.
#[wasm_bindgen]
pub fn log_level(level: &str) {
    logger::level(level);
}

/// A loaded model, and the engine that runs its requests.
#[wasm_bindgen]
pub struct Model {
    engine: Engine,
}

#[wasm_bindgen]
impl Model {
    /// Loads a model. `options` is a JSON object. Calls `progress(stage, done, total)`: the stage `weights` counts bytes, the stage `kernels` counts
    /// kernels.
    pub async fn load(source: Source, options: &str, progress: Function) -> JsResult<Model> {
        let asked = LoadOptions::read(options).map_err(js)?;
        let (files, main) = source::files(source).map_err(js)?;
        let options = asked.model().await.map_err(js)?;
        let listener = progress::listen(progress);
        let (of_weights, of_kernels) = (listener.clone(), listener.clone());
        let options = options.kernel_progress(move |done, all| of_kernels.tell("kernels", done, all));
        let source = ModelSource::Files { files, main };
        let model = wingbeat::Model::load_async(&source, &options, &mut |done, all| of_weights.tell("weights", done, all)).await;
        let model = model.map_err(js)?;
        let engine = asked.engine(&model).map_err(js)?;
        let (engine, work) = Engine::start_task(&model, engine).map_err(js)?;
        wasm_bindgen_futures::spawn_local(work);
        Ok(Model { engine })
    }

    /// Describes the model as JSON.
    pub fn info(&self) -> String {
        let mut described = self.engine.description();
        described["numerics"] = self.engine.model().numerics().into();
        described.to_string()
    }

    /// Checks a request and queues it. `request` is JSON with the fields of the server.
    pub fn submit(&self, request: &str) -> JsResult<Generation> {
        let request = Request::of_body(request.as_bytes()).map_err(js)?;
        let generation = self.engine.submit(request).map_err(js)?;
        let settings = json!(generation.n_tokens()).to_string();
        Ok(Generation { engine: self.engine.clone(), generation: RefCell::new(Some(generation)), is_polled: Cell::new(false), settings })
    }

    /// Returns the token ids of a text.
    pub fn tokenize(&self, text: &str) -> JsResult<Vec<u32>> {
        self.vocab()?.encode(text.as_bytes()).map_err(js)
    }

    /// Returns the bytes of tokens. The last character may be incomplete.
    pub fn detokenize(&self, ids: &[u32]) -> JsResult<Vec<u8>> {
        self.engine.model().check_ids(ids).map_err(js)?;
        Ok(self.vocab()?.decode(ids))
    }

    fn vocab(&self) -> JsResult<&wingbeat::vocab::Vocab> {
        self.engine.model().needed_vocab("no vocabulary was found for this model, which accepts only token ids").map_err(js)
    }

    /// Lists the states that have names.
    pub fn states(&self) -> JsResult<String> {
        let states = self.engine.states(NAMESPACE).map_err(js)?;
        Ok(Value::from(states.iter().map(state).collect::<Vec<_>>()).to_string())
    }

    /// Returns the bytes of a state's file. The program and the server read such files.
    pub fn export_state(&self, name: &str) -> JsResult<Vec<u8>> {
        self.engine.state_bytes(NAMESPACE, name).map_err(js)
    }

    /// Loads the state in a file's bytes, and keeps it under a name. Returns the state's description as JSON.
    pub fn import_state(&self, name: &str, bytes: &[u8]) -> JsResult<String> {
        self.engine.import_state(NAMESPACE, name, bytes).map(|info| state(&info).to_string()).map_err(js)
    }

    /// Copies a state.
    pub fn fork_state(&self, name: &str, to: &str) -> JsResult<String> {
        self.engine.fork_state(NAMESPACE, name, to).map(|info| state(&info).to_string()).map_err(js)
    }

    pub fn delete_state(&self, name: &str) -> JsResult<()> {
        self.engine.delete_state(NAMESPACE, name).map_err(js)
    }

    /// Refuses new requests, and resolves when all earlier requests have ended.
    pub async fn drain(&self) {
        self.engine.drain_async().await;
    }

    /// Returns counters of the engine as JSON: slots, waiting requests, cache entries, bytes of memory.
    pub fn stats(&self) -> String {
        let stats = self.engine.stats();
        json!({
            "slots": stats.slots, "free_slots": stats.free_slots, "waiting": stats.waiting, "cached": stats.cached,
            "device_bytes": self.engine.model().device_bytes(),
            "wasm_bytes": core::arch::wasm32::memory_size(0) as u64 * 65536,
        })
        .to_string()
    }
}

fn state(info: &wingbeat::engine::StateInfo) -> Value {
    json!({"name": info.name, "n_tokens": info.n_tokens, "bytes": info.bytes})
}

/// The events of a request. Dropping this object (`free`) cancels the request.
#[wasm_bindgen]
pub struct Generation {
    engine: Engine,
    generation: RefCell<Option<wingbeat::Generation>>,
    is_polled: Cell<bool>,
    settings: String,
}

#[wasm_bindgen]
impl Generation {
    /// Waits for the next event and returns its JSON. Returns `undefined` after the last event.
    pub async fn next(&self) -> JsResult<Option<String>> {
        if self.is_polled.replace(true) {
            return Err(js(Error::usage("expected one call of `next` at a time, found a second one")));
        }
        let event = poll_fn(|context| match self.generation.borrow_mut().as_mut() {
            Some(generation) => Pin::new(generation).poll_next(context),
            None => Poll::Ready(None),
        })
        .await;
        self.is_polled.set(false);
        match event {
            Some(Ok(event)) => Ok(Some(events::json(self.engine.model(), &event).to_string())),
            Some(Err(e)) => Err(js(e)),
            None => Ok(None),
        }
    }

    /// Returns the number of tokens of the prompt, as JSON.
    pub fn n_tokens(&self) -> String {
        self.settings.clone()
    }

    /// Cancels the request. Its slots are free within one step.
    pub fn cancel(&self) {
        self.generation.borrow_mut().take();
    }
}
