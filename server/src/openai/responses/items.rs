//! The response object and the items of its output.

use super::body::{Reasoning, ResponseBody, TextFormat, TextOptions};
use crate::failure::Failure;
use crate::ids::{new_id, now};
use crate::openai::answer::{CachedTokens, End, ReasoningTokens};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wingbeat::engine::{Completion, FinishReason};
use wingbeat::low_level::sample::Sampling;

/// A response. Fields of the request are repeated.
#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseObject {
    pub id: String,
    pub object: &'static str,
    /// The time of the request, in seconds since 1970.
    pub created_at: u64,
    pub status: ResponseStatus,
    pub error: Option<ResponseError>,
    pub incomplete_details: Option<IncompleteDetails>,
    pub model: String,
    pub output: Vec<OutputItem>,
    pub parallel_tool_calls: bool,
    pub temperature: f64,
    pub top_p: f64,
    pub truncation: &'static str,
    /// `null` until the response is complete.
    pub usage: Option<ResponseUsage>,
    pub background: bool,
    /// Always `null`.
    pub user: Option<String>,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<u32>,
    pub previous_response_id: Option<String>,
    pub store: bool,
    /// The reason why the complete response could not be stored. `store` is then false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_error: Option<ResponseError>,
    #[schema(value_type = Vec<Object>)]
    pub tools: Vec<Value>,
    /// Parts of the request that were ignored, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    pub tool_choice: Value,
    pub text: TextOptions,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    pub reasoning: Reasoning,
    #[serde(flatten)]
    pub end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

impl ResponseStatus {
    /// Returns the status of an answer that has ended, and of its last item. An answer that was cut is incomplete, so that no client runs a call in
    /// it.
    pub fn of(done: &Completion) -> ResponseStatus {
        if done.finish_reason() == FinishReason::Length { ResponseStatus::Incomplete } else { ResponseStatus::Completed }
    }
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseError {
    pub code: &'static str,
    pub message: String,
}

impl ResponseError {
    /// Returns the error with a code of OpenAI's API for responses, which has fewer codes than other errors.
    pub fn of(failure: &Failure) -> ResponseError {
        let code = match (failure.code, failure.status) {
            (Some("quota_exceeded"), _) | (_, StatusCode::TOO_MANY_REQUESTS) => "rate_limit_exceeded",
            (_, status) if status.is_client_error() => "invalid_prompt",
            _ => "server_error",
        };
        ResponseError { code, message: failure.message() }
    }
}

#[derive(Clone, Serialize, ToSchema)]
pub struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Clone, Serialize, ToSchema)]
pub struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: CachedTokens,
    output_tokens: usize,
    output_tokens_details: ReasoningTokens,
    total_tokens: usize,
}

impl ResponseObject {
    /// Returns the response to a request that runs with these sampler settings, without output.
    pub fn begun(asked: &ResponseBody, id: String, model: &str, sampling: &Sampling, warnings: Vec<String>) -> ResponseObject {
        ResponseObject {
            id,
            object: "response",
            created_at: now(),
            status: ResponseStatus::InProgress,
            error: None,
            incomplete_details: None,
            model: model.into(),
            output: Vec::new(),
            parallel_tool_calls: asked.parallel_tool_calls.unwrap_or(true),
            temperature: decimal(sampling.temperature),
            top_p: decimal(sampling.top_p),
            truncation: "disabled",
            usage: None,
            background: false,
            user: None,
            instructions: asked.instructions.clone(),
            max_output_tokens: asked.max_output_tokens,
            previous_response_id: asked.previous_response_id.clone(),
            store: asked.store != Some(false),
            store_error: None,
            tools: asked.tools.clone().unwrap_or_default(),
            warnings,
            tool_choice: asked.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            text: TextOptions { format: asked.format().cloned().or(Some(TextFormat::Text)) },
            metadata: asked.metadata.clone().unwrap_or_default(),
            reasoning: asked.reasoning.clone().unwrap_or_default(),
            end: End::default(),
        }
    }

    /// Notes that the response could not be stored.
    pub fn not_stored(&mut self, failure: &Failure) {
        self.store = false;
        self.store_error = Some(ResponseError::of(failure));
    }

    /// Returns the response of a complete answer, with new ids for its items.
    pub fn answered(&self, done: &Completion) -> ResponseObject {
        let thought = done.thought.iter().map(|thought| ItemDraft::new(ItemKind::Thought, thought));
        let text = (!done.text.is_empty() || done.calls.is_empty()).then(|| ItemDraft::new(ItemKind::Text, &done.text));
        let max_calls = if self.parallel_tool_calls { usize::MAX } else { 1 };
        let calls =
            done.calls.iter().take(max_calls).enumerate().map(|(i, call)| ItemDraft::new(ItemKind::call(i, &call.name), &call.arguments));
        let mut drafts: Vec<ItemDraft> = thought.chain(text).chain(calls).collect();
        let last = drafts.pop();
        let output = drafts.iter().map(|draft| draft.item(ResponseStatus::Completed));
        self.complete(done, output.chain(last.map(|draft| draft.item(ResponseStatus::of(done)))).collect())
    }

    /// Returns the response of a complete answer. `output` has the response's items.
    pub fn complete(&self, done: &Completion, output: Vec<OutputItem>) -> ResponseObject {
        let (status, usage) = (ResponseStatus::of(done), &done.usage);
        let usage = ResponseUsage {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: CachedTokens { cached_tokens: usage.cached_tokens },
            output_tokens: usage.completion_tokens,
            output_tokens_details: ReasoningTokens { reasoning_tokens: usage.reasoning_tokens },
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
        };
        let incomplete_details = (status == ResponseStatus::Incomplete).then_some(IncompleteDetails { reason: "max_output_tokens" });
        ResponseObject { status, output, usage: Some(usage), incomplete_details, end: End::of(done), ..self.clone() }
    }
}

/// Converts `x` by way of its shortest decimal form, so that clients see 0.8 and not 0.800000011920929.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// A thought, a message or a call.
#[derive(Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    Reasoning {
        id: String,
        /// Always empty.
        summary: Vec<Value>,
        content: Vec<OutputPart>,
    },
    Message {
        id: String,
        status: ResponseStatus,
        role: &'static str,
        content: Vec<OutputPart>,
    },
    FunctionCall {
        id: String,
        call_id: String,
        name: String,
        arguments: String,
        status: ResponseStatus,
    },
}

/// The text of a thought or of a message.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = Part)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputPart {
    ReasoningText {
        text: String,
    },
    OutputText {
        text: String,
        /// Always empty.
        annotations: Vec<Value>,
        /// Always empty.
        logprobs: Vec<Value>,
    },
}

/// An item that is being written.
pub struct ItemDraft {
    pub kind: ItemKind,
    pub id: String,
    pub text: String,
}

#[derive(PartialEq, Eq)]
pub enum ItemKind {
    Thought,
    Text,
    Call { number: usize, call_id: String, name: String },
}

impl ItemKind {
    /// Returns the kind of a new call. `number` is the number of the call in the answer.
    pub fn call(number: usize, name: &str) -> ItemKind {
        ItemKind::Call { number, call_id: new_id("call_"), name: name.into() }
    }
}

impl ItemDraft {
    /// Creates a draft with a new id.
    pub fn new(kind: ItemKind, text: &str) -> ItemDraft {
        let prefix = match &kind {
            ItemKind::Thought => "rs_",
            ItemKind::Text => "msg_",
            ItemKind::Call { .. } => "fc_",
        };
        ItemDraft { kind, id: new_id(prefix), text: text.into() }
    }

    /// Returns the item with this status. If `status` is `InProgress`, the item has no content yet.
    pub fn item(&self, status: ResponseStatus) -> OutputItem {
        let content = self.part().into_iter().filter(|_| status != ResponseStatus::InProgress).collect();
        let (id, text) = (self.id.clone(), self.text.clone());
        match &self.kind {
            ItemKind::Thought => OutputItem::Reasoning { id, summary: Vec::new(), content },
            ItemKind::Text => OutputItem::Message { id, status, role: "assistant", content },
            ItemKind::Call { call_id, name, .. } => {
                OutputItem::FunctionCall { id, call_id: call_id.clone(), name: name.clone(), arguments: text, status }
            }
        }
    }

    /// Returns the text so far as a part, or `None` for a call, which has no text.
    pub fn part(&self) -> Option<OutputPart> {
        let text = self.text.clone();
        match &self.kind {
            ItemKind::Thought => Some(OutputPart::ReasoningText { text }),
            ItemKind::Text => Some(OutputPart::OutputText { text, annotations: Vec::new(), logprobs: Vec::new() }),
            ItemKind::Call { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wingbeat::error::{Error, Kind};

    #[test]
    fn a_failed_response_has_a_code_of_openai() {
        let quota = Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "quota_exceeded", Error::input("x"));
        for (failure, code) in [
            (Error::new(Kind::Busy, "x").into(), "rate_limit_exceeded"),
            (quota.clone(), "rate_limit_exceeded"),
            (Error::input("x").into(), "invalid_prompt"),
            (Error::device("x").into(), "server_error"),
            (quota.unstored(), "rate_limit_exceeded"),
            (Failure::from(Error::file("x")).unstored(), "server_error"),
        ] {
            assert_eq!(ResponseError::of(&failure).code, code, "{failure:?}");
        }
    }
}
