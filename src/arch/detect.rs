//! Detects the architecture of a checkpoint. Unsupported variants are looked for first, then the supported architectures.

use super::{ARCHS, Blueprint, Shapes};
use crate::error::{Error, Result, short};

/// Unsupported models, each with a part of a tensor name by which it is recognised. [`detect`] checks this list first, because most of these models
/// also have the tensors of a supported model. The check searches all layers, because some of the names occur in one layer only.
const REFUSED: &[(&str, &str)] = &[
    (".ffn.enn.", "an RWKV-8 release candidate"),
    (".rosa.", "an RWKV-8 ROSA experiment"),
    (".att.gate_w1", "RWKV x060a, a research variant"),
    (".att.time_maa_rkvw_w1", "RWKV x060b or x060c, a research variant"),
    (".tiny_q.", "a research variant of RWKV-4 with attention (tiny_q)"),
    ("head_q.", "RWKV-2 or 3, or a research variant of RWKV-4"),
    (".ffnPre.", "a research variant of RWKV-4 (ffnPre)"),
    (".att.qq.", "a research variant of RWKV-4 with attention (qq)"),
    (".ffn.aa.", "a research variant of RWKV-4 (ffn.aa)"),
    ("pos_emb_x", "a research variant with position embeddings"),
];

/// Detects the architecture and reads the model's hyper-parameters.
///
/// # Errors
///
/// `Model` if the file is an unsupported variant, a saved state, a LoRA adapter or no model, or if a tensor is missing or has an unsupported
/// shape.
pub fn detect(shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
    let runs = || ARCHS.iter().rev().map(|arch| arch.about()).collect::<Vec<_>>().join(", ");
    let refuse = |what: &str, tensor: &str| {
        Err(Error::model(format!("unsupported model: {what}, recognised by the tensor {tensor}")).hint(format!("wingbeat runs {}", runs())))
    };
    if let Some((what, name)) = REFUSED.iter().find_map(|(part, what)| Some((what, shapes.find(&|name| name.contains(part))?))) {
        return refuse(what, &name);
    }
    // RWKV-7 is the only version whose variants with DeepEmbed, in the ffn or in attention, are supported.
    let is_deep = |name: &str| [".ffn.s_emb.", ".qkv.k_emb."].iter().any(|part| name.contains(part));
    if let Some(name) = shapes.find(&is_deep).filter(|_| !shapes.has_att("r_k")) {
        return refuse("a variant of RWKV-4 to 6 with DeepEmbed", &name);
    }
    for (tensor, what) in [("time_w", "RWKV-1"), ("time_alpha", "RWKV-1"), ("time_mix", "RWKV-2")] {
        if shapes.has_att(tensor) {
            return refuse(what, &format!("blocks.0.att.{tensor}"));
        }
    }
    // In RWKV-2 and 3, the bonus `time_first` has the shape [n, 1], and the time mix has no group norm `ln_x`.
    let is_old = |s: &Vec<usize>| matches!(s[..], [n, 1] if n > 1) && !shapes.has_att("ln_x.weight");
    if let Some(shape) = shapes.shape("blocks.0.att.time_first").filter(is_old) {
        return refuse("RWKV-2 or 3", &format!("blocks.0.att.time_first of shape {shape:?}"));
    }
    match ARCHS.iter().find(|a| a.recognises(shapes)) {
        Some(arch) if shapes.shape("emb.weight").is_some() => arch.read(shapes),
        _ if shapes.metadata("weights_hash").is_some() => {
            let of = shapes.metadata("architecture").unwrap_or("an unknown architecture");
            let e = Error::model(format!("this is a state file of wingbeat for {}, not a model", short(of, 40)));
            Err(e.hint("pass this file as `state`, and the model that made the state as `model`; continue a saved chat with `chat::load`"))
        }
        _ if shapes.has_att("time_state") => {
            Err(Error::model("this is a tuned initial state, not a model")
                .hint("pass this file as `state`, and the model for which the state was tuned as `model`"))
        }
        _ if shapes.has_att("wkv") || shapes.shape("model.layers.0.self_attn.k").is_some() => {
            Err(Error::model("this is a saved state, not a model").hint("pass this file as `state`, and the model that made the state as `model`"))
        }
        _ if shapes.find(&|name| name.contains(".lora_A")).is_some() => {
            Err(Error::model("this is a LoRA adapter, not a model").hint("merge the adapter into its model with `Conversion::lora`"))
        }
        Some(arch) => arch.read(shapes),
        None => Err(Error::model(
            "unknown model: the file has neither tensors of an RWKV, such as emb.weight and blocks.0.att.key.weight, nor a config.json of a GLM in the same folder",
        )
        .hint("`Checkpoint::names` lists the tensors of the file; for a GLM, put config.json into the same folder")),
    }
}

/// Returns the error for a file that lacks the tensor `tensor`, which the architecture needs.
pub fn missing(tensor: &str) -> Error {
    Error::model(format!("the tensor {tensor} is missing"))
}

/// Returns the shape of a tensor as `N` dimensions. If the tensor has more than `N` dimensions, leading and trailing dimensions of size 1 are
/// removed until `N` remain.
///
/// # Errors
///
/// `Model` if the tensor is missing, or if the number of dimensions is then not `N`.
pub fn dims<const N: usize>(shapes: &dyn Shapes, tensor: &str) -> Result<[usize; N]> {
    let shape = shapes.shape(tensor).ok_or_else(|| missing(tensor))?;
    let mut kept = shape.clone();
    // Some files add dimensions of size 1 at the ends. A size of 1 between other dimensions has a meaning: one head, or a rank of 1.
    while kept.len() > N && kept[0] == 1 {
        kept.remove(0);
    }
    while kept.len() > N && kept[kept.len() - 1] == 1 {
        kept.pop();
    }
    kept.try_into().map_err(|_| {
        Error::model(format!("expected a shape with {N} dimensions, found the shape {shape:?}")).at(format!("tensor {tensor}"))
    })
}
