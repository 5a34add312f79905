//! `GET /v1/models`: the models of the server.

use crate::app::App;
use crate::body::Name;
use crate::failure::{Answer, Failure};
use crate::hosted::{Hosted, ServedTask, Stage};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;

#[derive(Serialize, ToSchema)]
pub struct ModelList {
    object: &'static str,
    data: Vec<ModelEntry>,
    /// Always false. This field and the next two are fields of Anthropic's list.
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// A model of the server.
#[derive(Serialize, ToSchema)]
pub struct ModelEntry {
    /// The name of the model.
    id: String,
    /// The name of the model, in Anthropic's form. `type` and `created_at` are fields of this form, too.
    display_name: String,
    r#type: &'static str,
    /// The time when the server started, in the format of RFC 3339.
    created_at: String,
    object: &'static str,
    /// The time when the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    task: ServedTask,
    #[serde(flatten)]
    status: ModelStatus,
}

/// The status of a model. Only a ready model has a description.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ModelStatus {
    /// The model loads on its first use.
    Unloaded,
    Loading,
    Ready {
        architecture: String,
        /// The number of parameters.
        parameters: u64,
        /// The maximum number of tokens in prompt and answer together. `null` if the model has no limit.
        context: Option<usize>,
        layers: usize,
        /// The number of tokens in the vocabulary.
        vocabulary: usize,
        dtype: String,
        device: String,
        slots: usize,
    },
}

pub async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    let name = |model: Option<&Arc<Hosted>>| model.map(|model| model.name.clone());
    Json(ModelList {
        object: "list",
        data: app.models.iter().map(|model| described(model)).collect(),
        has_more: false,
        first_id: name(app.models.first()),
        last_id: name(app.models.last()),
    })
}

pub async fn one(State(app): State<Arc<App>>, Name(name): Name) -> Answer<Json<ModelEntry>> {
    let unknown = || Failure::new(StatusCode::NOT_FOUND, "model_not_found", Error::input(format!("unknown model {:?}", short(&name, 60))));
    app.models.iter().find(|model| model.name == name).map(|model| Json(described(model))).ok_or_else(unknown)
}

fn described(hosted: &Hosted) -> ModelEntry {
    let waits = hosted.takes_requests() && hosted.stage() != Stage::Loading;
    let waiting = if waits { ModelStatus::Unloaded } else { ModelStatus::Loading };
    let status = hosted.ready().map_or(waiting, |engine| {
        let (model, facts) = (engine.model(), engine.model().facts());
        ModelStatus::Ready {
            architecture: facts.architecture.into(),
            parameters: model.n_params(),
            context: model.context(),
            layers: facts.n_layer,
            vocabulary: facts.n_vocab,
            dtype: model.dtype().into(),
            device: model.device().name.clone(),
            slots: engine.stats().slots,
        }
    });
    let (id, display_name, created_at) = (hosted.name.clone(), hosted.name.clone(), hosted.started());
    ModelEntry {
        id,
        display_name,
        r#type: "model",
        created_at,
        object: "model",
        created: hosted.created,
        owned_by: "wingbeat",
        task: hosted.task,
        status,
    }
}
