//! `POST /v1/messages`: answers messages.

use super::body::MessagesBody;
use super::lines::MessageLines;
use super::message::MessageObject;
use crate::abilities::keep_supported_thinking;
use crate::app::App;
use crate::body::Body;
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::hosted::Hosted;
use crate::openai::extras::{follow, read, session_states};
use crate::openai::stream::respond;
use crate::tickets::Ticket;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use std::sync::Arc;
use wingbeat::engine::{Input, Request};

/// A request whose body has been read.
pub struct ParsedRequest {
    pub body: MessagesBody,
    pub request: Request,
    /// One line for each field that has no effect.
    pub warnings: Vec<String>,
    pub model: Arc<Hosted>,
    pub claim: Arc<Claim>,
}

/// Reads the body of a request.
///
/// # Errors
/// 400 with the path of the wrong field; 404 if the model is unknown; 503 if the model is not ready.
pub async fn parse(app: &Arc<App>, caller: &Caller, body: Body) -> Answer<ParsedRequest> {
    let input = |body: &mut MessagesBody| Ok(Input::Messages(body.conversation()?));
    let (body, mut request, warnings, claim) = read(app, caller, body, Dialect::Messages, input).await?;
    request.tools = body.tools()?;
    request.tool_choice = body.tool_choice()?;
    request.stop = body.stop_sequences.clone().filter(|stops| !stops.is_empty()).or(request.stop);
    follow(&mut request, body.rules(), "output_config.format", "schema")?;
    let model = app.model(body.model.as_deref())?;
    request.thinking = body.thinking();
    keep_supported_thinking(&app.started(&model).await?.0, &mut request);
    Ok(ParsedRequest { body, request, warnings, model, claim })
}

/// Replaces the engine's names of fields by their paths in the body.
pub fn located(e: Failure) -> Failure {
    e.renamed(&["json_schema"], "output_config.format.schema").renamed(&["stop"], "stop_sequences")
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let ParsedRequest { body, request, warnings, model, claim } = parse(&app, &caller, body).await?;
    let states = session_states(&request, &caller, None, false)?;
    let ticket = Ticket::open(&app, &model, &caller, "/v1/messages", request, &states, &claim).await.map_err(located)?;
    let (begun, max_calls) = (MessageObject::begun(&model.name, warnings), body.max_calls());
    let stops = body.stop_sequences.unwrap_or_default();
    if body.stream == Some(true) {
        return Ok(respond(vec![ticket], MessageLines::new(begun, stops, max_calls), &caller.request_id));
    }
    let engine = ticket.engine.clone();
    let done = ticket.finish(|_| ()).await?;
    Ok(Json(begun.answered(&engine, &done, &stops, max_calls)).into_response())
}
