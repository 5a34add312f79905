//! `/v1/states`: lists, saves, copies, renames, deletes, downloads and uploads states.

use crate::app::App;
use crate::body::{Body, Name, OfModel, read_at_most};
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::hosted::Hosted;
use crate::native::openapi::BYTES;
use crate::openai::{WireMessage, check_tokens, read_messages};
use crate::states::{Listed, check_new_name};
use crate::tickets::{SessionStates, Ticket, unknown_state};
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Engine, Event, Input, Request, StateInfo};
use wingbeat::error::Error;

/// An action on a state.
#[derive(Debug, Deserialize, ToSchema)]
pub struct StateBody {
    pub action: Action,
    /// The name of the new state, or of the state to delete: 1 to 100 letters, digits, dots, dashes and underscores.
    pub name: String,
    /// For fork and rename: the name of the existing state. For save: the name of the state from which the new text continues, if any.
    pub from: Option<String>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    /// For save: the text to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    pub prompt: Option<String>,
    /// For save: the tokens to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    pub tokens: Option<Vec<u32>>,
    /// For save: the messages to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    pub messages: Option<Vec<WireMessage>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Prefills a text, tokens or messages, and saves the state after this input.
    Save,
    /// Copies the state `from` to `name`.
    Fork,
    /// Renames the state `from` to `name`.
    Rename,
    /// Deletes a state.
    Delete,
}

/// A saved state.
#[derive(Serialize, ToSchema)]
pub struct StateEntry {
    object: &'static str,
    name: String,
    model: String,
    /// The number of tokens that led to the state.
    tokens: usize,
    bytes: u64,
    /// The time of the state's last change, in seconds since 1970. Missing if this request has changed the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<i64>,
}

#[derive(Serialize, ToSchema)]
pub struct StateList {
    object: &'static str,
    data: Vec<StateEntry>,
    /// The maximum size of all states of this key and model together, in bytes. Null if there is no limit.
    quota: Option<u64>,
}

#[derive(Serialize, ToSchema)]
pub struct DeletedState {
    object: &'static str,
    name: String,
    deleted: bool,
}

/// The result of an action: the state, or the name of the deleted state.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Acted {
    State(StateEntry),
    Deleted(DeletedState),
}

pub async fn list(at: OfModel) -> Answer<Json<StateList>> {
    let all = at.app.states.list(&at.engine, &at.caller).await?;
    let data = all.into_iter().map(|state| listed(state, &at.model)).collect();
    Ok(Json(StateList { object: "list", data, quota: at.app.states.quota() }))
}

pub async fn one(Name(name): Name, at: OfModel) -> Answer<Json<StateEntry>> {
    let found = at.app.states.info(&at.engine, &at.caller, &name).await?;
    found.map(|state| Json(listed(state, &at.model))).ok_or_else(|| unknown_state(&name))
}

pub async fn delete(Name(name): Name, at: OfModel) -> Answer<Json<DeletedState>> {
    remove(&at.app, &at.engine, &at.caller, name).await.map(Json)
}

pub async fn act(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Acted>> {
    let (asked, claim): (StateBody, _) = body.read(&app, Body::parse).await?;
    let model = app.model(asked.model.as_deref())?;
    let engine = app.started(&model).await?.0;
    if asked.action != Action::Delete {
        check_new_name(&asked.name, "name")?;
    }
    let info = match asked.action {
        Action::Save => save(&app, &model, &caller, asked, &claim).await?,
        Action::Delete => return Ok(Json(Acted::Deleted(remove(&app, &engine, &caller, asked.name).await?))),
        Action::Fork | Action::Rename => {
            let Some(from) = asked.from.as_deref() else {
                return Err(Failure::field("from", "expected the name of an existing state, found no name"));
            };
            wingbeat::engine::check_state_name(from).map_err(|e| e.field("from"))?;
            let forked = app.states.fork(&engine, &caller, from, &asked.name).await?;
            let info = forked.ok_or_else(|| unknown_state(from).in_field("from"))?;
            if asked.action == Action::Rename && from != asked.name {
                app.states.delete(&engine, &caller, from).await?;
            }
            info
        }
    };
    Ok(Json(Acted::State(described(info, &model))))
}

/// Prefills an input and saves the state after it.
async fn save(app: &Arc<App>, model: &Arc<Hosted>, caller: &Caller, asked: StateBody, claim: &Arc<Claim>) -> Answer<StateInfo> {
    let input = match (asked.prompt, asked.tokens, asked.messages) {
        (Some(text), None, None) => Input::Text(text),
        (None, Some(tokens), None) => {
            check_tokens("tokens", &tokens, app.started(model).await?.0.model())?;
            Input::Tokens(tokens)
        }
        (None, None, Some(messages)) => Input::Messages(read_messages(&messages, asked.from.is_some())?),
        _ => return Err(Failure::field("prompt", "expected exactly one of the fields prompt, tokens and messages")),
    };
    let mut request = Request::new(input).max_tokens(0);
    (request.state, request.save_state) = (asked.from, Some(asked.name));
    let opened = Ticket::open(app, model, caller, "/v1/states", request, &SessionStates::default(), claim).await;
    let mut ticket = opened.map_err(|e| e.renamed(&["state"], "from"))?;
    while let Some(event) = ticket.next().await {
        if let Event::Done(done) = event? {
            match done.state {
                Some(Ok(saved)) => return Ok(saved),
                Some(Err(e)) => return Err(ticket.refused.take().unwrap_or_else(|| e.into())),
                None => break,
            }
        }
    }
    Err(Error::device("the engine returned no state").into())
}

async fn remove(app: &App, engine: &Engine, caller: &Caller, name: String) -> Answer<DeletedState> {
    match app.states.delete(engine, caller, &name).await? {
        true => Ok(DeletedState { object: "state.deleted", name, deleted: true }),
        false => Err(unknown_state(&name)),
    }
}

pub async fn download(Name(name): Name, at: OfModel) -> Answer {
    let content = at.app.states.download(&at.engine, &at.caller, &name).await?.ok_or_else(|| unknown_state(&name))?;
    let file = format!("attachment; filename=\"{name}.state\"");
    Ok(([(header::CONTENT_TYPE, BYTES), (header::CONTENT_DISPOSITION, &file)], content).into_response())
}

/// The maximum number of bytes that a state's file may have beside the state: the header, and the ids of the tokens.
const MAX_BESIDE: u64 = 16 << 20;

pub async fn upload(Name(name): Name, at: OfModel, request: HttpRequest) -> Answer<(StatusCode, Json<StateEntry>)> {
    let OfModel { app, caller, model, engine } = at;
    // Many clients only look at the response once they have sent the body, so a wrong name is refused after the body was read.
    let checked = check_new_name(&name, "name");
    let room = if checked.is_ok() { app.states.room(&engine, &caller, &name).await? } else { app.options.max_body as u64 };
    // No state of this model is larger than four slots, whatever number types the file has. So no more is read into memory, even if the quota is
    // larger.
    let largest = 4 * engine.model().slot_bytes() + MAX_BESIDE;
    let (most, code) = if largest < room { (largest, "body_too_large") } else { (room, "quota_exceeded") };
    let body = read_at_most(request, most.min(usize::MAX as u64) as usize, code, &app).await?;
    let (content, _claim) = body.into_parts();
    checked?;
    let info = app.states.upload(&engine, &caller, &name, content).await?;
    Ok((StatusCode::CREATED, Json(described(info, &model))))
}

fn described(StateInfo { name, n_tokens, bytes }: StateInfo, model: &Hosted) -> StateEntry {
    StateEntry { object: "state", name, model: model.name.clone(), tokens: n_tokens, bytes, created: None }
}

fn listed(Listed { info, modified }: Listed, model: &Hosted) -> StateEntry {
    StateEntry { created: Some(modified), ..described(info, model) }
}
