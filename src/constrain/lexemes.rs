//! Which parts of a grammar are read as a whole.
//!
//! The crate that follows a grammar reads *lexemes*, regular expressions, and goes on with one as long as any that may stand here has a
//! longer match. GBNF knows no lexemes: `[a-z]* "e"` is any word that ends in e, and a greedy reader would never let go of the e. So a
//! part becomes a lexeme only where that makes no difference: where no match of it, with a byte behind it that may follow, begins a match
//! of any lexeme. What fails that is taken apart; single characters never fail among themselves, since no character's UTF-8 begins
//! another's. Long lexemes are what makes masks fast: strings and numbers of JSON pass, for example.

use super::parts::{Bytes, Part, Parts};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use std::collections::HashMap;

/// Comparisons of two lexemes. Whoever needs more has a grammar of single characters.
const MAX_COMPARED: usize = 20_000;
/// Work for one comparison, in units of the crate: some 2 ms. Whatever takes more is taken apart.
const FUEL: u64 = 100_000;

/// Whether each part is a lexeme of its own.
pub fn choose(parts: &Parts) -> Vec<bool> {
    let mut finder = Finder { parts, is_apart: vec![false; parts.all.len()], known: HashMap::new() };
    loop {
        let is_lexeme = finder.reached();
        let clashes = finder.clashes(&is_lexeme);
        if clashes.is_empty() {
            return is_lexeme;
        }
        clashes.into_iter().for_each(|part| finder.is_apart[part] = true);
    }
}

/// The class of these characters as a regular expression.
pub fn class(part: &super::gbnf::Chars) -> String {
    let one = |c: char| format!("\\x{{{:x}}}", c as u32);
    if part.ranges.is_empty() {
        return "(?s:.)".into();
    }
    let ranges: String = part.ranges.iter().map(|&(from, to)| format!("{}-{}", one(from), one(to))).collect();
    format!("[{}{ranges}]", if part.is_negated { "^" } else { "" })
}

struct Finder<'p> {
    parts: &'p Parts,
    /// Must not be a lexeme.
    is_apart: Vec<bool>,
    /// Whether a lexeme with one of these bytes behind it begins another.
    known: HashMap<(usize, Bytes, usize), bool>,
}

impl Finder<'_> {
    /// The lexemes that the root needs.
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

    /// Lexemes that a match of some lexeme could be lost to.
    fn clashes(&mut self, is_lexeme: &[bool]) -> Vec<usize> {
        let parts = self.parts;
        let follow = parts.followers(|part| !is_lexeme[part]);
        let all: Vec<usize> = (0..is_lexeme.len()).filter(|&p| is_lexeme[p]).collect();
        let is_char = |p: usize| matches!(parts.all[p], Part::Char(_));
        let mut clashes = Vec::new();
        for &long in all.iter().filter(|&&p| !is_char(p)) {
            let loses = |&&short: &&usize| !follow[short].is_empty() && parts.first[short].meets(parts.first[long]);
            if all.iter().filter(loses).any(|&short| self.begins(short, follow[short], long)) {
                clashes.push(long);
            }
        }
        clashes
    }

    /// Whether some match of `short` with one of these bytes behind it begins a match of `long`.
    fn begins(&mut self, short: usize, behind: Bytes, long: usize) -> bool {
        let n_known = self.known.len();
        let parts = self.parts;
        *self.known.entry((short, behind, long)).or_insert_with(|| n_known >= MAX_COMPARED || meets(parts, short, behind, long))
    }
}

/// The comparison itself: is there a text in both `short`, a byte, anything, and in `long`?
fn meets(parts: &Parts, short: usize, behind: Bytes, long: usize) -> bool {
    let mut made = Made { parts, builder: RegexBuilder::new(), known: HashMap::new() };
    let (Some(short), Some(long)) = (made.part(short), made.part(long)) else { return true };
    let set = |Bytes(bits): Bytes| RegexAst::ByteSet(bits.iter().flat_map(|b| [*b as u32, (*b >> 32) as u32]).collect());
    let any = |least: u32| RegexAst::Repeat(Box::new(set(Bytes([u64::MAX; 4]))), least, u32::MAX);
    let whole = |e: ExprRef| RegexAst::ExprRef(e);
    // An empty match is no lexeme: what follows is looked for at the same place.
    let begun = RegexAst::Concat(vec![RegexAst::And(vec![whole(short), any(1)]), set(behind), any(0)]);
    let both = made.builder.mk(&RegexAst::And(vec![begun, whole(long)]));
    let regex = both.and_then(|both| made.builder.into_regex_limited(both, FUEL));
    regex.map_or(true, |mut regex| !regex.always_empty())
}

/// Parts as the crate's regular expressions, each once.
struct Made<'p> {
    parts: &'p Parts,
    builder: RegexBuilder,
    known: HashMap<usize, ExprRef>,
}

impl Made<'_> {
    fn part(&mut self, part: usize) -> Option<ExprRef> {
        if let Some(known) = self.known.get(&part) {
            return Some(*known);
        }
        let parts = self.parts;
        let all: Option<Vec<RegexAst>> = parts.below(part).iter().map(|&c| self.part(c).map(RegexAst::ExprRef)).collect();
        let all = all?;
        let ast = match &parts.all[part] {
            Part::Char(chars) => RegexAst::Regex(class(chars)),
            Part::Repeat(_, least, most) => RegexAst::Repeat(Box::new(RegexAst::Concat(all)), *least, most.unwrap_or(u32::MAX)),
            Part::Either(_) => RegexAst::Or(all),
            Part::Sequence(_) | Part::Rule(_) => RegexAst::Concat(all),
        };
        let made = self.builder.mk(&ast).ok()?;
        self.known.insert(part, made);
        Some(made)
    }
}
