//! Environment variables that change how a model runs, and their values.
//!
//! A variable with an empty value counts as not set. Values may be in upper or lower case.

use crate::error::{Error, Result, short};

/// Environment variable with an upper limit on the size of a storage binding, in bytes. With a low limit, tests split the matrices of small
/// models.
pub const BINDING_LIMIT: &str = "WINGBEAT_MAX_BINDING";
/// Environment variable that sets the kernel family: `groups` (kernels for GPUs) or `lanes` (kernels for software adapters).
pub const KERNELS: &str = "WINGBEAT_KERNELS";
/// Environment variable that forbids (`0`) or requires (`1`) reductions by subgroups.
pub const SUBGROUPS: &str = "WINGBEAT_SUBGROUPS";
/// Environment variable that forbids (`0`) or requires (`1`) products by cooperative matrices.
pub const COOPERATIVE: &str = "WINGBEAT_COOPERATIVE";
/// Environment variable that forbids (`0`) the recurrence in spans of 16 tokens, or allows it (`1`).
pub const SPANS: &str = "WINGBEAT_SPANS";
/// Environment variable that keeps (`1`) or removes (`0`) the bounds checks of shaders.
pub const CHECKED: &str = "WINGBEAT_CHECKED_SHADERS";
/// Environment variable that sets where tokens are sampled: `device` or `host`.
pub const DRAWS: &str = "WINGBEAT_DRAWS";
/// Environment variable that forbids tuning (`0`), or also tunes software adapters (`1`).
pub const TUNE: &str = "WINGBEAT_TUNE";

/// The values that a variable accepts.
enum Values {
    Words(&'static [&'static str]),
    /// A number of bytes, at least 1.
    Bytes,
}

const ON_OFF: Values = Values::Words(&["0", "1"]);

const VARIABLES: [(&str, Values); 8] = [
    (KERNELS, Values::Words(&["groups", "lanes"])),
    (SUBGROUPS, ON_OFF),
    (COOPERATIVE, ON_OFF),
    (SPANS, ON_OFF),
    (DRAWS, Values::Words(&["device", "host"])),
    (TUNE, ON_OFF),
    (BINDING_LIMIT, Values::Bytes),
    (CHECKED, ON_OFF),
];

/// Returns the names of all variables.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(name, _)| *name)
}

/// Checks the values of all variables, including variables that the chosen device does not use.
///
/// # Errors
/// A `Usage` error that names the variable, if a value is not accepted.
pub fn check() -> Result<()> {
    names().try_for_each(|name| value(name).map(drop))
}

/// Returns the value of a variable in lower case, or `None` if the variable is not set.
///
/// # Errors
/// A `Usage` error that names the variable, if the value is not accepted.
pub(super) fn value(name: &str) -> Result<Option<String>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let (_, values) = VARIABLES.iter().find(|(known, _)| *known == name).expect("a variable of the table");
    parse(&text.to_string_lossy(), values).map(Some).map_err(|e| e.at(name))
}

fn parse(text: &str, values: &Values) -> Result<String> {
    let found = text.trim().to_lowercase();
    let (is_known, expected) = match values {
        Values::Words(words) => (words.contains(&found.as_str()), words.join(" or ")),
        Values::Bytes => (found.parse::<usize>().is_ok_and(|n| n > 0), "a number of bytes".into()),
    };
    if is_known { Ok(found) } else { Err(Error::usage(format!("expected {expected}, found {:?}", short(text, 40)))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_refused() {
        let said = |text, values| parse(text, values).map_err(|e| e.to_string());
        let kernels = Values::Words(&["groups", "lanes"]);
        assert_eq!(said(" Groups", &kernels), Ok("groups".into()));
        assert_eq!(said("foo", &kernels), Err("expected groups or lanes, found \"foo\"".into()));
        assert_eq!(said("yes", &ON_OFF), Err("expected 0 or 1, found \"yes\"".into()));
        assert_eq!(said("4096", &Values::Bytes), Ok("4096".into()));
        for wrong in ["0", "1k", "-1"] {
            assert_eq!(said(wrong, &Values::Bytes), Err(format!("expected a number of bytes, found {wrong:?}")));
        }
    }
}
