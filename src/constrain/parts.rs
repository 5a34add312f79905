//! A grammar's rules as parts that know each other: what may begin a part, what may follow it, which are regular expressions.

use super::gbnf::{Chars, Expr, Rules};
use crate::error::{Error, Result, short};
use std::collections::HashMap;

/// Choices between parts at one place. Each is looked at with every byte that may come there.
pub const MAX_CHOICES: usize = 20_000;

/// Bytes, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bytes(pub [u64; 4]);

impl Bytes {
    fn add(&mut self, byte: u8) {
        self.0[byte as usize / 64] |= 1 << (byte % 64);
    }

    fn or(self, other: Bytes) -> Bytes {
        Bytes(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub fn meets(self, other: Bytes) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    pub fn is_empty(self) -> bool {
        self == Bytes::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    Char(Chars),
    /// A rule that needs itself, by its number, or one that needs such a rule.
    Rule(usize),
    Sequence(Vec<usize>),
    Either(Vec<usize>),
    Repeat(usize, u32, Option<u32>),
}

impl Part {
    /// The parts it is made of.
    pub fn children(&self) -> &[usize] {
        match self {
            Part::Char(_) | Part::Rule(_) => &[],
            Part::Sequence(all) | Part::Either(all) => all,
            Part::Repeat(one, ..) => std::slice::from_ref(one),
        }
    }
}

/// Parts by number, equal ones once; what a part is made of comes before it, rules apart.
pub struct Parts {
    pub all: Vec<Part>,
    /// Whether a regular expression says the same.
    pub is_regular: Vec<bool>,
    /// What each rule stands for, by its number; only of those that [`Part::Rule`] names.
    pub bodies: Vec<usize>,
    pub root: usize,
    /// Whether a part may be the empty text.
    is_nullable: Vec<bool>,
    /// Whether some text is such a part: a rule whose every choice needs itself stands for none.
    has_text: Vec<bool>,
    /// What may begin a part.
    pub first: Vec<Bytes>,
    /// Parts that are made of one, rules included.
    parents: Vec<Vec<usize>>,
}

/// How large a regular expression is, with what it refers to written out.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extent {
    depth: usize,
    n_chars: usize,
}

impl Extent {
    /// A regular expression nests no deeper: whoever works with one goes down by calling itself.
    const MAX_DEPTH: usize = 120;
    /// Nor is it longer: rules of two rules each double it with every line. A repeated one counts once.
    const MAX_CHARS: usize = 20_000;

    /// Of what is made of these; none where it is too large or one of them is.
    fn around(below: impl IntoIterator<Item = Option<Extent>>) -> Option<Extent> {
        let mut all = Extent { depth: 1, n_chars: 0 };
        for extent in below {
            let Extent { depth, n_chars } = extent?;
            all = Extent { depth: all.depth.max(depth + 1), n_chars: all.n_chars + n_chars };
            if all.depth > Self::MAX_DEPTH || all.n_chars > Self::MAX_CHARS {
                return None;
            }
        }
        Some(all)
    }

    const CHAR: Extent = Extent { depth: 1, n_chars: 1 };
}

impl Parts {
    /// # Errors
    /// `Input`, where a rule stands for no text, or there are too many choices.
    pub fn of(rules: &Rules) -> Result<Parts> {
        let rule_extents = extents(rules);
        let made = vec![None; rules.bodies.len()];
        let mut maker =
            Maker { rules, rule_extents: &rule_extents, extents: Vec::new(), made, parts: Parts::empty(), numbers: HashMap::new() };
        maker.parts.bodies = (0..rules.bodies.len()).map(|rule| maker.body(rule)).collect();
        maker.parts.root = maker.parts.bodies[rules.root];
        let mut parts = maker.parts;
        if let Some(n) = parts.choices().max().filter(|&n| n > MAX_CHOICES) {
            let text = format!("expected at most {MAX_CHOICES} choices between | and | that are no characters, found {n}");
            return Err(Error::input(text).hint("let several of them begin with a rule that they share"));
        }
        parts.learn();
        match parts.all.iter().zip(&parts.has_text).find(|(_, has_text)| !**has_text) {
            None => Ok(parts),
            Some((Part::Rule(rule), _)) => {
                let name = short(&rules.names[*rule], 60);
                Err(Error::input(format!(
                    "expected a rule that some text follows, found {name}, which never ends: it always needs itself again"
                )))
            }
            Some(_) => Err(Error::input("expected characters that there are, found a class [^…] that leaves none")),
        }
    }

    fn empty() -> Parts {
        Parts {
            all: vec![],
            is_regular: vec![],
            bodies: vec![],
            root: 0,
            is_nullable: vec![],
            has_text: vec![],
            first: vec![],
            parents: vec![],
        }
    }

    /// What a part is made of, with a rule's body for the rule.
    pub fn below(&self, part: usize) -> &[usize] {
        match &self.all[part] {
            Part::Rule(rule) => std::slice::from_ref(&self.bodies[*rule]),
            other => other.children(),
        }
    }

    /// How many there are, wherever there are any that no regular expression tells apart.
    fn choices(&self) -> impl Iterator<Item = usize> {
        let not_regular = self.all.iter().zip(&self.is_regular).filter(|(_, is_regular)| !**is_regular);
        not_regular.filter_map(|(part, _)| if let Part::Either(all) = part { Some(all.len()) } else { None })
    }

    /// Finds out what may be empty and what begins a part.
    fn learn(&mut self) {
        let n = self.all.len();
        (self.is_nullable, self.has_text) = (vec![false; n], vec![false; n]);
        (self.first, self.parents) = (vec![Bytes::default(); n], vec![vec![]; n]);
        for part in 0..n {
            for &child in self.below(part).to_vec().iter() {
                self.parents[child].push(part);
            }
        }
        let mut wait: Vec<usize> = (0..n).rev().collect();
        while let Some(part) = wait.pop() {
            let below = self.below(part);
            let any = |known: &[bool]| below.iter().any(|&c| known[c]);
            let all = |known: &[bool]| below.iter().all(|&c| known[c]);
            let (is_nullable, has_text, first) = match &self.all[part] {
                Part::Char(chars) => {
                    let first = first_bytes(chars);
                    (false, !first.is_empty(), first)
                }
                Part::Sequence(_) => (all(&self.is_nullable), all(&self.has_text), self.first_of(below, Bytes::default())),
                Part::Rule(_) | Part::Either(_) | Part::Repeat(..) => {
                    let is_free = matches!(self.all[part], Part::Repeat(_, 0, _));
                    let first = below.iter().fold(Bytes::default(), |sum, &c| sum.or(self.first[c]));
                    (is_free || any(&self.is_nullable), is_free || any(&self.has_text), first)
                }
            };
            if (is_nullable, has_text, first) != (self.is_nullable[part], self.has_text[part], self.first[part]) {
                (self.is_nullable[part], self.has_text[part], self.first[part]) = (is_nullable, has_text, first);
                wait.extend(&self.parents[part]);
            }
        }
    }

    /// What may begin these parts one after the other, and then something else.
    fn first_of(&self, all: &[usize], behind: Bytes) -> Bytes {
        let mut first = Bytes::default();
        for &part in all {
            first = first.or(self.first[part]);
            if !self.is_nullable[part] {
                return first;
            }
        }
        first.or(behind)
    }

    /// What may follow each part, where only the parts that `is_open` are looked into.
    pub fn followers(&self, is_open: impl Fn(usize) -> bool) -> Vec<Bytes> {
        let mut follow = vec![Bytes::default(); self.all.len()];
        let mut wait: Vec<usize> = (0..self.all.len()).filter(|&p| is_open(p)).collect();
        while let Some(part) = wait.pop() {
            let behind = follow[part];
            let mut tell = |child: usize, bytes: Bytes| {
                let sum = follow[child].or(bytes);
                if sum != follow[child] {
                    follow[child] = sum;
                    wait.extend(is_open(child).then_some(child));
                }
            };
            match &self.all[part] {
                Part::Char(_) => {}
                Part::Sequence(all) => {
                    let mut next = behind;
                    for &child in all.iter().rev() {
                        tell(child, next);
                        next = self.first_of(&[child], next);
                    }
                }
                Part::Repeat(child, _, most) if *most != Some(1) => tell(*child, behind.or(self.first[*child])),
                Part::Rule(_) | Part::Either(_) | Part::Repeat(..) => self.below(part).iter().for_each(|&c| tell(c, behind)),
            }
        }
        follow
    }
}

/// Of every rule; none where it needs a rule that needs itself, or is too large.
fn extents(rules: &Rules) -> Vec<Option<Extent>> {
    let mut known: Vec<Option<Extent>> = vec![None; rules.bodies.len()];
    // A rule's is known one round after those that it needs.
    for _ in 0..Extent::MAX_DEPTH {
        let before = known.clone();
        for (rule, body) in rules.bodies.iter().enumerate() {
            known[rule] = known[rule].or_else(|| extent(body, &before));
        }
        if before == known {
            break;
        }
    }
    known
}

fn extent(expr: &Expr, rules: &[Option<Extent>]) -> Option<Extent> {
    match expr {
        Expr::Char(_) => Some(Extent::CHAR),
        Expr::Rule(rule) => rules[*rule],
        Expr::Sequence(all) | Expr::Either(all) => Extent::around(all.iter().map(|e| extent(e, rules))),
        Expr::Repeat(one, ..) => Extent::around([extent(one, rules)]),
    }
}

struct Maker<'r> {
    rules: &'r Rules,
    rule_extents: &'r [Option<Extent>],
    /// Of the parts.
    extents: Vec<Option<Extent>>,
    /// The bodies of rules, where they were made.
    made: Vec<Option<usize>>,
    parts: Parts,
    numbers: HashMap<Part, usize>,
}

impl Maker<'_> {
    fn body(&mut self, rule: usize) -> usize {
        if let Some(part) = self.made[rule] {
            return part;
        }
        let rules = self.rules;
        let part = self.part(&rules.bodies[rule]);
        self.made[rule] = Some(part);
        part
    }

    fn part(&mut self, expr: &Expr) -> usize {
        match expr {
            Expr::Char(chars) => self.number(Part::Char(chars.clone())),
            Expr::Rule(rule) if self.rule_extents[*rule].is_some() => self.body(*rule),
            Expr::Rule(rule) => self.number(Part::Rule(*rule)),
            Expr::Sequence(all) => {
                let all: Vec<usize> = all.iter().map(|e| self.part(e)).collect();
                let mut runs = Vec::new();
                for run in
                    all.chunk_by(|&a, &b| self.parts.is_regular[a] && self.parts.is_regular[b]).map(<[usize]>::to_vec).collect::<Vec<_>>()
                {
                    runs.push(if run.len() == 1 { run[0] } else { self.number(Part::Sequence(run)) });
                }
                if runs.len() == 1 { runs[0] } else { self.number(Part::Sequence(runs)) }
            }
            Expr::Either(all) => {
                let all: Vec<usize> = all.iter().map(|e| self.part(e)).collect();
                let (regular, mut others): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&p| self.parts.is_regular[p]);
                match regular.len() {
                    0 => {}
                    1 => others.extend(regular),
                    _ => others.push(self.number(Part::Either(regular))),
                }
                if others.len() == 1 { others[0] } else { self.number(Part::Either(others)) }
            }
            Expr::Repeat(one, least, most) => {
                let one = self.part(one);
                self.number(Part::Repeat(one, *least, *most))
            }
        }
    }

    fn number(&mut self, part: Part) -> usize {
        let Maker { parts, numbers, extents, .. } = self;
        *numbers.entry(part).or_insert_with_key(|part| {
            let extent = match part {
                Part::Char(_) => Some(Extent::CHAR),
                Part::Rule(_) => None,
                _ => Extent::around(part.children().iter().map(|&c| extents[c])),
            };
            extents.push(extent);
            parts.is_regular.push(extent.is_some());
            parts.all.push(part.clone());
            parts.all.len() - 1
        })
    }
}

/// What may begin the UTF-8 of one of these characters.
fn first_bytes(chars: &Chars) -> Bytes {
    let lead = |c: char| c.encode_utf8(&mut [0; 4]).as_bytes()[0];
    let mut bytes = Bytes::default();
    let mut add = |from: char, to: char| (lead(from)..=lead(to)).for_each(|b| bytes.add(b));
    if !chars.is_negated {
        chars.ranges.iter().for_each(|&(from, to)| add(from, to));
        return bytes;
    }
    let mut ranges = chars.ranges.clone();
    ranges.sort();
    // The gaps between them.
    let mut next = Some('\0');
    for (from, to) in ranges {
        if let Some(begin) = next.filter(|&n| n < from) {
            add(begin, before(from));
        }
        next = next.and_then(|n| after(to).map(|a| a.max(n)));
    }
    if let Some(begin) = next {
        add(begin, char::MAX);
    }
    bytes
}

fn before(c: char) -> char {
    (0..c as u32).rev().find_map(char::from_u32).unwrap_or('\0')
}

fn after(c: char) -> Option<char> {
    (c as u32 + 1..=char::MAX as u32).find_map(char::from_u32)
}
