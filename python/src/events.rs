//! Events of a request as objects of the classes in `wingbeat.events`.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};
use wingbeat::vocab::Vocab;
use wingbeat::{Completion, Event, Logprobs};

/// The classes of `wingbeat.events`.
struct Classes {
    started: Py<PyAny>,
    progress: Py<PyAny>,
    prompt: Py<PyAny>,
    text: Py<PyAny>,
    thought: Py<PyAny>,
    call: Py<PyAny>,
    arguments: Py<PyAny>,
    logprobs: Py<PyAny>,
    vector: Py<PyAny>,
    score: Py<PyAny>,
    done: Py<PyAny>,
    token: Py<PyAny>,
    tool_call: Py<PyAny>,
    usage: Py<PyAny>,
    timings: Py<PyAny>,
    saved: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = py.import("wingbeat.events")?;
        let class = |name: &str| Ok::<_, PyErr>(module.getattr(name)?.unbind());
        Ok(Classes {
            started: class("Started")?,
            progress: class("Progress")?,
            prompt: class("Prompt")?,
            text: class("Text")?,
            thought: class("Thought")?,
            call: class("Call")?,
            arguments: class("Arguments")?,
            logprobs: class("Logprobs")?,
            vector: class("Vector")?,
            score: class("Score")?,
            done: class("Done")?,
            token: class("Token")?,
            tool_call: class("ToolCall")?,
            usage: class("Usage")?,
            timings: class("Timings")?,
            saved: class("SavedState")?,
        })
    })
}

/// Converts an event to an object of `wingbeat.events`. `vocab` has the bytes of tokens. If it is `None`, the bytes are empty.
pub fn object(py: Python<'_>, vocab: Option<&Vocab>, event: Event) -> PyResult<Py<PyAny>> {
    let of = classes(py)?;
    match event {
        Event::Started { prompt_tokens, cached_tokens } => of.started.call1(py, (prompt_tokens, cached_tokens)),
        Event::Progress { processed_tokens, prompt_tokens, cached_tokens } => {
            of.progress.call1(py, (processed_tokens, prompt_tokens, cached_tokens))
        }
        Event::Prompt { first, logprobs } => of.prompt.call1(py, (first, tokens(py, of, vocab, &logprobs)?)),
        Event::Text { index, text, .. } => of.text.call1(py, (index, text)),
        Event::Thought { index, text } => of.thought.call1(py, (index, text)),
        Event::Call { index, call, name } => of.call.call1(py, (index, call, name)),
        Event::Arguments { index, call, text } => of.arguments.call1(py, (index, call, text)),
        Event::Logprobs { index, logprobs } => of.logprobs.call1(py, (index, position(py, of, vocab, &logprobs)?)),
        Event::Vector { index, vector } => of.vector.call1(py, (index, PyArray1::from_vec(py, vector))),
        Event::Score { index, logit } => of.score.call1(py, (index, logit)),
        Event::Done(done) => completion(py, of, vocab, *done),
        _ => Ok(py.NotImplemented()),
    }
}

fn completion(py: Python<'_>, of: &Classes, vocab: Option<&Vocab>, done: Completion) -> PyResult<Py<PyAny>> {
    let calls = done.calls.iter().map(|call| of.tool_call.call1(py, (&call.name, &call.arguments))).collect::<PyResult<Vec<_>>>()?;
    let saved = match &done.state {
        None => py.None(),
        Some(Ok(state)) => of.saved.call1(py, (&state.name, state.n_tokens, state.bytes))?,
        Some(Err(e)) => crate::errors::exception(py, e).into_value(py).into_any(),
    };
    let usage = of
        .usage
        .call1(py, (done.usage.prompt_tokens, done.usage.cached_tokens, done.usage.completion_tokens, done.usage.reasoning_tokens))?;
    let t = &done.timings;
    let timings = of.timings.call1(py, (t.queue_ms, t.prefill_ms, t.decode_ms, t.drafted_tokens, t.accepted_tokens))?;
    let logprobs = tokens(py, of, vocab, &done.logprobs)?;
    let prompt_logprobs = tokens(py, of, vocab, &done.prompt_logprobs)?;
    let (finish, reason) = (done.finish.name(), done.finish_reason().name());
    let first = (done.index, &done.text, &done.thought, PyTuple::new(py, calls)?, PyTuple::new(py, &done.tokens)?, reason, finish);
    let second = (done.complete, logprobs, prompt_logprobs, saved, done.seed, usage, timings);
    let arguments = first.into_pyobject(py)?.add(second.into_pyobject(py)?)?;
    of.done.call1(py, arguments.cast_into::<PyTuple>()?)
}

fn tokens(py: Python<'_>, of: &Classes, vocab: Option<&Vocab>, all: &[Logprobs]) -> PyResult<Py<PyTuple>> {
    let all = all.iter().map(|at| position(py, of, vocab, at)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, all)?.unbind())
}

/// Returns the token at one position, with the most likely tokens at this position.
fn position(py: Python<'_>, of: &Classes, vocab: Option<&Vocab>, at: &Logprobs) -> PyResult<Py<PyAny>> {
    let token = |id: u32, logprob: f32, top: Py<PyTuple>| {
        let bytes = vocab.map_or(&[] as &[u8], |vocab| vocab.token(id));
        of.token.call1(py, (id, logprob, PyBytes::new(py, bytes), top))
    };
    let none = || PyTuple::empty(py).unbind();
    let top = at.top.iter().map(|&(id, logprob)| token(id, logprob, none())).collect::<PyResult<Vec<_>>>()?;
    token(at.token, at.logprob, PyTuple::new(py, top)?.unbind())
}
