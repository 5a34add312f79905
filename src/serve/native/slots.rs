//! `GET /slots`: the slots of each model, and the open requests of the caller.

use crate::serve::app::App;
use crate::serve::guard::Caller;
use axum::extract::State;
use axum::{Extension, Json};
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn slots(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    let open = app.ledger.of(&caller.namespace);
    let model = |name: &str, stats: crate::engine::EngineStats| {
        let requests: Vec<Value> = open
            .iter()
            .filter(|entry| entry.model == name)
            .map(|entry| {
                json!({
                    "id": entry.request_id, "endpoint": entry.endpoint, "prompt_tokens": entry.prompt_tokens, "cached_tokens": entry.cached_tokens,
                    "events": entry.events, "seconds": (entry.began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
                })
            })
            .collect();
        json!({
            "model": name, "slots": stats.slots, "free_slots": stats.free_slots, "running": stats.running, "waiting": stats.waiting,
            "paused": stats.paused, "cached": stats.cached, "requests": requests,
        })
    };
    Json(app.models.iter().filter_map(|hosted| Some(model(&hosted.name, hosted.ready()?.stats()))).collect())
}
