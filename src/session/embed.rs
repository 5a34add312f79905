//! Computes one vector per text, for callers that wait until all texts are read.

use super::batcher::Batcher;
use super::text::TextSpec;
use super::vectors::{EmbedOptions, VectorRule};
use super::{Model, Session};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The vector of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The vector, `[n_embd]`.
    pub vector: Vec<f32>,
    /// The number of tokens that the model has read, including the end-of-text token of an embedding model.
    pub n_tokens: usize,
}

/// Computes vectors of texts, several texts at a time.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::low_level::session::{EmbedOptions, Embedder, Model, ModelSource, Options, Output};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?;
/// options.output = Output::Hidden;
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let mut embedder = Embedder::new(&model, 2, &EmbedOptions::default())?;
/// let found = embedder.embed(&["In the beginning", "And God said"], &mut |_done, _total| ())?;
/// let cosine: f32 = found[0].vector.iter().zip(&found[1].vector).map(|(a, b)| a * b).sum();
/// assert!(cosine < 1.0 && found[0].vector.len() == model.facts().n_embd);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded-model"))]
/// # fn main() {}
/// ```
pub struct Embedder {
    session: Session,
    n_slots: usize,
    rule: Arc<VectorRule>,
}

impl Embedder {
    /// Creates an embedder that reads up to `n_slots` texts at a time. A model that was opened with [`Output::Hidden`](super::Output) is faster,
    /// because no step computes logits. The vectors do not depend on this choice. A browser supports only models that return hidden states.
    ///
    /// # Errors
    /// The errors of [`VectorRule::new`] and [`Session::new`].
    pub fn new(model: &Model, n_slots: usize, options: &EmbedOptions) -> Result<Embedder> {
        Ok(Embedder { rule: VectorRule::new(model, options)?, session: Session::new(model, n_slots)?, n_slots })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.session.model()
    }

    /// Returns the flag that interrupts the embedder between two steps, as [`Session::stop_flag`] does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.session.stop_flag()
    }

    /// Returns how many texts are read at a time.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// Returns the token ids that the model reads for a text: see [`VectorRule::encode`].
    ///
    /// # Errors
    /// The errors of [`VectorRule::encode`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.rule.encode(self.model(), text)
    }

    /// Returns the token ids that the model reads for a text that a caller has tokenized: see [`VectorRule::encode_tokens`].
    ///
    /// # Errors
    /// The errors of [`VectorRule::encode_tokens`].
    pub fn encode_tokens(&self, tokens: &[u32]) -> Result<Vec<u32>> {
        self.rule.encode_tokens(self.model(), tokens)
    }

    /// Computes the vectors of texts, in the order of the texts. Calls `progress(tokens read so far, total tokens)` after each step.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode) and [`embed_tokens`](Self::embed_tokens). An error of `encode` names the text by its number, from 1.
    pub fn embed(&mut self, texts: &[&str], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Embedding>> {
        let encoded = texts.iter().enumerate().map(|(i, text)| self.encode(text).map_err(|e| e.at(format!("text {}", i + 1))));
        let tokens = encoded.collect::<Result<Vec<_>>>()?;
        let tokens: Vec<&[u32]> = tokens.iter().map(Vec::as_slice).collect();
        let vectors = self.embed_tokens(&tokens, progress)?;
        Ok(vectors.into_iter().zip(tokens).map(|(vector, tokens)| Embedding { vector, n_tokens: tokens.len() }).collect())
    }

    /// Computes the vectors, `[n_embd]` each, of texts that are given as token ids. Calls `progress(tokens read so far, total tokens)` after
    /// each step.
    ///
    /// # Errors
    /// `Input` if a text has no tokens or more tokens than the context, or if an id is out of range; `Input` if a text for an embedding model lacks
    /// the end-of-text token; `Model` if a number of a vector is not finite; `Interrupted` by the stop flag; `Device` if the device failed.
    pub fn embed_tokens(&mut self, texts: &[&[u32]], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Vec<f32>>> {
        texts.iter().try_for_each(|tokens| self.rule.check(self.session.model(), tokens))?;
        let total = texts.iter().map(|tokens| tokens.len()).sum();
        let mut vectors = vec![Vec::new(); texts.len()];
        let specs = texts.iter().map(|tokens| (None, TextSpec::vector(tokens.to_vec(), self.rule.clone())));
        let mut take = |batcher: &mut Batcher<&mut Session>| {
            batcher.take_pooled().into_iter().for_each(|(id, vector)| vectors[id.index()] = vector);
            Ok(())
        };
        Batcher::new(&mut self.session).read_all(specs, total, progress, &mut take)?;
        Ok(vectors)
    }
}
