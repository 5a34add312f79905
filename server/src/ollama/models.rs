//! Models as Ollama describes them: `/api/tags`, `/api/show`, `/api/ps`. Also `/api/version`.

use super::{TAG, untagged};
use crate::abilities::{can_call, can_think};
use crate::app::App;
use crate::body::Body;
use crate::failure::Answer;
use crate::hosted::{Hosted, ServedTask};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::Engine;

/// The version of Ollama whose API the server answers. Some clients refuse an older version.
const VERSION: &str = "0.12.6";

/// A time in the far future, so that no client takes the model for unloaded.
const NEVER: &str = "9999-12-31T00:00:00Z";

#[derive(Serialize, ToSchema)]
pub struct Version {
    version: &'static str,
}

pub async fn version() -> Json<Version> {
    Json(Version { version: VERSION })
}

/// The models of the server.
#[derive(Serialize, ToSchema)]
pub struct Tags {
    models: Vec<Tagged>,
}

/// A model of the server.
#[derive(Serialize, ToSchema)]
pub struct Tagged {
    name: String,
    model: String,
    /// The time when the server started.
    modified_at: String,
    /// The size of the weights in bytes.
    size: u64,
    /// The hash of the weights.
    digest: String,
    details: Details,
}

/// Properties of a model. Empty if the model is not in memory.
#[derive(Default, Serialize, ToSchema)]
pub struct Details {
    parent_model: &'static str,
    format: String,
    family: String,
    families: Vec<String>,
    parameter_size: String,
    quantization_level: String,
}

impl Details {
    fn of(engine: &Engine) -> Details {
        let (model, family) = (engine.model(), engine.model().facts().architecture.to_owned());
        let millions = model.n_params() as f64 / 1e6;
        let parameter_size = if millions < 1000.0 { format!("{millions:.2}M") } else { format!("{:.1}B", millions / 1e3) };
        Details {
            parent_model: "",
            format: model.kind().into(),
            families: vec![family.clone()],
            family,
            parameter_size,
            quantization_level: model.dtype().to_uppercase(),
        }
    }
}

/// Returns the models that are ready, with their engines.
fn ready(app: &App) -> impl Iterator<Item = (&Arc<Hosted>, Engine)> {
    app.models.iter().filter_map(|model| Some((model, model.ready()?)))
}

fn tagged(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("{name}{TAG}") }
}

pub async fn tags(State(app): State<Arc<App>>) -> Json<Tags> {
    // A model that is not in memory is listed, too: it loads when a request names it.
    let entry = |hosted: &Arc<Hosted>| {
        let engine = hosted.ready();
        Tagged {
            name: tagged(&hosted.name),
            model: tagged(&hosted.name),
            modified_at: hosted.started(),
            size: engine.as_ref().map_or(0, |engine| engine.model().weight_bytes()),
            digest: engine.as_ref().map_or_else(String::new, |engine| engine.model().weights_hash().into()),
            details: engine.as_ref().map_or_else(Details::default, Details::of),
        }
    };
    let is_listed = |hosted: &&Arc<Hosted>| hosted.takes_requests();
    Json(Tags { models: app.models.iter().filter(is_listed).map(entry).collect() })
}

/// The models in memory.
#[derive(Serialize, ToSchema)]
pub struct Processes {
    models: Vec<Process>,
}

/// A model in memory.
#[derive(Serialize, ToSchema)]
pub struct Process {
    name: String,
    model: String,
    /// The size of the weights in bytes.
    size: u64,
    /// The hash of the weights.
    digest: String,
    details: Details,
    /// A time in the far future. The server's own option `keep_alive` decides when a model is unloaded.
    expires_at: &'static str,
    /// The bytes that the model takes on its devices.
    size_vram: u64,
    /// The maximum number of tokens in prompt and answer together. 0 if the model has no limit.
    context_length: usize,
}

pub async fn processes(State(app): State<Arc<App>>) -> Json<Processes> {
    let entry = |(hosted, engine): (&Arc<Hosted>, Engine)| Process {
        name: tagged(&hosted.name),
        model: tagged(&hosted.name),
        size: engine.model().weight_bytes(),
        digest: engine.model().weights_hash().into(),
        details: Details::of(&engine),
        expires_at: NEVER,
        size_vram: engine.model().device_bytes(),
        context_length: engine.model().context().unwrap_or(0),
    };
    Json(Processes { models: ready(&app).map(entry).collect() })
}

/// The name of a model to describe.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ShowBody {
    pub model: Option<String>,
    /// Another name for `model`.
    pub name: Option<String>,
}

/// A description of a model.
#[derive(Serialize, ToSchema)]
pub struct Shown {
    modelfile: String,
    parameters: String,
    /// Always empty: the chat format is part of the program or of the model's folder.
    template: &'static str,
    modified_at: String,
    details: Details,
    #[schema(value_type = Object)]
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
}

pub async fn show(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Shown>> {
    let (asked, _claim): (ShowBody, _) = body.read(&app, Body::parse).await?;
    let name = untagged(&app, asked.model.as_deref().or(asked.name.as_deref()));
    let of_vectors = app.models.iter().find(|model| model.task == ServedTask::Embedding && name.is_none_or(|name| model.name == name));
    let hosted = match (app.model(name), of_vectors) {
        (_, Some(model)) if name.is_some() => model.clone(),
        (Ok(model), _) => model,
        (Err(_), Some(model)) => model.clone(),
        (Err(e), None) => return Err(e),
    };
    let engine = app.started(&hosted).await?.0;
    let (model, facts) = (engine.model(), engine.model().facts());
    let of_family = |key: &str| format!("{}.{key}", facts.architecture);
    let info = [
        ("general.architecture".into(), json!(facts.architecture)),
        ("general.basename".into(), json!(hosted.name)),
        ("general.parameter_count".into(), json!(model.n_params())),
        (of_family("block_count"), json!(facts.n_layer)),
        (of_family("embedding_length"), json!(facts.n_embd)),
        (of_family("vocab_size"), json!(facts.n_vocab)),
    ];
    // As in Ollama, `context_length` is the context of the model's training, and the parameter `num_ctx` is the context in this server.
    let context = facts.context.map(|context| (of_family("context_length"), json!(context)));
    let parameters = model.context().map_or_else(String::new, |context| format!("num_ctx {context}"));
    let capabilities = match hosted.task {
        ServedTask::Text => {
            let abilities = [("completion", true), ("embedding", true), ("tools", can_call(&engine)), ("thinking", can_think(&engine))];
            abilities.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
        }
        ServedTask::Embedding => vec!["embedding"],
    };
    Ok(Json(Shown {
        modelfile: format!("FROM {}", hosted.name),
        parameters,
        template: "",
        modified_at: hosted.started(),
        details: Details::of(&engine),
        model_info: info.into_iter().chain(context).collect(),
        capabilities,
    }))
}
