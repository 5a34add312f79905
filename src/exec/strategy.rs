//! Strategy strings: which layers run on which device, and in which format their weights are kept. Grammar and placement follow ChatRWKV;
//! users read `docs/strategies.md`. This module opens no device. The only property of a model that this module uses is the number of layers.

mod parse;
mod place;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::quant::{FORMATS, Scaling};
use std::fmt;
use std::str::FromStr;

pub use place::PlacedLayers;

/// A strategy such as `gpu fp16i8 *10 -> cpu fp32`: segments, in the order of the layers. Each segment gives consecutive layers a device
/// and a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    segments: Vec<Segment>,
    notes: Vec<String>,
}

/// Consecutive layers on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    device: SegmentDevice,
    dtype: DType,
    /// The name of a quantised format in [`FORMATS`](crate::quant::FORMATS). `None` means floats.
    quant: Option<&'static str>,
    layers: Layers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentDevice {
    Cpu,
    /// An adapter by its index in the list of adapters. `None` means the first adapter.
    Gpu(Option<u32>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DType {
    Fp32,
    Fp16,
    Bf16,
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
const DTYPES: [(&str, DType); 3] = [("fp32", DType::Fp32), ("fp16", DType::Fp16), ("bf16", DType::Bf16)];

/// Returns the formats that can follow a dtype.
fn quants() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().filter(|format| format.scaling() != Scaling::None).map(|format| format.name())
}

impl Strategy {
    /// Returns the devices of all segments as values of the option `device`, sorted, each once.
    pub fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = self.segments.iter().map(|s| s.device.to_string()).collect();
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

impl fmt::Display for SegmentDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentDevice::Cpu => f.write_str("cpu"),
            SegmentDevice::Gpu(None) => f.write_str("gpu"),
            SegmentDevice::Gpu(Some(n)) => write!(f, "gpu:{n}"),
        }
    }
}

impl DType {
    fn name(self) -> &'static str {
        let named = DTYPES.iter().find(|(_, dtype)| *dtype == self);
        named.expect("every dtype has a name").0
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.device, self.dtype.name(), self.quant.unwrap_or(""))?;
        match self.layers {
            Layers::Share => Ok(()),
            Layers::Fixed(n) => write!(f, " *{n}"),
            Layers::Streamed(n) => write!(f, " *{n}+"),
        }
    }
}

/// Writes the normal form: lower case, `gpu` for its aliases, one space between words. The normal form parses to a strategy with the same
/// placement.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            let arrow = if i == 0 { "" } else { " -> " };
            write!(f, "{arrow}{segment}")?;
        }
        Ok(())
    }
}
