//! `POST /api/chat`: answers messages.

use super::answer::{AnswerObject, Call, ObjectHead, ObjectPart, answer};
use super::settings::read;
use crate::app::App;
use crate::body::Body;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::openai::messages::{Content, WireCall, WireMessage, WireRole, read as read_messages};
use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::chat::Tool;
use wingbeat::engine::Input;

/// The conversation to answer.
#[derive(Debug, Deserialize, ToSchema)]
pub struct OllamaChatBody {
    /// Without messages, the answer is empty and has the `done_reason` load.
    pub messages: Option<Vec<OllamaMessage>>,
    /// Functions that the answer may call.
    #[schema(value_type = Vec<Object>)]
    pub tools: Option<Vec<Tool>>,
}

/// A message of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub struct OllamaMessage {
    pub role: WireRole,
    pub content: Option<String>,
    /// The thought before an assistant's answer. The model sees only the thought of a last message, which it continues.
    pub thinking: Option<String>,
    /// The tool calls in an assistant's message.
    pub tool_calls: Option<Vec<WireCall>>,
    /// Images are not supported.
    #[schema(value_type = Vec<String>)]
    pub images: Option<Vec<Value>>,
    /// The id of the call to which a tool's message is the result.
    pub tool_call_id: Option<String>,
}

impl OllamaMessage {
    fn message(self) -> WireMessage {
        let OllamaMessage { role, content, thinking, tool_calls, tool_call_id, .. } = self;
        WireMessage {
            role,
            content: content.map(Content::Text),
            reasoning_content: thinking,
            tool_calls,
            function_call: None,
            tool_call_id,
        }
    }
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let asked = read(&app, &caller, body, |asked: OllamaChatBody, request| {
        let messages = asked.messages.unwrap_or_default();
        check_no_images(&messages)?;
        request.tools = asked.tools.unwrap_or_default();
        let messages: Vec<WireMessage> = messages.into_iter().map(OllamaMessage::message).collect();
        Ok(Input::Messages(read_messages(&messages, false)?))
    });
    answer::<ChatObject>(&app, &caller, asked.await?, "/api/chat").await
}

fn check_no_images(messages: &[OllamaMessage]) -> Answer<()> {
    match messages.iter().position(|message| message.images.as_ref().is_some_and(|images| !images.is_empty())) {
        Some(i) => Err(Failure::field(&format!("messages[{i}].images"), "images are not supported")),
        None => Ok(()),
    }
}

/// The answer to messages, or a piece of a streamed answer.
#[derive(Serialize, ToSchema)]
pub struct ChatObject {
    #[serde(flatten)]
    head: ObjectHead,
    message: AnswerMessage,
}

/// The message of an answer, or the part that a piece adds to the message.
#[derive(Serialize, ToSchema)]
pub struct AnswerMessage {
    role: &'static str,
    content: String,
    /// The model's thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

impl AnswerObject for ChatObject {
    fn new(head: ObjectHead, part: ObjectPart) -> ChatObject {
        let message = AnswerMessage { role: "assistant", content: part.text, thinking: part.thought, tool_calls: part.calls };
        ChatObject { head, message }
    }
}
