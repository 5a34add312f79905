//! `POST /v1/rerank`: scores documents by how well they answer a query.

use crate::app::App;
use crate::body::Body;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::tickets::{SessionStates, Ticket};
use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Event, Request};
use wingbeat::error::Error;

/// The maximum number of documents in a request.
const MAX_DOCUMENTS: usize = 2048;

/// A request to score documents.
#[derive(Debug, Deserialize, ToSchema)]
pub struct RerankBody {
    pub query: String,
    pub documents: Vec<Document>,
    /// The name of a model with a reranker. By default, the server's first embedding model.
    pub model: Option<String>,
    /// How many documents the answer contains, best first. By default, all documents.
    pub top_n: Option<u32>,
    /// If true, the results contain the texts of the documents.
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
    fn text(self) -> String {
        match self {
            Document::Text(text) | Document::Object { text } => text,
        }
    }
}

/// The scores of documents, best first.
#[derive(Serialize, ToSchema)]
pub struct Ranking {
    object: &'static str,
    model: String,
    results: Vec<Ranked>,
}

#[derive(Serialize, ToSchema)]
pub struct Ranked {
    /// The number of the document in the request, from 0.
    index: usize,
    /// The score, from 0 to 1.
    relevance_score: f64,
    /// The document. Present only if the request sets `return_documents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<RankedDocument>,
}

#[derive(Serialize, ToSchema)]
pub struct RankedDocument {
    text: String,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer<Json<Ranking>> {
    let (asked, claim): (RerankBody, _) = body.read(&app, Body::parse).await?;
    let n = asked.documents.len();
    if !(1..=MAX_DOCUMENTS).contains(&n) {
        return Err(Failure::field("documents", format!("expected 1 to {MAX_DOCUMENTS} documents, found {n}")));
    }
    let Some(model) = app.vectors(asked.model.as_deref(), true) else {
        let e = Error::input("this server has no model with a reranker").field("model");
        return Err(e.hint("the server's operator can add a reranker with the options `embed` and `reranker`").into());
    };
    let documents: Vec<String> = asked.documents.into_iter().map(Document::text).collect();
    let returned = if asked.return_documents == Some(true) { documents.clone() } else { Vec::new() };
    let mut order: Vec<(usize, f32)> = Vec::with_capacity(n);
    let request = Request::ranking(asked.query, documents);
    let ticket = Ticket::open(&app, &model, &caller, "/v1/rerank", request, &SessionStates::default(), &claim).await?;
    let done = ticket.finish(|event| {
        if let Event::Score { index, logit } = event {
            order.push((index, logit));
        }
    });
    done.await?;
    // Documents with the same score keep their order.
    order.sort_by(|(i, a), (j, b)| b.total_cmp(a).then(i.cmp(j)));
    order.truncate(asked.top_n.map_or(usize::MAX, |n| n as usize));
    let result = |(index, logit): (usize, f32)| Ranked {
        index,
        relevance_score: 1.0 / (1.0 + (-f64::from(logit)).exp()),
        document: returned.get(index).map(|text| RankedDocument { text: text.clone() }),
    };
    Ok(Json(Ranking { object: "list", model: model.name.clone(), results: order.into_iter().map(result).collect() }))
}
