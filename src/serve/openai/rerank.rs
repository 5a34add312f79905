//! `POST /v1/rerank`: scores documents by how well they answer a query.

use crate::error::Error;
use crate::serve::app::App;
use crate::serve::body::Body;
use crate::serve::failure::{Answer, Failure};
use crate::serve::guard::Caller;
use crate::serve::turns::in_turn;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// The most documents of a request.
const MAX_DOCUMENTS: usize = 2048;

/// A request to score documents.
#[derive(Debug, Deserialize, ToSchema)]
pub struct RerankBody {
    pub query: String,
    pub documents: Vec<Document>,
    /// The name of a model with a reranker. By default, the server's first embedding model.
    #[serde(default)]
    pub model: Option<String>,
    /// How many documents the answer contains, best first. By default, all documents.
    #[serde(default)]
    pub top_n: Option<u32>,
    /// If true, the results contain the texts of the documents.
    #[serde(default)]
    pub return_documents: Option<bool>,
}

/// A text, or an object with a text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "found another type than a string or an object with text")]
pub enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Document::Text(text) | Document::Object { text } => text,
        }
    }
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Value>> {
    let asked: RerankBody = body.parse()?;
    let n = asked.documents.len();
    if !(1..=MAX_DOCUMENTS).contains(&n) {
        return Err(Failure::field("documents", format!("expected 1 to {MAX_DOCUMENTS} documents, found {n}")));
    }
    if let Some(i) = asked.documents.iter().position(|document| document.text().is_empty()) {
        return Err(Failure::field(&format!("documents[{i}]"), "the document is empty"));
    }
    if asked.query.is_empty() {
        return Err(Failure::field("query", "the query is empty"));
    }
    let named = app.vectors_named(asked.model.as_deref());
    let Some(model) = named.or_else(|| app.vectors.first().filter(|_| app.vectors.len() == 1)).cloned() else {
        let e = Error::input("this server has no model with a reranker").field("model");
        return Err(e.hint("the server's operator can add a reranker with the options `embed` and `reranker`").into());
    };
    let name = model.name.clone();
    let scored = in_turn(&app, &model, &caller, "/v1/rerank", move |turn| {
        let texts: Vec<&str> = asked.documents.iter().map(Document::text).collect();
        let logits = turn.score(&asked.query, &texts)?;
        Ok((logits, asked))
    });
    let (logits, asked) = scored.await?;
    let documents = &asked.documents;
    let mut order: Vec<(usize, f32)> = logits.into_iter().enumerate().collect();
    // The sort is stable: documents with the same score keep their order.
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    order.truncate(asked.top_n.map_or(usize::MAX, |n| n as usize));
    let result = |(index, logit): (usize, f32)| {
        let mut result = json!({"index": index, "relevance_score": 1.0 / (1.0 + (-f64::from(logit)).exp())});
        if asked.return_documents == Some(true) {
            result["document"] = json!({"text": documents[index].text()});
        }
        result
    };
    Ok(Json(json!({"object": "list", "model": name, "results": order.into_iter().map(result).collect::<Vec<_>>()})))
}
