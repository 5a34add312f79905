//! What the configuration of a GLM says and no shape tells, whatever file said it: `config.json` of four formats, the metadata of
//! a GGUF file, or those that `convert` writes.

mod shapes;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result, short};
use serde::{Deserialize, Serialize};

/// The metadata that hold a [`Glm`], as JSON.
pub const GLM: &str = "wingbeat.glm";

/// Of ChatGLM's own files; of the same model in `transformers`; and of GLM-4-0414, which has two more norms a layer.
pub(super) const MODEL_TYPES: [&str; 3] = ["chatglm", "glm", "glm4"];
/// Of a projection: the widest that is known has 6144 rows.
const MAX_ROWS: usize = 1 << 24;
pub(super) const MAX_CONTEXT: usize = 1 << 30;
const MAX_THETA: f64 = 1e15;
pub(super) const MAX_EOS: usize = 64;
pub(super) const MAX_LABELS: usize = 1 << 16;
/// Bytes of a label.
const MAX_LABEL: usize = 1 << 10;
/// The base of the rotation where nothing is said; ChatGLM's `rope_ratio` multiplies it.
pub(super) const DEFAULT_THETA: f64 = 10_000.0;
/// What ends a text of GLM-4: `<|endoftext|>`, `<|user|>` and, after the call of a tool, `<|observation|>`.
pub(super) const DEFAULT_EOS: [u32; 3] = [151329, 151336, 151338];
/// What to do where configuration and tensors contradict each other.
pub(super) const OF_ANOTHER: &str = "this configuration belongs to another model: download both again";

/// Hyper-parameters of a GLM beside those that shapes tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Glm {
    /// `chatglm`, `glm` or `glm4`.
    pub model_type: String,
    /// H, query heads.
    pub n_head: usize,
    /// G, key and value heads.
    pub n_kv_head: usize,
    /// D; H · D need not be the width of the model.
    pub head_size: usize,
    /// R, how many components of a head are rotated.
    pub rotary_size: usize,
    /// Base of the rotation's wave lengths.
    pub rope_theta: f64,
    /// ε of all norms.
    pub rms_norm_eps: f32,
    /// Whether q, k and v have biases.
    pub attention_bias: bool,
    /// Tokens that the model was trained for.
    pub max_context: usize,
    /// Ids that end a text.
    pub eos: Vec<u32>,
    /// Id of padding.
    pub pad: Option<u32>,
    /// Names of the classes of a classifier, where it names them.
    #[serde(default)]
    pub labels: Vec<String>,
}

impl Glm {
    /// From the metadata. What could not be a model is refused, so that sizes can be multiplied without a second thought.
    pub fn parse(json: &str) -> Result<Glm> {
        let glm: Glm = serde_json::from_str(json).map_err(|e| {
            Error::file(format!("expected what a GLM's configuration says as JSON: {}", short(&e.to_string(), 200))).caused_by(e)
        })?;
        glm.check()
    }

    /// For the metadata.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists have a form in JSON")
    }

    /// What a user should know before the model runs, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let is_default_theta = self.rope_theta == DEFAULT_THETA;
        let right = "5e6 for glm-4-9b-chat, 1e8 for its -1m";
        if self.is_of_a_lossy_gguf() {
            // `gguf::glm` gives such a file the model type of its -hf original.
            return vec![format!(
                "rms_norm_eps {:e} and rope_theta {} are what llama.cpp's converter writes where it misses the real ones \
                 (1.5625e-7, and {right}): take a GGUF made of the original files, or set at least `rope_theta`",
                self.rms_norm_eps, self.rope_theta
            )];
        }
        if self.model_type == "glm" && self.max_context > 8192 && is_default_theta {
            return vec![format!(
                "rope_theta {} for {} tokens: the -hf files probably lost rope_ratio ({right}); `rope_theta` overrides it",
                self.rope_theta, self.max_context
            )];
        }
        vec![]
    }

    /// Rows of the query projection, H · D.
    pub fn q_rows(&self) -> usize {
        self.n_head * self.head_size
    }

    /// Rows of the key projection, and of the value's, G · D.
    pub fn kv_rows(&self) -> usize {
        self.n_kv_head * self.head_size
    }

    /// GLM-Edge has this ε and this base too, but turns whole heads.
    pub(super) fn is_of_a_lossy_gguf(&self) -> bool {
        self.model_type == "glm" && self.rope_theta == DEFAULT_THETA && self.rms_norm_eps == 1e-5 && self.rotary_size * 2 == self.head_size
    }

    /// Itself, if such a model can be.
    pub(super) fn check(self) -> Result<Glm> {
        let refuse = |text: String| Err(Error::model(text));
        let Glm { n_head, n_kv_head, head_size, rotary_size, .. } = self;
        if !MODEL_TYPES.contains(&self.model_type.as_str()) {
            let found = short(&self.model_type, 80);
            return refuse(format!("expected the model_type {}, found {found:?}", MODEL_TYPES.join(", ")));
        }
        if n_kv_head == 0 || n_head == 0 || !n_head.is_multiple_of(n_kv_head) {
            return refuse(format!("expected key heads that divide the query heads, found {n_kv_head} and {n_head}"));
        }
        if head_size == 0 || n_head.checked_mul(head_size).is_none_or(|rows| rows > MAX_ROWS) {
            return refuse(format!("expected heads of at most {MAX_ROWS} rows together, found {n_head} of {head_size}"));
        }
        if rotary_size == 0 || rotary_size > head_size || !rotary_size.is_multiple_of(2) {
            return refuse(format!("expected an even number of rotated components, from 2 to {head_size}, found {rotary_size}"));
        }
        if !(self.rope_theta > 1.0 && self.rope_theta <= MAX_THETA) {
            return refuse(format!("expected a rope_theta above 1, and at most {MAX_THETA:e}, found {}", self.rope_theta));
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return refuse(format!("expected an epsilon between 0 and 1, found {}", self.rms_norm_eps));
        }
        if !(1..=MAX_CONTEXT).contains(&self.max_context) {
            return refuse(format!("expected a context of 1 to {MAX_CONTEXT} tokens, found {}", self.max_context));
        }
        if self.eos.len() > MAX_EOS {
            return refuse(format!("expected at most {MAX_EOS} ids that end a text, found {}", self.eos.len()));
        }
        if self.labels.len() > MAX_LABELS || self.labels.iter().any(|label| label.len() > MAX_LABEL) {
            return refuse(format!("expected at most {MAX_LABELS} labels of at most {MAX_LABEL} bytes, found more"));
        }
        Ok(self)
    }
}
