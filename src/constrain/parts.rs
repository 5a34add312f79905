//! A grammar's rules as parts that know each other: what may begin a part, what may follow it, which are regular expressions.

mod extent;

use super::gbnf::{Chars, Expr, Rules};
use crate::error::{Error, Result, short};
use extent::{Made, NodeExtent, extents};
use std::collections::HashMap;

/// Choices between parts at one place, those apart that are one regular expression. The crate compares each with all others at every byte.
pub const MAX_CHOICES: usize = 2000;

/// Elements of one sequence, those apart that are one regular expression.
const MAX_ELEMENTS: usize = 2000;

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

    pub fn has(self, byte: u8) -> bool {
        self.0[byte as usize / 64] >> (byte % 64) & 1 == 1
    }

    pub fn meets(self, other: Bytes) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }

    pub fn is_empty(self) -> bool {
        self == Bytes::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    Char(Chars),
    /// A rule that needs itself, by its number, or one that needs such a rule.
    Rule(usize),
    Sequence(Vec<usize>),
    Either(Vec<usize>),
    Repeat(usize, u32, Option<u32>),
}

impl Node {
    /// The parts it is made of.
    pub fn children(&self) -> &[usize] {
        match self {
            Node::Char(_) | Node::Rule(_) => &[],
            Node::Sequence(all) | Node::Either(all) => all,
            Node::Repeat(one, ..) => std::slice::from_ref(one),
        }
    }
}

/// Parts by number, equal ones once; what a part is made of comes before it, rules apart.
pub struct Parts {
    pub all: Vec<Node>,
    /// Whether a regular expression says the same.
    pub is_regular: Vec<bool>,
    /// What each rule stands for, by its number; only of those that [`Node::Rule`] names.
    pub bodies: Vec<usize>,
    pub root: usize,
    /// Whether a part may be the empty text.
    is_nullable: Vec<bool>,
    /// Whether some text is such a part: a rule whose every choice needs itself stands for none.
    has_text: Vec<bool>,
    /// What may begin a part.
    pub first: Vec<Bytes>,
    /// Characters of a part that is a regular expression, with what it refers to written out.
    pub n_chars: Vec<usize>,
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
        parts.n_chars = maker.extents.iter().map(|extent| extent.map_or(0, |e| e.n_chars)).collect();
        parts.check_lengths()?;
        parts.learn();
        match parts.all.iter().zip(&parts.has_text).find(|(_, has_text)| !**has_text) {
            None => Ok(parts),
            Some((Node::Rule(rule), _)) => {
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
            n_chars: vec![],
        }
    }

    /// What a part is made of, with a rule's body for the rule.
    pub fn below(&self, part: usize) -> &[usize] {
        match &self.all[part] {
            Node::Rule(rule) => std::slice::from_ref(&self.bodies[*rule]),
            other => other.children(),
        }
    }

    /// Refuses what the crate takes the square of its length for.
    fn check_lengths(&self) -> Result<()> {
        for (part, _) in self.all.iter().zip(&self.is_regular).filter(|(_, is_regular)| !**is_regular) {
            match part {
                Node::Either(all) if all.len() > MAX_CHOICES => {
                    let text =
                        format!("a rule has {} alternatives that are not plain text, at most {MAX_CHOICES} are supported", all.len());
                    return Err(Error::input(text).hint("group alternatives that begin alike"));
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

    /// Finds out which parts may be empty, which have a text, and what begins each. Every change is passed to the parts above once, so the
    /// work grows with the size of the grammar.
    fn learn(&mut self) {
        let n = self.all.len();
        (self.is_nullable, self.has_text, self.first) = (vec![false; n], vec![false; n], vec![Bytes::default(); n]);
        let users = self.users();
        // Of a sequence: distinct parts without a known text, and how many at its beginning may be empty.
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
                        let next = all.get(n_empty[user]).map_or(Bytes::default(), |&next| self.first[next]);
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

    /// For each part, the parts that it is directly below, each once, and its first place there.
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
                Node::Char(_) => {}
                Node::Sequence(all) => {
                    let mut next = behind;
                    for &child in all.iter().rev() {
                        tell(child, next);
                        next = self.first_of(&[child], next);
                    }
                }
                Node::Repeat(child, _, most) if *most != Some(1) => tell(*child, behind.or(self.first[*child])),
                Node::Rule(_) | Node::Either(_) | Node::Repeat(..) => self.below(part).iter().for_each(|&c| tell(c, behind)),
            }
        }
        follow
    }
}

struct Maker<'r> {
    rules: &'r Rules,
    rule_extents: &'r [Option<NodeExtent>],
    /// Of the parts.
    extents: Vec<Option<NodeExtent>>,
    /// The bodies of rules, where they were made.
    made: Vec<Option<usize>>,
    parts: Parts,
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
                Node::Sequence(all) => NodeExtent::around(Made::Sequence, all.iter().map(|&c| extents[c])),
                Node::Either(all) => NodeExtent::around(Made::Either, all.iter().map(|&c| extents[c])),
                Node::Repeat(one, least, _) => NodeExtent::around(Made::repeated(*least), [extents[*one]]),
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
