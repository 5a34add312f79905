//! `GET /v1/models`: the models of the server.

use super::answer::merge;
use crate::serve::address::Name;
use crate::serve::app::App;
use crate::serve::failure::{Answer, Failure};
use crate::serve::hosted::Hosted;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": all(&app)}))
}

pub async fn one(State(app): State<Arc<App>>, Name(name): Name) -> Answer<Json<Value>> {
    let found = all(&app).into_iter().find(|model| model["id"] == name.as_str());
    found.map(Json).ok_or_else(|| Failure::not_found("model_not_found", format!("unknown model {:?}", crate::error::short(&name, 60))))
}

fn all(app: &App) -> Vec<Value> {
    app.models.iter().map(|model| described(model)).collect()
}

fn described(hosted: &Hosted) -> Value {
    let (id, created, task) = (&hosted.name, hosted.created, hosted.task.name());
    let mut entry = json!({"id": id, "object": "model", "created": created, "owned_by": "wingbeat", "task": task});
    let Some(engine) = hosted.ready() else {
        entry["status"] = "loading".into();
        return entry;
    };
    let (model, stats) = (engine.model(), engine.stats());
    let facts = model.facts();
    let more = json!({
        "status": "ready", "architecture": facts.architecture, "parameters": model.n_params(), "context": model.context(), "layers": facts.n_layer,
        "vocabulary": facts.n_vocab, "dtype": model.dtype(), "device": model.device().name, "slots": stats.slots,
    });
    merge(&mut entry, &more);
    entry
}
