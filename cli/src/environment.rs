//! Checks wingbeat's environment variables before a subcommand begins.

use super::output::say;
use super::threads::THREADS;
use super::variables::{CACHE, DEVICE};
use wingbeat::error::Result;
use wingbeat::low_level::exec::environment as models;

/// The maximum number of letters by which a mistyped name may differ from the right name.
const TYPOS: usize = 2;

/// Returns the names of all environment variables that belong to wingbeat: `WINGBEAT_DEVICE` and others.
pub fn names() -> impl Iterator<Item = &'static str> {
    [DEVICE, CACHE, THREADS].into_iter().chain(models::names())
}

/// Checks the values of wingbeat's variables. Prints a note about every other variable whose name looks like a typo of one of wingbeat's variables.
///
/// # Errors
/// `Usage` if a value is wrong. The error names the variable.
pub fn check() -> Result<()> {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(meant) = meant(&name) {
            say(format_args!("note: {name} is not a variable of wingbeat; did you mean {meant}?"));
        }
    }
    models::check()
}

/// Returns the variable that the mistyped `name` probably means, or `None` if `name` is right or not similar to any variable.
fn meant(name: &str) -> Option<&'static str> {
    if !name.starts_with("WINGBEAT_") || names().any(|known| known == name) {
        return None;
    }
    names().find(|known| strsim::damerau_levenshtein(known, name) <= TYPOS)
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn a_mistyped_name_is_noticed() {
        assert_eq!(meant("WINGBEAT_DEVCE"), Some("WINGBEAT_DEVICE"));
        assert_eq!(meant("WINGBEAT_KERNEL"), Some("WINGBEAT_KERNELS"));
        for other in ["WINGBEAT_DEVICE", "WINGBEAT_REQUIRE_GPU", "WINGBEAT_THREADS", "XWINGBEAT_DEVCE", "PATH"] {
            assert_eq!(meant(other), None, "{other}");
        }
    }
}
