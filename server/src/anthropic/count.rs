//! `POST /v1/messages/count_tokens`: counts the tokens of a prompt.

use super::messages::{ParsedRequest, located, parse};
use crate::app::App;
use crate::body::Body;
use crate::failure::Answer;
use crate::guard::Caller;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The number of tokens in a prompt.
#[derive(Serialize, ToSchema)]
pub struct InputTokens {
    input_tokens: usize,
}

pub async fn count(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<InputTokens>> {
    let ParsedRequest { request, model, claim, .. } = parse(&app, &caller, body).await?;
    let engine = app.started(&model).await?.0;
    let n_bytes = claim.n_bytes();
    let tokens = app.worker_pools.run(&caller.namespace, n_bytes, move || engine.tokens(&request)).await;
    Ok(Json(InputTokens { input_tokens: tokens.map_err(|e| located(e.into()))?.len() }))
}
