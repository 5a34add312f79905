//! `POST /infill`: writes the text between two texts, as editors ask for it.

use super::answer::Common;
use super::completion::answer;
use crate::app::App;
use crate::body::Body;
use crate::failure::Answer;
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::openai::extras::read;
use axum::Extension;
use axum::extract::State;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::chat::fill_prompt;
use wingbeat::engine::Input;

/// A request to write the text between `input_prefix` and `input_suffix`. Sampler settings and rules are further fields of the same object. Needs a model
/// that was trained for it, such as RWKV-7 G1.
#[derive(Debug, Deserialize, ToSchema)]
pub struct InfillBody {
    pub input_prefix: String,
    pub input_suffix: String,
    /// Other files of the project, which come before the prefix.
    pub input_extra: Option<Vec<ExtraFile>>,
    /// Text after the prefix.
    pub prompt: Option<String>,
    #[serde(flatten)]
    #[schema(inline)]
    pub common: Common,
}

/// A file of the project.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ExtraFile {
    pub filename: Option<String>,
    pub text: String,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let input = |asked: &mut InfillBody| {
        let extra = asked.input_extra.iter().flatten().map(|file| match &file.filename {
            Some(name) => format!("{name}\n{}\n\n", file.text),
            None => format!("{}\n\n", file.text),
        });
        let prefix = extra.collect::<String>() + &asked.input_prefix + asked.prompt.as_deref().unwrap_or_default();
        Ok(Input::Text(fill_prompt(&prefix, &asked.input_suffix)))
    };
    let (asked, request, warnings, claim) = read(&app, &caller, body, Dialect::Llama, input).await?;
    answer(&app, &caller, "/infill", asked.common, request, warnings, &claim).await
}
