//! Which parts of a grammar are read as a whole.
//!
//! The crate that follows a grammar reads *lexemes*, regular expressions, and goes on with one as long as any that may stand here has a
//! longer match. GBNF knows no lexemes: `[a-z]* "e"` is any word that ends in e, and a greedy reader would never let go of the e. So a
//! part becomes a lexeme only where that makes no difference: where no match of it, with a byte behind it that may follow, begins a match
//! of any lexeme. What fails that is taken apart; single characters never fail among themselves, since no character's UTF-8 begins
//! another's. Long lexemes are what makes masks fast: strings and numbers of JSON pass, for example.

use super::parts::{Bytes, Node, Parts};
use llguidance::derivre::{ExprRef, RegexAst, RegexBuilder};
use std::collections::HashMap;

/// Work for all comparisons of a grammar, in units of the crate: some 500 ms. A grammar that needs more is followed character by character.
const WORK: u64 = 25_000_000;
/// Work for one comparison: some 2 ms.
const FUEL: u64 = 100_000;
/// Work that every comparison takes: making its regular expressions.
const MAKE: u64 = 2_500;
/// Pairs of lexemes that are looked at, without comparing them, for one unit of work.
const LOOKS: usize = 16;
/// The longest text, in characters, that is compared as a text.
const MAX_TEXT: usize = 256;

/// Whether each part is a lexeme of its own.
pub fn choose(parts: &Parts) -> Vec<bool> {
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
    /// Work that is left.
    work: u64,
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

    /// The only text of a part, where it is a short one and not empty.
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

    /// Whether some match of `short` with one of these bytes behind it begins a match of `long`; also true where the work is used up.
    fn begins(&mut self, short: usize, behind: Bytes, long: usize) -> bool {
        let (parts, work) = (self.parts, &mut self.work);
        *self.known.entry((short, behind, long)).or_insert_with(|| {
            let size = MAKE + (parts.n_chars[short] + parts.n_chars[long]) as u64 * 10;
            let fuel = FUEL.min(work.saturating_sub(size));
            let (meets, used) = if fuel == 0 { (true, 0) } else { meets(parts, short, behind, long, fuel) };
            *work = work.saturating_sub(size + used);
            meets
        })
    }
}

/// Lexemes of one text that begin with the text of another and a byte that may follow that.
fn lost_texts(texts: &[Option<Vec<u8>>], shorts: &[usize], longs: &[usize], follow: &[Bytes]) -> Vec<usize> {
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

/// The comparison itself: is there a text in both `short`, a byte, anything, and in `long`? Returns the work beside the answer.
fn meets(parts: &Parts, short: usize, behind: Bytes, long: usize, fuel: u64) -> (bool, u64) {
    let mut made = Made { parts, builder: RegexBuilder::new(), known: HashMap::new() };
    let (Some(short), Some(long)) = (made.part(short), made.part(long)) else { return (true, fuel) };
    let set = |Bytes(bits): Bytes| RegexAst::ByteSet(bits.iter().flat_map(|b| [*b as u32, (*b >> 32) as u32]).collect());
    let any = |least: u32| RegexAst::Repeat(Box::new(set(Bytes([u64::MAX; 4]))), least, u32::MAX);
    let whole = |e: ExprRef| RegexAst::ExprRef(e);
    // An empty match is no lexeme: what follows is looked for at the same place.
    let begun = RegexAst::Concat(vec![RegexAst::And(vec![whole(short), any(1)]), set(behind), any(0)]);
    let both = made.builder.mk(&RegexAst::And(vec![begun, whole(long)]));
    match both.and_then(|both| made.builder.into_regex_limited(both, fuel)) {
        Ok(mut regex) => (!regex.always_empty(), regex.cost()),
        Err(_) => (true, fuel),
    }
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
