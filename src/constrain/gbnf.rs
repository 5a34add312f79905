//! Reads GBNF, the grammar format of llama.cpp.
//!
//! A rule is `name ::= …`. The output must match the rule `root`. A rule ends at the end of its line. A line end after `::=` or `|`, or within
//! parentheses, does not end the rule. Errors have line and column.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result, short};
use std::collections::HashMap;
use std::ops::Range;

/// The largest size of a grammar in bytes. Grammars of whole programming languages take a tenth of it.
const MAX_BYTES: usize = 1 << 20;
/// The largest depth of nested parentheses.
const MAX_NESTING: usize = 100;
/// The largest depth of nested repetitions.
const MAX_REPEATED: usize = 10;
/// The largest number in a repetition `{m,n}`.
pub const MAX_REPEAT: u32 = 100_000;
/// The rule that the output must match.
const ROOT: &str = "root";

/// The rules of a grammar. The number of a rule is its index in `names` and `bodies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub names: Vec<String>,
    pub bodies: Vec<Expr>,
    /// The number of the rule `root`.
    pub root: usize,
}

/// An expression in a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    Char(Chars),
    /// A reference to a rule, by its number.
    Rule(usize),
    /// Expressions in sequence. An empty sequence is the empty text.
    Sequence(Vec<Expr>),
    /// Alternatives.
    Either(Vec<Expr>),
    /// A repeated expression, with the fewest and the most repetitions. `None` means no limit.
    Repeat(Box<Expr>, u32, Option<u32>),
}

impl Expr {
    /// Returns the expression that is repeated, or `None` if `self` is not a repetition.
    fn repeated(&self) -> Option<&Expr> {
        match self {
            Expr::Repeat(one, ..) => Some(one),
            _ => None,
        }
    }
}

/// A class of characters, such as `[a-z]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chars {
    /// `true` if the class consists of all characters outside the ranges.
    pub is_negated: bool,
    /// The first and the last character of each range, both inclusive.
    pub ranges: Vec<(char, char)>,
}

impl Chars {
    fn one(c: char) -> Chars {
        Chars { is_negated: false, ranges: vec![(c, c)] }
    }

    /// Returns the character if the class consists of exactly one character, otherwise `None`. Always returns `None` for a negated class.
    pub fn only(&self) -> Option<char> {
        match self.ranges[..] {
            [(from, to)] if from == to && !self.is_negated => Some(from),
            _ => None,
        }
    }
}

/// Reads a grammar and returns its rules.
///
/// # Errors
/// `Input` if the syntax is invalid, or if a rule is undefined, defined twice or nested too deeply. Such an error has line and column. `Input` also
/// if the grammar is too large or has no rule `root`.
pub fn parse(text: &str) -> Result<Rules> {
    if text.len() > MAX_BYTES {
        return Err(Error::input(format!("expected a grammar of at most {MAX_BYTES} bytes, found {} bytes", text.len())));
    }
    let mut reader = GbnfReader { text, at: 0, names: HashMap::new(), rules: Vec::new() };
    reader.blanks(LineEnds::Skip);
    while reader.at < text.len() {
        reader.rule()?;
        reader.blanks(LineEnds::Skip);
    }
    reader.finish()
}

/// Determines whether skipping white space also skips line ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    Skip,
    Keep,
}

/// A rule while the grammar is read. Other rules may refer to it before its definition.
struct GbnfRule {
    /// The byte range of the first occurrence of the rule's name in the grammar.
    named: Range<usize>,
    /// The rule's expression, and the byte offset of its definition. `None` until the definition is read.
    body: Option<(Expr, usize)>,
}

struct GbnfReader<'t> {
    text: &'t str,
    at: usize,
    names: HashMap<&'t str, usize>,
    rules: Vec<GbnfRule>,
}

impl<'t> GbnfReader<'t> {
    fn rule(&mut self) -> Result<()> {
        let name = self.name();
        if name.is_empty() {
            let error = self.expected("the name of a rule", self.at);
            return Err(match self.peek() {
                Some('|') => error.hint("to continue a rule on the next line, end the line with |, or use parentheses"),
                _ => error,
            });
        }
        let rule = self.number(name.clone());
        self.blanks(LineEnds::Keep);
        if !self.text[self.at..].starts_with("::=") {
            return Err(self.expected("::= after the name of a rule", self.at));
        }
        if let Some((_, before)) = self.rules[rule].body {
            let found =
                format!("rule {:?} is defined twice, first in line {}", &self.text[name.clone()], line_and_column(self.text, before).0);
            return Err(self.refuse(name, &found));
        }
        self.at += 3;
        self.blanks(LineEnds::Skip);
        let body = self.either(0)?;
        match self.peek() {
            None | Some('\n' | '\r') => {}
            Some(_) => return Err(self.expected("an element, |, or the end of the line", self.at)),
        }
        self.rules[rule].body = Some((body, name.start));
        Ok(())
    }

    /// Reads alternatives that are separated by `|`.
    fn either(&mut self, nesting: usize) -> Result<Expr> {
        let mut all = vec![self.sequence(nesting)?];
        while self.peek() == Some('|') {
            self.at += 1;
            self.blanks(LineEnds::Skip);
            all.push(self.sequence(nesting)?);
        }
        Ok(alone(all, Expr::Either))
    }

    fn sequence(&mut self, nesting: usize) -> Result<Expr> {
        let mut all = Vec::new();
        while let Some(next) = self.peek() {
            let begin = self.at;
            match next {
                '"' => all.push(self.literal()?),
                '[' => all.push(self.class()?),
                '.' => {
                    self.at += 1;
                    all.push(Expr::Char(Chars { is_negated: true, ranges: Vec::new() }));
                }
                '(' => all.push(self.group(nesting)?),
                '*' | '+' | '?' | '{' => {
                    let Some(item) = all.pop() else {
                        return Err(self.refuse(begin..begin + 1, &format!("expected an element before {next}")));
                    };
                    let (least, most) = self.times()?;
                    // later passes recurse into repetitions, so each level takes stack
                    if std::iter::successors(Some(&item), |e| e.repeated()).nth(MAX_REPEATED).is_some() {
                        let text = format!("repetitions are nested more than {MAX_REPEATED} deep");
                        return Err(self.refuse(begin..self.at, &text));
                    }
                    // repeated 0 times, an element is the empty text, whatever repetition follows
                    if most == Some(0) {
                        self.blanks(if nesting > 0 { LineEnds::Skip } else { LineEnds::Keep });
                        while matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
                            self.times()?;
                            self.blanks(if nesting > 0 { LineEnds::Skip } else { LineEnds::Keep });
                        }
                        continue;
                    }
                    all.push(Expr::Repeat(Box::new(item), least, most));
                }
                '<' | '!' => return Err(self.refuse(begin..begin + 1, "tokens in grammars (<…>) are not supported; write their text")),
                _ => {
                    let name = self.name();
                    if name.is_empty() {
                        break;
                    }
                    all.push(Expr::Rule(self.number(name)));
                }
            }
            self.blanks(if nesting > 0 { LineEnds::Skip } else { LineEnds::Keep });
        }
        Ok(alone(all, Expr::Sequence))
    }

    fn group(&mut self, nesting: usize) -> Result<Expr> {
        let open = self.at;
        if nesting == MAX_NESTING {
            return Err(self.refuse(open..open + 1, &format!("parentheses are nested more than {MAX_NESTING} deep")));
        }
        self.at += 1;
        self.blanks(LineEnds::Skip);
        let inner = self.either(nesting + 1)?;
        if self.peek() != Some(')') {
            let (line, column) = line_and_column(self.text, open);
            return Err(self.expected(&format!("an element, | or ) to close the ( at line {line}, column {column}"), self.at));
        }
        self.at += 1;
        Ok(inner)
    }

    /// Reads a repetition, such as `*` or `{2,5}`. Returns the fewest and the most repetitions; `None` means no limit.
    fn times(&mut self) -> Result<(u32, Option<u32>)> {
        let begin = self.at;
        let sign = self.take();
        match sign {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => {}
        }
        self.blanks(LineEnds::Skip);
        let least = self.count()?;
        self.blanks(LineEnds::Skip);
        let most = match self.peek() {
            Some(',') => {
                self.at += 1;
                self.blanks(LineEnds::Skip);
                if self.peek() == Some('}') { None } else { Some(self.count()?) }
            }
            _ => Some(least),
        };
        self.blanks(LineEnds::Skip);
        if self.peek() != Some('}') {
            return Err(self.expected("}, as in {2}, {2,} or {2,5}", self.at));
        }
        self.at += 1;
        if most.is_some_and(|most| most < least) {
            return Err(self.refuse(begin..self.at, "expected the smaller number first, as in {2,3}"));
        }
        Ok((least, most))
    }

    fn count(&mut self) -> Result<u32> {
        let digits = self.while_it(|c| c.is_ascii_digit());
        let number = &self.text[digits.clone()];
        if number.is_empty() {
            return Err(self.expected("a number, as in {2}, {2,} or {2,5}", self.at));
        }
        match number.parse() {
            Ok(n) if n <= MAX_REPEAT => Ok(n),
            _ => Err(self.refuse(digits.clone(), &format!("expected a repetition of at most {MAX_REPEAT}, found {}", short(number, 20)))),
        }
    }

    fn literal(&mut self) -> Result<Expr> {
        let open = self.at;
        self.at += 1;
        let mut all = Vec::new();
        while self.peek() != Some('"') {
            let c = self.character(open, "\"")?;
            all.push(Expr::Char(Chars::one(c)));
        }
        self.at += 1;
        Ok(alone(all, Expr::Sequence))
    }

    fn class(&mut self) -> Result<Expr> {
        let open = self.at;
        self.at += 1;
        let is_negated = self.peek() == Some('^');
        self.at += usize::from(is_negated);
        let mut ranges = Vec::new();
        while self.peek() != Some(']') {
            let begin = self.at;
            let from = self.character(open, "]")?;
            let mut to = from;
            let rest = &self.text[self.at..];
            if rest.starts_with('-') && !rest.starts_with("-]") {
                self.at += 1;
                to = self.character(open, "]")?;
            }
            if to < from {
                return Err(self.refuse(begin..self.at, "expected the smaller character first, as in [a-z]"));
            }
            ranges.push((from, to));
        }
        self.at += 1;
        if ranges.is_empty() {
            return Err(self.refuse(open..self.at, "the class [ ] has no characters").hint("to match any character, write a . alone"));
        }
        Ok(Expr::Char(Chars { is_negated, ranges }))
    }

    /// Reads one character or escape of a text or class. `open` is the byte offset where the text or class begins. `end` is the character that ends
    /// the text or class.
    fn character(&mut self, open: usize, end: &str) -> Result<char> {
        let begin = self.at;
        let Some(c) = self.take().filter(|&c| c != '\n') else {
            self.at = begin;
            let (line, column) = line_and_column(self.text, open);
            let what = if end == "]" { "character class" } else { "string" };
            return Err(self.expected(&format!("{end} to close the {what} that begins at line {line}, column {column}"), begin));
        };
        if c != '\\' {
            return Ok(c);
        }
        let n_digits = match self.take() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(same @ ('\\' | '"' | '[' | ']')) => return Ok(same),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => {
                return Err(
                    self.refuse(begin..self.at, "unknown escape; expected one of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH")
                );
            }
        };
        let from = self.at;
        while self.at < from + n_digits && self.peek().is_some_and(|c| c.is_ascii_hexdigit()) {
            self.at += 1;
        }
        if self.at < from + n_digits {
            return Err(self.expected(&format!("{n_digits} hexadecimal digits"), self.at));
        }
        let code = u32::from_str_radix(&self.text[from..self.at], 16).ok();
        code.and_then(char::from_u32).ok_or_else(|| self.refuse(begin..self.at, "this code is not a Unicode character"))
    }

    /// Reads a name of letters, digits, `-` and `_`. Returns the byte range of the name. The range is empty if no such character comes next.
    fn name(&mut self) -> Range<usize> {
        self.while_it(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    }

    /// Returns the number of the rule with this name. Adds the rule if its name is new.
    fn number(&mut self, name: Range<usize>) -> usize {
        *self.names.entry(&self.text[name.clone()]).or_insert_with(|| {
            self.rules.push(GbnfRule { named: name, body: None });
            self.rules.len() - 1
        })
    }

    /// Skips blanks, tabs and comments, and line ends if `lines` is `Skip`.
    fn blanks(&mut self, lines: LineEnds) {
        loop {
            self.while_it(|c| c == ' ' || c == '\t' || lines == LineEnds::Skip && (c == '\n' || c == '\r'));
            if self.peek() != Some('#') {
                return;
            }
            self.while_it(|c| c != '\n');
        }
    }

    fn while_it(&mut self, is_part: impl Fn(char) -> bool) -> Range<usize> {
        let rest = &self.text[self.at..];
        let begin = self.at;
        self.at += rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        begin..self.at
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn finish(self) -> Result<Rules> {
        let Some(&root) = self.names.get(ROOT) else {
            return Err(Error::input(format!("the grammar has no rule {ROOT:?}"))
                .hint(format!("define the rule {ROOT} ::= …; the output must match it")));
        };
        if let Some(missing) = self.rules.iter().find(|r| r.body.is_none()) {
            let name = short(&self.text[missing.named.clone()], 60);
            let e = refuse(self.text, missing.named.clone(), &format!("rule {name:?} is used, but not defined"));
            return Err(e.hint(format!("define the rule: {name} ::= …")));
        }
        let names = self.rules.iter().map(|r| self.text[r.named.clone()].to_owned()).collect();
        let bodies = self.rules.into_iter().filter_map(|r| r.body).map(|(body, _)| body).collect();
        Ok(Rules { names, bodies, root })
    }

    fn expected(&self, what: &str, at: usize) -> Error {
        let found = match self.text[at..].chars().next() {
            None => "the end of the grammar".into(),
            Some('\n' | '\r') => "the end of the line".into(),
            Some(c) => format!("{c:?}"),
        };
        self.refuse(at..at, &format!("expected {what}; found {found}"))
    }

    fn refuse(&self, part: Range<usize>, message: &str) -> Error {
        refuse(self.text, part, message)
    }
}

/// Returns the only expression in `all`, or else `several(all)`.
fn alone(mut all: Vec<Expr>, several: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        last => {
            all.extend(last);
            several(all)
        }
    }
}

/// Returns the line and the column of a byte offset. Both count from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let begin = text[..at].rfind('\n').map_or(0, |n| n + 1);
    (text[..at].matches('\n').count() + 1, text[begin..at].chars().count() + 1)
}

/// Returns an error that shows the line of the byte range `part` and marks the range.
fn refuse(text: &str, part: Range<usize>, message: &str) -> Error {
    let (line, column) = line_and_column(text, part.start);
    let begin = text[..part.start].rfind('\n').map_or(0, |n| n + 1);
    let end = text[begin..].find('\n').map_or(text.len(), |n| begin + n);
    let within = part.start - begin..part.end.min(end).max(part.start) - begin;
    Error::input(message).at(format!("line {line}, column {column}")).within(&text[begin..end], within)
}
