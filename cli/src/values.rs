//! Parsers of flag values, and lists of values that shells complete.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;
use std::ops::RangeInclusive;

/// The heading of the options about output in `--help`.
pub const OUTPUT: &str = "Output";

/// The heading of the options about devices in `--help`.
pub const DEVICE_HEADING: &str = "Device";

/// A clap parser with a list of values that shells complete. It accepts whatever `parser` accepts, not only the listed values.
#[derive(Clone)]
pub struct SuggestingParser<P> {
    parser: P,
    values: Vec<PossibleValue>,
}

/// Adds `values` to a parser as values that shells complete.
pub fn suggested<P>(parser: P, values: impl IntoIterator<Item = impl Into<PossibleValue>>) -> SuggestingParser<P> {
    SuggestingParser { parser, values: values.into_iter().map(Into::into).collect() }
}

impl<P: TypedValueParser> TypedValueParser for SuggestingParser<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().cloned()))
    }
}

/// Returns a parser that accepts whole numbers of at least `least`.
pub fn from(least: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| text.trim().parse().ok().filter(|n| *n >= least).ok_or_else(|| format!("expected a whole number of at least {least}"))
}

/// Returns a parser that accepts whole numbers in `range`.
pub fn within(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    let (least, most) = (*range.start(), *range.end());
    let expected = move || format!("expected a whole number from {least} to {most}");
    move |text| text.trim().parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(expected)
}

/// The units of a size, and their numbers of bytes. As in the Unix command `split`, `M` is 1024 times 1024 bytes, and `MB` is a million.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
];

/// Parses a size of at least one byte, such as `256M`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = UNITS.iter().find_map(|(unit, n)| Some((text.strip_suffix(unit)?, *n))).unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0);
    bytes.ok_or_else(|| "expected a size such as 256M, 1G or 500MB".into())
}

#[cfg(test)]
mod tests {
    use super::{bytes, from, within};

    #[test]
    fn sizes_have_units() {
        let found = ["256M", "1G", " 3 KiB", "500MB", "7"].map(|text| bytes(text).unwrap());
        assert_eq!(found, [256 << 20, 1 << 30, 3072, 500_000_000, 7]);
        for wrong in ["", "0", "0M", "M", "1.5G", "-1", "99999999999G", "1T"] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_refused_with_what_was_expected() {
        assert_eq!([from(0)("0"), from(1)(" 7")], [Ok(0), Ok(7)]);
        assert_eq!([within(1..=8)("1"), within(1..=8)("8")], [Ok(1), Ok(8)]);
        for wrong in ["abc", "", "-1", "1.5", "0", "99999999999999999999999"] {
            assert_eq!(from(1)(wrong).unwrap_err(), "expected a whole number of at least 1", "{wrong:?}");
            assert_eq!(within(1..=8)(wrong).unwrap_err(), "expected a whole number from 1 to 8", "{wrong:?}");
        }
    }
}
