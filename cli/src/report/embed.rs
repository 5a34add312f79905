//! The JSON of `wingbeat embed` and `wingbeat rerank`.

use serde::Serialize;

/// The vector of one text.
#[derive(Debug, Clone, Serialize)]
pub struct VectorReport {
    /// The index of the text in the input, from 0.
    pub index: usize,
    pub embedding: Vec<f32>,
    /// The number of tokens of the text, including the end-of-text token of an embedding model.
    pub tokens: usize,
}

/// The vectors of all texts.
#[derive(Debug, Clone, Serialize)]
pub struct EmbedReport {
    /// The name of the model.
    pub model: String,
    /// The number of elements of a vector.
    pub dimensions: usize,
    /// True if the vectors are scaled to the Euclidean length 1.
    pub normalized: bool,
    pub embeddings: Vec<VectorReport>,
}

/// The score of one document.
#[derive(Debug, Clone, Serialize)]
pub struct RerankedReport {
    /// The index of the document in the input, from 0.
    pub index: usize,
    /// How well the document answers the query, from 0 to 1.
    pub score: f64,
    /// The number that the model computes. The score is 1 / (1 + exp(-logit)).
    pub logit: f32,
    pub document: String,
}

/// The score of a document for one of several queries.
#[derive(Debug, Clone, Serialize)]
pub struct RerankedQuery<'a> {
    pub query: &'a str,
    #[serde(flatten)]
    pub result: &'a RerankedReport,
}

/// The scores of documents for several queries.
#[derive(Debug, Clone, Serialize)]
pub struct RerankReports {
    pub queries: Vec<RerankReport>,
}

/// The scores of documents for a query, best first.
#[derive(Debug, Clone, Serialize)]
pub struct RerankReport {
    pub query: String,
    pub results: Vec<RerankedReport>,
}
