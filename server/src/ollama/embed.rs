//! `POST /api/embed` and its predecessor `POST /api/embeddings`: vectors of texts.

use super::answer::nanoseconds;
use super::untagged;
use crate::app::App;
use crate::body::Body;
use crate::failure::Answer;
use crate::guard::Caller;
use crate::openai::embeddings::{Wanted, vectors};
use crate::openai::prompts::Prompts;
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// A request for vectors. `truncate`, `options` and `keep_alive` are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub struct EmbedBody {
    pub input: Prompts,
    /// The name of a model, with or without the tag `latest`. By default, the server's embedding model.
    pub model: Option<String>,
    /// The length of a vector. Must equal the length of the model's vectors.
    pub dimensions: Option<u32>,
}

/// A request for the vector of one text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct OldEmbedBody {
    pub prompt: String,
    /// The name of a model, with or without the tag `latest`. By default, the server's embedding model.
    pub model: Option<String>,
}

/// Vectors of texts. Durations are in nanoseconds.
#[derive(Serialize, ToSchema)]
pub struct Embedded {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    /// The number of tokens in all texts.
    prompt_eval_count: usize,
}

/// The vector of one text.
#[derive(Serialize, ToSchema)]
pub struct OldEmbedded {
    embedding: Vec<f32>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Embedded>> {
    let began = Instant::now();
    let (asked, claim): (EmbedBody, _) = body.read(&app, Body::parse).await?;
    let wanted = Wanted {
        model: untagged(&app, asked.model.as_deref()),
        inputs: asked.input.inputs("input"),
        dimensions: asked.dimensions,
        pooling: None,
    };
    let found = vectors(&app, &caller, "/api/embed", wanted, &claim).await?;
    Ok(Json(Embedded {
        model: asked.model.filter(|name| !name.is_empty()).unwrap_or(found.model),
        embeddings: found.vectors,
        total_duration: nanoseconds(began.elapsed().as_secs_f64() * 1e3),
        load_duration: 0,
        prompt_eval_count: found.n_tokens,
    }))
}

pub async fn create_one(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<OldEmbedded>> {
    let (asked, claim): (OldEmbedBody, _) = body.read(&app, Body::parse).await?;
    let inputs = Prompts::Text(asked.prompt).inputs("prompt");
    let wanted = Wanted { model: untagged(&app, asked.model.as_deref()), inputs, dimensions: None, pooling: None };
    let found = vectors(&app, &caller, "/api/embeddings", wanted, &claim).await?;
    Ok(Json(OldEmbedded { embedding: found.vectors.into_iter().next().unwrap_or_default() }))
}
