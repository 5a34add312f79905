//! The message with which the server answers, and its blocks.

use crate::ids::new_id;
use crate::openai::answer::stop_text;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, FinishReason};

/// An answer.
#[derive(Clone, Serialize, ToSchema)]
pub struct MessageObject {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: String,
    content: Vec<AnswerBlock>,
    /// `null` at the beginning of a stream.
    stop_reason: Option<StopReason>,
    /// The text of `stop_sequences` that ended the answer.
    stop_sequence: Option<String>,
    usage: MessageUsage,
    /// One line for each field of the request that has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A block of an answer.
#[derive(Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerBlock {
    Thinking {
        thinking: String,
        /// Always empty.
        signature: &'static str,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Map<String, Value>,
    },
}

impl AnswerBlock {
    /// Returns a block for a thought.
    pub fn thought(text: &str) -> AnswerBlock {
        AnswerBlock::Thinking { thinking: text.into(), signature: "" }
    }

    /// Returns a block for a call, with a new id.
    pub fn call(name: &str, input: Map<String, Value>) -> AnswerBlock {
        AnswerBlock::ToolUse { id: new_id("toolu_"), name: name.into(), input }
    }
}

/// The reason why an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
}

/// The tokens of a request and its answer.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct MessageUsage {
    /// The number of prompt tokens that were prefilled.
    input_tokens: usize,
    /// Always 0: entries of the prefix cache are not counted.
    cache_creation_input_tokens: usize,
    /// The number of prompt tokens that needed no prefill.
    cache_read_input_tokens: usize,
    output_tokens: usize,
}

impl MessageUsage {
    pub fn new(prompt: usize, cached: usize, output: usize) -> MessageUsage {
        let input_tokens = prompt.saturating_sub(cached);
        MessageUsage { input_tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: cached, output_tokens: output }
    }

    pub fn of(done: &Completion) -> MessageUsage {
        MessageUsage::new(done.usage.prompt_tokens, done.usage.cached_tokens, done.usage.completion_tokens)
    }
}

/// Returns the reason why an answer ended, and the text of `stops` that ended the answer, if any.
pub fn ending(engine: &Engine, done: &Completion, stops: &[String]) -> (StopReason, Option<String>) {
    let stop = stop_text(engine, done, stops);
    let reason = match done.finish_reason() {
        FinishReason::Length => StopReason::MaxTokens,
        FinishReason::ToolCalls => StopReason::ToolUse,
        FinishReason::Stop if stop.is_some() => StopReason::StopSequence,
        FinishReason::Stop => StopReason::EndTurn,
    };
    (reason, stop)
}

impl MessageObject {
    /// Returns a message without content.
    pub fn begun(model: &str, warnings: Vec<String>) -> MessageObject {
        MessageObject {
            id: new_id("msg_"),
            r#type: "message",
            role: "assistant",
            model: model.into(),
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage::default(),
            warnings,
        }
    }

    /// Returns this message with the usage of a prompt.
    pub fn with_usage(self, usage: MessageUsage) -> MessageObject {
        MessageObject { usage, ..self }
    }

    /// Returns the message of a complete answer, with at most `max_calls` calls. A call that was cut has no complete arguments, so it is left out.
    pub fn answered(self, engine: &Engine, done: &Completion, stops: &[String], max_calls: usize) -> MessageObject {
        let thought = done.thought.iter().map(|thought| AnswerBlock::thought(thought));
        let text = (!done.text.is_empty() || done.calls.is_empty() && done.thought.is_none())
            .then(|| AnswerBlock::Text { text: done.text.clone() });
        let calls = done.calls.iter().take(max_calls);
        let calls = calls.filter_map(|call| Some(AnswerBlock::call(&call.name, serde_json::from_str(&call.arguments).ok()?)));
        let content = thought.chain(text).chain(calls).collect();
        let (stop_reason, stop_sequence) = ending(engine, done, stops);
        MessageObject { content, stop_reason: Some(stop_reason), stop_sequence, usage: MessageUsage::of(done), ..self }
    }
}
