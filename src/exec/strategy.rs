//! Strategy strings: which layers run on which device, and in which format their weights are kept. Grammar and placement follow ChatRWKV;
//! `docs/strategies.md` describes them for users. This module opens no device. The only property of a model that this module uses is the number of
//! layers.
//!
//! A model of L blocks has L + 1 layers: the first includes the embedding, the last is the final norm and the head. The `rwkv` package follows the
//! same rules, with one exception: if one segment requests no layers (`*0`) and another segment has no number, the package fails with a division by
//! zero. This module accepts such a strategy.

mod parse;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::exec::{DeviceChoice, FloatChoice};
use crate::quant::{FORMATS, Float, Scaling};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A strategy such as `gpu fp16i8 *10 -> cpu fp32`: segments, in the order of the layers. Each segment gives consecutive layers a device
/// and a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    segments: Vec<Segment>,
    notes: Vec<String>,
}

/// Consecutive layers on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    /// `Cpu` or `Gpu`.
    device: DeviceChoice,
    /// The float format of the weights. `Auto` means f16 or f32, since no kernel computes in bf16.
    dtype: FloatChoice,
    /// The name of a quantised format in [`FORMATS`](crate::quant::FORMATS). `None` means floats.
    quant: Option<&'static str>,
    layers: Layers,
    /// The place of the segment's experts. `None` if the experts are with the rest of their layers.
    experts: Option<Experts>,
}

/// The device and the format of a segment's experts: `experts cpu fp16i8 *20`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Experts {
    device: DeviceChoice,
    dtype: FloatChoice,
    quant: Option<&'static str>,
    /// The number of layers whose experts have this place, counted backwards from the segment's last layer with experts. `None` means all layers.
    layers: Option<usize>,
}

/// The number of layers that a segment requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layers {
    /// No number. All segments without a number divide the remaining layers among them.
    Share,
    /// `*N`: N layers.
    Fixed(usize),
    /// `*N+`: N layers stay on the device. All layers that no segment requests are streamed through this device, too.
    Streamed(usize),
}

/// The dtypes and their names in a strategy.
const DTYPES: [(&str, FloatChoice); 3] =
    [("fp32", FloatChoice::Exactly(Float::F32)), ("fp16", FloatChoice::Exactly(Float::F16)), ("bf16", FloatChoice::Auto)];

/// Returns the formats that can follow a dtype.
fn quants() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().filter(|format| format.scaling() != Scaling::None).map(|format| format.name())
}

impl Segment {
    /// Returns whether the segment streams layers.
    fn streams(&self) -> bool {
        matches!(self.layers, Layers::Streamed(_))
    }
}

impl Strategy {
    /// Returns the devices that run layers or experts, sorted, without duplicates. Each is written as in the option `device`, such as `gpu:0`.
    pub fn devices(&self) -> Vec<String> {
        let of_experts = self.segments.iter().filter_map(|s| s.experts.as_ref()).map(|experts| &experts.device);
        let mut names: Vec<String> = self.segments.iter().map(|s| &s.device).chain(of_experts).map(ToString::to_string).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns notes for the user. Each note explains a device name or a format that has another meaning in the `rwkv` package.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Parses a strategy. An error is of kind `Usage` and marks the wrong part of the text.
impl FromStr for Strategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Strategy> {
        parse::strategy(text)
    }
}

/// A strategy, or the request to choose one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StrategyChoice {
    /// The strategy that suits the free memory of this machine.
    #[default]
    Auto,
    Given(Strategy),
}

impl FromStr for StrategyChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<StrategyChoice> {
        if text.trim().eq_ignore_ascii_case("auto") { Ok(StrategyChoice::Auto) } else { text.parse().map(StrategyChoice::Given) }
    }
}

impl fmt::Display for StrategyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrategyChoice::Auto => f.pad("auto"),
            StrategyChoice::Given(strategy) => strategy.fmt(f),
        }
    }
}

/// Returns the text of a weight format, such as `fp16i8`.
fn format_name(dtype: FloatChoice, quant: Option<&str>) -> String {
    let (name, _) = DTYPES.iter().find(|(_, known)| *known == dtype).expect("a dtype of the table");
    format!("{name}{}", quant.unwrap_or(""))
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.device, format_name(self.dtype, self.quant))?;
        match self.layers {
            Layers::Share => (),
            Layers::Fixed(n) => write!(f, " *{n}")?,
            Layers::Streamed(n) => write!(f, " *{n}+")?,
        }
        let Some(Experts { ref device, dtype, quant, layers }) = self.experts else { return Ok(()) };
        write!(f, ", experts {device}")?;
        if (dtype, quant) != (self.dtype, self.quant) {
            write!(f, " {}", format_name(dtype, quant))?;
        }
        layers.map_or(Ok(()), |n| write!(f, " *{n}"))
    }
}

/// Writes the normal form: lower case, `gpu` for its aliases, one space between words. The normal form parses to a strategy with the same
/// placement.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments: Vec<String> = self.segments.iter().map(Segment::to_string).collect();
        f.write_str(&segments.join(" -> "))
    }
}

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
    /// The place of experts that are not on the device. `None` if the device has the experts of all `layers`, or if it streams layers.
    pub experts: Option<PlacedExperts>,
}

/// Experts on another device than the rest of their layers, or in another format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedExperts {
    /// The device, as a value of the option `device`.
    pub device: String,
    pub dtype: FloatChoice,
    /// The quantised format, as in [`PlacedLayers::quant`].
    pub quant: Option<&'static str>,
    /// The number of layers whose experts have this place, counted backwards from the segment's last layer with experts. If the segment has fewer
    /// layers with experts, all of them have this place.
    pub layers: usize,
}

impl PlacedLayers {
    /// Returns whether the layers run on the CPU.
    pub fn is_on_cpu(&self) -> bool {
        self.device == "cpu"
    }
}

impl PlacedExperts {
    /// Returns whether the experts run on the CPU.
    pub fn is_on_cpu(&self) -> bool {
        self.device == "cpu"
    }
}

impl Strategy {
    /// Places the `n_layer + 1` layers of a model: the first segment receives the first layers, the next segment the layers after them.
    /// Segments without layers are left out.
    ///
    /// # Errors
    /// `Model` if `n_layer` is 0.
    pub fn assign(&self, n_layer: usize) -> Result<Vec<PlacedLayers>> {
        if n_layer == 0 {
            return Err(Error::model("the model has no layers to place on devices"));
        }
        let mut first = 0;
        let mut placed = Vec::new();
        for (segment, n) in self.segments.iter().zip(self.shares(n_layer + 1)).filter(|(_, n)| *n > 0) {
            let Segment { ref device, dtype, quant, layers, ref experts } = *segment;
            let resident = if let Layers::Streamed(asked) = layers { asked.min(n) } else { n };
            let experts = experts.as_ref().map(|&Experts { ref device, dtype, quant, layers }| PlacedExperts {
                device: device.to_string(),
                dtype,
                quant,
                layers: layers.unwrap_or(usize::MAX),
            });
            placed.push(PlacedLayers { device: device.to_string(), dtype, quant, layers: first..first + n, resident, experts });
            first += n;
        }
        Ok(placed)
    }

    /// Returns a note for each segment whose number of layers differs from the number that the user may expect.
    pub fn place_notes(&self, n_layer: usize) -> Vec<String> {
        let streams = self.segments.iter().find(|s| s.streams());
        let shares = self.segments.iter().zip(self.shares(n_layer + 1));
        shares.filter_map(|(segment, n)| note(segment, n, streams)).collect()
    }

    /// Divides `total` layers among the segments.
    fn shares(&self, total: usize) -> Vec<usize> {
        let mut left = total;
        let mut take = |segment: &Segment| {
            let n = match segment.layers {
                Layers::Share => 0,
                Layers::Fixed(n) | Layers::Streamed(n) => n.min(left),
            };
            left -= n;
            n
        };
        let mut shares: Vec<usize> = self.segments.iter().map(&mut take).collect();
        if let Some(i) = self.segments.iter().position(Segment::streams) {
            shares[i] += left;
            return shares;
        }
        let mut sharing = self.segments.iter().filter(|s| s.layers == Layers::Share).count();
        for (n, _) in shares.iter_mut().zip(&self.segments).filter(|(_, s)| s.layers == Layers::Share) {
            *n = left / sharing;
            (left, sharing) = (left - *n, sharing - 1);
        }
        *shares.last_mut().expect("a strategy has a segment") += left;
        shares
    }
}

/// Returns a note if a segment receives another number of layers than the user may expect. `n` is this number. `streams` is the segment that
/// streams all remaining layers, or `None` if no segment does.
fn note(segment: &Segment, n: usize, streams: Option<&Segment>) -> Option<String> {
    let why = match (segment.layers, streams) {
        (Layers::Share, Some(other)) if n == 0 => format!("\"{other}\" streams all remaining layers; write *N to reserve some"),
        (Layers::Share, None) if n == 0 => "no layers remain".into(),
        (Layers::Fixed(asked) | Layers::Streamed(asked), _) if n < asked => "no layers remain".into(),
        (Layers::Fixed(asked), _) if n > asked => "as the last segment it takes the rest".into(),
        (Layers::Streamed(asked), _) if n == asked => "none of them is streamed".into(),
        _ => return None,
    };
    let noun = if n == 1 { "layer" } else { "layers" };
    Some(format!("\"{segment}\" gets {n} {noun}: {why}"))
}
