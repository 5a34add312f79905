//! Tasks of a JavaScript engine. A promise that is done runs before any other task, so awaiting promises alone would leave no time for timers and
//! messages.

use super::Arrival;
use js_sys::{Array, Function, Object, Reflect};
use std::future::poll_fn;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};

/// Returns in a later task.
pub async fn next() {
    let arrival = Arrival::default();
    let notify = arrival.clone();
    let asked = begin(Closure::once_into_js(move || notify.arrive()).unchecked_ref());
    // An engine with neither `setImmediate` nor `MessageChannel` cannot start a later task, so there is no task to wait for.
    if asked.is_some() {
        poll_fn(|context| arrival.poll(context)).await;
    }
}

/// Asks for a call in a later task. Avoids `setTimeout`, which would wait for 4 ms. Returns `None` if the engine has no function that starts a later
/// task.
fn begin(call: &Function) -> Option<()> {
    let global = js_sys::global();
    if let Some(set_immediate) = function(&global, "setImmediate") {
        return set_immediate.call1(&global, call).ok().map(|_| ());
    }
    let channel = Reflect::construct(&function(&global, "MessageChannel")?, &Array::new()).ok()?;
    let (from, to) = (Reflect::get(&channel, &"port1".into()).ok()?, Reflect::get(&channel, &"port2".into()).ok()?);
    Reflect::set(&to, &"onmessage".into(), call).ok()?;
    function(from.unchecked_ref(), "postMessage")?.call1(&from, &JsValue::NULL).ok().map(|_| ())
}

fn function(of: &Object, name: &str) -> Option<Function> {
    Reflect::get(of, &name.into()).ok()?.dyn_into().ok()
}
