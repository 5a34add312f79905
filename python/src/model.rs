//! A model and its engine.

use crate::errors::{self, detached};
use crate::generation::Generation;
use crate::load;
use crate::options::LoadOptions;
use crate::process;
use crate::reading::{Reader, Watch};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use wingbeat::engine::StateInfo;
use wingbeat::low_level::session::{Session, Slot};
use wingbeat::vocab::Vocab;
use wingbeat::{Engine, Error, ModelSource, Request, Result, Snapshot};

/// The namespace of all states and requests: a process of Python is one user.
const NAMESPACE: &str = "";

/// A state of a model: name, number of tokens, bytes.
type Info = (String, usize, u64);

/// A model that is open.
pub struct Open {
    pub engine: Engine,
    /// Reads texts for `logits`, `loglikelihoods` and `forward`.
    reader: Reader,
}

impl Open {
    /// Ends running texts and readings after their current steps, and waits for them.
    pub fn end(&self) {
        self.engine.interrupt();
        self.reader.close();
        self.engine.drain();
    }
}

#[pyclass(frozen, module = "wingbeat._native")]
pub struct Model(RwLock<Option<Arc<Open>>>);

impl Model {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        if process::is_forked() {
            return Err(errors::forked(py));
        }
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| errors::closed(py))
    }

    /// Runs `work` with the open model, without the interpreter's lock.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Open) -> Result<T> + Send) -> PyResult<T> {
        let open = self.open(py)?;
        detached(py, move || work(&open))
    }

    /// Runs `work` with the session of the reader, without the interpreter's lock, until a signal handler raises an exception.
    fn reading<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Open, &mut Session, &mut Watch) -> Result<T> + Send) -> PyResult<T> {
        let open = self.open(py)?;
        let mut watch = Watch::new();
        let done = detached(py, || open.reader.read(&open.engine, &mut watch, |session, watch| work(&open, session, watch)));
        match watch.raised {
            Some(e) => Err(e),
            None if open.reader.is_closed() => Err(errors::closed(py)),
            None => done,
        }
    }

    fn take(&self) -> Option<Arc<Open>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(open) = self.take() {
            process::release(open);
        }
    }
}

#[pymethods]
impl Model {
    /// Loads a model: `kind` is `path`, `embedded` or `synthetic`. `options` are names and texts. `progress(stage, done, total)` is called during
    /// the load.
    #[staticmethod]
    #[pyo3(signature = (kind, name, options, download, progress))]
    fn load(
        py: Python<'_>,
        kind: &str,
        name: PathBuf,
        options: Vec<(String, String)>,
        download: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Model> {
        process::begin(py)?;
        crate::logs::start(py)?;
        let source = match kind {
            "embedded" => ModelSource::Embedded,
            "synthetic" => ModelSource::Synthetic(name.to_string_lossy().into_owned()),
            _ => ModelSource::Path(name),
        };
        let engine = load::load(py, source, LoadOptions::new(options), download, progress.as_ref())?;
        let open = Arc::new(Open { engine, reader: Reader::default() });
        process::remember(&open);
        Ok(Model(RwLock::new(Some(open))))
    }

    /// Ends running texts, and frees the model's memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = self.take() else { return Ok(()) };
        if process::is_forked() {
            process::release(open);
            return Ok(());
        }
        detached(py, move || {
            open.end();
            drop(open);
            Ok(())
        })
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Describes the model as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let open = self.open(py)?;
        let model = open.engine.model();
        let mut described = open.engine.description();
        described["notes"] = model.notes().iter().map(|note| errors::in_text(note)).collect();
        described["bits_per_weight"] = model.bits_per_weight().into();
        described["eot_token"] = model.vocab().and_then(|vocab| vocab.special("<|endoftext|>")).unwrap_or(0).into();
        Ok(described.to_string())
    }

    /// Returns the numbers of the engine as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.open(py)?.engine.stats();
        Ok(json!({
            "slots": stats.slots, "free_slots": stats.free_slots, "running": stats.running, "paused": stats.paused, "waiting": stats.waiting,
            "swapped": stats.swapped, "cached": stats.cached, "tokens": stats.drawn,
        })
        .to_string())
    }

    /// Checks a request and queues it. `request` is a JSON object.
    fn submit(&self, py: Python<'_>, request: &[u8]) -> PyResult<Generation> {
        let open = self.open(py)?;
        crate::logs::start(py)?;
        let request = request.to_vec();
        let for_engine = open.clone();
        let generation = detached(py, move || for_engine.engine.submit(Request::of_body(&request)?))?;
        let generation = Generation::new(generation, open.engine.model().vocab().cloned());
        process::remember_reader(generation.reader());
        Ok(generation)
    }

    /// Returns the token ids of a request's prompt. Does not queue the request.
    fn prompt_tokens(&self, py: Python<'_>, request: &[u8]) -> PyResult<Vec<u32>> {
        let request = request.to_vec();
        self.with(py, move |open| open.engine.tokens(&Request::of_body(&request)?))
    }

    /// Returns the token ids of a text. With `special`, marks of chat formats are single tokens.
    fn tokenize(&self, py: Python<'_>, text: &[u8], special: bool) -> PyResult<Vec<u32>> {
        let text = text.to_vec();
        self.with(py, move |open| if special { vocab(open)?.encode_marked(&text) } else { vocab(open)?.encode(&text) })
    }

    /// Returns the bytes of tokens. With `special`, marks of chat formats have their texts. Otherwise they have no bytes.
    fn detokenize<'py>(&self, py: Python<'py>, ids: Vec<u32>, special: bool) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, move |open| {
            check(open, &ids)?;
            let vocab = vocab(open)?;
            Ok(if special { vocab.decode_marked(&ids) } else { vocab.decode(&ids) })
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Returns the logits after each token of a text: `[tokens, n_vocab]`.
    fn logits<'py>(&self, py: Python<'py>, tokens: Vec<u32>) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (rows, numbers) = self.reading(py, move |open, session, watch| {
            let slot = session.open()?;
            let numbers = read(open, session, watch, slot, &tokens, true)?;
            session.close(slot)?;
            Ok((tokens.len(), numbers))
        })?;
        matrix(py, rows, numbers)
    }

    /// Returns the log-likelihood of each continuation after its context, and whether greedy sampling would generate it. `requests` has
    /// the token ids of each context and continuation.
    fn loglikelihoods(&self, py: Python<'_>, requests: Vec<(Vec<u32>, Vec<u32>)>) -> PyResult<Vec<(f64, bool)>> {
        self.reading(py, move |open, session, watch| {
            let requests: Vec<(&[u32], &[u32])> = requests.iter().map(|(context, rest)| (context.as_slice(), rest.as_slice())).collect();
            let found = session.loglikelihoods(&requests, &mut |_, _| watch.look(&open.reader))?;
            Ok(found.into_iter().map(|found| (found.logprob, found.is_greedy)).collect())
        })
    }

    /// Prefills tokens after the recurrent states `states`: one flat array per state, in the order of [`shapes`](Self::shapes). `None` begins a text.
    /// Returns the logits `[rows, n_vocab]` after each token (`full`) or after the last token, and the new states.
    #[allow(clippy::type_complexity)]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<u32>,
        states: Option<Vec<PyReadonlyArray1<'py, f32>>>,
        full: bool,
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Vec<Bound<'py, PyArray1<f32>>>)> {
        let states = states.map(|states| states.iter().map(|state| state.as_array().to_vec()).collect::<Vec<_>>());
        let (rows, numbers, states) = self.reading(py, move |open, session, watch| {
            let model = open.engine.model();
            let slot = match states.map(|states| Snapshot::of_states(model, states)).transpose()? {
                Some(snapshot) => session.restore(&snapshot)?,
                None => session.open()?,
            };
            let numbers = read(open, session, watch, slot, &tokens, full)?;
            let snapshot = session.snapshot(slot)?;
            session.close(slot)?;
            let states: Vec<Vec<f32>> = snapshot.states(model).map(|(_, _, values)| values.to_vec()).collect();
            Ok((if full { tokens.len() } else { 1 }, numbers, states))
        })?;
        let states = states.into_iter().map(|state| PyArray1::from_vec(py, state)).collect();
        Ok((matrix(py, rows, numbers)?, states))
    }

    /// Returns the names and shapes of the recurrent states, in the order of the layers.
    fn shapes(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<usize>)>> {
        self.reading(py, |open, session, _| {
            let slot = session.open()?;
            let snapshot = session.snapshot(slot)?;
            session.close(slot)?;
            Ok(snapshot.states(open.engine.model()).map(|(name, shape, _)| (name.to_owned(), shape.to_vec())).collect())
        })
    }

    fn states(&self, py: Python<'_>) -> PyResult<Vec<Info>> {
        self.with(py, |open| Ok(open.engine.states(NAMESPACE)?.iter().map(info).collect()))
    }

    fn state_bytes<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, move |open| open.engine.state_bytes(NAMESPACE, &name))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn import_state(&self, py: Python<'_>, name: String, bytes: &[u8]) -> PyResult<Info> {
        let bytes = bytes.to_vec();
        self.with(py, move |open| open.engine.import_state(NAMESPACE, &name, bytes).map(|state| info(&state)))
    }

    fn load_state(&self, py: Python<'_>, name: String, path: PathBuf) -> PyResult<Info> {
        self.with(py, move |open| open.engine.load_state(NAMESPACE, &name, &path).map(|state| info(&state)))
    }

    fn save_state(&self, py: Python<'_>, name: String, path: PathBuf) -> PyResult<()> {
        self.with(py, move |open| open.engine.export_state(NAMESPACE, &name, &path))
    }

    fn fork_state(&self, py: Python<'_>, name: String, to: String) -> PyResult<Info> {
        self.with(py, move |open| open.engine.fork_state(NAMESPACE, &name, &to).map(|state| info(&state)))
    }

    fn delete_state(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.with(py, move |open| open.engine.delete_state(NAMESPACE, &name))
    }
}

fn info(state: &StateInfo) -> Info {
    (state.name.clone(), state.n_tokens, state.bytes)
}

fn vocab(open: &Open) -> Result<&Vocab> {
    open.engine.model().needed_vocab("no vocabulary was found for this model, which accepts only token ids")
}

fn check(open: &Open, ids: &[u32]) -> Result<()> {
    open.engine.model().check_ids(ids).map_err(|e| e.field("tokens"))
}

/// Prefills tokens. Returns the logits after each token (`full`), or after the last token.
fn read(open: &Open, session: &mut Session, watch: &mut Watch, slot: Slot, tokens: &[u32], full: bool) -> Result<Vec<f32>> {
    if tokens.is_empty() {
        return Err(Error::input("expected at least 1 token, found an empty list").field("tokens"));
    }
    check(open, tokens)?;
    let mut look = |_, _| watch.look(&open.reader);
    if !full {
        session.prefill_many(&[(slot, tokens)], &mut look)?;
        return session.logits(slot).map(<[f32]>::to_vec);
    }
    let mut numbers = Vec::new();
    let size = tokens.len() * session.model().facts().n_vocab;
    numbers.try_reserve_exact(size).map_err(|_| Error::memory(format!("no memory for {size} logits")).hint("read fewer tokens"))?;
    let mut keep = |_, row: &[f32]| {
        numbers.extend_from_slice(row);
        Ok(())
    };
    session.score(slot, tokens, &mut keep, &mut look)?;
    Ok(numbers)
}

fn matrix(py: Python<'_>, rows: usize, numbers: Vec<f32>) -> PyResult<Bound<'_, PyArray2<f32>>> {
    let columns = numbers.len().checked_div(rows).unwrap_or(0);
    PyArray1::from_vec(py, numbers).reshape([rows, columns])
}
