//! Detects which tensors of a file have their last two dimensions swapped, compared with the official `.pth`.
//!
//! Shapes show the orientation of most low-rank pairs. An official pair of rank D has the matrices M1 `[C, D]` and M2 `[D, C]`, where C is the
//! width of the model. web-rwkv's converter swaps both matrices. Older converters and re-uploads swap neither. If D = C, other tensors, names
//! and metadata decide.

use super::layout::Layout;
use super::located::LocatedTensor;
use std::collections::HashMap;

/// The evidence for the orientation of a file's tensors, in addition to their names and shapes.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// True if the file's extension is `.st`, which web-rwkv's converters write.
    pub dot_st: bool,
    /// The layout, if it is known: from the metadata of wingbeat's own files, or `Official` for GGUF files and names of `transformers`.
    pub declared: Option<Layout>,
}

/// The low-rank pairs, as the endings of the canonical names of both matrices.
const PAIRS: [(&str, &str); 6] = [
    (".att.time_maa_w1", ".att.time_maa_w2"),
    (".att.time_decay_w1", ".att.time_decay_w2"),
    (".att.w1", ".att.w2"),
    (".att.a1", ".att.a2"),
    (".att.v1", ".att.v2"),
    (".att.g1", ".att.g2"),
];

/// Returns true if web-rwkv's own converter swaps the last two dimensions of the tensor with the canonical name `name`.
pub(super) fn swapped_by_web(name: &str) -> bool {
    partner(name).is_some() || name.ends_with(".lora_A") || name.ends_with(".time_state")
}

/// Returns true for each tensor that the file stores swapped. The tensors have canonical names. `renamed` is true if the file has web-rwkv's
/// names.
pub(super) fn swapped(tensors: &[LocatedTensor], renamed: bool, facts: &Facts) -> Vec<bool> {
    let widths = Widths::of(tensors);
    let by_shape: Vec<Option<bool>> = tensors.iter().map(|t| widths.swapped(t)).collect();
    let n_swapped = by_shape.iter().filter(|s| **s == Some(true)).count();
    let n_official = by_shape.iter().filter(|s| **s == Some(false)).count();
    // If no shape decides, the declared layout decides. Without a declared layout, web-rwkv's names mean web-rwkv's layout.
    let web = match (n_swapped, n_official) {
        (0, 0) => facts.declared.map_or(renamed, |d| d == Layout::WebRwkv),
        (swapped, official) => swapped > official,
    };
    let index: HashMap<&str, usize> = tensors.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
    let web_states = facts.declared.map_or(web || facts.dot_st, |d| d == Layout::WebRwkv);
    tensors
        .iter()
        .zip(&by_shape)
        .map(|(t, known)| match partner(&t.name) {
            Some(other) => known.unwrap_or_else(|| {
                let other = index.get(other.as_str()).and_then(|&i| by_shape[i]);
                other.unwrap_or(web)
            }),
            // web-rwkv's converters swap `time_state` and `lora_A`, even if they do not swap the matrices of low-rank pairs.
            None if t.name.ends_with(".time_state") => web_states,
            None => t.name.ends_with(".lora_A") && (renamed || web) && facts.declared != Some(Layout::Official),
        })
        .collect()
}

/// Returns the name of the other matrix in the low-rank pair of `name`. Returns `None` if `name` belongs to no low-rank pair.
fn partner(name: &str) -> Option<String> {
    PAIRS.iter().find_map(|(first, second)| match (name.strip_suffix(first), name.strip_suffix(second)) {
        (Some(block), _) => Some(format!("{block}{second}")),
        (_, Some(block)) => Some(format!("{block}{first}")),
        _ => None,
    })
}

/// The widths that identify the long side of a low-rank matrix.
struct Widths {
    /// The width C of the embedding.
    channels: Option<usize>,
    /// The width A of the time mix, and of the decay in RWKV-6. A almost always equals C.
    attention: Option<usize>,
}

impl Widths {
    fn of(tensors: &[LocatedTensor]) -> Widths {
        let shape = |end: &str| tensors.iter().find(|t| t.name == end || t.name.ends_with(&format!(".{end}"))).map(|t| t.shape.as_slice());
        let channels =
            shape("emb.weight").or_else(|| shape("att.key.weight")).or_else(|| shape("ln1.weight")).and_then(|s| s.last().copied());
        let attention = shape("att.key.weight").and_then(|s| s.first().copied());
        Widths { channels, attention }
    }

    /// Returns true if the shape shows that the file stores the matrix swapped, or false if it shows the official orientation. Returns `None` if
    /// the tensor belongs to no low-rank pair, or if the shape does not decide: both sides or neither side equal the width.
    fn swapped(&self, t: &LocatedTensor) -> Option<bool> {
        let is_first = PAIRS.iter().any(|(first, _)| t.name.ends_with(first));
        let is_second = PAIRS.iter().any(|(_, second)| t.name.ends_with(second));
        let &[.., rows, cols] = t.shape.as_slice() else { return None };
        let width = if t.name.ends_with(".time_decay_w2") { self.attention.or(self.channels)? } else { self.channels? };
        match (is_first, is_second, rows == width, cols == width) {
            (true, _, true, false) | (_, true, false, true) => Some(false),
            (true, _, false, true) | (_, true, true, false) => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn decide(list: &[(&str, &[usize])], facts: Facts) -> Vec<bool> {
        let tensors: Vec<LocatedTensor> = std::iter::once(&("emb.weight", &[99usize, 16][..]))
            .chain(list)
            .map(|(n, s)| LocatedTensor {
                name: n.to_string(),
                dtype: DType::F16,
                shape: s.to_vec(),
                strides: vec![1; s.len()],
                bytes: 0..0,
                scale: 1.0,
                file: 0,
                coding: None,
            })
            .collect();
        swapped(&tensors, false, &facts)[1..].to_vec()
    }

    #[test]
    fn shapes_show_the_orientation() {
        let official: [(&str, &[usize]); 5] = [
            ("blocks.0.att.w1", &[16, 4]),
            ("blocks.0.att.w2", &[4, 16]),
            ("blocks.0.att.time_maa_w2", &[5, 4, 16]),
            ("blocks.0.att.key.weight", &[16, 16]),
            ("blocks.0.att.time_state", &[2, 8, 8]),
        ];
        assert_eq!(decide(&official, Facts::default()), [false; 5]);
        let web: [(&str, &[usize]); 5] = [
            ("blocks.0.att.w1", &[4, 16]),
            ("blocks.0.att.w2", &[16, 4]),
            ("blocks.0.att.time_maa_w2", &[5, 16, 4]),
            ("blocks.0.att.key.weight", &[16, 16]),
            ("blocks.0.att.time_state", &[2, 8, 8]),
        ];
        assert_eq!(decide(&web, Facts::default()), [true, true, true, false, true]);
    }

    #[test]
    fn a_square_follows_its_partner_then_the_file_then_the_official_layout() {
        // RWKV-6: if 5 D = C, w1 is square, but w2 still shows the orientation.
        let square_w1: [(&str, &[usize]); 2] = [("blocks.0.att.time_maa_w1", &[16, 16]), ("blocks.0.att.time_maa_w2", &[5, 16, 3])];
        assert_eq!(decide(&square_w1, Facts::default()), [true, true]);
        let square_pair: [(&str, &[usize]); 4] =
            [("blocks.0.att.g1", &[16, 16]), ("blocks.0.att.g2", &[16, 16]), ("blocks.0.att.w1", &[4, 16]), ("blocks.0.att.w2", &[16, 4])];
        assert_eq!(decide(&square_pair, Facts::default()), [true; 4]);
        assert_eq!(decide(&square_pair[..2], Facts::default()), [false; 2]);
        assert_eq!(decide(&square_pair[..2], Facts { declared: Some(Layout::WebRwkv), ..Facts::default() }), [true; 2]);
    }

    #[test]
    fn states_follow_the_extension() {
        let state: [(&str, &[usize]); 1] = [("blocks.0.att.time_state", &[2, 8, 8])];
        assert_eq!(decide(&state, Facts::default()), [false]);
        assert_eq!(decide(&state, Facts { dot_st: true, ..Facts::default() }), [true]);
        assert_eq!(decide(&state, Facts { dot_st: true, declared: Some(Layout::Official) }), [false]);
    }

    #[test]
    fn the_decay_of_v6_may_be_wider_than_the_embedding() {
        let wide: [(&str, &[usize]); 2] = [("blocks.0.att.key.weight", &[32, 16]), ("blocks.0.att.time_decay_w2", &[4, 32])];
        assert_eq!(decide(&wide, Facts::default()), [false, false]);
        let swapped: [(&str, &[usize]); 2] = [("blocks.0.att.key.weight", &[32, 16]), ("blocks.0.att.time_decay_w2", &[32, 4])];
        assert_eq!(decide(&swapped, Facts::default()), [false, true]);
    }
}
