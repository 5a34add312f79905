//! What `-V` and `--version` print.

use crate::report::BuildReport;
use std::sync::LazyLock;

static SHORT: LazyLock<String> = LazyLock::new(|| BuildReport::new().short());
static LONG: LazyLock<String> = LazyLock::new(|| BuildReport::new().to_string());

/// One line, without the program's name.
pub fn short() -> &'static str {
    &SHORT
}

/// The same line, and a fact a line.
pub fn long() -> &'static str {
    &LONG
}
