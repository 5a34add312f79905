//! Stores responses. The state after a response is stored in the same folder.

use super::items::ResponseObject;
use crate::app::App;
use crate::failure::Answer;
use crate::guard::Caller;
use crate::states::{OF_RESPONSES, folder};
use crate::store::DAMAGED;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use wingbeat::engine::{Completion, Engine};
use wingbeat::error::Error;
use wingbeat::low_level::front_end::is_begun;
use wingbeat::low_level::template::{Message, Role};

/// A stored response, and the conversation with which a later request continues.
#[derive(Serialize, Deserialize)]
pub struct Record {
    pub response: Value,
    /// All messages of the conversation, the answer included. `instructions` are left out.
    pub messages: Vec<Message>,
    /// The number of messages that the answer added at the end of `messages`. Missing in records of older versions.
    #[serde(default)]
    pub n_answer: Option<usize>,
}

/// A record whose answer is being generated.
pub struct PendingRecord {
    app: Arc<App>,
    engine: Engine,
    caller: Caller,
    messages: Vec<Message>,
}

impl Record {
    /// Begins a record. `messages` are the messages before the answer.
    pub fn begin(app: &Arc<App>, engine: &Engine, caller: &Caller, messages: Vec<Message>) -> PendingRecord {
        PendingRecord { app: app.clone(), engine: engine.clone(), caller: caller.clone(), messages }
    }

    /// Reads a response. Returns `None` if the caller has no response with this id.
    pub async fn read(app: &App, engine: &Engine, caller: &Caller, id: &str) -> Answer<Option<Record>> {
        if !is_id(id) {
            return Ok(None);
        }
        let (store, folder, file) = (app.states.store(), folder(engine, caller), file(id));
        let Some((content, version)) = store.get(&folder, &file).await? else { return Ok(None) };
        match serde_json::from_slice(&content) {
            Ok(record) => Ok(Some(record)),
            // `get` has compared the checksum. A record of an older server has no checksum, so its damage may show only here.
            Err(e) => {
                store.set_aside(&folder, &file, &version).await?;
                Err(Error::file(format!("the stored response is damaged: {e}")).into())
            }
        }
    }

    /// Returns the messages to which the response answers: the whole conversation before the answer.
    pub fn input(&self) -> &[Message] {
        let is_of_answer = |message: &Message| message.role == Role::Assistant;
        let n_answer = self.n_answer.unwrap_or_else(|| self.messages.iter().rev().take_while(|message| is_of_answer(message)).count());
        &self.messages[..self.messages.len().saturating_sub(n_answer)]
    }

    /// Deletes a response and its state. Returns false if the caller has no response with this id.
    pub async fn delete(app: &App, engine: &Engine, caller: &Caller, id: &str) -> Answer<bool> {
        if !is_id(id) {
            return Ok(false);
        }
        app.states.delete(engine, caller, id).await?;
        let (store, folder, file) = (app.states.store(), folder(engine, caller), file(id));
        let was_damaged = store.delete(&folder, &format!("{file}{DAMAGED}")).await?;
        Ok(store.delete(&folder, &file).await? || was_damaged)
    }
}

impl PendingRecord {
    /// Stores the response. Adds the answer `done` to the stored messages.
    pub async fn write(self, done: &Completion, response: &ResponseObject) -> Answer<()> {
        let PendingRecord { app, engine, caller, mut messages } = self;
        let mut n_input = messages.len();
        match messages.last_mut() {
            // The answer continues the last message of the input.
            Some(last) if is_begun(last) => {
                last.content += &done.text;
                n_input -= 1;
            }
            _ if !done.text.is_empty() || done.calls.is_empty() => messages.push(Message::assistant(&done.text)),
            _ => {}
        }
        let max_calls = if response.parallel_tool_calls { usize::MAX } else { 1 };
        messages.extend(done.calls.iter().take(max_calls).map(|call| Message::call(&call.name, &call.arguments)));
        let n_answer = Some(messages.len() - n_input);
        let content = serde_json::to_vec(&Record { response: json!(response), messages, n_answer });
        let content = content.map_err(|e| Error::file(format!("the response could not be stored: {e}")))?;
        app.states.put(&folder(&engine, &caller), &file(&response.id), content.into()).await.map(drop)
    }
}

/// Returns whether a text can be the id of a response.
fn is_id(id: &str) -> bool {
    id.starts_with(OF_RESPONSES) && wingbeat::engine::check_state_name(id).is_ok()
}

fn file(id: &str) -> String {
    format!("{id}.json")
}
