//! The settings of a GLM that the tensors' shapes do not determine. The settings are read from a `config.json`, from the metadata of a GGUF
//! file, or from the metadata that `convert` writes.

mod flash;
mod shapes;
#[cfg(test)]
mod tests;

pub use flash::Flash;
pub(super) use flash::MAX_LAYERS;

use crate::error::{Error, Result, short, with_place};
use serde::{Deserialize, Serialize};

/// The metadata key of a [`Glm`] as JSON.
pub const GLM: &str = "wingbeat.glm";

/// The model types: `chatglm` for ChatGLM's own files, `glm` for the same models in `transformers`, `glm4` for GLM-4-0414 (with two more norms per
/// layer), [`VISION`] and [`FLASH`].
pub(super) const MODEL_TYPES: [&str; 5] = ["chatglm", "glm", "glm4", VISION, FLASH];
/// The model type of the text half of a model that also reads images, such as GLM-4.1V. The text half has the same layers as `glm4`.
pub(super) const VISION: &str = "glm4v";
/// The model type of GLM-4.7-Flash, which has latent attention and experts.
pub const FLASH: &str = "glm4_moe_lite";
/// The largest number of rows of a projection. The widest published projection has 6144.
const MAX_ROWS: usize = 1 << 24;
/// The largest context length, in tokens.
pub(super) const MAX_CONTEXT: usize = 1 << 30;
const MAX_THETA: f64 = 1e15;
/// The largest number of ids that end a text.
pub(super) const MAX_EOS: usize = 64;
/// The largest number of class names.
pub(super) const MAX_LABELS: usize = 1 << 16;
/// The maximum length of a class name, in bytes.
const MAX_LABEL: usize = 1 << 10;
/// The default base of rotary embeddings. In ChatGLM's own files, `rope_ratio` multiplies this base.
pub(super) const DEFAULT_THETA: f64 = 10_000.0;
/// The ids that end a text of GLM-4: `<|endoftext|>`, `<|user|>` and, after a tool call, `<|observation|>`.
pub(super) const DEFAULT_EOS: [u32; 3] = [151329, 151336, 151338];
/// The hint for a configuration that contradicts the tensors.
pub(super) const OF_ANOTHER: &str = "this configuration belongs to another model: download config.json and the weights again";

/// The hyper-parameters of a GLM that the tensors' shapes do not determine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Glm {
    /// The model type: `chatglm`, `glm`, `glm4`, `glm4v` or `glm4_moe_lite`.
    pub model_type: String,
    /// The number H of query heads.
    pub n_head: usize,
    /// The number G of key heads, which is also the number of value heads.
    pub n_kv_head: usize,
    /// The number D of channels of a head. H · D may differ from the width of the model.
    pub head_size: usize,
    /// The number R of channels of a head that are rotated.
    pub rotary_size: usize,
    /// The base θ of rotary embeddings.
    pub rope_theta: f64,
    /// The ε of all RMS norms.
    pub rms_norm_eps: f32,
    /// True if the projections of queries, keys and values have biases.
    pub attention_bias: bool,
    /// The context length for which the model was trained, in tokens.
    pub max_context: usize,
    /// The ids of tokens that end a text.
    pub eos: Vec<u32>,
    /// The id of the padding token, or `None` if the model has no padding token.
    pub pad: Option<u32>,
    /// The class names of a classifier. The list is empty if the configuration has no class names.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The settings of latent attention and experts. `None` for all model types but [`FLASH`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Flash>,
}

impl Glm {
    /// Reads the JSON of the metadata key [`GLM`]. Sizes that are too large are errors, so products of sizes do not overflow.
    ///
    /// # Errors
    ///
    /// `File` if the text is not JSON of this form. `Model` if a value is out of range.
    pub fn parse(json: &str) -> Result<Glm> {
        let glm: Glm = serde_json::from_str(json).map_err(|e| {
            Error::file(format!("expected the configuration of a GLM as JSON: {}", short(&with_place(&e), 200))).caused_by(e)
        })?;
        glm.check()
    }

    /// Returns the JSON for the metadata key [`GLM`].
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, strings and lists have a form in JSON")
    }

    /// Returns warnings about settings that are probably wrong, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let is_default_theta = self.rope_theta == DEFAULT_THETA;
        let right = "5e6 for glm-4-9b-chat, 1e8 for its -1m";
        if self.is_of_a_lossy_gguf() {
            // The reader `gguf::glm` gives the model type `glm` to a GGUF file that was made from the `-hf` version of a model.
            return vec![format!(
                "rms_norm_eps {:e} and rope_theta {} are defaults of llama.cpp's converter, which missed the model's values \
                 (1.5625e-7, and {right}): use a GGUF made from the original files, or set at least `rope_theta`",
                self.rms_norm_eps, self.rope_theta
            )];
        }
        if self.model_type == "glm" && self.max_context > 8192 && is_default_theta {
            return vec![format!(
                "rope_theta {} for {} tokens: the -hf files probably lost rope_ratio ({right}); `rope_theta` overrides it",
                self.rope_theta, self.max_context
            )];
        }
        if self.model_type == VISION {
            return vec!["only the text half of this vision model is read: images are not supported".into()];
        }
        vec![]
    }

    /// Returns true if the layers also normalise the outputs of attention and mlp, as in GLM-4-0414.
    pub fn has_branch_norms(&self) -> bool {
        ["glm4", VISION].contains(&self.model_type.as_str())
    }

    /// Returns the number of rows of the query projection: query heads times channels of a head.
    pub fn q_rows(&self) -> usize {
        self.n_head * self.head_size
    }

    /// Returns the number of rows of the key projection: key heads times channels of a head. The value projection has as many rows.
    pub fn kv_rows(&self) -> usize {
        self.n_kv_head * self.head_size
    }

    /// Returns true if llama.cpp's converter probably lost the model's ε and rotary base. Both values then equal the converter's defaults, and
    /// half of each head is rotated. GLM-Edge really has these defaults, but rotates whole heads.
    pub(super) fn is_of_a_lossy_gguf(&self) -> bool {
        self.model_type == "glm" && self.rope_theta == DEFAULT_THETA && self.rms_norm_eps == 1e-5 && self.rotary_size * 2 == self.head_size
    }

    /// Returns the settings if all values are in range.
    ///
    /// # Errors
    ///
    /// `Model` if a value is out of range.
    pub(super) fn check(self) -> Result<Glm> {
        let refuse = |text: String| Err(Error::model(text));
        let Glm { n_head, n_kv_head, head_size, rotary_size, .. } = self;
        if !MODEL_TYPES.contains(&self.model_type.as_str()) {
            let found = short(&self.model_type, 80);
            return refuse(format!("expected a GLM with model_type {}, found {found:?}", MODEL_TYPES.join(", ")));
        }
        if n_kv_head == 0 || n_head == 0 || !n_head.is_multiple_of(n_kv_head) {
            return refuse(format!(
                "expected a number of query heads that is a multiple of the key heads, found {n_head} query heads and {n_kv_head} key heads"
            ));
        }
        if head_size == 0 || n_head.checked_mul(head_size).is_none_or(|rows| rows > MAX_ROWS) {
            return refuse(format!("expected query heads of at most {MAX_ROWS} rows together, found {n_head} heads of {head_size} rows"));
        }
        if rotary_size == 0 || rotary_size > head_size || !rotary_size.is_multiple_of(2) {
            return refuse(format!("expected an even number of rotated components per head from 2 to {head_size}, found {rotary_size}"));
        }
        if !(self.rope_theta > 1.0 && self.rope_theta <= MAX_THETA) {
            return refuse(format!("expected a rope_theta above 1 and at most {MAX_THETA:e}, found {}", self.rope_theta));
        }
        if !(self.rms_norm_eps > 0.0 && self.rms_norm_eps < 1.0) {
            return refuse(format!("expected an epsilon of the norms between 0 and 1, found {}", self.rms_norm_eps));
        }
        if !(1..=MAX_CONTEXT).contains(&self.max_context) {
            return refuse(format!("expected a model with a context of 1 to {MAX_CONTEXT} tokens, found {} tokens", self.max_context));
        }
        if self.eos.len() > MAX_EOS {
            return refuse(format!("expected at most {MAX_EOS} token ids that end a text, found {} ids", self.eos.len()));
        }
        if self.labels.len() > MAX_LABELS || self.labels.iter().any(|label| label.len() > MAX_LABEL) {
            return refuse(format!("expected at most {MAX_LABELS} class names of at most {MAX_LABEL} bytes, found more or longer names"));
        }
        match (&self.flash, self.model_type == FLASH) {
            (Some(flash), true) => flash.check(&self)?,
            (None, false) => {}
            (found, _) => {
                let found = if found.is_some() { "with" } else { "without" };
                return refuse(format!(
                    "expected settings of experts with the model_type {FLASH} only, found {} {found} such settings",
                    self.model_type
                ));
            }
        }
        Ok(self)
    }
}
