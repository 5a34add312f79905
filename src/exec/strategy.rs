//! Strategy strings: which layers run on which device, and how their weights are kept. The grammar and the placement are those of
//! ChatRWKV; `docs/strategies.md` is the user's page. Opens no device and knows no model but its number of layers.

mod parse;
mod place;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::quant::{FORMATS, Scaling};
use std::fmt;
use std::str::FromStr;

pub use place::Placed;

/// `gpu fp16i8 *10 -> cpu fp32`: segments in the order of the layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    segments: Vec<Segment>,
    notes: Vec<String>,
}

/// Consecutive layers on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    device: Device,
    dtype: DType,
    /// A weight format, by its name in [`FORMATS`](crate::quant::FORMATS).
    quant: Option<&'static str>,
    layers: Layers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    Cpu,
    /// An adapter by its place in the list of all; none: the first.
    Gpu(Option<u32>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DType {
    Fp32,
    Fp16,
    Bf16,
}

/// How many layers a segment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layers {
    /// Its share of what is left.
    Share,
    /// `*N`
    Fixed(usize),
    /// `*N+`: N stay on the device; those that nobody asked for are streamed through it.
    Streamed(usize),
}

/// The dtypes, as a strategy names them.
const DTYPES: [(&str, DType); 3] = [("fp32", DType::Fp32), ("fp16", DType::Fp16), ("bf16", DType::Bf16)];

/// Returns the formats that can follow a dtype.
fn quants() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().filter(|format| format.scaling() != Scaling::None).map(|format| format.name())
}

impl Strategy {
    /// Returns its devices as the option `device` takes them, each once.
    pub fn devices(&self) -> Vec<String> {
        let mut names: Vec<String> = self.segments.iter().map(|s| s.device.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What a user should know: words that mean something else here than in the package. Each is said once.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The error of a text that is no strategy shows where.
impl FromStr for Strategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Strategy> {
        parse::strategy(text)
    }
}

/// How a caller places layers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StrategyChoice {
    /// What suits the memory that is free on this machine.
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

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Gpu(None) => f.write_str("gpu"),
            Device::Gpu(Some(n)) => write!(f, "gpu:{n}"),
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

/// The normal form: lower case, `gpu` for its aliases, one space between words. It parses to the same placement.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            let arrow = if i == 0 { "" } else { " -> " };
            write!(f, "{arrow}{segment}")?;
        }
        Ok(())
    }
}
