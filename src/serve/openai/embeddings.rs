//! `POST /v1/embeddings`: computes vectors of texts.

use super::prompts::{Prompts, check_ids, of_input};
use crate::engine::{Event, Input, Request};
use crate::serve::app::App;
use crate::serve::body::Body;
use crate::serve::failure::{Answer, Failure};
use crate::serve::guard::Caller;
use crate::serve::hosted::Runs;
use crate::serve::tickets::{Kept, Ticket};
use crate::serve::turns::in_turn;
use crate::session::Pooling;
use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// The most texts of a request.
const MAX_TEXTS: usize = 2048;

/// A request for vectors.
#[derive(Debug, Deserialize, ToSchema)]
pub struct EmbeddingBody {
    pub input: Prompts,
    /// The name of a model. By default, the server's embedding model, or the first model that generates text if the server has no embedding model.
    #[serde(default)]
    pub model: Option<String>,
    /// The encoding of a vector: float (default) or base64 (of little-endian f32).
    #[serde(default)]
    pub encoding_format: Option<Encoding>,
    /// The length of a vector. Must equal the length of the model's vectors.
    #[serde(default)]
    pub dimensions: Option<u32>,
    /// The hidden state that becomes the vector: of the last token (last, default), or the mean over all tokens (mean). Not for embedding models.
    #[serde(default)]
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

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Value>> {
    let asked: EmbeddingBody = body.parse()?;
    let named = app.vectors_named(asked.model.as_deref());
    // If the server has only this model, any name selects the model.
    let only = app.vectors.first().filter(|_| app.models.is_empty() && app.vectors.len() == 1);
    let (name, vectors, n_tokens) = match named.or(only) {
        Some(model) => {
            if asked.pooling.is_some() {
                return Err(Failure::field("pooling", "an embedding model has its own pooling; leave the field out"));
            }
            let inputs = inputs(asked.input)?;
            check_ids(&inputs, model.engine()?.0.model())?;
            let found = in_turn(&app, model, &caller, "/v1/embeddings", move |turn| turn.embed(&inputs)).await?;
            let n_tokens = found.iter().map(|one| one.n_tokens).sum();
            app.metrics.on_vectors(&model.name, n_tokens);
            (model.name.clone(), found.into_iter().map(|one| one.vector).collect::<Vec<_>>(), n_tokens)
        }
        None => of_engine(&app, &caller, asked.input, asked.model.as_deref(), asked.pooling).await?,
    };
    let n_dimensions = vectors.first().map_or(0, Vec::len);
    if let Some(asked) = asked.dimensions.filter(|asked| *asked as usize != n_dimensions) {
        return Err(Failure::field("dimensions", format!("expected {n_dimensions}, the length of the model's vectors, found {asked}")));
    }
    let encoded = |vector: &Vec<f32>| match asked.encoding_format {
        Some(Encoding::Base64) => Value::from(STANDARD.encode(bytemuck::cast_slice::<f32, u8>(vector))),
        _ => json!(vector),
    };
    let data: Vec<Value> =
        vectors.iter().enumerate().map(|(i, vector)| json!({"object": "embedding", "index": i, "embedding": encoded(vector)})).collect();
    Ok(Json(json!({"object": "list", "data": data, "model": name, "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens}})))
}

/// Computes vectors with a model that generates text: the hidden state after the last token, or the mean of the hidden states after all
/// tokens.
async fn of_engine(
    app: &Arc<App>,
    caller: &Caller,
    input: Prompts,
    name: Option<&str>,
    pooling: Option<WirePooling>,
) -> Answer<(String, Vec<Vec<f32>>, usize)> {
    let model = app.model(name)?;
    let inputs = inputs(input)?;
    let pooling = if pooling == Some(WirePooling::Mean) { Pooling::Mean } else { Pooling::Last };
    let (mut vectors, mut n_tokens) = (Vec::with_capacity(inputs.len()), 0);
    // Submits at most one text per slot at a time, so that one request does not fill the queue.
    let engine = model.engine()?.0;
    check_ids(&inputs, engine.model())?;
    let n_slots = engine.stats().slots.max(1);
    let mut inputs = inputs.into_iter();
    loop {
        let mut tickets = Vec::new();
        for (path, input) in inputs.by_ref().take(n_slots) {
            let request = Request { pooling: Some(pooling), ..Request::new(input) };
            let opened = Ticket::open(app, &model, caller, "/v1/embeddings", request, &Kept::default()).await;
            tickets.push(opened.map_err(|failure| of_input(failure, &path))?);
        }
        if tickets.is_empty() {
            return Ok((model.name.clone(), vectors, n_tokens));
        }
        for mut ticket in tickets {
            while let Some(event) = ticket.next().await {
                match event? {
                    Event::Vector { vector } => vectors.push(vector),
                    Event::Done(done) => n_tokens += done.usage.prompt_tokens,
                    _ => {}
                }
            }
        }
    }
}

/// Returns the inputs, each with its path in the request.
fn inputs(input: Prompts) -> Answer<Vec<(String, Input)>> {
    let inputs = input.inputs("input");
    match inputs.len() {
        1..=MAX_TEXTS => Ok(inputs),
        n => Err(Failure::field("input", format!("expected 1 to {MAX_TEXTS} texts, found {n}"))),
    }
}
