//! Compares the tensors of a GLM with its configuration. If they contradict each other, the files belong to different models.

use super::{Glm, OF_ANOTHER};
use crate::error::{Error, Result};
use crate::weights::{TensorSlot, layer_of};

/// The projections of a layer that have a bias if `attention_bias` is true.
const BIASED: [&str; 3] = ["q_proj", "k_proj", "v_proj"];

impl Glm {
    /// Compares the tensors of layer 0 with the configuration. Refuses unsupported biases in all layers. Other errors of later layers are
    /// reported when the model is loaded.
    ///
    /// # Errors
    ///
    /// `Model` if a shape or the presence of a bias or a norm contradicts the configuration.
    pub(in crate::weights) fn check_tensors(&self, slots: &[(String, TensorSlot)]) -> Result<()> {
        if let Some(flash) = &self.flash {
            return flash.check_tensors(self, slots);
        }
        let shape = |name: &str| slots.iter().find(|(n, _)| n == name).map(|(_, slot)| slot.shape());
        let refuse = |text: String, name: &str| Err(Error::model(text).at(format!("tensor {name}")).hint(OF_ANOTHER));
        let width = shape("model.embed_tokens.weight").and_then(|s| s.last().copied());
        let heads = |n: usize| format!("{n} heads of {}", self.head_size);
        let (q, kv) = ((self.q_rows(), heads(self.n_head)), (self.kv_rows(), heads(self.n_kv_head)));
        for (part, (rows, heads)) in BIASED.into_iter().zip([&q, &kv, &kv]) {
            let name = format!("model.layers.0.self_attn.{part}.weight");
            if let Some(found) =
                shape(&name).filter(|found| !matches!(found[..], [r, w] if r == *rows && width.is_none_or(|width| w == width)))
            {
                let width = width.map_or("any width".to_string(), |w| w.to_string());
                return refuse(format!("expected the shape [{rows}, {width}] ({heads}), found the shape {found:?}"), &name);
            }
            let bias = format!("model.layers.0.self_attn.{part}.bias");
            match (shape(&bias), self.attention_bias) {
                (Some(found), true) if found != [*rows] => {
                    return refuse(format!("expected the shape [{rows}] ({heads}), found the shape {found:?}"), &bias);
                }
                (Some(_), false) => {
                    return refuse("the configuration sets attention_bias to false, but the file has this bias".into(), &bias);
                }
                (None, true) if shape(&name).is_some() => {
                    return refuse("the configuration sets attention_bias to true, but the file lacks this bias".into(), &bias);
                }
                _ => {}
            }
        }
        let output = "model.layers.0.self_attn.o_proj.weight";
        if let Some(found) = shape(output).filter(|found| found.last() != Some(&q.0)) {
            return refuse(format!("expected {} columns ({}), found the shape {found:?}", q.0, q.1), output);
        }
        let more = "model.layers.0.post_self_attn_layernorm.weight";
        match (self.has_branch_norms(), shape(more).is_some()) {
            (true, false) if shape(output).is_some() => {
                return refuse(format!("the configuration sets model_type to {}, but the file lacks this norm", self.model_type), more);
            }
            (false, true) => {
                let text = format!("the configuration sets model_type to {}, but only glm4 and glm4v have this norm", self.model_type);
                return refuse(text, more);
            }
            _ => {}
        }
        // If biases of other projections were ignored, the model would run without an error and generate nonsense.
        let is_odd = |name: &str| {
            let part = name.strip_suffix(".bias").and_then(|n| n.rsplit('.').next());
            layer_of(name).is_some() && part.is_some_and(|part| !BIASED.contains(&part))
        };
        match slots.iter().find(|(name, _)| is_odd(name)) {
            Some((name, _)) => refuse("no supported GLM has this bias".into(), name),
            None => Ok(()),
        }
    }
}
