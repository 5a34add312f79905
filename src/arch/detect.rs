//! Which architecture a checkpoint is: refusals first, then the ones that run. Spec: section 1.1 of the RWKV notes.

use super::{ARCHS, Blueprint, Shapes};
use crate::error::{Error, Result, short};

/// Parts of names that only an unsupported model has, and what to call it. Many of them satisfy a later rule too, and some
/// stand in any one layer.
const REFUSED: &[(&str, &str)] = &[
    (".qkv.k_emb.", "RWKV-7b (DeepEmbed attention)"),
    (".ffn.s_emb.", "RWKV-7a (DeepEmbed)"),
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

/// The model's hyper-parameters, or what it is instead.
pub fn detect(shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
    let runs = || ARCHS.iter().rev().map(|arch| arch.about()).collect::<Vec<_>>().join(", ");
    let refuse =
        |what: &str, tensor: &str| Err(Error::model(format!("this is {what}: it has {tensor}")).hint(format!("wingbeat runs {}", runs())));
    if let Some((what, name)) = REFUSED.iter().find_map(|(part, what)| Some((what, shapes.find(&|name| name.contains(part))?))) {
        return refuse(what, &name);
    }
    for (tensor, what) in [("time_w", "RWKV-1"), ("time_alpha", "RWKV-1"), ("time_mix", "RWKV-2")] {
        if shapes.has_att(tensor) {
            return refuse(what, &format!("blocks.0.att.{tensor}"));
        }
    }
    // In RWKV-2 and 3 the bonus has one more dimension.
    let is_old = |s: &Vec<usize>| matches!(s[..], [n, 1] if n > 1) && !shapes.has_att("ln_x.weight");
    if let Some(shape) = shapes.shape("blocks.0.att.time_first").filter(is_old) {
        return refuse("RWKV-2 or 3", &format!("a blocks.0.att.time_first of shape {shape:?}"));
    }
    match ARCHS.iter().find(|a| a.recognises(shapes)) {
        Some(arch) if shapes.shape("emb.weight").is_some() => arch.read(shapes),
        _ if shapes.metadata("weights_hash").is_some() => {
            let of = shapes.metadata("architecture").unwrap_or("an unknown architecture");
            let e = Error::model(format!("this is a state file of wingbeat for {}, not a model", short(of, 40)));
            Err(e.hint("give it with `state`, and its model with `model`; a saved chat continues with `chat::load`"))
        }
        _ if shapes.has_att("time_state") => {
            Err(Error::model("this is a tuned initial state, not a model")
                .hint("give it with `state`, beside the model that it was tuned for"))
        }
        _ if shapes.has_att("wkv") || shapes.shape("model.layers.0.self_attn.k").is_some() => {
            Err(Error::model("this is a saved state, not a model").hint("give it with `state`, beside its model"))
        }
        _ if shapes.find(&|name| name.contains(".lora_A")).is_some() => {
            Err(Error::model("this is a LoRA adapter, not a model").hint("merge it into its model with `Conversion::lora`"))
        }
        Some(arch) => arch.read(shapes),
        None => Err(Error::model("no known architecture: expected RWKV tensors such as emb.weight and blocks.0.att.key.weight")
            .hint("`Checkpoint::names` lists what the file has")),
    }
}

/// The sizes of a tensor's dimensions, unit ones dropped, or what is missing.
pub fn dims<const N: usize>(shapes: &dyn Shapes, tensor: &str) -> Result<[usize; N]> {
    let Some(shape) = shapes.shape(tensor) else {
        return Err(Error::model(format!("the tensor {tensor} is missing")));
    };
    let mut kept = shape.clone();
    // Only leading and trailing unit dimensions can be left over from a reshape; a head or a rank of one is real.
    while kept.len() > N && kept[0] == 1 {
        kept.remove(0);
    }
    while kept.len() > N && kept[kept.len() - 1] == 1 {
        kept.pop();
    }
    kept.try_into().map_err(|_| Error::model(format!("expected {N} dimensions, found {shape:?}")).at(tensor))
}
