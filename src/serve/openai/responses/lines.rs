//! The events of a streamed response.

use super::items::{Head, function_call, last_status, message, output_text, reasoning};
use super::record::Begun;
use crate::engine::{Completion, Engine, Event};
use crate::serve::failure::{Answer, Failure};
use crate::serve::ids::new_id;
use crate::serve::openai::answer::merge;
use crate::serve::openai::stream::{Lines, Out};
use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

/// Writes the events of a response.
pub struct ResponseLines {
    head: Head,
    record: Option<Begun>,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<Open>,
    done: Option<Box<Completion>>,
    number: u64,
}

/// The item that is being written.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Thought,
    Text,
    /// A call: its number, its id and the name of the function.
    Call(usize, String, String),
}

impl ResponseLines {
    pub fn new(head: Head, record: Option<Begun>) -> ResponseLines {
        ResponseLines { head, record, output: Vec::new(), open: None, done: None, number: 0 }
    }

    fn send(&mut self, name: &str, mut data: Value, out: &mut Out) {
        (data["type"], data["sequence_number"]) = (name.into(), self.number.into());
        self.number += 1;
        out.named(name, &data);
    }

    /// Finishes the open item and begins an item of this kind. Does nothing if the open item is of the same kind.
    fn begin(&mut self, kind: Kind, out: &mut Out) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.finish_item("completed", out);
        let at = self.output.len();
        let id = new_id(match &kind {
            Kind::Thought => "rs_",
            Kind::Text => "msg_",
            Kind::Call(..) => "fc_",
        });
        let item = match &kind {
            Kind::Thought => json!({"type": "reasoning", "id": id, "summary": [], "content": []}),
            Kind::Text => json!({"type": "message", "id": id, "status": "in_progress", "role": "assistant", "content": []}),
            Kind::Call(_, call_id, name) => function_call(&id, call_id, name, "", "in_progress"),
        };
        self.send("response.output_item.added", json!({"output_index": at, "item": item}), out);
        let part = match &kind {
            Kind::Thought => Some(json!({"type": "reasoning_text", "text": ""})),
            Kind::Text => Some(output_text("")),
            Kind::Call(..) => None,
        };
        if let Some(part) = part {
            self.send("response.content_part.added", json!({"item_id": id, "output_index": at, "content_index": 0, "part": part}), out);
        }
        self.open = Some(Open { kind, id, text: String::new() });
    }

    /// Sends the next piece of the open item.
    fn push(&mut self, text: &str, out: &mut Out) {
        let at = self.output.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let id = open.id.clone();
        match open.kind {
            Kind::Thought => self.send(
                "response.reasoning_text.delta",
                json!({"item_id": id, "output_index": at, "content_index": 0, "delta": text}),
                out,
            ),
            Kind::Text => {
                self.send(
                    "response.output_text.delta",
                    json!({"item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": []}),
                    out,
                );
            }
            Kind::Call(..) => {
                self.send("response.function_call_arguments.delta", json!({"item_id": id, "output_index": at, "delta": text}), out)
            }
        }
    }

    /// Finishes the open item, if any, with this status.
    fn finish_item(&mut self, status: &str, out: &mut Out) {
        let at = self.output.len();
        let Some(Open { kind, id, text }) = self.open.take() else { return };
        let place = json!({"item_id": id, "output_index": at, "content_index": 0});
        let with = |more: Value| {
            let mut data = place.clone();
            merge(&mut data, &more);
            data
        };
        let item = match &kind {
            Kind::Thought => {
                self.send("response.reasoning_text.done", with(json!({"text": text})), out);
                self.send("response.content_part.done", with(json!({"part": {"type": "reasoning_text", "text": text}})), out);
                reasoning(&id, &text)
            }
            Kind::Text => {
                self.send("response.output_text.done", with(json!({"text": text, "logprobs": []})), out);
                self.send("response.content_part.done", with(json!({"part": output_text(&text)})), out);
                message(&id, &text, status)
            }
            Kind::Call(_, call_id, name) => {
                self.send(
                    "response.function_call_arguments.done",
                    json!({"item_id": id, "output_index": at, "name": name, "arguments": text}),
                    out,
                );
                function_call(&id, call_id, name, &text, status)
            }
        };
        self.send("response.output_item.done", json!({"output_index": at, "item": item}), out);
        self.output.push(item);
    }
}

impl Lines for ResponseLines {
    fn event(&mut self, _: usize, event: &Event, _: &Engine, out: &mut Out) {
        match event {
            Event::Started { .. } => {
                let response = self.head.object("in_progress", Vec::new());
                self.send("response.created", json!({"response": response}), out);
                self.send("response.in_progress", json!({"response": response}), out);
            }
            Event::Thought { text, .. } => {
                self.begin(Kind::Thought, out);
                self.push(text, out);
            }
            Event::Text { text, .. } => {
                self.begin(Kind::Text, out);
                self.push(text, out);
            }
            Event::Call { call, name, .. } => self.begin(Kind::Call(*call, new_id("call_"), name.clone()), out),
            Event::Arguments { text, .. } => self.push(text, out),
            Event::Done(done) => {
                self.finish_item(last_status(done), out);
                if self.output.is_empty() {
                    self.begin(Kind::Text, out);
                    self.finish_item(last_status(done), out);
                }
                self.done = Some(done.clone());
            }
            _ => {}
        }
    }

    fn before_end(&mut self) -> BoxFuture<'_, Answer<()>> {
        Box::pin(async {
            if let (Some(record), Some(done)) = (self.record.take(), &self.done) {
                record.write(&self.head.id, done, &self.head.complete(done, self.output.clone())).await?;
            }
            Ok(())
        })
    }

    fn end(&mut self, out: &mut Out) {
        let Some(done) = self.done.take() else { return };
        let response = self.head.complete(&done, self.output.clone());
        let name = if response["status"] == "completed" { "response.completed" } else { "response.incomplete" };
        self.send(name, json!({"response": response}), out);
    }

    fn failed(&mut self, failure: &Failure, _: &str, out: &mut Out) {
        let mut response = self.head.object("failed", self.output.clone());
        response["error"] = json!({"code": error_code(failure), "message": failure.message()});
        self.send("response.failed", json!({"response": response}), out);
    }
}

/// Returns the code of a failed response in OpenAI's API, which has fewer codes than other errors.
fn error_code(failure: &Failure) -> &'static str {
    match (failure.code, failure.status) {
        (Some("quota_exceeded"), _) | (_, StatusCode::TOO_MANY_REQUESTS) => "rate_limit_exceeded",
        (_, status) if status.is_client_error() => "invalid_prompt",
        _ => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};

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
            assert_eq!(error_code(&failure), code, "{failure:?}");
        }
    }
}
