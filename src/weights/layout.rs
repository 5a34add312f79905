//! Whose names and orientations a file has.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Where the metadata say whose layout a file has, for pairs whose shapes cannot tell.
pub(super) const LAYOUT_KEY: &str = "wingbeat.layout";

/// Whose names and orientations a written file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// The original `.pth`; of a GLM, the names of `transformers`.
    #[default]
    Official,
    /// web-rwkv's `.st`: some names differ, low-rank matrices lie transposed.
    WebRwkv,
}

impl Layout {
    pub const ALL: [Layout; 2] = [Layout::Official, Layout::WebRwkv];

    /// Its name in options, metadata and reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Official => "official",
            Layout::WebRwkv => "web-rwkv",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Layout> {
        let found = Layout::ALL.into_iter().find(|layout| layout.name() == name);
        found.ok_or_else(|| Error::usage(format!("expected official or web-rwkv, found {name:?}")).field("layout"))
    }
}
