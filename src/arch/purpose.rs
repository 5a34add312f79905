//! The purpose of a model: what the model computes from a text. EmbeddingRWKV models and their rerankers are RWKV-7 models without a matrix that
//! computes logits. Instead, a few small layers follow the last norm, and run on the host.

use super::Shapes;
use super::detect::dims;
use crate::error::{Error, Result};

/// The result that a model computes from a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Logits: of the next token, or of a classifier's labels.
    #[default]
    Logits,
    /// A vector for a text. The models of the package `rwkv-emb` have this purpose.
    Embedding {
        /// The id of the token that ends a text. The model's vector is computed from the hidden state after this token.
        end: u32,
        /// The tasks for which the file has layers, in the order of [`Task::ALL`].
        tasks: Vec<Task>,
    },
    /// A score for a query and a document, computed from the state matrices of an embedding model after both texts.
    Reranker {
        /// For each layer of the reranker, the index of a layer of the embedding model. The reranker's layer begins with that layer's state matrices.
        layers: Vec<usize>,
    },
}

/// A task of an embedding model. The model has layers of its own for each task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Task {
    /// Finds documents for a query.
    #[default]
    Retrieval,
    /// Compares the meaning of texts.
    Similarity,
    /// Computes the inputs of a classifier.
    Classification,
}

impl Task {
    /// All tasks.
    pub const ALL: [Task; 3] = [Task::Retrieval, Task::Similarity, Task::Classification];

    /// Returns the task's name, such as `retrieval`.
    pub fn name(self) -> &'static str {
        match self {
            Task::Retrieval => "retrieval",
            Task::Similarity => "similarity",
            Task::Classification => "classification",
        }
    }

    /// Returns the prefix of the names of the task's tensors, such as `head.retr_head.`.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Task::Retrieval => "head.retr_head.",
            Task::Similarity => "head.sts_head.",
            Task::Classification => "head.cls_head.",
        }
    }
}

/// The name of a tensor that every reranker has: the last matrix, which computes the score.
const SCORE: &str = "head.2.weight";
/// The metadata key for the embedding model's layers from which a reranker takes its initial states: layer indices with commas between them.
pub use crate::weights::RERANKER_LAYERS;

impl Purpose {
    /// Returns the name in reports: `embedding` or `reranker`. `None` for models that compute logits.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Purpose::Logits => None,
            Purpose::Embedding { .. } => Some("embedding"),
            Purpose::Reranker { .. } => Some("reranker"),
        }
    }

    /// Returns the names of the tasks of an embedding model. The list is empty for other models.
    pub fn tasks(&self) -> Vec<&'static str> {
        match self {
            Purpose::Embedding { tasks, .. } => tasks.iter().map(|task| task.name()).collect(),
            Purpose::Logits | Purpose::Reranker { .. } => Vec::new(),
        }
    }

    /// Reads the purpose of an RWKV-7 model of `n_layer` layers from its tensors. If a reranker has no list of layers, layer i of the reranker begins
    /// with the state matrices of layer i of the embedding model.
    ///
    /// # Errors
    ///
    /// `Model` if the list of a reranker's layers is damaged, or if its length differs from `n_layer`.
    pub(super) fn read(shapes: &dyn Shapes, n_layer: usize) -> Result<Purpose> {
        let has = |task: &Task| shapes.shape(&format!("{}fc1.weight", task.prefix())).is_some();
        let tasks: Vec<Task> = Task::ALL.into_iter().filter(has).collect();
        if !tasks.is_empty() {
            let [n_vocab, _] = dims(shapes, "emb.weight")?;
            return Ok(Purpose::Embedding { end: n_vocab.saturating_sub(1) as u32, tasks });
        }
        if shapes.shape(SCORE).is_none() {
            return Ok(Purpose::Logits);
        }
        if shapes.shape(RERANKER_LAYERS).is_some() {
            let e = Error::model("expected a list of numbers in the .pth, found a tensor").at(RERANKER_LAYERS);
            return Err(e.hint("save the list of the reranker's layers as a Python list"));
        }
        let layers = match shapes.metadata(RERANKER_LAYERS) {
            Some(text) => text.split(',').map(|n| n.trim().parse()).collect::<std::result::Result<Vec<usize>, _>>().ok(),
            None => Some((0..n_layer).collect()),
        };
        let fits = layers.as_ref().is_some_and(|layers| layers.len() == n_layer);
        layers.filter(|_| fits).map(|layers| Purpose::Reranker { layers }).ok_or_else(|| {
            Error::model(format!("expected the indices of {n_layer} layers with commas between them"))
                .at(format!("metadata {RERANKER_LAYERS}"))
        })
    }
}
