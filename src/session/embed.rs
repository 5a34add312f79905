//! Computes one vector per text from the hidden states after the text's tokens.
//!
//! For an EmbeddingRWKV model, the vector begins as the mean of the hidden states after the end-of-text tokens. The layers of a task, which run on
//! the host, then transform the mean. For any other model, the vector is the hidden state after the last token, or the mean of all hidden states.

use super::work::{Cut, Wanted};
use super::{Model, Prompt, Session, Slot};
use crate::arch::{Purpose, Task};
use crate::error::{Error, Result};
use crate::words::LAYER_NORM_EPS;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How the hidden states of a text become one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The hidden state after the last token.
    #[default]
    Last,
    /// The mean of the hidden states after all tokens.
    Mean,
}

/// Options of an [`Embedder`]. Start from `EmbedOptions::default()`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// How hidden states become a vector. `None` means [`Pooling::Last`]. Must be `None` for an embedding model, which always uses the end-of-text
    /// tokens.
    pub pooling: Option<Pooling>,
    /// The task of an embedding model, which selects the layers after pooling. `None` means [`Task::Retrieval`]. Must be `None` for any other
    /// model.
    pub task: Option<Task>,
    /// True if vectors are scaled to the Euclidean length 1.
    pub normalise: bool,
}

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions { pooling: None, task: None, normalise: true }
    }
}

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
/// use wingbeat::session::{EmbedOptions, Embedder, Model, ModelSource, Options, Output};
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
    rule: Rule,
    normalise: bool,
}

/// The rule by which rows of hidden states become a vector.
enum Rule {
    Pooled(Pooling),
    /// The rule of EmbeddingRWKV: the mean of the hidden states after every token with this id, then the layers of a task.
    Ends(u32, Box<TaskLayers>),
}

impl Embedder {
    /// Creates an embedder that reads up to `n_slots` texts at a time. A model that was opened with [`Output::Hidden`](super::Output) computes
    /// vectors faster, because no step computes logits. A model that was opened for logits gives the same vectors. In a browser, only models that
    /// return hidden states can be used.
    ///
    /// # Errors
    /// `Usage` if an option does not suit the model; `Model` if the model is a reranker or lacks tensors of the
    /// task; the errors of [`Session::new`].
    pub fn new(model: &Model, n_slots: usize, options: &EmbedOptions) -> Result<Embedder> {
        let rule = match &model.facts().purpose {
            Purpose::Embedding { end, tasks } => {
                if options.pooling.is_some() {
                    return Err(Error::usage("this model has its own pooling").field("pooling").hint("leave out `pooling`"));
                }
                let task = options.task.unwrap_or_default();
                if !tasks.contains(&task) {
                    let names: Vec<&str> = tasks.iter().map(|t| t.name()).collect();
                    let text = format!("expected a task of this model, found {}", task.name());
                    return Err(Error::usage(text).field("task").hint(format!("the model has layers for {}", names.join(", "))));
                }
                Rule::Ends(*end, Box::new(TaskLayers::read(model, task)?))
            }
            Purpose::Reranker { .. } => {
                return Err(Error::model("this model is a reranker and computes no vectors").hint("use its embedding model"));
            }
            Purpose::Logits => {
                if let Some(task) = options.task {
                    let text = format!("this model has no tasks, but the task {} is given", task.name());
                    return Err(Error::usage(text).field("task").hint("leave out `task`; only EmbeddingRWKV models have tasks"));
                }
                Rule::Pooled(options.pooling.unwrap_or_default())
            }
        };
        let mut session = Session::new(model, n_slots)?;
        session.gives_hidden = !model.returns_hidden();
        Ok(Embedder { session, n_slots, rule, normalise: options.normalise })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        self.session.model()
    }

    /// Returns the flag that interrupts the embedder between two steps, as [`Session::stop_flag`] does.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.session.stop_flag()
    }

    /// Closes the slots that a call left open because it panicked.
    #[cfg(feature = "serve")]
    pub(crate) fn recover(&mut self) {
        self.session.close_all();
    }

    /// Returns how many texts are read at a time.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// Returns the token ids that the model reads for a text: the ids of a prompt with this text and, for an embedding model, the end-of-text
    /// token.
    ///
    /// # Errors
    /// `Input` if the text is empty, has more tokens than the context, or cannot be encoded, or if the model has no vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if text.is_empty() {
            return Err(Error::input("the text is empty"));
        }
        let mut tokens = self.session.encode(&Prompt::Text(text))?;
        if let Rule::Ends(end, _) = &self.rule {
            tokens.push(*end);
        }
        self.check(&tokens)?;
        Ok(tokens)
    }

    /// Returns the token ids that the model reads for a text that a caller has tokenized. For an embedding model, adds the end-of-text token if
    /// `tokens` does not end with this token. Otherwise returns `tokens`.
    ///
    /// # Errors
    /// `Input` if the text has no tokens or more tokens than the context.
    pub fn encode_tokens(&self, tokens: &[u32]) -> Result<Vec<u32>> {
        let mut tokens = tokens.to_vec();
        if let Rule::Ends(end, _) = &self.rule
            && !tokens.is_empty()
            && tokens.last() != Some(end)
        {
            tokens.push(*end);
        }
        self.check(&tokens)?;
        Ok(tokens)
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::input("expected at least one token, found none"));
        }
        if let Some(context) = self.model().context().filter(|&context| tokens.len() > context) {
            let text = format!("the text has {} tokens, more than the context of {context} tokens", tokens.len());
            return Err(Error::input(text).hint("use a larger `context`, or a shorter text"));
        }
        match &self.rule {
            Rule::Ends(end, _) if !tokens.contains(end) => {
                Err(Error::input(format!("the tokens lack the end-of-text token {end} of this model")))
            }
            _ => Ok(()),
        }
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
        texts.iter().try_for_each(|tokens| self.check(tokens))?;
        let total: usize = texts.iter().map(|tokens| tokens.len()).sum();
        let (mut vectors, mut done) = (Vec::new(), 0);
        for group in texts.chunks(self.n_slots) {
            if done > 0 {
                self.session.check_stop(done, total)?;
            }
            let slots = group.iter().map(|_| self.session.open()).collect::<Result<Vec<_>>>()?;
            let work: Vec<(Slot, &[u32])> = slots.iter().copied().zip(group.iter().copied()).collect();
            let pooled = self.pooled(&work, &mut |read, _| progress(done + read, total));
            slots.into_iter().try_for_each(|slot| self.session.close(slot))?;
            for row in pooled? {
                vectors.push(self.finished(row)?);
            }
            done += group.iter().map(|tokens| tokens.len()).sum::<usize>();
        }
        Ok(vectors)
    }

    /// Reads texts. Returns one row per text: the mean of the hidden states that the rule selects.
    fn pooled(&mut self, work: &[(Slot, &[u32])], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Vec<f32>>> {
        let takes = |tokens: &[u32], t: usize| match &self.rule {
            Rule::Pooled(Pooling::Mean) => true,
            Rule::Pooled(Pooling::Last) => t + 1 == tokens.len(),
            Rule::Ends(end, _) => tokens[t] == *end,
        };
        let needs_all = work.iter().any(|(_, tokens)| (0..tokens.len() - 1).any(|t| takes(tokens, t)));
        let wanted = if needs_all { Wanted::All } else { Wanted::Last };
        let mut sums = vec![(vec![0f64; self.session.model().facts().n_embd], 0u32); work.len()];
        let mut each = |i: usize, t: usize, row: &[f32]| {
            if takes(work[i].1, t) {
                let (sum, n) = &mut sums[i];
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
                *n += 1;
            }
            Ok(())
        };
        self.session.read(work, Cut::Chunks, (wanted, Some(&mut each)), progress)?;
        Ok(sums.into_iter().map(|(sum, n)| sum.into_iter().map(|x| (x / f64::from(n)) as f32).collect()).collect())
    }

    /// Returns the vector of a text from its mean hidden state. Applies the layers of the task for an embedding model. Scales the vector to the
    /// Euclidean length 1 if the options say so.
    ///
    /// # Errors
    /// `Model` if a number of the vector is not finite.
    fn finished(&self, row: Vec<f32>) -> Result<Vec<f32>> {
        let vector = match &self.rule {
            Rule::Pooled(_) => row,
            Rule::Ends(_, layers) => layers.apply(&row),
        };
        let scaled = scaled(&vector)?;
        Ok(if self.normalise { scaled } else { vector })
    }
}

/// Scales a vector to the Euclidean length 1. A vector of zeros stays as it is.
///
/// # Errors
/// `Model` if a number of the vector is not finite.
pub(super) fn scaled(vector: &[f32]) -> Result<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() {
        return Err(Error::model("the model computed a vector with a number that is not finite").hint("try `dtype=f32`"));
    }
    Ok(vector.iter().map(|x| if length > 0.0 { (f64::from(*x) / length) as f32 } else { *x }).collect())
}

/// The layers of a task: y = LN(W2 relu(W1 x) + x), for a vector x of n_embd numbers. `first` is W1 and `second` is W2. Both are `[n_embd, n_embd]`
/// and row-major. LN is a layer norm with `weight` and `bias`.
struct TaskLayers {
    first: Vec<f32>,
    second: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl TaskLayers {
    fn read(model: &Model, task: Task) -> Result<TaskLayers> {
        let c = model.facts().n_embd;
        let tensor = |name: &str, shape: &[usize]| model.host_tensor(&format!("{}{name}", task.prefix()), shape);
        Ok(TaskLayers {
            first: tensor("fc1.weight", &[c, c])?,
            second: tensor("fc2.weight", &[c, c])?,
            weight: tensor("norm.weight", &[c])?,
            bias: tensor("norm.bias", &[c])?,
        })
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let hidden: Vec<f32> = product(&self.first, x).into_iter().map(|h| h.max(0.0)).collect();
        let sum: Vec<f32> = product(&self.second, &hidden).iter().zip(x).map(|(y, x)| y + x).collect();
        let n = sum.len() as f32;
        let mean = sum.iter().sum::<f32>() / n;
        let variance = sum.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n;
        let scale = 1.0 / (variance + LAYER_NORM_EPS).sqrt();
        let norms = self.weight.iter().zip(&self.bias);
        sum.iter().zip(norms).map(|(x, (weight, bias))| (x - mean) * scale * weight + bias).collect()
    }
}

/// Returns W x for a row-major matrix W, `[rows, x.len()]`.
pub(super) fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}
