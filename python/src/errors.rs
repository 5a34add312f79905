//! Errors of the library as exceptions of the module `wingbeat.errors`.

use crate::process;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wingbeat::Error;
use wingbeat::error::{Kind, renamed};

/// Returns the exception for an error. The error's kind determines the class. The attributes `field` and `hint` come from the error.
pub fn exception(py: Python<'_>, e: &Error) -> PyErr {
    let class = match e.kind {
        Kind::Input | Kind::Usage => "InputError",
        Kind::File => "FileError",
        Kind::Model => "ModelError",
        Kind::Device => "DeviceError",
        Kind::Memory => "OutOfMemoryError",
        Kind::Busy => "BusyError",
        _ => "WingbeatError",
    };
    let mut e = e.clone().with_names(&in_python);
    if e.field_name() == Some("synthetic") {
        e.field = Some("name".into());
    }
    make(py, class, &e.to_string(), e.field.as_deref(), e.hint.as_deref())
}

/// Names of the library, each with the Python code that has the same effect. All other names are the same in Python.
const NAMES: [(&str, &str); 9] = [
    ("Checkpoint::names", "`python -m wingbeat inspect --tensors`"),
    ("Conversion::lora", "`python -m wingbeat convert --lora`"),
    ("Session::save", "`model.generate(…, save_state=name)` and `model.states.save(name, path)`"),
    ("any_weights", "the command's --state-any"),
    ("chat::load", "`python -m wingbeat chat --load`"),
    ("download", "`download=True`"),
    // In requests, `state` is the name of a state. In hints, `state` is a file.
    ("state", "the file of `model.states.load(name, path)`"),
    ("wingbeat convert", "`python -m wingbeat convert`"),
    ("wingbeat doctor", "`python -m wingbeat doctor`"),
];

/// Returns Python's words for a name of the library, or for an option with a value. Returns `None` if Python uses the same words.
fn in_python(name: &str, value: Option<&str>) -> Option<String> {
    match value {
        Some(value) if !value.starts_with('"') && value.parse::<f64>().is_err() => Some(format!("`{name}=\"{value}\"`")),
        Some(_) => None,
        None => NAMES.iter().find(|(known, _)| *known == name).map(|(_, here)| (*here).into()),
    }
}

/// Returns a text of the library, such as a note on a model, with Python's names.
pub fn in_text(text: &str) -> String {
    renamed(text, &in_python)
}

/// Returns the exception for the use of a model in a forked process.
pub fn forked(py: Python<'_>) -> PyErr {
    let hint = "start processes with `multiprocessing.get_context(\"spawn\")`, or open the model in the child process only";
    let message = format!("this process was forked after a model had been opened: a fork copies neither threads nor the GPU ({hint})");
    make(py, "ForkError", &message, None, Some(hint))
}

/// Returns the exception for the use of a closed model.
pub fn closed(py: Python<'_>) -> PyErr {
    make(py, "ClosedError", "the model is closed", None, None)
}

fn make(py: Python<'_>, class: &str, message: &str, field: Option<&str>, hint: Option<&str>) -> PyErr {
    let exception = || {
        let class = py.import("wingbeat.errors")?.getattr(class)?;
        class.call((message,), Some(&[("field", field), ("hint", hint)].into_py_dict(py)?))
    };
    exception().map_or_else(|e| e, PyErr::from_value)
}

/// Runs `work` without the interpreter's lock. A panic becomes an exception.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> wingbeat::Result<T> + Send) -> PyResult<T> {
    let done = process::detach(py, || catch_unwind(AssertUnwindSafe(work)));
    crate::logs::deliver(py)?;
    match done {
        Ok(result) => result.map_err(|e| exception(py, &e)),
        Err(panic) => Err(panicked(py, &*panic)),
    }
}

/// Returns the exception for a panic.
pub fn panicked(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("internal error: {}", text.unwrap_or("a panic without a message"));
    make(py, "InternalError", &message, None, Some("please report this error"))
}
