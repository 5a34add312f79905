//! Writes an RWKV-7 model as a Hugging Face folder: the weights in shards, an index of the shards, and `config.json`.
//!
//! The class `RwkvForCausalLM` of `transformers` (2026) defines the names and shapes of the tensors. Vectors have one dimension, and layer 0 has
//! no value residual.

use super::names::to_decoder;
use super::shards::{self, SideFile};
use super::write::NewTensor;
use super::{Checkpoint, GROUP_NORM_EPS, LAYER_NORM_EPS};
use crate::error::{Error, Result};
use crate::tensor::{DType, View};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Limit on the bytes of tensors in one shard if the caller sets none. `transformers` uses the same limit.
const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// Returns the name in the folder's files for the tensor with the official name `canonical`. Returns `None` for the value residual of layer 0,
/// which official files may have but no model uses.
///
/// # Errors
///
/// `Model` if the layout has no name for the tensor.
pub(super) fn name_of(canonical: &str) -> Result<Option<String>> {
    if ["v0", "v1", "v2"].iter().any(|v| canonical.strip_prefix("blocks.0.att.") == Some(v)) {
        return Ok(None);
    }
    to_decoder(canonical).map(Some).ok_or_else(|| {
        Error::model("the layout hf has no name for this tensor").at(format!("tensor {canonical}")).hint("leave out `layout`")
    })
}

/// Reshapes a vector of C elements from `[1, 1, C]` to `[C]`. Returns any other tensor unchanged.
pub(super) fn squeezed(view: View<'_>) -> View<'_> {
    match *view.shape() {
        [1, 1, width] => view.reshaped(&[width]).unwrap_or(view),
        _ => view,
    }
}

/// Writes the folder `out` as [`shards::write`] does, with `config.json` among the files. `max_bytes` limits the bytes of tensors per shard; `None`
/// means 5 GB.
///
/// # Errors
///
/// The errors of [`shards::write`]. `Model` if `input` is not an RWKV-7 model.
pub(super) fn write(
    input: &Checkpoint,
    out: &Path,
    entries: Vec<NewTensor<'_>>,
    files: &[SideFile],
    max_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    shards::check_new_folder(out)?;
    let dtype = entries.iter().find(|e| e.name == "lm_head.weight").map(|e| e.dtype);
    let config = ("config.json".to_string(), shards::pretty(&config(input, dtype)?));
    let files: Vec<SideFile> = files.iter().cloned().chain([config]).collect();
    let metadata = |_: &[NewTensor<'_>]| BTreeMap::from([("format".to_string(), "pt".to_string())]);
    shards::write(out, entries, &metadata, &files, max_bytes.unwrap_or(MAX_SHARD_BYTES), progress)
}

/// Returns the content of `config.json` for `RwkvForCausalLM`. `dtype` is the type of the weights.
fn config(input: &Checkpoint, dtype: Option<DType>) -> Result<Value> {
    let shape = |name: &str| input.tensor(name).map(|view| view.shape().to_vec());
    let matrix = |name: &str| match shape(name).as_deref() {
        Some(&[rows, columns]) => Ok([rows, columns]),
        Some(found) => Err(Error::model(format!("expected a matrix, found the shape {found:?}")).at(format!("tensor {name}"))),
        None => Err(Error::model("the tensor is missing, and the layout hf needs its shape")
            .at(format!("tensor {name}"))
            .hint("leave out `layout`")),
    };
    let [vocab_size, hidden_size] = matrix("emb.weight")?;
    let [n_heads, head_size] = matrix("blocks.0.att.r_k")?;
    let n_layers = input.names().filter_map(super::layer_of).max().map_or(0, |last| last + 1);
    let rank = |pair: &str, layer: usize| matrix(&format!("blocks.{layer}.att.{pair}")).map(|[_, rank]| rank);
    let eps: f64 = input.metadata().get(LAYER_NORM_EPS).and_then(|eps| eps.parse().ok()).unwrap_or(1e-5);
    if let Some(eps) = input.metadata().get(GROUP_NORM_EPS).filter(|eps| eps.parse() != Ok(64e-5f32)) {
        return Err(Error::model(format!("the layout hf has no key for the group norm's epsilon {eps}")).hint("leave out `layout`"));
    }
    let dtype = match dtype {
        Some(DType::F32) => "float32",
        Some(DType::BF16) => "bfloat16",
        _ => "float16",
    };
    let mut config = json!({
        "architectures": ["RwkvForCausalLM"], "model_type": "rwkv", "architecture_version": "rwkv7",
        "vocab_size": vocab_size, "hidden_size": hidden_size, "num_hidden_layers": n_layers,
        "intermediate_size": matrix("blocks.0.ffn.key.weight")?[0], "head_size": head_size, "num_attention_heads": n_heads,
        "decay_low_rank_dim": rank("w1", 0)?, "a_low_rank_dim": rank("a1", 0)?, "gate_low_rank_dim": rank("g1", 0)?,
        "layer_norm_epsilon": eps, "wkv_state_dtype": "float32", "bos_token_id": 0, "eos_token_id": 0,
        "tie_word_embeddings": false, "use_cache": true, "dtype": dtype,
    });
    let more = config.as_object_mut().expect("the macro makes an object");
    if n_layers > 1 {
        more.insert("v_low_rank_dim".into(), rank("v1", 1)?.into());
    }
    more.extend(context_length(input.name()).map(|n| ("context_length".to_string(), n.into())));
    Ok(config)
}

/// Returns the context length in the name of an official file: 25600 for `rwkv7-g1k-2.9b-20260930-ctx25600`.
fn context_length(name: &str) -> Option<u64> {
    let (_, after) = name.rsplit_once("ctx")?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).map_or(after, |end| &after[..end]);
    digits.parse().ok().filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::super::sets::{as_pth, official};
    use super::super::testing::put;
    use super::super::{Conversion, Layout, convert};
    use super::*;

    #[test]
    fn the_name_of_an_official_file_has_the_context_length() {
        let dir = tempfile::tempdir().unwrap();
        let pth = Checkpoint::open(&put(&dir, "rwkv7-g1k-2.9b-20260930-ctx25600.pth", &as_pth(&official("v7")))).unwrap();
        let out = dir.path().join("out");
        let what = Conversion { layout: Layout::HuggingFace, dtype: Some(DType::BF16), ..Conversion::default() };
        convert(&pth, &out, &what, &mut |_, _| ()).unwrap();
        let config: Value = serde_json::from_slice(&std::fs::read(out.join("config.json")).unwrap()).unwrap();
        assert_eq!((&config["context_length"], &config["dtype"]), (&json!(25600), &json!("bfloat16")));
        assert_eq!((&config["decay_low_rank_dim"], &config["v_low_rank_dim"]), (&json!(3), &json!(2)));
        for name in ["rwkv-7", "ctx", "ctx0", "ctxb", "model-ctx99999999999999999999"] {
            assert_eq!(context_length(name), None, "{name}");
        }
    }

    #[test]
    fn only_rwkv7_has_this_layout() {
        let dir = tempfile::tempdir().unwrap();
        let v6 = Checkpoint::open(&put(&dir, "a.pth", &as_pth(&official("v6")))).unwrap();
        let what = Conversion { layout: Layout::HuggingFace, ..Conversion::default() };
        let text = convert(&v6, &dir.path().join("out"), &what, &mut |_, _| ()).unwrap_err().to_string();
        assert!(text.contains("a.pth: the layout hf exists for RWKV-7 only"), "{text}");
        assert!(!dir.path().join("out").exists());
    }
}
