//! Values that shells suggest for a flag that takes other values, too.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;

/// Where options about output are listed in help.
pub const OUTPUT: &str = "Output";

/// A parser with values that shells complete. It accepts whatever `parser` accepts.
#[derive(Clone)]
pub struct Suggested<P> {
    parser: P,
    values: Vec<PossibleValue>,
}

/// Adds suggestions to a parser.
pub fn suggested<P>(parser: P, values: impl IntoIterator<Item = impl Into<PossibleValue>>) -> Suggested<P> {
    Suggested { parser, values: values.into_iter().map(Into::into).collect() }
}

impl<P: TypedValueParser> TypedValueParser for Suggested<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().cloned()))
    }
}
