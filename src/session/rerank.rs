//! Scores documents for a query with EmbeddingRWKV: an embedding model and its reranker.
//!
//! The embedding model reads document and query as one text. Then the state matrices of some layers of the embedding model become the initial state
//! of the reranker, a small RWKV-7. The reranker reads one token. Two layers on the host compute the score from the hidden state after this token.

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

/// Scores documents by how well they answer a query. Needs two models: an embedding model, and the reranker that was trained with this embedding
/// model.
pub struct Reranker {
    reader: Session,
    scorer: Session,
    n_slots: usize,
    /// The id of the token that ends a text.
    end: u32,
    /// Pairs of a state of the reranker model (`scorer`) and a state of the embedding model (`reader`). The embedding model's state becomes the
    /// initial value of the reranker's state.
    states: Vec<(State, State)>,
    first: Vec<f32>,
    bias: Vec<f32>,
    last: Vec<f32>,
}

impl Reranker {
    /// Creates a reranker that reads up to `n_slots` documents at a time. `embedding` is the embedding model. `reranker` is the reranker that was
    /// trained with this embedding model.
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

    /// Closes the slots that a call left open because it panicked.
    #[cfg(feature = "serve")]
    pub(crate) fn recover(&mut self) {
        self.reader.close_all();
        self.scorer.close_all();
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
            if done > 0 {
                self.reader.check_stop(done, total)?;
            }
            scores.extend(self.group(group, &mut |read, _| progress(done + read, total))?);
            done += group.iter().map(Vec::len).sum::<usize>();
        }
        Ok(scores)
    }

    /// Reads documents once, for several queries. Calls `progress(tokens read so far, total tokens)` after each step. The result holds one state
    /// per document, in host memory. A state takes 2.3 MiB for an embedding model of 0.1 billion parameters ([`Documents::size_bytes`] returns the
    /// sum).
    ///
    /// # Errors
    /// `Input` if a document is empty, or if the model has no vocabulary; `Interrupted` by the stop flag; `Device` if a device failed.
    pub fn read_documents(&mut self, documents: &[&str], progress: &mut dyn FnMut(usize, usize)) -> Result<Documents> {
        let texts = documents.iter().enumerate().map(|(i, document)| {
            let encoded = match document.is_empty() {
                true => Err(Error::input("the document is empty")),
                false => self.before_any_query(document),
            };
            encoded.map_err(|e| e.at(format!("document {}", i + 1)))
        });
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let total: usize = texts.iter().map(Vec::len).sum();
        let (mut kept, mut done) = (Vec::with_capacity(texts.len()), 0);
        for group in texts.chunks(self.n_slots) {
            let states = self.read(group, &[], &mut |read, _| progress(done + read, total))?;
            kept.extend(states);
            done += group.iter().map(Vec::len).sum::<usize>();
        }
        let documents = documents.iter().zip(texts).zip(kept);
        Ok(Documents(documents.map(|((text, tokens), state)| Document { text: text.to_string(), tokens, state }).collect()))
    }

    /// Does what [`score`](Self::score) does, for documents that were read before. For each document, reads only the tokens of the query. If the
    /// query changes how the end of the document's text is tokenized, reads the whole text again. A score differs from the score of
    /// [`score`](Self::score) by rounding only.
    ///
    /// # Errors
    /// The errors of [`score`](Self::score); `Input` if the documents were read with another model.
    pub fn score_read(&mut self, query: &str, documents: &Documents, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        if query.is_empty() {
            return Err(Error::input("the query is empty"));
        }
        let mut work = Vec::with_capacity(documents.0.len());
        for document in &documents.0 {
            let tokens = self.encode(query, &document.text)?;
            let is_prefix = tokens.len() > document.tokens.len() && tokens.starts_with(&document.tokens);
            let from = if is_prefix { document.tokens.len() } else { 0 };
            work.push((tokens[from..].to_vec(), (from > 0).then_some(&document.state)));
        }
        let total: usize = work.iter().map(|(tokens, _)| tokens.len()).sum();
        let (mut scores, mut done) = (Vec::new(), 0);
        for group in work.chunks(self.n_slots) {
            let (tokens, after): (Vec<Vec<u32>>, Vec<Option<&Snapshot>>) = group.iter().cloned().unzip();
            let states = self.read(&tokens, &after, &mut |read, _| progress(done + read, total))?;
            scores.extend(self.scores(states)?);
            done += tokens.iter().map(Vec::len).sum::<usize>();
        }
        Ok(scores)
    }

    /// Returns the token ids of a document and a query, in the form that rerankers were trained with.
    fn encode(&self, query: &str, document: &str) -> Result<Vec<u32>> {
        let mut tokens = self.reader.encode(&Prompt::Text(&format!("{} {query}", before_query(document))))?;
        tokens.push(self.end);
        Ok(tokens)
    }

    /// Returns the token ids of a document's text up to the query, as far as the ids are the same for most queries. A query can change the last ids
    /// before the query: a colon and the blank after the colon may be one token or two.
    fn before_any_query(&self, document: &str) -> Result<Vec<u32>> {
        let mut tokens = self.encode("a", document)?;
        for query in ["1", "Who", "\n"] {
            let n = self.encode(query, document)?.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
            tokens.truncate(n);
        }
        Ok(tokens)
    }

    fn group(&mut self, texts: &[Vec<u32>], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        let states = self.read(texts, &[], progress)?;
        self.scores(states)
    }

    /// Reads texts, at most one per slot. Returns a snapshot of the embedding model's state after each text. Text i begins in the state `after[i]`.
    /// If `after[i]` is missing or `None`, text i begins in an empty state.
    fn read(&mut self, texts: &[Vec<u32>], after: &[Option<&Snapshot>], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Snapshot>> {
        let mut slots = Vec::with_capacity(texts.len());
        let opened = (0..texts.len()).try_for_each(|i| {
            slots.push(match after.get(i).copied().flatten() {
                Some(state) => self.reader.restore(state)?,
                None => self.reader.open()?,
            });
            Ok(())
        });
        let states = opened.and_then(|()| self.states(&slots, texts, progress));
        slots.into_iter().try_for_each(|slot| self.reader.close(slot))?;
        states
    }

    fn states(&mut self, slots: &[Slot], texts: &[Vec<u32>], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Snapshot>> {
        let work: Vec<(Slot, &[u32])> = slots.iter().copied().zip(texts.iter().map(Vec::as_slice)).collect();
        self.reader.read(work.as_slice(), Cut::Chunks, (Wanted::Last, None), progress)?;
        slots.iter().map(|&slot| self.reader.snapshot(slot)).collect()
    }

    fn scores(&mut self, states: Vec<Snapshot>) -> Result<Vec<f32>> {
        let mut opened = Vec::new();
        let scores = self.scored(states, &mut opened);
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

/// Documents that a [`Reranker`] has read, for several queries.
pub struct Documents(Vec<Document>);

struct Document {
    text: String,
    /// The tokens that the state has read: the text up to the query.
    tokens: Vec<u32>,
    state: Snapshot,
}

impl Documents {
    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of host memory that the states of all documents take.
    pub fn size_bytes(&self) -> usize {
        self.0.iter().flat_map(|document| &document.state.states).map(|state| size_of_val(state.as_slice())).sum()
    }
}

/// Returns the text before the query, in the form that rerankers were trained with. The caller appends a blank and the query.
fn before_query(document: &str) -> String {
    format!("Instruct: Given a query, retrieve documents that answer the query\nDocument: {document}\nQuery:")
}

/// Returns the id of an embedding model's end-of-text token.
///
/// # Errors
/// `Model` if the model is not an embedding model.
pub(crate) fn end_of_text(model: &Model) -> Result<u32> {
    let found = match model.facts().purpose {
        Purpose::Embedding { end, .. } => return Ok(end),
        Purpose::Reranker { .. } => "a reranker",
        Purpose::Logits => "a model that predicts tokens",
    };
    let e = Error::model(format!("expected an EmbeddingRWKV model, whose states a reranker scores, found {found}")).at(model.name());
    Err(e.hint("use an EmbeddingRWKV checkpoint such as rwkv0b1-emb-curriculum.pth with its reranker; `wingbeat embed` computes vectors of texts with any model"))
}
