//! The texts of `-V` and `--version`.

use crate::report::BuildReport;
use std::sync::LazyLock;

static SHORT: LazyLock<String> = LazyLock::new(|| BuildReport::new().short());
static LONG: LazyLock<String> = LazyLock::new(|| BuildReport::new().to_string());

/// Returns one line without the program's name.
pub fn short() -> &'static str {
    &SHORT
}

/// Returns the line of [`short`] and one line per fact.
pub fn long() -> &'static str {
    &LONG
}
