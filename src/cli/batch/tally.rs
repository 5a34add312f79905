//! What a run comes to, line by line, and the sentence that says so.

use super::results::Was;
use crate::cli::endings::Endings;
use crate::report::{BatchReport, Usage};

/// What the lines of the input have come to, those that were read.
#[derive(Default)]
pub struct Tally {
    /// Texts of this run.
    pub done: usize,
    /// Errors, in this run or before.
    pub failed: usize,
    /// Texts that were in the results before.
    pub kept: usize,
    /// How the texts of this run ended.
    pub endings: Endings,
    pub usage: Usage,
}

impl Tally {
    /// A line that an earlier run has done.
    pub fn add(&mut self, was: Was) {
        match was {
            Was::Text => self.kept += 1,
            Was::Error => self.failed += 1,
        }
    }

    /// Lines that need no more work.
    pub fn lines(&self) -> usize {
        self.done + self.failed + self.kept
    }
}

/// A report as a sentence.
pub fn summary(r: &BatchReport, total: Option<u64>) -> String {
    let counted = |n: usize, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
    format!(
        "{}{} prompts done{}{}{}{}: {} tokens read and {} generated in {:.1} s, {:.1} a second; seed {}",
        r.done,
        total.map_or_else(String::new, |n| format!(" of {n}")),
        counted(r.kept, "were there before"),
        counted(r.failed, "failed"),
        counted(r.context_full, "ended because the context was full"),
        counted(r.incomplete, "were cut and do not follow their rules to the end"),
        r.usage.prompt_tokens,
        r.usage.completion_tokens,
        r.seconds,
        r.tokens_per_second,
        r.seed
    )
}
