//! The parts of a grammar: its expressions and their subexpressions. Computes which bytes may begin and follow each part, and which parts are
//! regular expressions.

mod extent;

use super::gbnf::{Chars, Expr, Rules};
use crate::error::{Error, Result, short};
use extent::{NodeExtent, Operator, extents};
use std::collections::HashMap;

/// The maximum number of alternatives in a rule. All alternatives that are regular expressions count as one. llguidance compares each alternative
/// with all others at every byte.
pub const MAX_CHOICES: usize = 2000;

/// The largest number of elements in a sequence. Adjacent regular expressions together count as one.
const MAX_ELEMENTS: usize = 2000;

/// A set of bytes: one bit per byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ByteSet(pub [u64; 4]);

impl ByteSet {
    fn add(&mut self, byte: u8) {
        self.0[byte as usize / 64] |= 1 << (byte % 64);
    }

    fn or(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub fn has(self, byte: u8) -> bool {
        self.0[byte as usize / 64] >> (byte % 64) & 1 == 1
    }

    pub fn meets(self, other: ByteSet) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    pub fn is_empty(self) -> bool {
        self == ByteSet::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    Char(Chars),
    /// A reference to a rule, by the rule's number. The rule is not regular: it is recursive, refers to a recursive rule, or is too large.
    Rule(usize),
    Sequence(Vec<usize>),
    Either(Vec<usize>),
    Repeat(usize, u32, Option<u32>),
}

impl Node {
    /// Returns the numbers of the parts that this part contains. The list is empty for a reference to a rule.
    pub fn children(&self) -> &[usize] {
        match self {
            Node::Char(_) | Node::Rule(_) => &[],
            Node::Sequence(all) | Node::Either(all) => all,
            Node::Repeat(one, ..) => std::slice::from_ref(one),
        }
    }
}

/// The parts of a grammar, each with a number. Equal parts share a number. A part's number is higher than the numbers of its children, except that a
/// reference may precede the rule's body.
pub struct GrammarParts {
    pub all: Vec<Node>,
    /// For each part: whether it is a regular expression of a supported size.
    pub is_regular: Vec<bool>,
    /// For each rule, by its number: the number of the part that is the rule's body.
    pub bodies: Vec<usize>,
    pub root: usize,
    /// For each part: whether it matches the empty text.
    is_nullable: Vec<bool>,
    /// For each part: whether it matches at least one text. A rule matches no text if every alternative refers back to the rule.
    has_text: Vec<bool>,
    /// For each part: the bytes with which a match of the part may begin.
    pub first: Vec<ByteSet>,
    /// For each part that is a regular expression: its number of characters, with references expanded. 0 for all other parts.
    pub n_chars: Vec<usize>,
}

impl GrammarParts {
    /// Splits the rules of a grammar into parts.
    ///
    /// # Errors
    /// `Input` if a rule can never match, or if a rule has too many alternatives or elements.
    pub fn of(rules: &Rules) -> Result<GrammarParts> {
        let rule_extents = extents(rules);
        let made = vec![None; rules.bodies.len()];
        let mut maker =
            Maker { rules, rule_extents: &rule_extents, extents: Vec::new(), made, parts: GrammarParts::empty(), numbers: HashMap::new() };
        maker.parts.bodies = (0..rules.bodies.len()).map(|rule| maker.body(rule)).collect();
        maker.parts.root = maker.parts.bodies[rules.root];
        let mut parts = maker.parts;
        parts.n_chars = maker.extents.iter().map(|extent| extent.map_or(0, |e| e.n_chars)).collect();
        parts.check_lengths()?;
        parts.learn();
        match parts.all.iter().zip(&parts.has_text).find(|(_, has_text)| !**has_text) {
            None => Ok(parts),
            Some((Node::Rule(rule), _)) => {
                let name = short(&rules.names[*rule], 60);
                Err(Error::input(format!("rule {name:?} can never match, because every alternative refers back to {name:?}"))
                    .hint("add an alternative that does not refer to the rule itself"))
            }
            Some(_) => Err(Error::input("a class [^…] excludes every character")),
        }
    }

    fn empty() -> GrammarParts {
        GrammarParts {
            all: vec![],
            is_regular: vec![],
            bodies: vec![],
            root: 0,
            is_nullable: vec![],
            has_text: vec![],
            first: vec![],
            n_chars: vec![],
        }
    }

    /// Returns the numbers of a part's children. The only child of a reference is the rule's body.
    pub fn below(&self, part: usize) -> &[usize] {
        match &self.all[part] {
            Node::Rule(rule) => std::slice::from_ref(&self.bodies[*rule]),
            other => other.children(),
        }
    }

    /// Returns an error if a part has too many alternatives or elements. llguidance's work grows with the square of this number.
    fn check_lengths(&self) -> Result<()> {
        for (part, _) in self.all.iter().zip(&self.is_regular).filter(|(_, is_regular)| !**is_regular) {
            match part {
                Node::Either(all) if all.len() > MAX_CHOICES => {
                    let text =
                        format!("a rule has {} alternatives that are not plain text, at most {MAX_CHOICES} are supported", all.len());
                    return Err(Error::input(text).hint("group alternatives that have the same beginning"));
                }
                Node::Sequence(all) if all.len() > MAX_ELEMENTS => {
                    let text = format!("a rule has {} elements in a row, at most {MAX_ELEMENTS} are supported", all.len());
                    return Err(Error::input(text).hint("write a repetition, such as x* or x{2,5}, or split a long text"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Computes `is_nullable`, `has_text` and `first`. When a value of a part changes, only the parts that use this part are computed again. So the
    /// work is linear in the size of the grammar.
    fn learn(&mut self) {
        let n = self.all.len();
        (self.is_nullable, self.has_text, self.first) = (vec![false; n], vec![false; n], vec![ByteSet::default(); n]);
        let users = self.users();
        // for each sequence: the number of parts whose `has_text` is false so far, and the number of leading parts that are nullable
        let (mut n_missing, mut n_empty) = (vec![0; n], vec![0; n]);
        users.iter().flatten().for_each(|&(user, _)| n_missing[user] += 1);
        let (mut wait, mut waits, mut is_counted) = (Vec::new(), vec![true; n], vec![false; n]);
        for part in 0..n {
            match &self.all[part] {
                Node::Char(chars) => {
                    self.first[part] = first_bytes(chars);
                    self.has_text[part] = !self.first[part].is_empty();
                }
                Node::Repeat(_, 0, _) => (self.is_nullable[part], self.has_text[part]) = (true, true),
                Node::Sequence(all) if all.is_empty() => (self.is_nullable[part], self.has_text[part]) = (true, true),
                _ => {}
            }
            wait.push(part);
        }
        while let Some(part) = wait.pop() {
            waits[part] = false;
            let (is_nullable, has_text, first) = (self.is_nullable[part], self.has_text[part], self.first[part]);
            let is_new_text = has_text && !std::mem::replace(&mut is_counted[part], has_text);
            for &(user, place) in &users[part] {
                let before = (self.is_nullable[user], self.has_text[user], self.first[user]);
                if let Node::Sequence(all) = &self.all[user] {
                    n_missing[user] -= usize::from(is_new_text);
                    self.has_text[user] = n_missing[user] == 0;
                    if place <= n_empty[user] {
                        self.first[user] = self.first[user].or(first);
                    }
                    while all.get(n_empty[user]).is_some_and(|&next| self.is_nullable[next]) {
                        n_empty[user] += 1;
                        let next = all.get(n_empty[user]).map_or(ByteSet::default(), |&next| self.first[next]);
                        self.first[user] = self.first[user].or(next);
                    }
                    self.is_nullable[user] = n_empty[user] == all.len();
                } else {
                    self.is_nullable[user] |= is_nullable;
                    self.has_text[user] |= has_text;
                    self.first[user] = self.first[user].or(first);
                }
                if before != (self.is_nullable[user], self.has_text[user], self.first[user]) && !std::mem::replace(&mut waits[user], true) {
                    wait.push(user);
                }
            }
        }
    }

    /// Returns, for each part, its users: the parts that contain or reference it. A user is given once, as the user's number and the first index at
    /// which the part occurs in the user.
    fn users(&self) -> Vec<Vec<(usize, usize)>> {
        let mut users = vec![Vec::new(); self.all.len()];
        let mut last_user = vec![usize::MAX; self.all.len()];
        for part in 0..self.all.len() {
            for (place, &child) in self.below(part).iter().enumerate() {
                if std::mem::replace(&mut last_user[child], part) != part {
                    users[child].push((part, place));
                }
            }
        }
        users
    }

    /// Returns the bytes with which a match of the sequence `all` may begin. Includes the bytes `next` if every part may match the empty text.
    fn first_of(&self, all: &[usize], next: ByteSet) -> ByteSet {
        let mut first = ByteSet::default();
        for &part in all {
            first = first.or(self.first[part]);
            if !self.is_nullable[part] {
                return first;
            }
        }
        first.or(next)
    }

    /// Returns, for each part, the bytes that may follow its match. A part for which `is_open` returns false passes no bytes to its children, which
    /// get bytes only from other places in the grammar.
    pub fn followers(&self, is_open: impl Fn(usize) -> bool) -> Vec<ByteSet> {
        let mut follow = vec![ByteSet::default(); self.all.len()];
        let mut wait: Vec<usize> = (0..self.all.len()).filter(|&p| is_open(p)).collect();
        while let Some(part) = wait.pop() {
            let after = follow[part];
            let mut add = |child: usize, bytes: ByteSet| {
                let sum = follow[child].or(bytes);
                if sum != follow[child] {
                    follow[child] = sum;
                    wait.extend(is_open(child).then_some(child));
                }
            };
            match &self.all[part] {
                Node::Char(_) => {}
                Node::Sequence(all) => {
                    let mut next = after;
                    for &child in all.iter().rev() {
                        add(child, next);
                        next = self.first_of(&[child], next);
                    }
                }
                Node::Repeat(child, _, most) if *most != Some(1) => add(*child, after.or(self.first[*child])),
                Node::Rule(_) | Node::Either(_) | Node::Repeat(..) => self.below(part).iter().for_each(|&c| add(c, after)),
            }
        }
        follow
    }
}

struct Maker<'r> {
    rules: &'r Rules,
    rule_extents: &'r [Option<NodeExtent>],
    /// The extent (size and form as a regular expression) of each part, by the part's number. `None` if the part is not a regular expression of a
    /// supported size.
    extents: Vec<Option<NodeExtent>>,
    /// For each rule: the number of the part that is the rule's body, or `None` until this part has a number.
    made: Vec<Option<usize>>,
    parts: GrammarParts,
    numbers: HashMap<Node, usize>,
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
            Expr::Char(chars) => self.number(Node::Char(chars.clone())),
            Expr::Rule(rule) if self.rule_extents[*rule].is_some() => self.body(*rule),
            Expr::Rule(rule) => self.number(Node::Rule(*rule)),
            Expr::Sequence(all) => {
                let all: Vec<usize> = all.iter().map(|e| self.part(e)).collect();
                let mut runs = Vec::new();
                for run in
                    all.chunk_by(|&a, &b| self.parts.is_regular[a] && self.parts.is_regular[b]).map(<[usize]>::to_vec).collect::<Vec<_>>()
                {
                    runs.push(if run.len() == 1 { run[0] } else { self.number(Node::Sequence(run)) });
                }
                if runs.len() == 1 { runs[0] } else { self.number(Node::Sequence(runs)) }
            }
            Expr::Either(all) => {
                let all: Vec<usize> = all.iter().map(|e| self.part(e)).collect();
                let (regular, mut others): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&p| self.parts.is_regular[p]);
                match regular.len() {
                    0 => {}
                    1 => others.extend(regular),
                    _ => others.push(self.number(Node::Either(regular))),
                }
                if others.len() == 1 { others[0] } else { self.number(Node::Either(others)) }
            }
            Expr::Repeat(one, least, most) => {
                let one = self.part(one);
                self.number(Node::Repeat(one, *least, *most))
            }
        }
    }

    fn number(&mut self, part: Node) -> usize {
        let Maker { parts, numbers, extents, .. } = self;
        *numbers.entry(part).or_insert_with_key(|part| {
            let extent = match part {
                Node::Char(_) => Some(NodeExtent::CHAR),
                Node::Rule(_) => None,
                Node::Sequence(all) => NodeExtent::around(Operator::Sequence, all.iter().map(|&c| extents[c])),
                Node::Either(all) => NodeExtent::around(Operator::Either, all.iter().map(|&c| extents[c])),
                Node::Repeat(one, least, _) => NodeExtent::around(Operator::repeated(*least), [extents[*one]]),
            };
            extents.push(extent);
            parts.is_regular.push(extent.is_some());
            parts.all.push(part.clone());
            parts.all.len() - 1
        })
    }
}

/// Returns all bytes with which the UTF-8 of a character in the class may begin.
fn first_bytes(chars: &Chars) -> ByteSet {
    let lead = |c: char| c.encode_utf8(&mut [0; 4]).as_bytes()[0];
    let mut bytes = ByteSet::default();
    let mut add = |from: char, to: char| (lead(from)..=lead(to)).for_each(|b| bytes.add(b));
    if !chars.is_negated {
        chars.ranges.iter().for_each(|&(from, to)| add(from, to));
        return bytes;
    }
    let mut ranges = chars.ranges.clone();
    ranges.sort();
    // a negated class consists of the gaps between the ranges
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
