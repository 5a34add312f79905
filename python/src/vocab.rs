//! A vocabulary without a model.

use crate::errors::{detached, exception};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use wingbeat::Error;

#[pyclass(frozen, module = "wingbeat._native")]
pub struct Vocab(wingbeat::vocab::Vocab);

#[pymethods]
impl Vocab {
    /// Opens a vocabulary: a file, or the name `world`, `small-world` or `tiny`.
    #[new]
    fn new(py: Python<'_>, name: PathBuf) -> PyResult<Vocab> {
        detached(py, || wingbeat::vocab::Vocab::find(&name)).map(Vocab)
    }

    /// Returns the token ids of a text. With `special`, marks of chat formats are single tokens.
    fn tokenize(&self, py: Python<'_>, text: &[u8], special: bool) -> PyResult<Vec<u32>> {
        let text = text.to_vec();
        detached(py, || if special { self.0.encode_marked(&text) } else { self.0.encode(&text) })
    }

    /// Returns the bytes of tokens. With `special`, marks of chat formats have their texts. Otherwise they have no bytes.
    fn detokenize<'py>(&self, py: Python<'py>, ids: Vec<u32>, special: bool) -> PyResult<Bound<'py, PyBytes>> {
        let most = self.0.max_id();
        match ids.iter().find(|&&id| id > most) {
            None => Ok(PyBytes::new(py, &if special { self.0.decode_marked(&ids) } else { self.0.decode(&ids) })),
            Some(id) => Err(exception(py, &Error::input(format!("token id {id} is out of range: the largest id is {most}")))),
        }
    }
}
