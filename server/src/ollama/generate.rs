//! `POST /api/generate`: answers a prompt, or continues a text.

use super::answer::{AnswerObject, ObjectHead, ObjectPart, answer};
use super::settings::read;
use crate::app::App;
use crate::body::Body;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::chat::{Message, fill_prompt};
use wingbeat::engine::Input;

/// The prompt to answer.
#[derive(Debug, Deserialize, ToSchema)]
pub struct GenerateBody {
    /// The message to answer. Without a prompt, the answer is empty and has the `done_reason` load.
    pub prompt: Option<String>,
    /// The text after the answer: the model writes the text between `prompt` and `suffix` (RWKV-7 G1).
    pub suffix: Option<String>,
    /// The system message.
    pub system: Option<String>,
    /// If true, the model continues the prompt as it is, without the model's chat format.
    pub raw: Option<bool>,
    /// Not supported: the chat format belongs to the model.
    pub template: Option<String>,
    /// Not supported: the tokens of an earlier answer.
    #[schema(value_type = Vec<u32>)]
    pub context: Option<Vec<Value>>,
    /// Images are not supported.
    #[schema(value_type = Vec<String>)]
    pub images: Option<Vec<Value>>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let asked = read(&app, &caller, body, |asked: GenerateBody, _| asked.input()).await?;
    answer::<GenerateObject>(&app, &caller, asked, "/api/generate").await
}

impl GenerateBody {
    /// Returns the input of the engine's request: no messages if the body has no prompt.
    ///
    /// # Errors
    /// 400 if the body has a field that is not supported.
    fn input(self) -> Answer<Input> {
        let has = |values: &Option<Vec<Value>>| values.as_ref().is_some_and(|values| !values.is_empty());
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if has(&self.images) {
            return Err(Failure::field("images", "images are not supported"));
        }
        if has(&self.context) {
            return Err(Failure::field("context", "tokens of an earlier answer are not supported; send the messages to /api/chat"));
        }
        if is_set(&self.template) {
            return Err(Failure::field("template", "templates are not supported; set `raw` to send a complete prompt"));
        }
        let prompt = self.prompt.unwrap_or_default();
        match (&self.suffix, self.raw == Some(true)) {
            _ if prompt.is_empty() => Ok(Input::Messages(Vec::new())),
            (Some(suffix), _) if !suffix.is_empty() => Ok(Input::Text(fill_prompt(&prompt, suffix))),
            (_, true) => Ok(Input::Text(prompt)),
            _ => {
                let system = self.system.iter().filter(|system| !system.is_empty()).map(Message::system);
                Ok(Input::Messages(system.chain([Message::user(prompt)]).collect()))
            }
        }
    }
}

/// The answer to a prompt, or a piece of a streamed answer.
#[derive(Serialize, ToSchema)]
pub struct GenerateObject {
    #[serde(flatten)]
    head: ObjectHead,
    response: String,
    /// The model's thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
}

impl AnswerObject for GenerateObject {
    fn new(head: ObjectHead, part: ObjectPart) -> GenerateObject {
        GenerateObject { head, response: part.text, thinking: part.thought }
    }
}
