//! Endpoints for operators: `GET /health`, `/metrics` and `/slots`.

use crate::app::App;
use crate::guard::Caller;
use crate::ledger::OpenRequest;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::EngineStats;

/// The media type of metrics.
pub const METRICS: &str = "application/openmetrics-text";

#[derive(Serialize, ToSchema)]
pub struct Health {
    status: HealthStatus,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum HealthStatus {
    Ok,
    Loading,
    Stopping,
}

/// Reports whether the server can answer requests.
pub async fn health(State(app): State<Arc<App>>) -> (StatusCode, Json<Health>) {
    let is_ready = app.models.iter().all(|model| model.takes_requests());
    let (code, status) = match (app.is_stopping(), is_ready) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, HealthStatus::Stopping),
        (false, true) => (StatusCode::OK, HealthStatus::Ok),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, HealthStatus::Loading),
    };
    (code, Json(Health { status }))
}

/// Returns metrics for Prometheus.
pub async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, format!("{METRICS}; version=1.0.0; charset=utf-8"))], app.metrics.text(&app.models))
}

/// The slots and open requests of every model that is ready.
#[derive(Serialize, ToSchema)]
pub struct Slots(Vec<ModelSlots>);

/// The slots of a model, and the caller's open requests to the model.
#[derive(Serialize, ToSchema)]
struct ModelSlots {
    model: String,
    slots: usize,
    free_slots: usize,
    /// Requests that have slots.
    running: usize,
    /// Requests that wait for slots.
    waiting: usize,
    /// Running requests that pause because their clients are slow.
    paused: usize,
    /// Texts that gave up their slots because others wait.
    swapped: usize,
    /// Entries of the prefix cache.
    cached: usize,
    requests: Vec<OpenRequest>,
}

/// Lists slots and open requests.
pub async fn slots(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Json<Slots> {
    let ready = app.roots().filter_map(|model| Some((model.name.clone(), model.ready()?.stats())));
    let slots = ready.map(|(model, EngineStats { slots, free_slots, running, waiting, paused, swapped, cached, .. })| {
        let requests = app.ledger.of(&caller.namespace, &model);
        ModelSlots { model, slots, free_slots, running, waiting, paused, swapped, cached, requests }
    });
    Json(Slots(slots.collect()))
}
