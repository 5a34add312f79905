//! The option `activations`: rounding of the activations in products.

use super::Format;
use crate::error::{Error, Result, short};
use std::fmt;
use std::str::FromStr;

/// How products read activations, where weights are whole numbers times a factor per block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activations {
    /// Rounds activations to 8 bits where this costs little: products with weights of at most 6 bits.
    #[default]
    Auto,
    /// Rounds activations to 8 bits.
    I8,
    /// Rounds no activations.
    Float,
}

/// With weights of at most this number of bits, rounded activations add at most a tenth to the loss (benches/results/2026-11-28-loss.md).
const FEW_BITS: usize = 6;

impl Activations {
    /// All values of the option.
    pub const ALL: [Activations; 3] = [Activations::Auto, Activations::I8, Activations::Float];

    /// Returns the value of the option: `auto`, `i8` or `float`.
    pub fn name(self) -> &'static str {
        match self {
            Activations::Auto => "auto",
            Activations::I8 => "i8",
            Activations::Float => "float",
        }
    }

    /// Returns whether products with weights of this format round their activations.
    pub fn are_rounded(self, format: &dyn Format) -> bool {
        let is_asked = match self {
            Activations::Auto => format.bits() <= FEW_BITS,
            Activations::I8 => true,
            Activations::Float => false,
        };
        is_asked && format.loops().is_whole
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Activations {
    type Err = Error;

    fn from_str(text: &str) -> Result<Activations> {
        let found = Activations::ALL.into_iter().find(|value| value.name() == text);
        found.ok_or_else(|| Error::usage(format!("expected auto, i8 or float, found {:?}", short(text, 40))).field("activations"))
    }
}
