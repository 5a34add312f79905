//! `POST /v1/embeddings`: computes a vector for each text.

use super::prompts::{Prompts, check_ids};
use crate::app::App;
use crate::body::Body;
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::hosted::ServedTask;
use crate::tickets::{SessionStates, Ticket};
use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Event, Input, Request};
use wingbeat::low_level::session::{Model, Pooling};

/// The maximum number of texts in a request.
const MAX_TEXTS: usize = 2048;

/// A request for vectors.
#[derive(Debug, Deserialize, ToSchema)]
pub struct EmbeddingBody {
    pub input: Prompts,
    /// The name of a model. By default, the server's embedding model, or the first model that generates text if the server has no embedding model.
    pub model: Option<String>,
    /// The encoding of a vector: float (default) or base64 (of little-endian f32).
    pub encoding_format: Option<Encoding>,
    /// The length of a vector: the model's vectors are cut to this length and scaled to the length 1 again. Useful for models that were trained so.
    pub dimensions: Option<u32>,
    /// How hidden states become the vector: the hidden state of the last token (last, default), or the mean over all tokens (mean). Not for embedding
    /// models.
    pub pooling: Option<WirePooling>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    Float,
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WirePooling {
    Last,
    Mean,
}

#[derive(Serialize, ToSchema)]
pub struct EmbeddingList {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: EmbeddingUsage,
}

/// The vector of an input.
#[derive(Serialize, ToSchema)]
pub struct Embedding {
    object: &'static str,
    /// The number of the input, from 0.
    index: usize,
    embedding: Vector,
}

/// A vector in the encoding that the request asks for.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, ToSchema)]
pub struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<EmbeddingList>> {
    let (asked, claim): (EmbeddingBody, _) = body.read(&app, Body::parse).await?;
    let wanted =
        Wanted { model: asked.model.as_deref(), inputs: asked.input.inputs("input"), dimensions: asked.dimensions, pooling: asked.pooling };
    let Vectors { model, vectors, n_tokens } = vectors(&app, &caller, "/v1/embeddings", wanted, &claim).await?;
    let encoded = |vector: Vec<f32>| match asked.encoding_format {
        Some(Encoding::Base64) => Vector::Base64(STANDARD.encode(bytemuck::cast_slice::<f32, u8>(&vector))),
        _ => Vector::Float(vector),
    };
    let entry = |(index, vector)| Embedding { object: "embedding", index, embedding: encoded(vector) };
    Ok(Json(EmbeddingList {
        object: "list",
        data: vectors.into_iter().enumerate().map(entry).collect(),
        model,
        usage: EmbeddingUsage { prompt_tokens: n_tokens, total_tokens: n_tokens },
    }))
}

/// The texts to convert to vectors, and the options of the vectors.
pub struct Wanted<'a> {
    pub model: Option<&'a str>,
    /// The texts, each with its path in the body.
    pub inputs: Vec<(String, Input)>,
    pub dimensions: Option<u32>,
    pub pooling: Option<WirePooling>,
}

/// Vectors of texts.
pub struct Vectors {
    /// The name of the model that computed the vectors.
    pub model: String,
    pub vectors: Vec<Vec<f32>>,
    /// The number of tokens in all texts.
    pub n_tokens: usize,
}

/// Computes the vectors that a request for `endpoint` wants.
///
/// # Errors
/// 400 if a field is wrong, 404 if the model is unknown, and the errors of [`Ticket::open`].
pub async fn vectors(app: &Arc<App>, caller: &Caller, endpoint: &'static str, wanted: Wanted<'_>, claim: &Arc<Claim>) -> Answer<Vectors> {
    let name = wanted.model;
    // If the embedding model is the server's only model, any name selects it.
    let model = app.vectors(name, app.models.len() == 1).map_or_else(|| app.model(name), Ok)?;
    let engine = app.started(&model).await?.0;
    let n_embd = engine.model().facts().n_embd;
    let dimensions = wanted.dimensions.map_or(n_embd, |asked| asked as usize);
    if !(1..=n_embd).contains(&dimensions) {
        let text = format!("expected a whole number from 1 to {n_embd}, the length of the model's vectors, found {dimensions}");
        return Err(Failure::field("dimensions", text));
    }
    if wanted.pooling.is_some() && model.task == ServedTask::Embedding {
        return Err(Failure::field("pooling", "an embedding model has its own pooling; leave the field out"));
    }
    let inputs = checked(wanted.inputs, engine.model())?;
    // The engine names the first input `input[0]` in errors. In a body with a single text, the path is `input`.
    let path = inputs[0].0.clone();
    let texts: Vec<Input> = inputs.into_iter().map(|(_, text)| text).collect();
    let mut vectors = vec![Vec::new(); texts.len()];
    let pooling = wanted.pooling.map(|pooling| if pooling == WirePooling::Mean { Pooling::Mean } else { Pooling::Last });
    let mut request = Request::vectors(texts);
    request.pooling = pooling;
    let opened = Ticket::open(app, &model, caller, endpoint, request, &SessionStates::default(), claim).await;
    let done = opened.map_err(|e| e.renamed(&["prompt", "tokens", "input[0]"], &path))?.finish(|event| {
        if let Event::Vector { index, vector } = event {
            vectors[index] = shortened(vector, dimensions);
        }
    });
    let n_tokens = done.await?.usage.prompt_tokens;
    Ok(Vectors { model: model.name.clone(), vectors, n_tokens })
}

/// Cuts a vector to `n` numbers and scales it to the length 1. A vector that has `n` numbers stays as it is.
fn shortened(mut vector: Vec<f32>, n: usize) -> Vec<f32> {
    if n < vector.len() {
        vector.truncate(n);
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length.max(f32::MIN_POSITIVE));
    }
    vector
}

/// Checks the number of inputs and their token ids. Returns the inputs.
///
/// # Errors
/// 400 if there are too few or too many inputs, or if the model does not know a token id.
fn checked(inputs: Vec<(String, Input)>, model: &Model) -> Answer<Vec<(String, Input)>> {
    match inputs.len() {
        1..=MAX_TEXTS => check_ids(&inputs, model).map(|()| inputs),
        n => Err(Failure::field("input", format!("expected 1 to {MAX_TEXTS} texts, found {n}"))),
    }
}
