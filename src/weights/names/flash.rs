//! Splits the fused and stacked tensors of GLM-4.7-Flash into one matrix per head and one matrix per expert.
//!
//! Each matrix is a range of rows, so no elements are copied. For each head, `kv_b_proj` has the rows of keys, then the rows of values:
//!
//! ```text
//! self_attn.kv_b_proj         [H · (nope + value), kv_rank]  → k_b.0, v_b.0, k_b.1, …   k_b.h is stored transposed: [kv_rank, nope]
//! self_attn.k_b               [H, kv_rank, nope]             → k_b.0, k_b.1, …          GGUF only
//! self_attn.v_b               [H, value, kv_rank]            → v_b.0, v_b.1, …          GGUF only
//! mlp.experts.gate_up_proj    [E, 2 F, C]                    → experts.0.gate_proj, experts.0.up_proj, …
//! mlp.experts.{gate,up}_proj  [E, F, C]                      → experts.0.gate_proj, …
//! mlp.experts.down_proj       [E, C, F]                      → experts.0.down_proj, …
//! ```

use crate::error::{Error, Result};
use crate::weights::located::LocatedTensor;
use crate::weights::{Flash, TensorSlot};
use std::ops::Range;

/// Returns the matrices of a fused or stacked tensor, in the order of its rows. Returns `None` if the tensor is neither fused nor stacked. `part` is
/// the tensor's name within the layer, with or without `.weight`.
///
/// # Errors
///
/// `Model` if the shape is wrong, or if the file stores the tensor in a form that cannot be split.
pub(super) fn split(t: &LocatedTensor, layer: &str, part: &str, n_head: usize, flash: &Flash) -> Result<Option<Vec<TensorSlot>>> {
    let Flash { kv_rank, nope_size: nope, value_size: value, n_experts, expert_ffn: f, .. } = *flash;
    let part = part.strip_suffix(".weight").unwrap_or(part);
    let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
    let stack = |n: usize, rows: Option<usize>, k: Option<usize>| {
        check(t, &[Some(n), rows, k])?;
        let whole = 0..t.shape[1];
        Ok::<_, Error>((0..n, whole))
    };
    let plain = |located| TensorSlot { located, swapped: false };
    let heads = |part: &str, (heads, rows): (Range<usize>, Range<usize>)| -> Vec<TensorSlot> {
        heads.map(|h| plain(t.matrix(name(&format!("self_attn.{part}.{h}")), h, rows.clone()))).collect()
    };
    let expert = |e: usize, part: &str, rows: Range<usize>| plain(t.matrix(name(&format!("mlp.experts.{e}.{part}")), e, rows));
    Ok(Some(match part {
        "self_attn.kv_b_proj" => {
            check(t, &[Some(n_head * (nope + value)), Some(kv_rank)])?;
            if t.dtype.size_bytes().is_none() {
                let text = format!("the type {} cannot be split into transposed keys", t.dtype);
                return Err(Error::model(text).hint("download a newer file, with the tensors attn_k_b and attn_v_b"));
            }
            let head = |h: usize| {
                let (first, end) = (h * (nope + value), (h + 1) * (nope + value));
                let k = t.only_rows(name(&format!("self_attn.k_b.{h}")), first..first + nope);
                let v = t.only_rows(name(&format!("self_attn.v_b.{h}")), first + nope..end);
                [TensorSlot { located: k, swapped: true }, plain(v)]
            };
            (0..n_head).flat_map(head).collect()
        }
        "self_attn.k_b" => heads("k_b", stack(n_head, Some(kv_rank), Some(nope))?),
        "self_attn.v_b" => heads("v_b", stack(n_head, Some(value), Some(kv_rank))?),
        "mlp.experts.gate_up_proj" => {
            let (experts, _) = stack(n_experts, Some(2 * f), None)?;
            experts.flat_map(|e| [expert(e, "gate_proj", 0..f), expert(e, "up_proj", f..2 * f)]).collect()
        }
        "mlp.experts.gate_proj" | "mlp.experts.up_proj" | "mlp.experts.down_proj" => {
            let last = part.rsplit('.').next().unwrap_or(part);
            let (rows, k) = if last == "down_proj" { (None, Some(f)) } else { (Some(f), None) };
            let (experts, rows) = stack(n_experts, rows, k)?;
            experts.map(|e| expert(e, last, rows.clone())).collect()
        }
        _ => return Ok(None),
    }))
}

/// Checks that a tensor has the shape `expected` and plain elements or blocks. `None` stands for any size.
fn check(t: &LocatedTensor, expected: &[Option<usize>]) -> Result<()> {
    if t.coding.is_some() {
        return Err(Error::model(format!("expected one matrix per head and per expert, found a fused tensor of type {}", t.dtype())));
    }
    let fits = t.shape.len() == expected.len() && expected.iter().zip(&t.shape).all(|(e, found)| e.is_none_or(|e| e == *found));
    if fits && t.strides.len() == t.shape.len() {
        return Ok(());
    }
    let sizes: Vec<String> = expected.iter().map(|d| d.map_or("any".to_string(), |d| d.to_string())).collect();
    Err(Error::model(format!("expected the shape [{}], found the shape {:?}", sizes.join(", "), t.shape)))
}

#[cfg(test)]
mod tests {
    use super::super::canonical;
    use super::super::tests::tensor;
    use super::*;
    use crate::tensor::{DType, dense_strides};
    use crate::weights::Glm;
    use crate::weights::orient::Facts;

    const C: usize = 16;

    /// Returns a model of 2 layers, of which layer 1 has 4 experts of 24 channels, with 2 heads.
    fn glm() -> Glm {
        let flash = r#"{"q_rank":8,"kv_rank":32,"nope_size":16,"rope_size":8,"value_size":24,"n_experts":4,"n_used":2,"n_groups":1,
            "n_used_groups":1,"n_shared":1,"expert_ffn":24,"scale":1.8,"normalises":true,"dense":[true,false]}"#;
        let json = format!(
            r#"{{"model_type":"glm4_moe_lite","n_head":2,"n_kv_head":2,"head_size":24,"rotary_size":8,"rope_theta":1e4,"rms_norm_eps":1e-5,
            "attention_bias":false,"max_context":9,"eos":[],"flash":{flash}}}"#
        );
        Glm::parse(&json).unwrap()
    }

    fn dense(name: &str, shape: &[usize]) -> LocatedTensor {
        let n: usize = shape.iter().product();
        LocatedTensor { dtype: DType::F32, strides: dense_strides(shape), bytes: 1000..1000 + 4 * n, ..tensor(name, shape) }
    }

    fn slots(tensors: Vec<LocatedTensor>) -> Result<Vec<(String, TensorSlot)>> {
        Ok(canonical(tensors, &Facts::default(), false, Some(&glm()))?.0)
    }

    #[test]
    fn keys_and_values_of_a_head_are_ranges_of_rows() {
        let found = slots(vec![dense("model.layers.0.self_attn.kv_b_proj.weight", &[80, 32])]).unwrap();
        let of = |part: &str| {
            let (_, slot) = found.iter().find(|(name, _)| name == &format!("model.layers.0.self_attn.{part}.weight")).unwrap();
            (slot.shape(), slot.swapped, slot.located.bytes.clone())
        };
        let at = |row: usize| 1000 + row * 32 * 4;
        assert_eq!(found.len(), 4);
        assert_eq!(of("k_b.0"), (vec![32, 16], true, at(0)..at(16)));
        assert_eq!(of("v_b.0"), (vec![24, 32], false, at(16)..at(40)));
        assert_eq!(of("k_b.1"), (vec![32, 16], true, at(40)..at(56)));
        assert_eq!(of("v_b.1"), (vec![24, 32], false, at(56)..at(80)));

        // The keys are read transposed, from the bytes of the file.
        let numbers: Vec<u8> = (0..80 * 32).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let file = [vec![0; 1000], numbers].concat();
        let (_, k) = found.iter().find(|(name, _)| name.ends_with("k_b.1.weight")).unwrap();
        let read = k.oriented(k.located.view(&file).unwrap()).to_f32().unwrap();
        let expected: Vec<f32> = (0..32 * 16).map(|i| ((40 + i % 16) * 32 + i / 16) as f32).collect();
        assert_eq!(read, expected);

        let stacked = [("k_b", [2, 32, 16]), ("v_b", [2, 24, 32])];
        let same = slots(stacked.map(|(p, shape)| dense(&format!("model.layers.0.self_attn.{p}.weight"), &shape)).into()).unwrap();
        let shapes = |all: &[(String, TensorSlot)]| all.iter().map(|(name, slot)| (name.clone(), slot.shape())).collect::<Vec<_>>();
        assert_eq!(shapes(&same), shapes(&found));
        let (_, last) = same.iter().find(|(name, _)| name.ends_with("k_b.1.weight")).unwrap();
        assert_eq!((last.swapped, last.located.bytes.clone()), (false, 1000 + 4 * 512..1000 + 4 * 1024));
    }

    #[test]
    fn experts_are_apart_or_stacked() {
        let part = |p: &str| format!("model.layers.1.mlp.experts.{p}");
        let mut apart = Vec::new();
        for e in 0..4 {
            for (p, shape) in [("gate", [24, C]), ("up", [24, C]), ("down", [C, 24])] {
                apart.push(dense(&part(&format!("{e}.{p}_proj.weight")), &shape));
            }
        }
        let expected: Vec<_> = slots(apart).unwrap().into_iter().map(|(name, slot)| (name, slot.shape(), slot.swapped)).collect();
        assert_eq!(expected.len(), 12);
        for end in ["", ".weight"] {
            let stacked = [("gate_up_proj", vec![4, 48, C]), ("down_proj", vec![4, C, 24])];
            let found = slots(stacked.map(|(p, shape)| dense(&part(&format!("{p}{end}")), &shape)).into()).unwrap();
            let bytes = |p: &str| found.iter().find(|(name, _)| *name == part(&format!("{p}.weight"))).unwrap().1.located.bytes.clone();
            let row = 4 * C;
            assert_eq!(bytes("0.gate_proj"), 1000..1000 + 24 * row);
            assert_eq!(bytes("3.up_proj"), 1000 + (3 * 48 + 24) * row..1000 + 4 * 48 * row);
            assert_eq!(bytes("2.down_proj"), 1000 + 2 * C * 24 * 4..1000 + 3 * C * 24 * 4);
            assert_eq!(found.into_iter().map(|(name, slot)| (name, slot.shape(), slot.swapped)).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn layers_after_the_last_are_left_out() {
        let names = ["model.layers.2.eh_proj.weight", "model.layers.2.mlp.experts.0.up_proj.weight", "model.layers.1.mlp.gate.weight"];
        let found = slots(names.map(|name| dense(name, &[4, C])).into()).unwrap();
        assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["model.layers.1.mlp.gate.weight"]);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let refusal = |part: &str, shape: &[usize]| {
            let e = slots(vec![dense(&format!("model.layers.1.{part}"), shape)]).err().unwrap();
            e.to_string()
        };
        for (part, shape, expected) in [
            ("self_attn.kv_b_proj.weight", &[32, 80][..], "kv_b_proj.weight: expected the shape [80, 32], found the shape [32, 80]"),
            ("mlp.experts.gate_up_proj", &[4, 24, C], "gate_up_proj: expected the shape [4, 48, any], found the shape [4, 24, 16]"),
            ("mlp.experts.down_proj", &[3, C, 24], "expected the shape [4, any, 24], found the shape [3, 16, 24]"),
            ("self_attn.k_b.weight", &[2, 16, 32], "expected the shape [2, 32, 16]"),
            ("self_attn.v_b.weight", &[48, 32], "expected the shape [2, 24, 32], found the shape [48, 32]"),
        ] {
            let text = refusal(part, shape);
            assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        }
        let blocks = LocatedTensor { dtype: DType::Q8_0, ..dense("model.layers.0.self_attn.kv_b_proj.weight", &[80, 32]) };
        assert!(slots(vec![blocks]).err().unwrap().to_string().contains("cannot be split into transposed keys"));
    }

    #[test]
    fn a_model_without_a_configuration_is_recognised() {
        let names = ["model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "model.layers.1.mlp.gate.e_score_correction_bias"];
        let all: Vec<_> = names.iter().map(|name| dense(name, &[8, C])).collect();
        let text = canonical(all, &Facts::default(), false, None).err().unwrap().to_string();
        assert!(text.contains("the config.json of this GLM is missing"), "{text}");
    }
}
