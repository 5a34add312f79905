//! Scores documents for a query with a reranker of EmbeddingRWKV.
//!
//! The embedding model reads document and query as one text. Then the state matrices of some layers of the embedding model become the initial
//! state of the reranker, a small RWKV-7. The reranker reads one token. Two layers on the host compute the score from the reranker's hidden
//! state.

use super::embed::product;
use super::work::{Cut, Wanted};
use super::{Model, Prompt, Session, Slot, Snapshot};
use crate::arch::Purpose;
use crate::error::{Error, Result};
use crate::tape::State;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The only token that a reranker reads.
const TOKEN: u32 = 0;

/// Scores documents by how well they answer a query. Needs two models: an embedding model and its reranker.
pub struct Reranker {
    reader: Session,
    scorer: Session,
    n_slots: usize,
    /// The id of the token that ends a text.
    end: u32,
    /// Pairs of a state of the scorer and a state of the reader. The reader's state becomes the initial value of the scorer's state.
    states: Vec<(State, State)>,
    first: Vec<f32>,
    bias: Vec<f32>,
    last: Vec<f32>,
}

impl Reranker {
    /// Creates a reranker that reads up to `n_slots` documents at a time. `embedding` is the embedding model, `reranker` the reranker that was
    /// trained with it.
    ///
    /// # Errors
    /// `Model` if a model is of another kind, if the models do not fit together, or if the reranker lacks a tensor; the errors of
    /// [`Session::new`].
    pub fn new(embedding: &Model, reranker: &Model, n_slots: usize) -> Result<Reranker> {
        let (of, by) = (embedding.facts(), reranker.facts());
        let end = end_of_text(embedding)?;
        let Purpose::Reranker { layers } = &by.purpose else {
            let e = Error::model("expected a reranker of EmbeddingRWKV, found another model").at(reranker.name());
            return Err(e.hint("use the reranker of this embedding model, such as rwkv0b1-reranker.pth"));
        };
        if (of.n_embd, of.head_size) != (by.n_embd, by.head_size) || layers.iter().any(|&layer| layer >= of.n_layer) {
            let text = format!(
                "expected a reranker of width {} and heads of {} for at most {} layers, found width {}, heads of {} and layers {layers:?}",
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
        Ok(Reranker {
            states: states.collect::<Result<_>>()?,
            first: reranker.host_tensor("head.0.weight", &[c, c])?,
            bias: reranker.host_tensor("head.0.bias", &[c])?,
            last: reranker.host_tensor("head.2.weight", &[1, c])?,
            reader: Session::new(embedding, n_slots)?,
            scorer: Session::new(reranker, n_slots)?,
            n_slots,
            end,
        })
    }

    /// Returns the flag that interrupts the reranker between two steps, as [`Session::stop_flag`] does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.reader.stop_flag()
    }

    /// Scores documents for a query. Returns one logit per document, in the order of the documents. A larger logit means a better answer. The
    /// logistic function converts a logit to a score from 0 to 1. Calls `progress(tokens read so far, total tokens)` after each step.
    ///
    /// # Errors
    /// `Input` if query or a document is empty, or if the model has no vocabulary; `Model` if a score is not finite; `Interrupted` by the
    /// stop flag; `Device` if a device failed.
    pub fn score(&mut self, query: &str, documents: &[&str], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        if query.is_empty() {
            return Err(Error::input("the query is empty"));
        }
        let texts = documents.iter().enumerate().map(|(i, document)| {
            let encoded = match document.is_empty() {
                true => Err(Error::input("the document is empty")),
                false => self.encode(query, document),
            };
            encoded.map_err(|e| e.at(format!("document {}", i + 1)))
        });
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let total: usize = texts.iter().map(Vec::len).sum();
        let (mut scores, mut done) = (Vec::new(), 0);
        for group in texts.chunks(self.n_slots) {
            scores.extend(self.group(group, &mut |read, _| progress(done + read, total))?);
            done += group.iter().map(Vec::len).sum::<usize>();
        }
        Ok(scores)
    }

    /// Returns the token ids of a document and a query, in the form that rerankers were trained with.
    fn encode(&self, query: &str, document: &str) -> Result<Vec<u32>> {
        let text = format!("Instruct: Given a query, retrieve documents that answer the query\nDocument: {document}\nQuery: {query}");
        let mut tokens = self.reader.encode(&Prompt::Text(&text))?;
        tokens.push(self.end);
        Ok(tokens)
    }

    fn group(&mut self, texts: &[Vec<u32>], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        let slots = texts.iter().map(|_| self.reader.open()).collect::<Result<Vec<_>>>()?;
        let work: Vec<(Slot, &[u32])> = slots.iter().copied().zip(texts.iter().map(Vec::as_slice)).collect();
        let read = self.reader.read(work.as_slice(), Cut::Chunks, (Wanted::Last, None), progress);
        let states = read.and_then(|()| slots.iter().map(|&slot| self.reader.snapshot(slot)).collect::<Result<Vec<_>>>());
        slots.into_iter().try_for_each(|slot| self.reader.close(slot))?;
        let mut opened = Vec::new();
        let scores = self.scored(states?, &mut opened);
        opened.into_iter().try_for_each(|slot| self.scorer.close(slot))?;
        scores
    }

    /// Returns one logit per state of the embedding model. Opens a slot of the scorer for each state and adds the slot to `slots`. The caller
    /// closes these slots, also after an error.
    fn scored(&mut self, states: Vec<Snapshot>, slots: &mut Vec<Slot>) -> Result<Vec<f32>> {
        let model = self.scorer.model().clone();
        for read in states {
            let mut begin: Vec<Vec<f32>> = model.tape().states.iter().map(|spec| vec![0.0; spec.len()]).collect();
            for (to, from) in &self.states {
                begin[to.0].clone_from(&read.states[from.0]);
            }
            slots.push(self.scorer.restore(&Snapshot { weights: model.weights_hash().into(), states: begin, ..Snapshot::default() })?);
        }
        let work: Vec<(Slot, &[u32])> = slots.iter().map(|&slot| (slot, &[TOKEN][..])).collect();
        self.scorer.read(work.as_slice(), Cut::Chunks, (Wanted::Last, None), &mut |_, _| ())?;
        slots.iter().map(|&slot| self.head(self.scorer.logits(slot)?)).collect()
    }

    /// Returns the logit for a hidden state x: w · tanh(W x + b).
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

/// Returns the id of an embedding model's end-of-text token.
///
/// # Errors
/// `Model` if the model is of another kind.
pub(crate) fn end_of_text(model: &Model) -> Result<u32> {
    let found = match model.facts().purpose {
        Purpose::Embedding { end, .. } => return Ok(end),
        Purpose::Reranker { .. } => "a reranker",
        Purpose::Logits => "a model that predicts tokens",
    };
    let e = Error::model(format!("expected an EmbeddingRWKV model, whose states a reranker scores, found {found}")).at(model.name());
    Err(e.hint("use an EmbeddingRWKV checkpoint such as rwkv0b1-emb-curriculum.pth with its reranker; `wingbeat embed` compares texts with any model"))
}
