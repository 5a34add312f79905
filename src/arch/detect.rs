//! Which architecture a checkpoint is: refusals first, then the ones that run. Spec: section 1.1 of the RWKV notes.

use super::{ARCHS, Blueprint, Shapes};
use crate::error::{Error, Result};

/// Names that only an unsupported model has, and what to call it. Several of them satisfy a later rule too.
const REFUSED: &[(&str, &str)] = &[
    ("blocks.0.ffn.s_emb.weight", "RWKV-7a (DeepEmbed)"),
    ("blocks.0.qkv.k_emb.weight", "RWKV-7b (DeepEmbed attention)"),
    ("blocks.0.ffn.enn.weight", "an RWKV-8 release candidate"),
    ("blocks.0.rosa.rosa_qkv.emb", "an RWKV-8 ROSA experiment"),
    ("blocks.0.att.gate_w1", "RWKV x060a, a research variant"),
    ("blocks.0.att.time_maa_rkvw_w1", "RWKV x060b or x060c, a research variant"),
    ("head_q.weight", "RWKV-2 or 3, or a research variant of RWKV-4"),
    ("blocks.0.att.time_w", "RWKV-1"),
    ("blocks.0.att.time_mix", "RWKV-2"),
    ("blocks.0.att.time_maa_w1", "RWKV-6"),
    ("blocks.0.att.ln_x.weight", "RWKV-5"),
    ("blocks.0.att.time_first", "RWKV-4 or older"),
];

/// The model's hyper-parameters, or what it is instead.
pub fn detect(shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
    // The last three rows also name tensors of versions that run.
    let (research, versions) = REFUSED.split_at(REFUSED.len() - 3);
    if let Some((tensor, what)) = research.iter().find(|(t, _)| shapes.shape(t).is_some()) {
        return Err(Error::model(format!("this is {what}: it has {tensor}")).hint("wingbeat runs RWKV-7 (x070)"));
    }
    if let Some(arch) = ARCHS.iter().find(|a| a.recognises(shapes)) {
        return arch.read(shapes);
    }
    match versions.iter().find(|(t, _)| shapes.shape(t).is_some()) {
        Some((tensor, what)) => Err(Error::model(format!("this is {what}, which is not run yet: it has {tensor}"))),
        None => Err(Error::model("no known architecture: expected RWKV tensors such as emb.weight and blocks.0.att.r_k")
            .hint("`wingbeat inspect --tensors` lists what the file has")),
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
