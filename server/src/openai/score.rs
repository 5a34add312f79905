//! `POST /v1/score`: scores pairs of texts, as vLLM's cross-encoders and embedding models do.

use super::embeddings::{Vectors, Wanted, vectors};
use crate::app::App;
use crate::body::Body;
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::hosted::Hosted;
use crate::ids::{new_id, now};
use crate::tickets::{SessionStates, Ticket};
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Event, Input, Request};
use wingbeat::error::Error;

/// The maximum number of pairs in a request.
const MAX_PAIRS: usize = 256;

/// A request to score pairs of texts: one text with each of several, or two lists of the same length.
#[derive(Debug, Deserialize, ToSchema)]
pub struct ScoreBody {
    /// The query, or one query for each text of `text_2`.
    #[serde(alias = "queries", alias = "data_1")]
    pub text_1: TextList,
    #[serde(alias = "documents", alias = "data_2")]
    pub text_2: TextList,
    /// The name of a model. By default, the server's first embedding model.
    pub model: Option<String>,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = Texts)]
#[serde(untagged, expecting = "found another type than a string or an array of strings")]
pub enum TextList {
    One(String),
    All(Vec<String>),
}

impl TextList {
    fn into_vec(self) -> Vec<String> {
        match self {
            TextList::One(text) => vec![text],
            TextList::All(texts) => texts,
        }
    }
}

/// The scores of pairs, in the order of the request.
#[derive(Serialize, ToSchema)]
pub struct Scores {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<Score>,
    usage: ScoreUsage,
}

#[derive(Serialize, ToSchema)]
pub struct Score {
    index: usize,
    object: &'static str,
    /// From 0 to 1 for a reranker, and from -1 to 1 (the cosine of the vectors) for other models.
    score: f64,
}

#[derive(Serialize, ToSchema)]
pub struct ScoreUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Scores>> {
    let (asked, claim): (ScoreBody, _) = body.read(&app, Body::parse).await?;
    let (queries, documents) = (asked.text_1.into_vec(), asked.text_2.into_vec());
    if !(1..=MAX_PAIRS).contains(&documents.len()) {
        return Err(Failure::field("text_2", format!("expected 1 to {MAX_PAIRS} texts, found {}", documents.len())));
    }
    if queries.len() != 1 && queries.len() != documents.len() {
        let text = format!("expected one text, or as many texts as text_2 has ({}), found {}", documents.len(), queries.len());
        return Err(Failure::field("text_1", text));
    }
    let ranker = match app.vectors(asked.model.as_deref(), true) {
        Some(model) if app.started(&model).await?.0.has_reranker() => Some(model),
        _ => None,
    };
    let (model, scores, n_tokens) = match ranker {
        Some(model) => ranked(&app, &model, &caller, queries, documents, &claim).await?,
        None => cosines(&app, &caller, asked.model.as_deref(), queries, documents, &claim).await?,
    };
    let entry = |(index, score)| Score { index, object: "score", score };
    Ok(Json(Scores {
        id: new_id("score-"),
        object: "list",
        created: now(),
        model,
        data: scores.into_iter().enumerate().map(entry).collect(),
        usage: ScoreUsage { prompt_tokens: n_tokens, total_tokens: n_tokens },
    }))
}

/// Scores the pairs with a reranker. Each query is one request of the engine. Returns the name of the model, the scores in the order of the pairs,
/// and the number of prompt tokens.
async fn ranked(
    app: &Arc<App>,
    model: &Arc<Hosted>,
    caller: &Caller,
    queries: Vec<String>,
    documents: Vec<String>,
    claim: &Arc<Claim>,
) -> Answer<(String, Vec<f64>, usize)> {
    let groups: Vec<(String, Vec<String>)> = match <[String; 1]>::try_from(queries) {
        Ok([query]) => vec![(query, documents)],
        Err(queries) => queries.into_iter().zip(documents.into_iter().map(|document| vec![document])).collect(),
    };
    let (mut scores, mut n_tokens) = (Vec::new(), 0);
    for (query, documents) in groups {
        let first = scores.len();
        scores.resize(first + documents.len(), 0.0);
        let opened =
            Ticket::open(app, model, caller, "/v1/score", Request::ranking(query, documents), &SessionStates::default(), claim).await;
        let done = opened.map_err(|e| e.renamed(&["query"], "text_1").renamed(&["documents"], "text_2"))?.finish(|event| {
            if let Event::Score { index, logit } = event {
                scores[first + index] = 1.0 / (1.0 + (-f64::from(logit)).exp());
            }
        });
        n_tokens += done.await?.usage.prompt_tokens;
    }
    Ok((model.name.clone(), scores, n_tokens))
}

/// Scores the pairs by the cosines of their vectors. Returns the same three values as [`ranked`].
async fn cosines(
    app: &Arc<App>,
    caller: &Caller,
    model: Option<&str>,
    queries: Vec<String>,
    documents: Vec<String>,
    claim: &Arc<Claim>,
) -> Answer<(String, Vec<f64>, usize)> {
    let n_queries = queries.len();
    let of = |field: &str, texts: Vec<String>| {
        texts.into_iter().enumerate().map(|(i, text)| (format!("{field}[{i}]"), Input::Text(text))).collect::<Vec<_>>()
    };
    let inputs = of("text_1", queries).into_iter().chain(of("text_2", documents)).collect();
    let wanted = Wanted { model, inputs, dimensions: None, pooling: None };
    let Vectors { model, mut vectors, n_tokens } = vectors(app, caller, "/v1/score", wanted, claim).await?;
    let documents = vectors.split_off(n_queries);
    let Some(first) = vectors.first() else { return Err(Error::device("the engine returned no vector").into()) };
    // The vectors have the length 1.
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let scores = documents.iter().enumerate().map(|(i, document)| dot(vectors.get(i).filter(|_| n_queries > 1).unwrap_or(first), document));
    Ok((model, scores.collect(), n_tokens))
}
