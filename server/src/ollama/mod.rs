//! Endpoints of Ollama's API. Each endpoint translates between Ollama's JSON and the requests and events of the engine.

mod answer;
pub mod chat;
pub mod embed;
pub mod generate;
pub mod models;
mod refused;
mod settings;

use crate::app::App;
use crate::failure::Failure;
pub use chat::OllamaChatBody;
pub use generate::GenerateBody;
pub use refused::refuse;
use serde::Serialize;
pub use settings::Settings;
use utoipa::ToSchema;

/// The tag of every model in Ollama's lists. A request may leave the tag out.
const TAG: &str = ":latest";

/// The body of an error.
#[derive(Serialize, ToSchema)]
pub struct OllamaError {
    /// Begins with the path of the wrong field, such as `options.top_p`, and contains what to do.
    error: String,
}

impl OllamaError {
    pub fn of(failure: &Failure) -> OllamaError {
        OllamaError { error: failure.message() }
    }
}

/// Returns a model's name without the tag `:latest`, unless a model of the server has a name with this tag. Returns `None` if the request names no
/// model.
fn untagged<'a>(app: &App, name: Option<&'a str>) -> Option<&'a str> {
    let name = name.filter(|name| !name.is_empty())?;
    let is_known = app.models.iter().any(|model| model.name == name);
    Some(name.strip_suffix(TAG).filter(|_| !is_known).unwrap_or(name))
}
