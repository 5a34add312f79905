//! From segments to layers. There are L + 1 of them: the last is the norm and the head behind the blocks; the embedding belongs to
//! the first. The rules are the package's, without its division by zero where a segment asks for `*0`.

use super::{DType, Layers, Segment, Strategy};
use crate::error::{Error, Result};
use crate::exec::FloatChoice;
use crate::quant::Float;
use std::ops::Range;

/// Layers on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// As the option `device` takes it.
    pub device: String,
    pub dtype: FloatChoice,
    /// As the option `quant` takes it, where matrices are kept in fewer bits.
    pub quant: Option<&'static str>,
    /// Of L + 1; never empty.
    pub layers: Range<usize>,
    /// So many of them, from the first on, stay on the device. The others are streamed through it.
    pub resident: usize,
}

impl Placed {
    /// Whether the host's own cores compute them.
    pub fn is_on_cpu(&self) -> bool {
        self.device == "cpu"
    }
}

/// What a segment gets.
#[derive(Clone, Copy)]
struct Share {
    layers: usize,
    resident: usize,
}

impl Strategy {
    /// Deals out the layers of a model of `n_layer` blocks: every one of L + 1 to one segment, in order. Segments without layers are left
    /// out.
    pub fn place(&self, n_layer: usize) -> Result<Vec<Placed>> {
        if n_layer == 0 {
            return Err(Error::model("expected a model with layers, found none to place"));
        }
        let mut first = 0;
        let mut place = |(segment, share): (&Segment, Share)| {
            let layers = first..first + share.layers;
            first = layers.end;
            Placed {
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

    /// Where a model of `n_layer` blocks gets another placement than a reader of the strategy may expect.
    pub fn place_notes(&self, n_layer: usize) -> Vec<String> {
        let shares = self.shares(n_layer + 1);
        let streams = self.segments.iter().find(|s| matches!(s.layers, Layers::Streamed(_)));
        self.segments.iter().zip(shares).filter_map(|(segment, share)| note(segment, share, streams)).collect()
    }

    /// Layers of every segment; `total` between them.
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

/// What is unexpected of a segment's share; `streams` is the segment that takes what is left, if one does.
fn note(segment: &Segment, share: Share, streams: Option<&Segment>) -> Option<String> {
    let n = share.layers;
    let why = match (segment.layers, streams) {
        (Layers::Share, Some(other)) if n == 0 => format!("\"{other}\" streams all that are left; say *N to give it some"),
        (Layers::Share, None) if n == 0 => "no more are left".into(),
        (Layers::Fixed(asked) | Layers::Streamed(asked), _) if n < asked => "no more are left".into(),
        (Layers::Fixed(asked), _) if n > asked => "nobody else takes them, and it is last".into(),
        (Layers::Streamed(_), _) if share.resident == n => "none of them is streamed".into(),
        _ => return None,
    };
    let noun = if n == 1 { "layer" } else { "layers" };
    Some(format!("\"{segment}\" gets {n} {noun}: {why}"))
}

impl DType {
    /// Nothing computes in bf16: all sums are in f32, and bf16 weights are stored as f16 or f32.
    fn option(self) -> FloatChoice {
        match self {
            DType::Fp32 => FloatChoice::Exactly(Float::F32),
            DType::Fp16 => FloatChoice::Exactly(Float::F16),
            DType::Bf16 => FloatChoice::Auto,
        }
    }
}
