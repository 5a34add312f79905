//! `/v1/states`: lists, saves, copies, renames, deletes, downloads and uploads states.

use crate::engine::Event;
use crate::engine::{Input, Request, StateInfo};
use crate::error::Error;
use crate::serve::address::{Name, OfQuery};
use crate::serve::app::App;
use crate::serve::body::{Body, read_at_most};
use crate::serve::failure::{Answer, Failure};
use crate::serve::guard::Caller;
use crate::serve::hosted::Hosted;
use crate::serve::openai::{WireMessage, check_tokens, checked_name, read_messages};
use crate::serve::states::Listed;
use crate::serve::tickets::{Kept, Ticket, unknown_state};
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// An action on a state.
#[derive(Debug, Deserialize, ToSchema)]
pub struct StateBody {
    pub action: Action,
    /// The name of the new state, or of the state to delete: 1 to 100 letters, digits, dots, dashes and underscores.
    pub name: String,
    /// For fork and rename: the name of the existing state. For save: the name of the state from which the new text continues, if any.
    #[serde(default)]
    pub from: Option<String>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
    /// For save: the text to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    #[serde(default)]
    pub prompt: Option<String>,
    /// For save: the tokens to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    #[serde(default)]
    pub tokens: Option<Vec<u32>>,
    /// For save: the messages to prefill. Exactly one of `prompt`, `tokens` and `messages` is required.
    #[serde(default)]
    pub messages: Option<Vec<WireMessage>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Prefills a text, tokens or messages, and saves the state after them.
    Save,
    /// Copies the state `from`.
    Fork,
    /// Gives the state `from` another name.
    Rename,
    /// Deletes a state.
    Delete,
}

pub async fn list(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, OfQuery(model): OfQuery) -> Answer<Json<Value>> {
    let all = app.states.list(&model.engine()?.0, &caller).await?;
    Ok(Json(
        json!({"object": "list", "data": all.iter().map(|state| listed(state, &model)).collect::<Vec<_>>(), "quota": app.states.quota()}),
    ))
}

pub async fn one(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    OfQuery(model): OfQuery,
) -> Answer<Json<Value>> {
    let found = app.states.info(&model.engine()?.0, &caller, &name).await?;
    found.map(|state| Json(listed(&state, &model))).ok_or_else(|| unknown_state(&name, None))
}

pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    OfQuery(model): OfQuery,
) -> Answer<Json<Value>> {
    remove(&app, &model, &caller, &name).await
}

pub async fn act(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Value>> {
    let asked: StateBody = body.parse()?;
    let model = app.model(asked.model.as_deref())?;
    let engine = model.engine()?.0;
    checked_name(&asked.name, "name")?;
    let from = || asked.from.as_deref().ok_or_else(|| Failure::field("from", "expected the name of an existing state, found no name"));
    match asked.action {
        Action::Save => save(&app, &model, &caller, asked).await,
        Action::Delete => remove(&app, &model, &caller, &asked.name).await,
        Action::Fork | Action::Rename => {
            let from = from()?;
            checked_name(from, "from")?;
            let Some(info) = app.states.fork(&engine, &caller, from, &asked.name).await? else {
                return Err(unknown_state(from, Some("from")));
            };
            if asked.action == Action::Rename && from != asked.name {
                app.states.delete(&engine, &caller, from).await?;
            }
            Ok(Json(described(&info, &model)))
        }
    }
}

/// Prefills an input and saves the state after it.
async fn save(app: &Arc<App>, model: &Arc<Hosted>, caller: &Caller, asked: StateBody) -> Answer<Json<Value>> {
    let input = match (asked.prompt, asked.tokens, asked.messages) {
        (Some(text), None, None) => Input::Text(text),
        (None, Some(tokens), None) => {
            check_tokens("tokens", &tokens, model.engine()?.0.model())?;
            Input::Tokens(tokens)
        }
        (None, None, Some(messages)) => Input::Messages(read_messages(&messages)),
        _ => return Err(Error::input("expected exactly one of the fields prompt, tokens and messages").field("prompt").into()),
    };
    let request = Request { state: asked.from, save_state: Some(asked.name), ..Request::new(input).max_tokens(0) };
    let opened = Ticket::open(app, model, caller, "/v1/states", request, &Kept::default()).await;
    let mut ticket = opened.map_err(|failure| match failure.error.field_name() {
        // The engine's name of the field `from`.
        Some("state") => Failure { error: Box::new(Error { field: Some("from".into()), ..*failure.error }), ..failure },
        _ => failure,
    })?;
    while let Some(event) = ticket.next().await {
        if let Event::Done(done) = event? {
            match done.state {
                Some(Ok(saved)) => return Ok(Json(described(&saved, model))),
                Some(Err(e)) => return Err(ticket.refused.take().unwrap_or_else(|| e.into())),
                None => break,
            }
        }
    }
    Err(Error::device("the engine returned no state").into())
}

async fn remove(app: &App, model: &Hosted, caller: &Caller, name: &str) -> Answer<Json<Value>> {
    match app.states.delete(&model.engine()?.0, caller, name).await? {
        true => Ok(Json(json!({"object": "state.deleted", "name": name, "deleted": true}))),
        false => Err(unknown_state(name, None)),
    }
}

pub async fn download(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    OfQuery(model): OfQuery,
) -> Answer {
    let engine = model.engine()?.0;
    let content = app.states.download(&engine, &caller, &name).await?.ok_or_else(|| unknown_state(&name, None))?;
    let file = format!("attachment; filename=\"{name}.state\"");
    Ok(([(header::CONTENT_TYPE, "application/octet-stream".to_string()), (header::CONTENT_DISPOSITION, file)], content).into_response())
}

pub async fn upload(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(name): Name,
    OfQuery(model): OfQuery,
    request: HttpRequest,
) -> Answer {
    let engine = model.engine()?.0;
    // A wrong name is refused after the body was read, because many clients read no answer before.
    let checked = checked_name(&name, "name");
    let most = if checked.is_ok() { app.states.room(&engine, &caller, &name).await? } else { app.options.max_body as u64 };
    // One upload at a time, because a file can be large. The semaphore is never closed.
    let _place = app.uploads.acquire().await;
    let content = read_at_most(request, most.min(usize::MAX as u64) as usize, "quota_exceeded", &app).await?;
    checked?;
    let info = app.states.upload(&engine, &caller, &name, content).await?;
    Ok((StatusCode::CREATED, Json(described(&info, &model))).into_response())
}

fn described(info: &StateInfo, model: &Hosted) -> Value {
    json!({"object": "state", "name": info.name, "model": model.name, "tokens": info.n_tokens, "bytes": info.bytes})
}

fn listed(state: &Listed, model: &Hosted) -> Value {
    json!({"object": "state", "name": state.name, "model": model.name, "tokens": state.n_tokens, "bytes": state.bytes, "created": state.modified})
}
