//! Scores documents for a query with EmbeddingRWKV: an embedding model and its reranker.
//!
//! The embedding model reads document and query as one text. The state matrices of some of its layers become the initial state of the reranker, a
//! small RWKV-7. The reranker reads one token. Two layers on the host compute the score from the hidden state after this token.

use super::vectors::product;
use super::work::{ChunkRule, LogitRows};
use super::{Model, Session, Slot, Snapshot};
use crate::arch::Purpose;
use crate::error::{Error, Result};
use crate::tape::State;
use crate::vocab::Vocab;

/// The only token that a reranker reads.
const TOKEN: u32 = 0;

/// Scores texts, given the state of the embedding model after each text.
pub(crate) struct Scorer {
    session: Session,
    /// Pairs of a state of the reranker and a state of the embedding model. The embedding model's state becomes the initial value of the reranker's
    /// state.
    states: Vec<(State, State)>,
    first: Vec<f32>,
    bias: Vec<f32>,
    last: Vec<f32>,
}

impl Scorer {
    /// Creates a scorer of up to `n_slots` states at a time.
    ///
    /// # Errors
    /// `Model` if a model is of another kind, if the models do not fit together, or if the reranker lacks a tensor; the errors of [`Session::new`].
    pub fn new(embedding: &Model, reranker: &Model, n_slots: usize) -> Result<Scorer> {
        let (of, by) = (embedding.facts(), reranker.facts());
        end_of_text(embedding)?;
        let Purpose::Reranker { layers } = &by.purpose else {
            let e = Error::model("expected a reranker of EmbeddingRWKV, found another model").at(reranker.name());
            return Err(e.hint("use the reranker of this embedding model, such as rwkv0b1-reranker.pth"));
        };
        if (of.n_embd, of.head_size) != (by.n_embd, by.head_size) || layers.iter().any(|&layer| layer >= of.n_layer) {
            let text = format!(
                "expected a reranker of width {} with heads of {} channels for {} layers, found width {}, heads of {} channels and layers {layers:?}",
                of.n_embd, of.head_size, of.n_layer, by.n_embd, by.head_size
            );
            return Err(Error::model(text).at(reranker.name()).hint("use the reranker that belongs to this embedding model"));
        }
        let find = |model: &Model, layer: usize| {
            let name = format!("blocks.{layer}.att.wkv");
            model.tape().find_state(&name).ok_or_else(|| Error::model("the state is missing").at(name))
        };
        let states = layers.iter().enumerate().map(|(i, &layer)| Ok((find(reranker, i)?, find(embedding, layer)?)));
        let c = by.n_embd;
        Ok(Scorer {
            states: states.collect::<Result<_>>()?,
            first: reranker.host_tensor("head.0.weight", &[c, c])?,
            bias: reranker.host_tensor("head.0.bias", &[c])?,
            last: reranker.host_tensor("head.2.weight", &[1, c])?,
            session: Session::new(reranker, n_slots)?,
        })
    }

    /// Returns one logit per state of the embedding model.
    ///
    /// # Errors
    /// `Model` if a logit is not finite; `Device` if the device failed; `Input` if there are more states than slots.
    pub fn scores<'s>(&mut self, states: impl IntoIterator<Item = &'s Snapshot>) -> Result<Vec<f32>> {
        let mut slots = Vec::new();
        let scores = states.into_iter().try_for_each(|state| self.begin(state).map(|slot| slots.push(slot))).and_then(|()| {
            let work: Vec<(Slot, &[u32])> = slots.iter().map(|&slot| (slot, &[TOKEN][..])).collect();
            self.session.read(work.as_slice(), ChunkRule::Chunks, (LogitRows::Last, None), &mut |_, _| ())?;
            slots.iter().map(|&slot| self.head(self.session.logits(slot)?)).collect()
        });
        slots.into_iter().try_for_each(|slot| self.session.close(slot))?;
        scores
    }

    /// Opens a slot of the reranker that begins with a state of the embedding model.
    fn begin(&mut self, read: &Snapshot) -> Result<Slot> {
        let model = self.session.model();
        let mut states: Vec<Vec<f32>> = model.tape().states.iter().map(|spec| vec![0.0; spec.len()]).collect();
        for (to, from) in &self.states {
            states[to.0].clone_from(&read.states[from.0]);
        }
        let begin = Snapshot { weights: model.weights_hash().into(), states, ..Snapshot::default() };
        self.session.restore(&begin)
    }

    /// Returns the logit for a hidden state x: w · tanh(W x + b). `first` is W, `[n_embd, n_embd]`; `bias` is b; `last` is w.
    ///
    /// # Errors
    /// `Model` if the logit is not finite.
    fn head(&self, x: &[f32]) -> Result<f32> {
        let hidden: Vec<f32> = product(&self.first, x).iter().zip(&self.bias).map(|(y, bias)| (y + bias).tanh()).collect();
        let score = product(&self.last, &hidden)[0];
        if score.is_finite() {
            Ok(score)
        } else {
            Err(Error::model("the model computed a score that is not finite").hint("try `dtype=f32`"))
        }
    }
}

pub(crate) fn check_query(query: &str) -> Result<()> {
    if query.is_empty() { Err(Error::input("the query is empty")) } else { Ok(()) }
}

/// Returns the token ids that an embedding model reads for a document and a query, in the form that rerankers were trained with.
///
/// # Errors
/// `Input` if the document is empty, or if the model has no vocabulary; the errors of [`end_of_text`].
pub(crate) fn encode_pair(model: &Model, query: &str, document: &str) -> Result<Vec<u32>> {
    if document.is_empty() {
        return Err(Error::input("the document is empty"));
    }
    let text = format!("Instruct: Given a query, retrieve documents that answer the query\nDocument: {document}\nQuery: {query}");
    let mut tokens = model.encode(&text, Vocab::encode_prompt)?;
    tokens.push(end_of_text(model)?);
    Ok(tokens)
}

/// Returns how many of a document's token ids are the same for every query. Compares the ids for several sample queries, because a query can change
/// the last ids before it. For example, a colon and the blank after the colon may be one token or two.
pub(crate) fn before_any_query(model: &Model, document: &str) -> Result<usize> {
    let mut tokens = encode_pair(model, "a", document)?;
    for query in ["1", "Who", "\n"] {
        let n = encode_pair(model, query, document)?.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        tokens.truncate(n);
    }
    Ok(tokens.len())
}

/// Returns the id of an embedding model's end-of-text token.
///
/// # Errors
/// `Model` if the model is not an embedding model.
pub fn end_of_text(model: &Model) -> Result<u32> {
    let found = match model.facts().purpose {
        Purpose::Embedding { end, .. } => return Ok(end),
        Purpose::Reranker { .. } => "a reranker",
        Purpose::Logits => "a model that predicts tokens",
    };
    let e = Error::model(format!("expected an EmbeddingRWKV model, whose states a reranker scores, found {found}")).at(model.name());
    Err(e.hint("use an EmbeddingRWKV checkpoint such as rwkv0b1-emb-curriculum.pth with its reranker; `wingbeat embed` computes vectors of texts with any model"))
}
