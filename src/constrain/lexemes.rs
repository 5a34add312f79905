//! Decides which parts of a grammar become lexemes.
//!
//! A *lexeme* is a regular expression that llguidance's lexer matches as a whole, and always as long as possible. GBNF has no lexemes: `[a-z]* "e"`
//! is any word that ends with e. If `[a-z]*` were a lexeme, the lexer would take the final e, too.
//!
//! So a part becomes a lexeme only if the grammar still matches the same texts. The test takes a lexeme L and every lexeme S (L itself included),
//! with the bytes that may follow S in the grammar. L fails if a match of S, followed by one of these bytes, is the beginning of a match of L. The
//! lexer would continue L where S should end. A part that fails is split into smaller parts. Single characters never fail, because no character's
//! UTF-8 begins with another character's UTF-8.
//!
//! Long lexemes make the computation of masks fast. JSON's strings and numbers pass the test.

use super::parts::{ByteSet, GrammarParts, Node};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use std::collections::HashMap;

/// The limit on the work for comparing the lexemes of a grammar, in llguidance's units: about 500 ms. A grammar that exceeds it is followed character
/// by character.
const WORK: u64 = 25_000_000;
/// The limit on the work for comparing two lexemes, in llguidance's units: about 2 ms.
const FUEL: u64 = 100_000;
/// The work that is counted for building the regular expressions of one comparison, in llguidance's units.
const MAKE: u64 = 2_500;
/// One unit of work is counted for this many pairs of lexemes that are examined but not compared.
const LOOKS: usize = 16;
/// The maximum length, in characters, of a part that is compared as a plain text. Longer parts are compared as regular expressions.
const MAX_TEXT: usize = 256;

/// Returns, for each part of the grammar, whether it becomes a lexeme.
pub fn choose(parts: &GrammarParts) -> Vec<bool> {
    let mut finder = Finder { parts, is_apart: vec![false; parts.all.len()], known: HashMap::new(), work: WORK };
    loop {
        let is_lexeme = finder.reached();
        let clashes = finder.clashes(&is_lexeme);
        if clashes.is_empty() {
            return is_lexeme;
        }
        clashes.into_iter().for_each(|part| finder.is_apart[part] = true);
    }
}

/// Converts a character class to a regular expression.
pub fn class(part: &super::gbnf::Chars) -> String {
    let one = |c: char| format!("\\x{{{:x}}}", c as u32);
    if part.ranges.is_empty() {
        return "(?s:.)".into();
    }
    let ranges: String = part.ranges.iter().map(|&(from, to)| format!("{}-{}", one(from), one(to))).collect();
    format!("[{}{ranges}]", if part.is_negated { "^" } else { "" })
}

struct Finder<'p> {
    parts: &'p GrammarParts,
    /// For each part: true if it must not be a lexeme, because the grammar would then match other texts.
    is_apart: Vec<bool>,
    /// Known results of `begins`, by its arguments: short lexeme, bytes that may follow, long lexeme.
    known: HashMap<(usize, ByteSet, usize), bool>,
    /// The work that may still be done, at first `WORK`.
    work: u64,
}

impl Finder<'_> {
    /// Returns, for each part, whether it is a lexeme under the current `is_apart`. A part inside a lexeme is no lexeme itself, and neither is a part
    /// that `root` does not reach.
    fn reached(&self) -> Vec<bool> {
        let n = self.parts.all.len();
        let (mut is_lexeme, mut is_seen) = (vec![false; n], vec![false; n]);
        let mut wait = vec![self.parts.root];
        while let Some(part) = wait.pop() {
            if std::mem::replace(&mut is_seen[part], true) {
                continue;
            }
            is_lexeme[part] = self.parts.is_regular[part] && !self.is_apart[part];
            if !is_lexeme[part] {
                wait.extend(self.parts.below(part));
            }
        }
        is_lexeme
    }

    /// Returns the lexemes that must be split, because the lexer could continue such a lexeme where the grammar ends another lexeme.
    fn clashes(&mut self, is_lexeme: &[bool]) -> Vec<usize> {
        let parts = self.parts;
        let follow = parts.followers(|part| !is_lexeme[part]);
        let texts: Vec<Option<Vec<u8>>> = is_lexeme.iter().enumerate().map(|(p, &is)| is.then(|| self.text(p)).flatten()).collect();
        let all: Vec<usize> = (0..is_lexeme.len()).filter(|&p| is_lexeme[p]).collect();
        let shorts: Vec<usize> = all.iter().copied().filter(|&p| !follow[p].is_empty()).collect();
        let longs: Vec<usize> = all.iter().copied().filter(|&p| !matches!(parts.all[p], Node::Char(_))).collect();
        let mut clashes = lost_texts(&texts, &shorts, &longs, &follow);
        let not_texts: Vec<usize> = shorts.iter().copied().filter(|&p| texts[p].is_none()).collect();
        for &long in &longs {
            let shorts = if texts[long].is_some() { &not_texts } else { &shorts };
            self.work = self.work.saturating_sub((shorts.len() / LOOKS) as u64);
            let loses = |&&short: &&usize| parts.first[short].meets(parts.first[long]);
            if self.work == 0 || shorts.iter().filter(loses).any(|&short| self.begins(short, follow[short], long)) {
                clashes.push(long);
            }
        }
        clashes
    }

    /// Returns the only text that a part matches. Returns `None` if the part matches several texts, or if its text is empty or too long.
    fn text(&self, part: usize) -> Option<Vec<u8>> {
        let (mut text, mut wait) = (Vec::new(), vec![part]);
        if self.parts.n_chars[part] > MAX_TEXT {
            return None;
        }
        while let Some(part) = wait.pop() {
            match &self.parts.all[part] {
                Node::Char(chars) => text.extend(chars.only()?.encode_utf8(&mut [0; 4]).as_bytes()),
                Node::Sequence(all) => wait.extend(all.iter().rev()),
                _ => return None,
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// Returns whether a match of `short`, followed by one of the bytes `next`, can begin a match of `long`. Returns true without a comparison once
    /// the limit `WORK` is reached.
    fn begins(&mut self, short: usize, next: ByteSet, long: usize) -> bool {
        let (parts, work) = (self.parts, &mut self.work);
        *self.known.entry((short, next, long)).or_insert_with(|| {
            let size = MAKE + (parts.n_chars[short] + parts.n_chars[long]) as u64 * 10;
            let fuel = FUEL.min(work.saturating_sub(size));
            let (meets, used) = if fuel == 0 { (true, 0) } else { meets(parts, short, next, long, fuel) };
            *work = work.saturating_sub(size + used);
            meets
        })
    }
}

/// Compares the lexemes that match only one text; `texts` has these texts. Returns every lexeme in `longs` whose text begins with the text of a
/// lexeme S in `shorts` and then one of the bytes `follow[S]`.
fn lost_texts(texts: &[Option<Vec<u8>>], shorts: &[usize], longs: &[usize], follow: &[ByteSet]) -> Vec<usize> {
    let mut sorted: Vec<(&[u8], usize)> = longs.iter().filter_map(|&p| Some((texts[p].as_deref()?, p))).collect();
    sorted.sort_unstable();
    let mut lost = Vec::new();
    for &short in shorts {
        let Some(begin) = texts[short].as_deref() else { continue };
        let from = sorted.partition_point(|(text, _)| *text < begin);
        let longer = sorted[from..].iter().take_while(|(text, _)| text.starts_with(begin));
        lost.extend(longer.filter(|(text, _)| text.get(begin.len()).is_some_and(|&b| follow[short].has(b))).map(|(_, p)| *p));
    }
    lost
}

/// Returns whether some text matches both `long` and this sequence: `short`, one byte of `next`, any bytes. Also returns the work that was used. If
/// the work exceeds `fuel`, the first result is true.
fn meets(parts: &GrammarParts, short: usize, next: ByteSet, long: usize, fuel: u64) -> (bool, u64) {
    let mut made = Converter { parts, builder: RegexBuilder::new(), known: HashMap::new() };
    let (Some(short), Some(long)) = (made.part(short), made.part(long)) else { return (true, fuel) };
    let set = |ByteSet(bits): ByteSet| RegexAst::ByteSet(bits.iter().flat_map(|b| [*b as u32, (*b >> 32) as u32]).collect());
    let any = |least: u32| RegexAst::Repeat(Box::new(set(ByteSet([u64::MAX; 4]))), least, u32::MAX);
    let whole = |e: ExprRef| RegexAst::ExprRef(e);
    // `short` must match at least one byte: an empty match is not a lexeme, because the next lexeme begins at the same place
    let begun = RegexAst::Concat(vec![RegexAst::And(vec![whole(short), any(1)]), set(next), any(0)]);
    let both = made.builder.mk(&RegexAst::And(vec![begun, whole(long)]));
    match both.and_then(|both| made.builder.into_regex_limited(both, fuel)) {
        Ok(mut regex) => (!regex.always_empty(), regex.cost()),
        Err(_) => (true, fuel),
    }
}

/// Converts parts of the grammar to llguidance's regular expressions, each part once.
struct Converter<'p> {
    parts: &'p GrammarParts,
    builder: RegexBuilder,
    known: HashMap<usize, ExprRef>,
}

impl Converter<'_> {
    fn part(&mut self, part: usize) -> Option<ExprRef> {
        if let Some(known) = self.known.get(&part) {
            return Some(*known);
        }
        let parts = self.parts;
        let all: Option<Vec<RegexAst>> = parts.below(part).iter().map(|&c| self.part(c).map(RegexAst::ExprRef)).collect();
        let all = all?;
        let ast = match &parts.all[part] {
            Node::Char(chars) => RegexAst::Regex(class(chars)),
            Node::Repeat(_, least, most) => RegexAst::Repeat(Box::new(RegexAst::Concat(all)), *least, most.unwrap_or(u32::MAX)),
            Node::Either(_) => RegexAst::Or(all),
            Node::Sequence(_) | Node::Rule(_) => RegexAst::Concat(all),
        };
        let made = self.builder.mk(&ast).ok()?;
        self.known.insert(part, made);
        Some(made)
    }
}
