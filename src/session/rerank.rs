//! Scores documents for a query with EmbeddingRWKV: an embedding model and its reranker.
//!
//! The embedding model reads document and query as one text. The state matrices of some of its layers become the initial state of the reranker, a
//! small RWKV-7. The reranker reads one token. Two layers on the host compute the score from the hidden state after this token.

use super::batcher::Batcher;
use super::text::TextSpec;
use super::vectors::product;
use super::work::{ChunkRule, LogitRows};
use super::{Model, Session, Slot, Snapshot};
use crate::arch::Purpose;
use crate::error::{Error, Result};
use crate::tape::State;
use crate::vocab::Vocab;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// The errors of [`Reranker::new`].
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

/// Scores documents by how well they answer a query. Needs two models: an embedding model, and the reranker that was trained with this embedding
/// model.
pub struct Reranker {
    reader: Session,
    scorer: Scorer,
}

/// Callback for states after texts. Each state comes with the index of its text.
type Read<'a> = dyn FnMut(&mut Scorer, Vec<(usize, Snapshot)>) -> Result<()> + 'a;

impl Reranker {
    /// Creates a reranker that reads up to `n_slots` documents at a time. `embedding` is the embedding model. `reranker` is the reranker that was
    /// trained with this embedding model.
    ///
    /// # Errors
    /// `Model` if a model is of another kind, if the models do not fit together, or if the reranker lacks a tensor; the errors of
    /// [`Session::new`].
    pub fn new(embedding: &Model, reranker: &Model, n_slots: usize) -> Result<Reranker> {
        let scorer = Scorer::new(embedding, reranker, n_slots)?;
        Ok(Reranker { reader: Session::new(embedding, n_slots)?, scorer })
    }

    /// Returns the flag that interrupts the reranker between two steps, as [`Session::stop_flag`] does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.reader.stop_flag()
    }

    /// Scores documents for a query. Returns one logit per document, in the order of the documents. A larger logit means a better answer. The
    /// logistic function converts a logit to a score from 0 to 1. Calls `progress(tokens read so far, total tokens)` after each step.
    ///
    /// # Errors
    /// `Input` if the query or a document is empty, or if the model has no vocabulary; `Model` if a score is not finite; `Interrupted` by the stop
    /// flag; `Device` if a device failed.
    pub fn score(&mut self, query: &str, documents: &[&str], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        let model = self.reader.model();
        check_query(query)?;
        let texts = numbered(documents, &|document| encode_pair(model, query, document))?;
        self.score_texts(texts.into_iter().map(|tokens| (None, tokens)).collect(), progress)
    }

    /// Reads documents once, for several queries. Calls `progress(tokens read so far, total tokens)` after each step. The result holds one state
    /// per document, in host memory. A state takes 2.3 MiB for an embedding model of 0.1 billion parameters ([`Documents::size_bytes`] returns the
    /// sum).
    ///
    /// # Errors
    /// `Input` if a document is empty, or if the model has no vocabulary; `Interrupted` by the stop flag; `Device` if a device failed.
    pub fn read_documents(&mut self, documents: &[&str], progress: &mut dyn FnMut(usize, usize)) -> Result<Documents> {
        let model = self.reader.model();
        let texts = numbered(documents, &|document| before_any_query(model, document))?;
        let mut states: Vec<Option<Snapshot>> = vec![None; texts.len()];
        let mut keep = |_: &mut Scorer, read: Vec<(usize, Snapshot)>| {
            read.into_iter().for_each(|(i, state)| states[i] = Some(state));
            Ok(())
        };
        self.read(texts.iter().map(|tokens| (None, tokens.clone())).collect(), progress, &mut keep)?;
        let documents = documents.iter().zip(texts).zip(states.into_iter().flatten());
        Ok(Documents(documents.map(|((text, tokens), state)| Document { text: text.to_string(), tokens, state }).collect()))
    }

    /// Scores documents that were read before. The scores differ from the scores of [`score`](Self::score) by rounding only. For each document, reads
    /// only the tokens of the query. If the query changes how the end of the document is tokenized, reads the whole text again.
    ///
    /// # Errors
    /// The errors of [`score`](Self::score); `Input` if the documents were read with another model.
    pub fn score_read(&mut self, query: &str, documents: &Documents, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        check_query(query)?;
        let mut work = Vec::with_capacity(documents.0.len());
        for document in &documents.0 {
            let tokens = encode_pair(self.reader.model(), query, &document.text)?;
            let is_prefix = tokens.len() > document.tokens.len() && tokens.starts_with(&document.tokens);
            let from = if is_prefix { document.tokens.len() } else { 0 };
            work.push(((from > 0).then_some(&document.state), tokens[from..].to_vec()));
        }
        self.score_texts(work, progress)
    }

    /// Scores texts: pairs of the state before the text, and the tokens of the text.
    fn score_texts(&mut self, texts: Vec<(Option<&Snapshot>, Vec<u32>)>, progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<f32>> {
        let mut scores = vec![0.0; texts.len()];
        let mut score = |scorer: &mut Scorer, read: Vec<(usize, Snapshot)>| {
            let found = scorer.scores(read.iter().map(|(_, state)| state))?;
            read.iter().zip(found).for_each(|((i, _), score)| scores[*i] = score);
            Ok(())
        };
        self.read(texts, progress, &mut score)?;
        Ok(scores)
    }

    /// Reads texts. Calls `read` with the states of the texts that ended in the same step.
    fn read(
        &mut self,
        texts: Vec<(Option<&Snapshot>, Vec<u32>)>,
        progress: &mut dyn FnMut(usize, usize),
        read: &mut Read<'_>,
    ) -> Result<()> {
        let Reranker { reader, scorer } = self;
        let total = texts.iter().map(|(_, tokens)| tokens.len()).sum();
        let jobs = texts.into_iter().map(|(from, tokens)| (from, TextSpec::read(tokens)));
        let mut take = |batcher: &mut Batcher<&mut Session>| {
            let states = batcher.take_states().into_iter().map(|(job, state)| Ok((job.index(), state?)));
            read(scorer, states.collect::<Result<_>>()?)
        };
        Batcher::new(reader).read_all(jobs, total, progress, &mut take)
    }
}

/// Encodes documents. An error names the document by its number, from 1.
fn numbered(documents: &[&str], encode: &dyn Fn(&str) -> Result<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
    documents.iter().enumerate().map(|(i, document)| encode(document).map_err(|e| e.at(format!("document {}", i + 1)))).collect()
}

/// Returns an `Input` error if the query is empty.
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

/// Returns the token ids of the text before the query, as far as they agree for several sample queries. A query can change the last of these ids: a
/// colon and the blank after the colon may be one token or two.
fn before_any_query(model: &Model, document: &str) -> Result<Vec<u32>> {
    let mut tokens = encode_pair(model, "a", document)?;
    for query in ["1", "Who", "\n"] {
        let n = encode_pair(model, query, document)?.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        tokens.truncate(n);
    }
    Ok(tokens)
}

/// Documents that a [`Reranker`] has read once, and can then score for several queries.
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
