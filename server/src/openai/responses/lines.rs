//! The events of a streamed response.

use super::items::{ItemDraft, ItemKind, OutputItem, OutputPart, ResponseError, ResponseObject, ResponseStatus};
use super::record::PendingRecord;
use crate::failure::{Answer, Failure};
use crate::openai::stream::{Lines, Out};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event};

/// An event of a streamed response.
#[derive(Serialize, ToSchema)]
pub struct ResponseEvent {
    #[serde(flatten)]
    event: EventData,
    /// The number of the event in the stream, from 0.
    sequence_number: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "type")]
pub enum EventData {
    #[serde(rename = "response.created")]
    Created { response: ResponseObject },
    #[serde(rename = "response.in_progress")]
    InProgress { response: ResponseObject },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: usize, item: OutputItem },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: OutputPart },
    #[serde(rename = "response.reasoning_text.delta")]
    ThoughtDelta { item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { item_id: String, output_index: usize, content_index: usize, delta: String, logprobs: Vec<Value> },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ThoughtDone { item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.output_text.done")]
    TextDone { item_id: String, output_index: usize, content_index: usize, text: String, logprobs: Vec<Value> },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: String, output_index: usize, name: String, arguments: String },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: OutputPart },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: usize, item: OutputItem },
    #[serde(rename = "response.completed")]
    Completed { response: ResponseObject },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: ResponseObject },
    #[serde(rename = "response.failed")]
    Failed { response: ResponseObject },
}

/// Writes the events of a response.
pub struct ResponseLines {
    /// The response without output.
    begun: ResponseObject,
    record: Option<PendingRecord>,
    /// Items that are complete.
    output: Vec<OutputItem>,
    /// The item that is being written.
    open: Option<ItemDraft>,
    done: Option<Box<Completion>>,
    number: u64,
}

impl ResponseLines {
    pub fn new(begun: ResponseObject, record: Option<PendingRecord>) -> ResponseLines {
        ResponseLines { begun, record, output: Vec::new(), open: None, done: None, number: 0 }
    }

    fn send(&mut self, event: EventData, out: &mut Out) {
        let event = json!(ResponseEvent { event, sequence_number: self.number });
        self.number += 1;
        out.named(event["type"].as_str().unwrap_or_default(), &event);
    }

    /// Finishes the open item and begins an item of this kind. Does nothing if the open item is of the same kind.
    fn begin(&mut self, kind: ItemKind, out: &mut Out) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.finish_item(ResponseStatus::Completed, out);
        let (draft, output_index) = (ItemDraft::new(kind, ""), self.output.len());
        self.send(EventData::ItemAdded { output_index, item: draft.item(ResponseStatus::InProgress) }, out);
        if let Some(part) = draft.part() {
            self.send(EventData::PartAdded { item_id: draft.id.clone(), output_index, content_index: 0, part }, out);
        }
        self.open = Some(draft);
    }

    /// Sends the next piece of the open item.
    fn push(&mut self, text: &str, out: &mut Out) {
        let output_index = self.output.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let (item_id, delta) = (open.id.clone(), text.into());
        let event = match open.kind {
            ItemKind::Thought => EventData::ThoughtDelta { item_id, output_index, content_index: 0, delta },
            ItemKind::Text => EventData::TextDelta { item_id, output_index, content_index: 0, delta, logprobs: Vec::new() },
            ItemKind::Call { .. } => EventData::ArgumentsDelta { item_id, output_index, delta },
        };
        self.send(event, out);
    }

    /// Finishes the open item, if any, with this status.
    fn finish_item(&mut self, status: ResponseStatus, out: &mut Out) {
        let output_index = self.output.len();
        let Some(draft) = self.open.take() else { return };
        let (part, item) = (draft.part(), draft.item(status));
        let (item_id, text) = (draft.id.clone(), draft.text);
        let event = match draft.kind {
            ItemKind::Thought => EventData::ThoughtDone { item_id, output_index, content_index: 0, text },
            ItemKind::Text => EventData::TextDone { item_id, output_index, content_index: 0, text, logprobs: Vec::new() },
            ItemKind::Call { name, .. } => EventData::ArgumentsDone { item_id, output_index, name, arguments: text },
        };
        self.send(event, out);
        if let Some(part) = part {
            self.send(EventData::PartDone { item_id: draft.id, output_index, content_index: 0, part }, out);
        }
        self.send(EventData::ItemDone { output_index, item: item.clone() }, out);
        self.output.push(item);
    }
}

impl Lines for ResponseLines {
    fn event(&mut self, _: usize, event: &Event, _: &Engine, out: &mut Out) {
        match event {
            Event::Started { .. } => {
                self.send(EventData::Created { response: self.begun.clone() }, out);
                self.send(EventData::InProgress { response: self.begun.clone() }, out);
            }
            Event::Thought { text, .. } => {
                self.begin(ItemKind::Thought, out);
                self.push(text, out);
            }
            Event::Text { text, .. } => {
                self.begin(ItemKind::Text, out);
                self.push(text, out);
            }
            Event::Call { call, .. } | Event::Arguments { call, .. } if *call > 0 && !self.begun.parallel_tool_calls => {}
            Event::Call { call, name, .. } => self.begin(ItemKind::call(*call, name), out),
            Event::Arguments { text, .. } => self.push(text, out),
            Event::Done(done) => {
                if self.output.is_empty() && self.open.is_none() {
                    self.begin(ItemKind::Text, out);
                }
                self.finish_item(ResponseStatus::of(done), out);
                self.done = Some(done.clone());
            }
            _ => {}
        }
    }

    fn before_end(&mut self) -> BoxFuture<'_, Answer<()>> {
        Box::pin(async {
            if let (Some(record), Some(done)) = (self.record.take(), &self.done) {
                // The answer exists, so it is sent even if it cannot be stored.
                if let Err(failure) = record.write(done, &self.begun.complete(done, self.output.clone())).await {
                    self.begun.not_stored(&failure);
                }
            }
            Ok(())
        })
    }

    fn end(&mut self, out: &mut Out) {
        let Some(done) = self.done.take() else { return };
        let response = self.begun.complete(&done, std::mem::take(&mut self.output));
        let event = match response.status {
            ResponseStatus::Completed => EventData::Completed { response },
            _ => EventData::Incomplete { response },
        };
        self.send(event, out);
    }

    fn failed(&mut self, failure: &Failure, _: &str, out: &mut Out) {
        let error = Some(ResponseError::of(failure));
        let response = ResponseObject { status: ResponseStatus::Failed, error, output: self.output.clone(), ..self.begun.clone() };
        self.send(EventData::Failed { response }, out);
    }
}
