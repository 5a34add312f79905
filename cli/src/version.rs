//! The texts of `-V` and `--version`.

use crate::report::BuildReport;
use std::sync::LazyLock;

static SHORT: LazyLock<String> = LazyLock::new(|| BuildReport::new().short());
static LONG: LazyLock<String> = LazyLock::new(|| BuildReport::new().to_string());

/// Returns the version in one line, without the program's name.
pub fn short() -> &'static str {
    &SHORT
}

/// Returns the line of [`short`], then one line per fact of the build.
pub fn long() -> &'static str {
    &LONG
}
