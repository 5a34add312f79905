//! Translates a grammar to Lark, the grammar language of llguidance. A *lexeme* is a part of the grammar that llguidance's lexer matches as one
//! regular expression (`lexemes.rs`).

use super::gbnf::Rules;
use super::lexemes;
use super::parts::{GrammarParts, Node};
use crate::error::{Error, Result, short};
use std::fmt::Write;

/// The largest number of Lark rules in a chain in which each rule refers to the next rule. llguidance's compiler recurses for each Lark rule, so a
/// longer chain could exhaust its stack.
const MAX_DEPTH: usize = 4000;

/// Translates rules to Lark. The rule `root` becomes the Lark rule `whole`. Every expression and subexpression is a part with a number N. A lexeme,
/// and every part inside a lexeme, becomes the terminal `TN`. Any other part becomes the Lark rule `nN`.
///
/// # Errors
/// `Input` if a rule can never match, or if a chain of rules is too long.
pub fn write(rules: &Rules) -> Result<String> {
    let parts = GrammarParts::of(rules)?;
    let is_lexeme = lexemes::choose(&parts);
    if let Some(part) = too_deep(&parts, &is_lexeme) {
        let at = parts.bodies.iter().position(|&body| body == part).map_or(String::new(), |rule| {
            let name = short(&rules.names[rule], 60);
            format!("; rule {name} is too deep")
        });
        let e = Error::input(format!("rules refer to one another more than {MAX_DEPTH} deep{at}"));
        return Err(e.hint("write a repetition, such as x*, instead of a chain of rules"));
    }
    let mut writer = LarkWriter { parts: &parts, is_lexeme: &is_lexeme, text: String::new(), done: vec![[false; 2]; parts.all.len()] };
    let root = writer.name(parts.root, Within::Rules);
    let _ = writeln!(writer.text, "whole: {root}");
    let mut wait = vec![(parts.root, Within::Rules)];
    while let Some((part, within)) = wait.pop() {
        wait.extend(writer.define(part, within));
    }
    Ok(writer.text)
}

/// Returns the first part that is nested too deeply, or `None` if every part is within the limit. Visits the parts in the order in which llguidance
/// compiles them.
fn too_deep(parts: &GrammarParts, is_lexeme: &[bool]) -> Option<usize> {
    let mut is_seen = vec![false; parts.all.len()];
    is_seen[parts.root] = true;
    let mut chain = vec![(parts.root, 0)];
    while let Some((part, next)) = chain.last_mut() {
        // a lexeme is a regular expression, whose depth has its own limit, so the parts inside a lexeme need no visit
        let below = if is_lexeme[*part] { &[] } else { parts.below(*part) };
        let Some(&child) = below.get(*next) else {
            chain.pop();
            continue;
        };
        *next += 1;
        if !std::mem::replace(&mut is_seen[child], true) {
            chain.push((child, 0));
        }
        if chain.len() > MAX_DEPTH {
            return Some(child);
        }
    }
    None
}

/// The place where a part of the grammar is used: in rules, or inside a lexeme (a regular expression that the lexer matches as a whole).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Rules,
    Lexeme,
}

struct LarkWriter<'p> {
    parts: &'p GrammarParts,
    is_lexeme: &'p [bool],
    text: String,
    /// For each part: whether its rule, and whether its terminal, has been written.
    done: Vec<[bool; 2]>,
}

impl LarkWriter<'_> {
    fn kind(&self, part: usize, within: Within) -> Within {
        if self.is_lexeme[part] { Within::Lexeme } else { within }
    }

    fn name(&self, part: usize, within: Within) -> String {
        match self.kind(part, within) {
            Within::Rules => format!("n{part}"),
            Within::Lexeme => format!("T{part}"),
        }
    }

    /// Writes the line that defines a part, unless it is written already. Returns the parts that the line refers to.
    fn define(&mut self, part: usize, within: Within) -> Vec<(usize, Within)> {
        let within = self.kind(part, within);
        if std::mem::replace(&mut self.done[part][usize::from(within == Within::Lexeme)], true) {
            return Vec::new();
        }
        let below = self.parts.below(part);
        if let (Node::Sequence(all), Within::Lexeme) = (&self.parts.all[part], within) {
            return self.define_text(part, all);
        }
        let names: Vec<String> = below.iter().map(|&c| self.name(c, within)).collect();
        let body = match &self.parts.all[part] {
            Node::Char(chars) => format!("/{}/", lexemes::class(chars)),
            Node::Either(_) => names.join(" | "),
            Node::Sequence(_) if names.is_empty() => "\"\"".into(),
            Node::Sequence(_) | Node::Rule(_) => names.join(" "),
            Node::Repeat(_, 0, None) => format!("{}*", names[0]),
            Node::Repeat(_, 1, None) => format!("{}+", names[0]),
            Node::Repeat(_, least, None) => format!("{}{{{least},}}", names[0]),
            Node::Repeat(_, least, Some(most)) => format!("{}{{{least},{most}}}", names[0]),
        };
        let _ = writeln!(self.text, "{}: {body}", self.name(part, within));
        below.iter().map(|&c| (c, within)).collect()
    }
    /// Writes the line that defines a sequence inside a lexeme. Adjacent single characters become one quoted text. Returns the parts that
    /// the line refers to.
    fn define_text(&mut self, part: usize, all: &[usize]) -> Vec<(usize, Within)> {
        let (mut body, mut text, mut needed) = (Vec::new(), String::new(), Vec::new());
        for &child in all {
            if let Node::Char(chars) = &self.parts.all[child]
                && let Some(c) = chars.only()
            {
                text.push(c);
                continue;
            }
            body.extend((!text.is_empty()).then(|| quoted(&std::mem::take(&mut text))));
            body.push(self.name(child, Within::Lexeme));
            needed.push((child, Within::Lexeme));
        }
        if body.is_empty() || !text.is_empty() {
            body.push(quoted(&text));
        }
        let _ = writeln!(self.text, "{}: {}", self.name(part, Within::Lexeme), body.join(" "));
        needed
    }
}

/// Quotes a text for Lark: as a JSON string in which U+007F is written as `\u007f`.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Writes a regular expression for Lark: between slashes, on one line.
pub fn regex(text: &str) -> String {
    let mut written = String::from("/");
    let mut is_escaped = false;
    for c in text.chars() {
        match c {
            '/' if !is_escaped => written += "\\/",
            '\n' if is_escaped => written += "n",
            '\n' => written += "\\n",
            c => written.push(c),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    written + "/"
}
