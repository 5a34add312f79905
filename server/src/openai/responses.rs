//! `POST /v1/responses`: OpenAI's Responses API. The server keeps each response with its messages and its state, so that a later request can
//! continue from the response.

mod body;
mod input_items;
mod items;
mod lines;
mod record;

use super::extras::{follow, read, session_states, think};
use super::stream::{collect, respond};
use crate::abilities::keep_supported_thinking;
use crate::app::App;
use crate::body::{Body, Name};
use crate::failure::{Answer, Failure};
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::hosted::ServedTask;
use crate::ids::new_id;
use crate::states::OF_RESPONSES;
use crate::tickets::{SessionStates, Ticket};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use axum::{Extension, Json};
pub use body::ResponseBody;
pub use input_items::InputItems;
pub use items::ResponseObject;
pub use lines::ResponseEvent;
use lines::ResponseLines;
use record::Record;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::Input;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::template::Message;

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let input =
        |asked: &mut ResponseBody| Ok(Input::Messages(std::mem::take(&mut asked.input).messages(asked.previous_response_id.is_some())?));
    let (asked, mut request, mut warnings, claim) = read(&app, &caller, body, Dialect::Responses, input).await?;
    if asked.background == Some(true) {
        let e = Error::input("expected false: the server answers while the connection is open").field("background");
        return Err(e.hint("leave the field out, and set `stream` to true").into());
    }
    let model = app.model(asked.model.as_deref())?;
    let (engine, _) = app.started(&model).await?;
    let previous = match &asked.previous_response_id {
        Some(id) => Some(Record::read(&app, &engine, &caller, id).await?.ok_or_else(|| unknown(id).in_field("previous_response_id"))?),
        None => None,
    };
    // A state of another model is not continued, because it may have begun in another initial state.
    let continues_state = previous.as_ref().is_some_and(|record| record.response["model"] == model.name.as_str());
    let mut messages = previous.map(|record| record.messages).unwrap_or_default();
    if let Input::Messages(new) = std::mem::replace(&mut request.input, Input::Tokens(Vec::new())) {
        messages.extend(new);
    }
    let system = asked.instructions.iter().map(Message::system);
    request.input = Input::Messages(system.chain(messages.iter().cloned()).collect());
    request.max_tokens = asked.max_output_tokens.map(|n| n as usize).or(request.max_tokens);
    let (tools, left_out) = asked.tools()?;
    warnings.extend(left_out);
    request.tools = tools;
    request.tool_choice = asked.tool_choice()?;
    let schema = follow(&mut request, asked.rules(), "text.format", "schema")?;
    let is_demanded = request.thinking.is_some();
    think(&mut request, "reasoning.effort", asked.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()), None)?;
    if !is_demanded {
        keep_supported_thinking(&engine, &mut request);
    }
    let id = new_id(OF_RESPONSES);
    let is_stored = asked.store != Some(false);
    // The header `x-session-id` is ignored: the state is kept under the id of the response.
    let without_session = Caller { session: None, ..caller.clone() };
    let mut states: SessionStates = session_states(&request, &without_session, None, false)?;
    states.resume = asked.previous_response_id.clone().filter(|_| continues_state && request.state.is_none());
    states.is_conversation = true;
    states.save = is_stored.then(|| id.clone()).filter(|_| request.save_state.is_none());
    let ticket = Ticket::open(&app, &model, &caller, "/v1/responses", request, &states, &claim)
        .await
        .map_err(|e| e.renamed(&["json_schema"], &schema))?;
    let begun = ResponseObject::begun(&asked, id, &model.name, ticket.sampling(), warnings);
    let record = is_stored.then(|| Record::begin(&app, &engine, &caller, messages));
    if asked.stream == Some(true) {
        return Ok(respond(vec![ticket], ResponseLines::new(begun, record), &caller.request_id));
    }
    let done = collect(vec![ticket]).await?.remove(0).into_iter().next().ok_or_else(|| Error::device("the engine returned no answer"))?;
    let mut answer = begun.answered(&done);
    // The answer exists, so it is sent even if it cannot be stored.
    if let Some(record) = record
        && let Err(failure) = record.write(&done, &answer).await
    {
        answer.not_stored(&failure);
    }
    Ok(Json(answer).into_response())
}

#[derive(Serialize, ToSchema)]
pub struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

pub async fn one(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, Name(id): Name) -> Answer<Json<Value>> {
    Ok(Json(stored(&app, &caller, &id).await?.response))
}

pub async fn input_items(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Name(id): Name,
    uri: Uri,
) -> Answer<Json<InputItems>> {
    let record = stored(&app, &caller, &id).await?;
    input_items::list(&id, &record, uri.query().unwrap_or_default()).map(Json)
}

/// `POST /v1/responses/{id}/cancel`. Refuses: no response runs in the background, and a response ends when its connection does.
pub async fn cancel(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, Name(id): Name) -> Answer {
    stored(&app, &caller, &id).await?;
    let e = Error::input("expected a response that runs in the background, found a complete response");
    Err(Failure::from(e.hint("close the connection to stop a response that is running")))
}

/// Returns a kept response.
///
/// # Errors
/// 404 if the caller has no response with this id.
async fn stored(app: &Arc<App>, caller: &Caller, id: &str) -> Answer<Record> {
    for model in app.models_for(ServedTask::Text) {
        // A model that is not ready may have the response. So the error is 503 here, not 404.
        let engine = app.started(model).await?.0;
        if let Some(record) = Record::read(app, &engine, caller, id).await? {
            return Ok(record);
        }
    }
    Err(unknown(id))
}

pub async fn delete(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, Name(id): Name) -> Answer<Json<DeletedResponse>> {
    for model in app.models_for(ServedTask::Text) {
        let engine = app.started(model).await?.0;
        if Record::delete(&app, &engine, &caller, &id).await? {
            return Ok(Json(DeletedResponse { id, object: "response.deleted", deleted: true }));
        }
    }
    Err(unknown(&id))
}

fn unknown(id: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "response_not_found", Error::input(format!("unknown response {:?}", short(id, 100))))
}
