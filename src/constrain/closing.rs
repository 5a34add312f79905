//! Ways to the end of a text under rules: what is still to be written so that the text is whole.
//!
//! A second follower reads the text byte by byte, whatever the vocabulary, and looks for a short text that ends it. The tokens of the
//! vocabulary that make up this text are counted: with so many tokens left, the text can still end whole.

#[cfg(test)]
mod tests;

use super::Allowed;
use super::parse::Parse;
use std::collections::HashMap;
use std::sync::Arc;
use toktrie::{TokEnv, TokTrie};

/// The longest ending that is looked for, in bytes.
const LONGEST: usize = 16 << 10;

/// Bytes that may be tried for a shorter ending, at the beginning of a text.
const TRIES: usize = 4000;

/// Where more bytes may come, digits stand for one another, and letters do.
const CHOICES: usize = 8;
const ALIKE: usize = 2;

/// How much later a byte is tried that is part of tokens only.
const WITHIN: usize = 5;

/// How many bytes of an ending that begins with a value a written value may replace.
const REPLACED: usize = 12;

/// A text under rules with a known way to its end.
#[derive(Clone)]
pub struct Closer {
    /// Follows the text byte by byte: an id is a byte.
    bytes: Parse,
    vocab: TokEnv,
    order: Arc<Order>,
    way: Arc<Way>,
    /// The way after a token that may come next.
    next: Option<(u32, Arc<Way>)>,
}

/// A text that makes another one whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Way {
    text: Vec<u8>,
    tokens: Vec<u32>,
}

impl Closer {
    /// At the beginning of a text. `None` if no ending is found, or the vocabulary has no tokens for it.
    pub fn new(bytes: Parse, vocab: TokEnv) -> Option<Closer> {
        let order = Arc::new(Order::of(vocab.tok_trie()));
        let mut closer = Closer { bytes, vocab, order, way: Arc::default(), next: None };
        let text = ending(closer.bytes.fork(), &closer.order, &[], LONGEST)?;
        closer.way = Arc::new(closer.shorter(&closer.bytes, text)?);
        Some(closer)
    }

    /// The tokens of the shortest known ending.
    pub fn tokens(&self) -> &[u32] {
        &self.way.tokens
    }

    /// Whether the text can end whole with `left` tokens after `id`, whose text is `bytes`.
    pub fn fits(&mut self, id: u32, bytes: &[u8], left: usize) -> bool {
        let fits = |way: &Way| way.tokens.len() <= left;
        match self.way_after(id, bytes) {
            Some(way) if fits(&way) => {
                self.next = Some((id, Arc::new(way)));
                true
            }
            _ => false,
        }
    }

    /// Goes on after a token. `None` if no ending is known any more.
    pub fn accept(mut self, id: u32, bytes: &[u8]) -> Option<Closer> {
        let way = match self.next.take() {
            Some((known, way)) if known == id => way,
            _ => Arc::new(self.way_after(id, bytes)?),
        };
        self.bytes.read(bytes).ok()?;
        Some(Closer { way, ..self })
    }

    /// A way after a token.
    fn way_after(&mut self, id: u32, bytes: &[u8]) -> Option<Way> {
        let known = self.way.clone();
        if let Some(rest) = known.text.strip_prefix(bytes) {
            let is_next = known.tokens.first() == Some(&id);
            let tokens = if is_next { known.tokens[1..].to_vec() } else { self.tokens_of(rest)? };
            return Some(Way { text: rest.to_vec(), tokens });
        }
        match self.still_ends(bytes, &known.text) {
            Some(rest) if rest.len() == known.text.len() => Some((*known).clone()),
            Some(rest) => self.way_of(rest.to_vec()),
            None => {
                let mut after = self.bytes.fork();
                after.read(bytes).ok()?;
                self.way_of(ending(after, &self.order, &known.text, LONGEST)?)
            }
        }
    }

    /// The part of a known ending that ends the text after more bytes, too. A value that is written takes the place of the value with which
    /// the ending begins.
    fn still_ends<'w>(&mut self, bytes: &[u8], ending: &'w [u8]) -> Option<&'w [u8]> {
        let is_value = ending.first().is_some_and(u8::is_ascii_alphanumeric);
        let replaced = if is_value { REPLACED.min(ending.len()) } else { 0 };
        let mut text = bytes.to_vec();
        (0..=replaced).rev().map(|n| &ending[n..]).find(|rest| {
            text.truncate(bytes.len());
            text.extend_from_slice(rest);
            self.bytes.is_whole_after(&text)
        })
    }

    /// The way of a text; `None` if the vocabulary has no tokens for it.
    fn way_of(&self, text: Vec<u8>) -> Option<Way> {
        let tokens = self.tokens_of(&text)?;
        Some(Way { text, tokens })
    }

    /// As few tokens as there are for a text.
    fn tokens_of(&self, text: &[u8]) -> Option<Vec<u32>> {
        let trie = self.vocab.tok_trie();
        // For each place in the text: how many tokens lead there, and the last one of them.
        let mut best: Vec<Option<(usize, u32, usize)>> = vec![None; text.len() + 1];
        for from in 0..text.len() {
            let so_far = match best[from] {
                Some((n, ..)) => n,
                None if from == 0 => 0,
                None => continue,
            };
            let mut node = trie.root();
            for (to, &byte) in (from + 1..).zip(&text[from..]) {
                let Some(child) = trie.child_at_byte(node, byte) else { break };
                node = child;
                if let Some(id) = node.token_id()
                    && best[to].is_none_or(|(n, ..)| so_far + 1 < n)
                {
                    best[to] = Some((so_far + 1, id, from));
                }
            }
        }
        let (mut tokens, mut at) = (Vec::new(), text.len());
        while at > 0 {
            let (_, id, from) = best[at]?;
            tokens.push(id);
            at = from;
        }
        tokens.reverse();
        Some(tokens)
    }

    /// The way of a text, or one of fewer tokens, if there is one with another choice at one place after the other. `None` if the vocabulary
    /// has tokens for none of these texts.
    fn shorter(&self, start: &Parse, text: Vec<u8>) -> Option<Way> {
        let size = |way: &Way| (way.tokens.len(), way.text.len());
        let (mut best, mut text) = (self.way_of(text.clone()), text);
        let (mut at, mut from, mut left) = (start.fork(), 0, TRIES);
        while from < text.len() && left > 0 {
            let mut others = self.order.choices(&at.allowed().ok()?);
            others.retain(|&byte| byte != text[from]);
            for byte in others {
                let longest = left.min(text.len() - from + 8);
                let mut other = at.fork();
                let found = other.read(&[byte]).ok().and_then(|()| ending(other, &self.order, &[], longest));
                left = left.saturating_sub(1 + found.as_ref().map_or(longest, Vec::len));
                let way = found.and_then(|rest| self.way_of([&text[..from], &[byte], &rest].concat()));
                if way.as_ref().is_some_and(|way| best.as_ref().is_none_or(|best| size(way) < size(best))) {
                    best = way;
                }
            }
            if let Some(way) = &best {
                text.clone_from(&way.text);
            }
            at.read(&[*text.get(from)?]).ok()?;
            from += 1;
        }
        best
    }
}

/// A text that ends another one: byte by byte the choice that ends things soonest, as far as can be seen. `known` is tried at each step: an
/// ending that was right before. `None` if no text of at most `longest` bytes is found.
fn ending(mut at: Parse, order: &Order, known: &[u8], longest: usize) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    // How often a text came by places that allow the same bytes.
    let mut visits: HashMap<Vec<u32>, usize> = HashMap::new();
    while text.len() <= longest {
        let allowed = at.allowed().ok()?;
        if allowed.may_end {
            return Some(text);
        }
        let (place, choices) = (allowed.ids.to_vec(), order.choices(&allowed));
        if !known.is_empty() && at.is_whole_after(known) {
            text.extend_from_slice(known);
            return Some(text);
        }
        // The first choice 16 times, the second 32 times, the third 64 times, and so on in a circle: what does not lead out is given up, and
        // what does has the time to end what was begun before.
        let n = visits.entry(place).or_default();
        let byte = *choices.get((*n / 16 + 1).ilog2() as usize % choices.len().max(1))?;
        *n += 1;
        at.read(&[byte]).ok()?;
        text.push(byte);
    }
    None
}

/// In which order bytes are tried, those first that end a text soonest.
struct Order {
    /// Whether a byte is a token, or part of one. Others cannot come.
    found: [Found; 256],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Alone,
    Within,
    Nowhere,
}

impl Order {
    fn of(vocab: &TokTrie) -> Order {
        let mut found = [Found::Nowhere; 256];
        for id in 0..vocab.vocab_size() as u32 {
            let token = vocab.token(id);
            let as_what = if token.len() == 1 { Found::Alone } else { Found::Within };
            token.iter().for_each(|&byte| found[usize::from(byte)] = found[usize::from(byte)].min(as_what));
        }
        Order { found }
    }

    /// The bytes that may come next.
    fn choices(&self, allowed: &Allowed<'_>) -> Vec<u8> {
        let may = |byte: u8| allowed.ids.get(usize::from(byte) / 32).is_some_and(|word| word >> (byte % 32) & 1 == 1);
        let is_text = may(b'q') && may(b'z');
        let found = |byte: u8| self.found[usize::from(byte)];
        let mut bytes: Vec<u8> = (0..=u8::MAX).filter(|&byte| may(byte) && found(byte) != Found::Nowhere).collect();
        let key = |byte: u8| rank(byte, is_text) + if found(byte) == Found::Alone { 0 } else { WITHIN };
        bytes.sort_by_key(|&byte| key(byte));
        if bytes.len() > CHOICES {
            let (mut last, mut n) = (0, 0);
            bytes.retain(|&byte| {
                n = if key(byte) == last { n + 1 } else { 1 };
                last = key(byte);
                n <= ALIKE
            });
        }
        bytes
    }
}

/// What ends things comes first, then short values. `is_text`: any letter may come, so a quote ends a text, and brackets are text.
fn rank(byte: u8, is_text: bool) -> usize {
    match byte {
        b'"' if is_text => 0,
        b'\n' if is_text => 1,
        b'}' => 2,
        b']' | b')' | b'>' => 3,
        b',' | b':' if !is_text => 4,
        b'0'..=b'9' => 5,
        b'"' => 6,
        b'n' if !is_text => 7,
        b't' | b'f' if !is_text => 8,
        b'[' => 9,
        b'{' => 9,
        b'a'..=b'z' => 10,
        b'A'..=b'Z' => 11,
        b'\\' => 30,
        b'!'..=b'~' => 12,
        b' ' => 13,
        0x80.. => 15,
        _ => 20,
    }
}
