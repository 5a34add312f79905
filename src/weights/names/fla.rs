//! The names of RWKV-7 in flash-linear-attention. Projections have names as in other transformers. A low-rank pair is two Linear layers.

use super::{block_and_part, outside, restore_row, with_part_renamed};
use crate::error::{Error, Result};
use crate::weights::TensorSlot;
use crate::weights::located::LocatedTensor;

/// Prefixes of names within a block, as pairs (prefix in flash-linear-attention, official prefix).
const PARTS: [(&str, &str); 9] = [
    ("attn_norm.", "ln1."),
    ("ffn_norm.", "ln2."),
    ("pre_norm.", "ln0."),
    ("attn.g_norm.", "att.ln_x."),
    ("attn.r_proj.", "att.receptance."),
    ("attn.k_proj.", "att.key."),
    ("attn.v_proj.", "att.value."),
    ("attn.o_proj.", "att.output."),
    ("attn.", "att."),
];
/// The official names of the mixes that the stacked tensor `x_x` holds, in the order of its rows.
const STACK: [&str; 6] = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];

/// Returns true if the tensors have names of flash-linear-attention. Prefixes that wrappers such as DDP add must already be stripped.
pub(super) fn recognises(tensors: &[LocatedTensor]) -> bool {
    tensors.iter().any(|t| block_and_part(&t.name).is_some_and(|(_, part)| part.starts_with("attn.")))
}

/// Returns the tensors under their canonical names. The weights of low-rank Linear layers are always stored transposed, even if they are square.
pub(super) fn slots(tensors: Vec<LocatedTensor>) -> Result<Vec<TensorSlot>> {
    let mut slots = Vec::with_capacity(tensors.len());
    for mut t in tensors {
        let Some((number, part)) = block_and_part(&t.name) else {
            t.name = outside(&t.name);
            slots.push(TensorSlot { located: t, swapped: false });
            continue;
        };
        if part == "attn.x_x" {
            let rows = unstacked(&t, &format!("blocks.{number}.att.")).map_err(|e| e.at(format!("tensor {}", t.name)))?;
            slots.extend(rows.into_iter().map(|located| TensorSlot { located, swapped: false }));
            continue;
        }
        let (official, swapped) = match low_rank(part) {
            Some((end, swapped)) => (format!("att.{end}"), swapped),
            None => (with_part_renamed(part, &PARTS), false),
        };
        t.name = format!("blocks.{number}.{official}");
        restore_row(&mut t);
        slots.push(TensorSlot { located: t, swapped });
    }
    Ok(slots)
}

/// Converts a name such as `attn.w_lora.lora.0.weight` to the official ending `w1`. Returns the ending, and whether the file stores the tensor
/// transposed. Returns `None` for tensors outside of low-rank pairs, and for the gate's bias, which has no official name.
fn low_rank(part: &str) -> Option<(String, bool)> {
    let (letter, end) = part.strip_prefix("attn.")?.split_once("_lora.lora.")?;
    match (letter, end) {
        ("w" | "a" | "v" | "g", "0.weight") => Some((format!("{letter}1"), true)),
        ("w" | "a" | "v" | "g", "2.weight") => Some((format!("{letter}2"), true)),
        ("w" | "a" | "v", "2.bias") => Some((format!("{letter}0"), false)),
        _ => None,
    }
}

/// Splits the stacked mixes into six tensors over the same bytes. The stack is `[6, C]` or `[6, 1, …, C]`, where C is the width of the model.
/// Each tensor is `[1, 1, C]`.
fn unstacked(t: &LocatedTensor, block: &str) -> Result<Vec<LocatedTensor>> {
    let &[n, .., width] = &t.shape[..] else { return Err(misfit(t)) };
    if n != STACK.len() || t.shape[1..t.shape.len() - 1].iter().any(|&d| d != 1) {
        return Err(misfit(t));
    }
    let last = t.strides[t.strides.len() - 1];
    let row = |(i, name): (usize, &&str)| LocatedTensor {
        shape: vec![1, 1, width],
        strides: vec![width, width, last],
        ..t.rows(format!("{block}{name}"), i..i + 1)
    };
    Ok(STACK.iter().enumerate().map(row).collect())
}

/// Returns the error for stacked mixes with a wrong shape.
fn misfit(t: &LocatedTensor) -> Error {
    Error::file(format!(
        "expected {} rows, one for each of the token shifts {}; found the shape {:?}",
        STACK.len(),
        STACK.join(", "),
        t.shape
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{names, tensor};
    use super::*;

    #[test]
    fn linear_layers_are_transposed_and_vectors_are_not() {
        let tensors = ["0.weight", "2.weight", "2.bias"].map(|end| {
            let shape: &[usize] = if end == "2.bias" { &[8] } else { &[8, 8] };
            tensor(&format!("layers.1.attn.w_lora.lora.{end}"), shape)
        });
        let slots = slots(tensors.to_vec()).unwrap();
        let found: Vec<_> = slots.iter().map(|s| (s.located.name.as_str(), s.swapped, s.located.shape.len())).collect();
        assert_eq!(found, [("blocks.1.att.w1", true, 2), ("blocks.1.att.w2", true, 2), ("blocks.1.att.w0", false, 3)]);
        assert_eq!(low_rank("attn.g_lora.lora.2.bias"), None);
        assert_eq!(low_rank("attn.q_lora.lora.0.weight"), None);
    }

    #[test]
    fn a_stack_is_six_rows_or_an_error() {
        let of = |shape: &[usize]| {
            let t = LocatedTensor { bytes: 100..196, strides: crate::tensor::dense_strides(shape), ..tensor("layers.0.attn.x_x", shape) };
            slots(vec![t]).map(|slots| slots.into_iter().map(|s| (s.located.name, s.located.shape, s.located.bytes)).collect::<Vec<_>>())
        };
        for shape in [&[6, 8][..], &[6, 1, 8], &[6, 1, 1, 8]] {
            let rows = of(shape).unwrap();
            assert_eq!(rows[0], ("blocks.0.att.x_r".into(), vec![1, 1, 8], 100..196), "{shape:?}");
            assert_eq!(rows[5], ("blocks.0.att.x_g".into(), vec![1, 1, 8], 180..196));
        }
        for shape in [&[5, 8][..], &[8], &[], &[6, 2, 8]] {
            let text = of(shape).unwrap_err().to_string();
            assert!(text.starts_with("tensor layers.0.attn.x_x: expected 6 rows, one for each"), "{text}");
        }
    }

    #[test]
    fn other_names_stay() {
        let (found, style) =
            names(&[("model.layers.0.attn.r_k", &[2, 4]), ("model.layers.0.mlp.up.weight", &[4, 4]), ("model.norm.bias", &[8])]);
        assert_eq!((found, style), (vec!["blocks.0.att.r_k".into(), "blocks.0.mlp.up.weight".into(), "ln_out.bias".into()], "fla"));
    }
}
