//! Divides a model's layers among the segments of a strategy. A segment such as `gpu fp16 *10` names a device, a format and a number of
//! layers.
//!
//! A model of L blocks has L + 1 layers: the first includes the embedding, the last is the final norm and the head. The `rwkv` package
//! follows the same rules, with one exception: if one segment requests no layers (`*0`) and another segment has no number, the package fails with
//! a division by zero. This module accepts such a strategy.

use super::{DType, Layers, Segment, Strategy};
use crate::error::{Error, Result};
use crate::exec::FloatChoice;
use crate::quant::Float;
use std::ops::Range;

/// Consecutive layers on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedLayers {
    /// The device, as a value of the option `device`.
    pub device: String,
    pub dtype: FloatChoice,
    /// The quantised format, as a value of the option `quant`. `None` if matrices are floats.
    pub quant: Option<&'static str>,
    /// The layers, a range within `0..L + 1`. The range is never empty.
    pub layers: Range<usize>,
    /// The number of layers that stay on the device: the first layers of the range `layers`. The other layers of the range are streamed
    /// through the device.
    pub resident: usize,
}

impl PlacedLayers {
    /// Returns whether these layers run on the CPU.
    pub fn is_on_cpu(&self) -> bool {
        self.device == "cpu"
    }
}

/// The layers that a segment receives.
#[derive(Clone, Copy)]
struct Share {
    layers: usize,
    resident: usize,
}

impl Strategy {
    /// Places the `n_layer + 1` layers of a model: the first segment receives the first layers, the next segment the layers after them.
    /// Segments without layers are left out.
    ///
    /// # Errors
    /// `Model` if `n_layer` is 0.
    pub fn place(&self, n_layer: usize) -> Result<Vec<PlacedLayers>> {
        if n_layer == 0 {
            return Err(Error::model("the model has no layers to place on devices"));
        }
        let mut first = 0;
        let mut place = |(segment, share): (&Segment, Share)| {
            let layers = first..first + share.layers;
            first = layers.end;
            PlacedLayers {
                device: segment.device.to_string(),
                dtype: segment.dtype.option(),
                quant: segment.quant,
                layers,
                resident: share.resident,
            }
        };
        let placed = self.segments.iter().zip(self.shares(n_layer + 1)).map(&mut place);
        Ok(placed.filter(|p| !p.layers.is_empty()).collect())
    }

    /// Returns a note for each segment whose number of layers differs from the number that the user may expect.
    pub fn place_notes(&self, n_layer: usize) -> Vec<String> {
        let shares = self.shares(n_layer + 1);
        let streams = self.segments.iter().find(|s| matches!(s.layers, Layers::Streamed(_)));
        self.segments.iter().zip(shares).filter_map(|(segment, share)| note(segment, share, streams)).collect()
    }

    /// Divides `total` layers among the segments.
    fn shares(&self, total: usize) -> Vec<Share> {
        let mut left = total;
        let mut take = |n: usize| {
            let n = n.min(left);
            left -= n;
            Share { layers: n, resident: n }
        };
        let mut shares: Vec<Share> = self
            .segments
            .iter()
            .map(|s| match s.layers {
                Layers::Share => take(0),
                Layers::Fixed(n) | Layers::Streamed(n) => take(n),
            })
            .collect();
        if let Some(i) = self.segments.iter().position(|s| matches!(s.layers, Layers::Streamed(_))) {
            shares[i].layers += left;
            return shares;
        }
        let mut sharing = self.segments.iter().filter(|s| s.layers == Layers::Share).count();
        for (share, _) in shares.iter_mut().zip(&self.segments).filter(|(_, s)| s.layers == Layers::Share) {
            let n = left / sharing;
            (left, sharing) = (left - n, sharing - 1);
            *share = Share { layers: n, resident: n };
        }
        let last = shares.last_mut().expect("a strategy has a segment");
        (last.layers, last.resident) = (last.layers + left, last.resident + left);
        shares
    }
}

/// Returns a note if a segment receives another number of layers than the user may expect. `streams` is the segment that streams all
/// remaining layers, or `None` if no segment does.
fn note(segment: &Segment, share: Share, streams: Option<&Segment>) -> Option<String> {
    let n = share.layers;
    let why = match (segment.layers, streams) {
        (Layers::Share, Some(other)) if n == 0 => format!("\"{other}\" streams all remaining layers; write *N to reserve some"),
        (Layers::Share, None) if n == 0 => "no layers remain".into(),
        (Layers::Fixed(asked) | Layers::Streamed(asked), _) if n < asked => "no layers remain".into(),
        (Layers::Fixed(asked), _) if n > asked => "as the last segment it takes the rest".into(),
        (Layers::Streamed(_), _) if share.resident == n => "none of them is streamed".into(),
        _ => return None,
    };
    let noun = if n == 1 { "layer" } else { "layers" };
    Some(format!("\"{segment}\" gets {n} {noun}: {why}"))
}

impl DType {
    /// Returns the float format of weights. bf16 weights are stored as f16 or f32, since no kernel computes in bf16.
    fn option(self) -> FloatChoice {
        match self {
            DType::Fp32 => FloatChoice::Exactly(Float::F32),
            DType::Fp16 => FloatChoice::Exactly(Float::F16),
            DType::Bf16 => FloatChoice::Auto,
        }
    }
}
