//! Errors of the library as JavaScript errors, with the properties `kind`, `field` and `hint`.

use js_sys::{Error as JsError, Reflect};
use wasm_bindgen::JsValue;
use wingbeat::Error;

/// Returns a JavaScript `Error` with the properties `kind`, `field` and `hint`. The message begins with the place or the field.
pub fn js(e: Error) -> JsValue {
    let place = e.place.as_deref().or(e.field.as_deref()).map(|place| format!("{place}: ")).unwrap_or_default();
    let error = JsError::new(&format!("{place}{}", e.message));
    let set = |name: &str, value: Option<&str>| {
        // `set` fails only for frozen objects, and this object is new.
        let _ = Reflect::set(&error, &name.into(), &value.map_or(JsValue::NULL, Into::into));
    };
    set("kind", Some(e.kind.name()));
    set("field", e.field.as_deref());
    set("hint", e.hint.as_deref());
    error.into()
}

/// Returns the library's error for an error that JavaScript threw.
pub fn of_js(value: &JsValue) -> Error {
    let get = |name: &str| Reflect::get(value, &name.into()).ok().and_then(|value| value.as_string());
    let message = get("message").or_else(|| value.as_string()).unwrap_or_else(|| "JavaScript threw a value that is no error".into());
    let error = match get("kind").as_deref() {
        Some("memory") => Error::memory(message),
        Some("interrupted") => Error::input(message),
        _ => Error::file(message),
    };
    get("hint").into_iter().fold(error, Error::hint)
}
