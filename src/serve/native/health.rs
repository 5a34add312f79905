//! `GET /health`: whether the server can answer requests.

use crate::serve::app::App;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn health(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    let is_ready = app.models.iter().all(|model| model.ready().is_some());
    let status = match (app.is_stopping(), is_ready) {
        (true, _) => "stopping",
        (false, true) => return (StatusCode::OK, Json(json!({"status": "ok"}))),
        (false, false) => "loading",
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": status})))
}
