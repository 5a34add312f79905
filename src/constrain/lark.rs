//! A grammar in Lark, the language of the crate that follows it.

use super::gbnf::Rules;
use super::lexemes;
use super::parts::{Part, Parts};
use crate::error::Result;
use std::fmt::Write;

/// The same grammar; its rule `whole` is what `root` is there. A part is a rule `nN` or, where it is a lexeme or within one, a terminal `TN`.
///
/// # Errors
/// `Input`, where a rule stands for no text.
pub fn write(rules: &Rules) -> Result<String> {
    let parts = Parts::of(rules)?;
    let is_lexeme = lexemes::choose(&parts);
    let mut writer = Writer { parts: &parts, is_lexeme: &is_lexeme, text: String::new(), done: vec![[false; 2]; parts.all.len()] };
    let root = writer.name(parts.root, Within::Rules);
    let _ = writeln!(writer.text, "whole: {root}");
    let mut wait = vec![(parts.root, Within::Rules)];
    while let Some((part, within)) = wait.pop() {
        wait.extend(writer.define(part, within));
    }
    Ok(writer.text)
}

/// Where a part is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Rules,
    Lexeme,
}

struct Writer<'p> {
    parts: &'p Parts,
    is_lexeme: &'p [bool],
    text: String,
    /// Written as a rule, as a terminal.
    done: Vec<[bool; 2]>,
}

impl Writer<'_> {
    fn kind(&self, part: usize, within: Within) -> Within {
        if self.is_lexeme[part] { Within::Lexeme } else { within }
    }

    fn name(&self, part: usize, within: Within) -> String {
        match self.kind(part, within) {
            Within::Rules => format!("n{part}"),
            Within::Lexeme => format!("T{part}"),
        }
    }

    /// Writes one line; gives the parts that it needs.
    fn define(&mut self, part: usize, within: Within) -> Vec<(usize, Within)> {
        let within = self.kind(part, within);
        if std::mem::replace(&mut self.done[part][usize::from(within == Within::Lexeme)], true) {
            return Vec::new();
        }
        let below = self.parts.below(part);
        let names: Vec<String> = below.iter().map(|&c| self.name(c, within)).collect();
        let body = match &self.parts.all[part] {
            Part::Char(chars) => format!("/{}/", lexemes::class(chars)),
            Part::Either(_) => names.join(" | "),
            Part::Sequence(_) if names.is_empty() => "\"\"".into(),
            Part::Sequence(_) | Part::Rule(_) => names.join(" "),
            Part::Repeat(_, 0, None) => format!("{}*", names[0]),
            Part::Repeat(_, 1, None) => format!("{}+", names[0]),
            Part::Repeat(_, least, None) => format!("{}{{{least},}}", names[0]),
            Part::Repeat(_, least, Some(most)) => format!("{}{{{least},{most}}}", names[0]),
        };
        let _ = writeln!(self.text, "{}: {body}", self.name(part, within));
        below.iter().map(|&c| (c, within)).collect()
    }
}
