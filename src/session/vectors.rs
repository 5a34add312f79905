//! Pools the hidden states after the tokens of a text into one vector.
//!
//! For an EmbeddingRWKV model, the vector begins as the mean of the hidden states after the end-of-text tokens. The layers of a task, which run on
//! the host, then transform the mean. For any other model, the vector is the hidden state after the last token, or the mean of all hidden states. For
//! the classes of a text, the vector is the logits of a classifier after the last token.

use super::Model;
use crate::arch::{Purpose, Task};
use crate::error::{Error, Result};
use crate::vocab::Vocab;
use crate::words::LAYER_NORM_EPS;
use std::sync::Arc;

/// How the hidden states of a text become one vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The hidden state after the last token.
    #[default]
    Last,
    /// The mean of the hidden states after all tokens.
    Mean,
}

/// Options of vectors. Start from `EmbedOptions::default()`, or end a list of fields with `..EmbedOptions::default()`: minor versions add fields.
#[derive(Debug, Clone)]
pub struct EmbedOptions {
    /// How hidden states become a vector. `None` means [`Pooling::Last`]. Must be `None` for an embedding model, which always uses the end-of-text
    /// tokens.
    pub pooling: Option<Pooling>,
    /// The task for which vectors are computed. The task selects the layers that an embedding model runs after pooling. `None` means
    /// [`Task::Retrieval`]. Must be `None` for any other model.
    pub task: Option<Task>,
    /// True if vectors are scaled to the Euclidean length 1.
    pub normalise: bool,
}

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions { pooling: None, task: None, normalise: true }
    }
}

/// The rule by which a model computes vectors. Texts share a rule in an [`Arc`], because an embedding model's rule holds the layers of a task.
pub struct VectorRule {
    rows: Rows,
    normalise: bool,
}

/// Selects the hidden states whose mean becomes the vector.
enum Rows {
    Pooled(Pooling),
    /// The rule of EmbeddingRWKV: the hidden states after every end-of-text token. The fields are the id of that token, and the layers that transform
    /// the mean.
    Ends(u32, TaskLayers),
    /// The logits of a classifier after the last token.
    Classes,
}

impl VectorRule {
    /// Returns the rule whose vector is the logits of a classifier, one per label, in the order of [`Facts::labels`](crate::arch::Facts).
    ///
    /// # Errors
    /// `Model` if the model is no classifier.
    pub fn classes(model: &Model) -> Result<Arc<VectorRule>> {
        model.check_classifies()?;
        Ok(Arc::new(VectorRule { rows: Rows::Classes, normalise: false }))
    }

    /// Returns the rule for a model's vectors.
    ///
    /// # Errors
    /// `Usage` if an option does not suit the model; `Model` if the model is a reranker or lacks tensors of the task.
    pub fn new(model: &Model, options: &EmbedOptions) -> Result<Arc<VectorRule>> {
        let rows = match &model.facts().purpose {
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
                Rows::Ends(*end, TaskLayers::read(model, task)?)
            }
            Purpose::Reranker { .. } => {
                return Err(Error::model("this model is a reranker and computes no vectors").hint("use its embedding model"));
            }
            Purpose::Logits => {
                if let Some(task) = options.task {
                    let text = format!("this model has no tasks, but the task {:?} is given", task.name());
                    return Err(Error::usage(text).field("task").hint("leave out `task`; only EmbeddingRWKV models have tasks"));
                }
                Rows::Pooled(options.pooling.unwrap_or_default())
            }
        };
        Ok(Arc::new(VectorRule { rows, normalise: options.normalise }))
    }

    /// Returns the token ids that the model reads for a text: the ids of a prompt with this text. For an embedding model, the end-of-text token
    /// follows.
    ///
    /// # Errors
    /// `Input` if the text is empty, has more tokens than the context, or cannot be encoded, or if the model has no vocabulary.
    pub fn encode(&self, model: &Model, text: &str) -> Result<Vec<u32>> {
        if text.is_empty() {
            return Err(Error::input("the text is empty"));
        }
        let mut tokens = model.encode(text, Vocab::encode_prompt)?;
        if let Rows::Ends(end, _) = &self.rows {
            tokens.push(*end);
        }
        self.check(model, &tokens)?;
        Ok(tokens)
    }

    /// Returns the token ids that the model reads for a text that a caller has tokenized. For an embedding model, adds the end-of-text token if
    /// `tokens` does not end with it. For any other model, returns `tokens`.
    ///
    /// # Errors
    /// `Input` if the text has no tokens, more tokens than the context, or an id that the model does not know.
    pub fn encode_tokens(&self, model: &Model, tokens: &[u32]) -> Result<Vec<u32>> {
        let mut tokens = tokens.to_vec();
        if let Rows::Ends(end, _) = &self.rows
            && !tokens.is_empty()
            && tokens.last() != Some(end)
        {
            tokens.push(*end);
        }
        self.check(model, &tokens)?;
        Ok(tokens)
    }

    /// Checks that the rule can compute a vector from the tokens.
    fn check(&self, model: &Model, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::input("expected at least one token, found none"));
        }
        if let Some(context) = model.context().filter(|&context| tokens.len() > context) {
            let text = format!("the text has {} tokens, more than the context of {context} tokens", tokens.len());
            return Err(Error::input(text).hint("use a larger `context`, or a shorter text"));
        }
        model.check_ids(tokens)
    }

    fn takes(&self, token: u32, is_last: bool) -> bool {
        match &self.rows {
            Rows::Pooled(Pooling::Mean) => true,
            Rows::Pooled(Pooling::Last) | Rows::Classes => is_last,
            Rows::Ends(end, _) => token == *end,
        }
    }
}

/// Collects the hidden states, or the logits, of a text. `sum` is the sum of the `n` rows that count.
pub(super) struct Pool {
    rule: Arc<VectorRule>,
    /// True if the hidden state after a token other than the last counts.
    pub needs_all: bool,
    sum: Vec<f64>,
    n: u32,
}

impl Pool {
    /// Returns a pool for a text with the given tokens.
    pub fn new(rule: Arc<VectorRule>, tokens: &[u32]) -> Pool {
        let before = tokens.split_last().map_or(&[][..], |(_, before)| before);
        let needs_all = before.iter().any(|token| rule.takes(*token, false));
        Pool { rule, needs_all, sum: Vec::new(), n: 0 }
    }

    /// Returns whether the pool adds logits. Otherwise it adds hidden states.
    pub fn takes_logits(&self) -> bool {
        matches!(self.rule.rows, Rows::Classes)
    }

    /// Adds `row`, the hidden state or the logits after `token`, if it counts. `is_last` is true for the last token of the text.
    pub fn add(&mut self, row: &[f32], token: u32, is_last: bool) {
        if self.rule.takes(token, is_last) {
            self.sum.resize(row.len(), 0.0);
            self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            self.n += 1;
        }
    }

    /// Returns the vector of the text, `[n_embd]`, or `[n_labels]` for the logits of a classifier.
    ///
    /// # Errors
    /// `Model` if a number of the vector is not finite.
    pub fn vector(self) -> Result<Vec<f32>> {
        let mut vector: Vec<f32> = self.sum.into_iter().map(|x| (x / f64::from(self.n)) as f32).collect();
        if let Rows::Ends(_, layers) = &self.rule.rows {
            vector = layers.apply(&vector);
        }
        let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if !length.is_finite() {
            return Err(Error::model("the model computed a vector with a number that is not finite").hint("try `dtype=f32`"));
        }
        // A vector of zeros stays as it is.
        if self.rule.normalise && length > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        Ok(vector)
    }
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

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{Batcher, ModelSource, Options, Output, Session, TextSpec};

    #[test]
    fn a_panic_is_an_error_of_its_job_alone() {
        let options = Options { device: "cpu".parse().unwrap(), output: Output::Hidden, ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let good = VectorRule::new(&model, &EmbedOptions::default()).unwrap();
        // Layers without numbers panic.
        let empty = || TaskLayers { first: Vec::new(), second: Vec::new(), weight: Vec::new(), bias: Vec::new() };
        let bad = Arc::new(VectorRule { rows: Rows::Ends(2, empty()), normalise: true });
        let mut batcher = Batcher::new(Session::new(&model, 2).unwrap());
        let jobs = [good.clone(), bad].map(|rule| batcher.add(TextSpec::vector(vec![1, 2], rule)).unwrap());
        let mut ended = batcher.step(&mut |_, _| ()).unwrap();
        ended.sort_by_key(|done| done.id);
        assert!(ended[0].output.is_ok() && ended[1].output.as_ref().unwrap_err().message.starts_with("internal error: "));
        assert!(batcher.take_pooled().iter().map(|(job, _)| *job).eq([jobs[0]]) && batcher.n_free() == 2);
        batcher.add(TextSpec::vector(vec![3], good)).unwrap();
        assert_eq!((batcher.step(&mut |_, _| ()).unwrap().len(), batcher.take_pooled().len()), (1, 1));
    }
}
