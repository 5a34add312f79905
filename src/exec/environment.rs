//! Environment variables that change how a model runs, and their values.
//!
//! A variable with an empty value counts as not set. Values may be in upper or lower case. A browser has no environment: there, [`set`] sets the
//! variables.

use crate::error::{Error, Result, short};
use std::sync::{Mutex, PoisonError};

/// Upper limit on the size of a storage binding, in bytes. With a low limit, tests split the matrices of small models.
pub const BINDING_LIMIT: Variable = Variable { name: "WINGBEAT_MAX_BINDING", values: Values::Bytes };
/// Sets the kernel family: `groups` (kernels for GPUs) or `lanes` (kernels for software adapters).
pub const KERNELS: Variable = Variable { name: "WINGBEAT_KERNELS", values: Values::Words(&["groups", "lanes"]) };
/// Forbids (`0`) or requires (`1`) reductions by subgroups.
pub const SUBGROUPS: Variable = Variable { name: "WINGBEAT_SUBGROUPS", values: ON_OFF };
/// Forbids (`0`) or requires (`1`) products by cooperative matrices.
pub const COOPERATIVE: Variable = Variable { name: "WINGBEAT_COOPERATIVE", values: ON_OFF };
/// Forbids (`0`) the recurrence in spans of 16 tokens, or allows it (`1`).
pub const SPANS: Variable = Variable { name: "WINGBEAT_SPANS", values: ON_OFF };
/// Keeps (`1`) or removes (`0`) the bounds checks of shaders.
pub const CHECKED: Variable = Variable { name: "WINGBEAT_CHECKED_SHADERS", values: ON_OFF };
/// Sets where tokens are sampled: `device` or `host`.
pub const DRAWS: Variable = Variable { name: "WINGBEAT_DRAWS", values: Values::Words(&["device", "host"]) };
/// Forbids tuning (`0`), or also tunes software adapters (`1`).
pub const TUNE: Variable = Variable { name: "WINGBEAT_TUNE", values: ON_OFF };

/// Limits the CPU's vector instructions: `avx2` (no AVX-512) or `plain` (plain loops).
pub const VECTORS: Variable = Variable { name: "WINGBEAT_VECTORS", values: Values::Words(&["avx2", "plain"]) };

/// Sets which WGSL a browser compiles: the `composed` text, or the text that `naga` writes. naga's text loses `@align`, so its kernels compute wrong
/// results. Tests use it to check that wrong results are noticed.
pub const WGSL: Variable = Variable { name: "WINGBEAT_WGSL", values: Values::Words(&["composed", "naga"]) };

const VARIABLES: [Variable; 10] = [KERNELS, SUBGROUPS, COOPERATIVE, SPANS, DRAWS, TUNE, BINDING_LIMIT, CHECKED, VECTORS, WGSL];

/// Values that [`set`] has set, with the names of their variables.
static GIVEN: Mutex<Vec<(&str, String)>> = Mutex::new(Vec::new());

/// An environment variable.
pub struct Variable {
    pub name: &'static str,
    values: Values,
}

/// The values that a variable accepts.
enum Values {
    Words(&'static [&'static str]),
    /// A number of bytes, at least 1.
    Bytes,
}

const ON_OFF: Values = Values::Words(&["0", "1"]);

/// Returns the names of all variables.
pub fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.into_iter().map(|variable| variable.name)
}

/// Checks the values of all variables, including variables that the chosen device does not use.
///
/// # Errors
/// A `Usage` error that names the variable, if a value is not accepted.
pub fn check() -> Result<()> {
    VARIABLES.iter().try_for_each(|variable| variable.value().map(drop))
}

/// Sets a variable for this program, in place of its value in the environment. An empty `value` counts as not set.
///
/// # Errors
/// A `Usage` error that names the variable, if the name is unknown or the value is not accepted.
#[doc(hidden)]
pub fn set(name: &str, value: &str) -> Result<()> {
    let Some(variable) = VARIABLES.into_iter().find(|variable| variable.name == name) else {
        return Err(Error::usage(format!("unknown variable, expected one of {}", names().collect::<Vec<_>>().join(", "))).at(name));
    };
    variable.parse(value)?;
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    given.retain(|(known, _)| *known != name);
    given.push((variable.name, value.into()));
    Ok(())
}

impl Variable {
    /// Returns the value of the variable in lower case, or `None` if the variable is not set.
    ///
    /// # Errors
    /// A `Usage` error that names the variable, if the value is not accepted.
    pub(super) fn value(&self) -> Result<Option<String>> {
        let given =
            GIVEN.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|(name, _)| *name == self.name).map(|(_, text)| text.clone());
        let text = given.or_else(|| Some(std::env::var_os(self.name)?.to_string_lossy().into_owned()));
        self.parse(&text.unwrap_or_default())
    }

    fn parse(&self, text: &str) -> Result<Option<String>> {
        if text.is_empty() {
            return Ok(None);
        }
        parse(text, &self.values).map(Some).map_err(|e| e.at(self.name))
    }

    /// Returns whether the variable has the value `word`, or `None` if the variable is not set.
    ///
    /// # Errors
    /// The errors of [`value`](Self::value).
    pub(super) fn is(&self, word: &str) -> Result<Option<bool>> {
        Ok(self.value()?.map(|value| value == word))
    }
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
    fn a_variable_without_an_environment_is_set_by_name() {
        assert!(set("WINGBEAT_WGSL", "tint").unwrap_err().to_string().contains("expected composed or naga"));
        assert!(set("WINGBEAT_NONE", "1").unwrap_err().message.starts_with("unknown variable"));
        set("WINGBEAT_WGSL", "Naga").unwrap();
        assert_eq!(WGSL.is("naga").unwrap(), Some(true));
        set("WINGBEAT_WGSL", "").unwrap();
        assert_eq!(WGSL.is("naga").unwrap(), None);
    }

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
