//! The JSON of an error: `{"error":{"kind","message","where","hint"}}`.

use serde::Serialize;
use wingbeat::error::Error;

#[derive(Debug, Clone, Serialize)]
pub struct ErrorReport {
    pub error: ErrorBody,
}

#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody {
    /// The kind of the error: `input`, `file`, `model`, `usage`, `device`, `memory`, `interrupted` or `busy`.
    pub kind: &'static str,
    pub message: String,
    /// The place of the fault, such as a file and a line, followed by the wrong option or field. `None` if the error has neither a place nor
    /// an option or field.
    #[serde(rename = "where")]
    pub place: Option<String>,
    pub hint: Option<String>,
}

impl From<&Error> for ErrorReport {
    fn from(e: &Error) -> Self {
        let (kind, place) = (e.kind.name(), e.location());
        ErrorReport { error: ErrorBody { kind, message: e.message.clone(), place, hint: e.hint.clone() } }
    }
}
