//! The events of a streamed message.

use super::ErrorDetail;
use super::message::{AnswerBlock, MessageObject, MessageUsage, StopReason, ending};
use crate::failure::Failure;
use crate::openai::stream::{Lines, Out};
use axum::response::sse::{Event as SseEvent, KeepAlive};
use serde::Serialize;
use serde_json::{Map, json};
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event};

/// An event of a streamed message.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    MessageStart { message: MessageObject },
    ContentBlockStart { index: usize, content_block: AnswerBlock },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: EndDelta, usage: MessageUsage },
    MessageStop,
    Ping,
    Error { error: ErrorDetail, request_id: String },
}

/// The part that an event adds to a block.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum BlockDelta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Json { partial_json: String },
}

/// The end of a message.
#[derive(Serialize, ToSchema)]
pub struct EndDelta {
    stop_reason: StopReason,
    stop_sequence: Option<String>,
}

/// The block that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Thought,
    Text,
    /// A call, with its number in the answer.
    Call(usize),
}

/// Writes the events of a message.
pub struct MessageLines {
    begun: MessageObject,
    stops: Vec<String>,
    /// The maximum number of calls. Further calls are not sent.
    max_calls: usize,
    open: Option<Open>,
    /// The number of blocks that have begun.
    n_blocks: usize,
}

impl MessageLines {
    pub fn new(begun: MessageObject, stops: Vec<String>, max_calls: usize) -> MessageLines {
        MessageLines { begun, stops, max_calls, open: None, n_blocks: 0 }
    }

    fn send(event: &MessageEvent, out: &mut Out) {
        let event = json!(event);
        out.named(event["type"].as_str().unwrap_or_default(), &event);
    }

    /// Ends the open block and begins `block`. Does nothing if `block` is already open.
    fn begin(&mut self, block: Open, content: impl FnOnce() -> AnswerBlock, out: &mut Out) {
        if self.open == Some(block) {
            return;
        }
        self.end_block(out);
        Self::send(&MessageEvent::ContentBlockStart { index: self.n_blocks, content_block: content() }, out);
        self.open = Some(block);
        self.n_blocks += 1;
    }

    fn end_block(&mut self, out: &mut Out) {
        if self.open.take().is_some() {
            Self::send(&MessageEvent::ContentBlockStop { index: self.n_blocks - 1 }, out);
        }
    }

    /// Sends an addition to the open block.
    fn add(&self, delta: BlockDelta, out: &mut Out) {
        Self::send(&MessageEvent::ContentBlockDelta { index: self.n_blocks.saturating_sub(1), delta }, out);
    }

    fn begin_text(&mut self, out: &mut Out) {
        self.begin(Open::Text, || AnswerBlock::Text { text: String::new() }, out);
    }

    fn done(&mut self, engine: &Engine, done: &Completion, out: &mut Out) {
        // Clients expect at least one block.
        if self.n_blocks == 0 {
            self.begin_text(out);
        }
        self.end_block(out);
        let (stop_reason, stop_sequence) = ending(engine, done, &self.stops);
        let delta = EndDelta { stop_reason, stop_sequence };
        Self::send(&MessageEvent::MessageDelta { delta, usage: MessageUsage::of(done) }, out);
    }
}

impl Lines for MessageLines {
    fn event(&mut self, _: usize, event: &Event, engine: &Engine, out: &mut Out) {
        match event {
            Event::Started { prompt_tokens, cached_tokens } => {
                let message = self.begun.clone().with_usage(MessageUsage::new(*prompt_tokens, *cached_tokens, 0));
                Self::send(&MessageEvent::MessageStart { message }, out);
                Self::send(&MessageEvent::Ping, out);
            }
            Event::Thought { text, .. } => {
                self.begin(Open::Thought, || AnswerBlock::thought(""), out);
                self.add(BlockDelta::Thinking { thinking: text.clone() }, out);
            }
            Event::Text { text, .. } => {
                self.begin_text(out);
                self.add(BlockDelta::Text { text: text.clone() }, out);
            }
            Event::Call { call, name, .. } if *call < self.max_calls => {
                self.begin(Open::Call(*call), || AnswerBlock::call(name, Map::new()), out);
            }
            Event::Arguments { call, text, .. } if *call < self.max_calls => {
                self.add(BlockDelta::Json { partial_json: text.clone() }, out);
            }
            Event::Done(done) => self.done(engine, done, out),
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        Self::send(&MessageEvent::MessageStop, out);
    }

    fn failed(&mut self, failure: &Failure, request_id: &str, out: &mut Out) {
        Self::send(&MessageEvent::Error { error: ErrorDetail::of(failure), request_id: request_id.into() }, out);
    }

    fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new().event(SseEvent::default().event("ping").data(r#"{"type":"ping"}"#))
    }
}
