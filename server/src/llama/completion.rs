//! `POST /completion`: continues a text or tokens.

use super::answer::{Common, CompletionLines, LlamaText, submitted};
use crate::app::App;
use crate::body::Body;
use crate::failure::{Answer, Failure};
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::openai::extras::read;
use crate::openai::prompts::Prompts;
use crate::openai::stream::respond;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::Input;

/// A request to continue a prompt. Sampler settings and rules are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct LlamaBody {
    /// A text, or a list of token ids.
    pub prompt: Prompts,
    #[serde(flatten)]
    #[schema(inline)]
    pub common: Common,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let input = |asked: &mut LlamaBody| {
        let mut inputs = std::mem::replace(&mut asked.prompt, Prompts::Text(String::new())).inputs("prompt");
        match (inputs.pop(), inputs.is_empty()) {
            (Some((_, input)), true) => Ok(input),
            _ => Err(Failure::field("prompt", "expected one prompt; /v1/completions continues several")),
        }
    };
    let (asked, request, warnings, claim) = read(&app, &caller, body, Dialect::Llama, input).await?;
    answer(&app, &caller, "/completion", asked.common, request, warnings, &claim).await
}

/// Answers a request whose settings have been read.
pub(super) async fn answer(
    app: &Arc<App>,
    caller: &Caller,
    endpoint: &'static str,
    common: Common,
    request: wingbeat::engine::Request,
    warnings: Vec<String>,
    claim: &Arc<crate::budget::Claim>,
) -> Answer {
    let shown = match &request.input {
        Input::Text(text) => text.clone(),
        _ => String::new(),
    };
    let is_streamed = common.stream == Some(true);
    let (ticket, echoed) = submitted(app, caller, endpoint, common, request, warnings, claim).await?;
    if is_streamed {
        return Ok(respond(vec![ticket], CompletionLines::new(echoed, shown), &caller.request_id));
    }
    let engine = ticket.engine.clone();
    let done = ticket.finish(|_| ()).await?;
    Ok(Json(LlamaText::new(&engine, &done, &echoed, shown, false)).into_response())
}
