//! The choice between f16 and f32 in options for weights, caches and states.

use super::{Format, f16::F16, f32::F32};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    F16,
    F32,
}

impl Float {
    /// All floating-point formats.
    pub const ALL: [Float; 2] = [Float::F16, Float::F32];

    /// Returns the [`Format`] that stores elements in this type.
    pub fn format(self) -> &'static dyn Format {
        match self {
            Float::F16 => &F16,
            Float::F32 => &F32,
        }
    }

    /// Returns `f16` or `f32`.
    pub fn name(self) -> &'static str {
        self.format().name()
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Float {
    type Err = Error;

    fn from_str(text: &str) -> Result<Float> {
        let found = Float::ALL.into_iter().find(|float| float.name() == text);
        found.ok_or_else(|| Error::usage(format!("expected f16 or f32, found {text:?}")))
    }
}
