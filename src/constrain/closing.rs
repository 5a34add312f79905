//! Searches for bytes that complete an unfinished text under a grammar. Such bytes are called an *ending* here. Short endings are preferred.
//!
//! A second parser follows the text byte by byte, independently of the vocabulary, and keeps a short ending up to date. The text can be
//! completed as long as its token limit leaves room for the tokens of this ending.

#[cfg(test)]
mod tests;

use super::Allowed;
use super::parse::Parse;
use std::collections::HashMap;
use std::sync::Arc;
use toktrie::{TokEnv, TokTrie};

/// The largest number of bytes that a search may append to complete a text.
const LONGEST: usize = 16 << 10;

/// The maximum number of bytes that [`Closer::shorter`] tries in total. This function runs once, at the beginning of a text.
const TRIES: usize = 4000;

/// If more than this many bytes may come next, the search tries only the first `ALIKE` bytes of each [`rank`].
const CHOICES: usize = 8;
/// How many bytes with the same rank the search tries, for example two of the ten digits.
const ALIKE: usize = 2;

/// Added to the rank of a byte that occurs only within longer tokens, so that the search tries it later.
const WITHIN: usize = 5;

/// The maximum number of bytes that are dropped from the beginning of a known ending. The next token may already contain these bytes, such as the
/// rest of a number.
const REPLACED: usize = 12;

/// An unfinished text under a grammar, with the shortest known bytes that complete the text.
#[derive(Clone)]
pub struct Closer {
    /// Parses the text byte by byte. An id of this parser is a byte.
    bytes: Parse,
    vocab: TokEnv,
    order: Arc<ByteOrder>,
    ending: Arc<ClosingText>,
    /// The id for which [`Closer::fits`] returned true last, and the ending of the text after this id.
    next: Option<(u32, Arc<ClosingText>)>,
}

/// Bytes that complete a text, and the same bytes as tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClosingText {
    text: Vec<u8>,
    tokens: Vec<u32>,
}

impl Closer {
    /// Makes a closer for a new text, whose parser `bytes` has read nothing yet. Searches for a short complete text under the grammar, and uses this
    /// text as the first ending. Returns `None` if the search fails, or if the vocabulary has no tokens for the ending.
    pub fn new(bytes: Parse, vocab: TokEnv) -> Option<Closer> {
        let order = Arc::new(ByteOrder::of(vocab.tok_trie()));
        let mut closer = Closer { bytes, vocab, order, ending: Arc::default(), next: None };
        let text = search(closer.bytes.fork(), &closer.order, &[], LONGEST)?;
        closer.ending = Arc::new(closer.shorter(&closer.bytes, text)?);
        Some(closer)
    }

    /// Returns the shortest known sequence of tokens that completes the text. The sequence is empty if the text may end here.
    pub fn tokens(&self) -> &[u32] {
        &self.ending.tokens
    }

    /// Returns whether the text plus the token `id` can be completed with at most `left` further tokens. `bytes` is the token's text.
    pub fn fits(&mut self, id: u32, bytes: &[u8], left: usize) -> bool {
        let fits = |ending: &ClosingText| ending.tokens.len() <= left;
        match self.ending_after(id, bytes) {
            Some(ending) if fits(&ending) => {
                self.next = Some((id, Arc::new(ending)));
                true
            }
            _ => false,
        }
    }

    /// Appends the token `id` to the text. Returns `None` if no way is found to complete the longer text. `bytes` is the token's text.
    pub fn accept(mut self, id: u32, bytes: &[u8]) -> Option<Closer> {
        let ending = match self.next.take() {
            Some((known, ending)) if known == id => ending,
            _ => Arc::new(self.ending_after(id, bytes)?),
        };
        self.bytes.read(bytes).ok()?;
        Some(Closer { ending, ..self })
    }

    /// Returns an ending of the text after the token `id`, whose text is `bytes`. Returns `None` if the search fails, or if the vocabulary has no
    /// tokens for the ending.
    fn ending_after(&mut self, id: u32, bytes: &[u8]) -> Option<ClosingText> {
        let known = self.ending.clone();
        if let Some(rest) = known.text.strip_prefix(bytes) {
            let is_next = known.tokens.first() == Some(&id);
            let tokens = if is_next { known.tokens[1..].to_vec() } else { self.tokens_of(rest)? };
            return Some(ClosingText { text: rest.to_vec(), tokens });
        }
        match self.still_ends(bytes, &known.text) {
            Some(rest) if rest.len() == known.text.len() => Some((*known).clone()),
            Some(rest) => self.ending_of(rest.to_vec()),
            None => {
                let mut after = self.bytes.fork();
                after.read(bytes).ok()?;
                self.ending_of(search(after, &self.order, &known.text, LONGEST)?)
            }
        }
    }

    /// Returns the part of `ending` that still completes the text after `bytes`, or `None` if no part does. If `ending` begins with a value, drops as
    /// many of its first bytes as possible, at most `REPLACED`: `bytes` may already contain the value.
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

    /// Splits bytes that complete the text into tokens. Returns `None` if the vocabulary has no tokens for these bytes.
    fn ending_of(&self, text: Vec<u8>) -> Option<ClosingText> {
        let tokens = self.tokens_of(&text)?;
        Some(ClosingText { text, tokens })
    }

    /// Splits a text into the fewest tokens. Returns `None` if the vocabulary has no tokens for the text.
    fn tokens_of(&self, text: &[u8]) -> Option<Vec<u32>> {
        let trie = self.vocab.tok_trie();
        // for each offset in the text: the fewest tokens up to there, the last of these tokens, and where this last token begins
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

    /// Searches for a shorter ending of the text that `start` has parsed. `text` is a known ending; the search tries other bytes at each offset of
    /// `text`. Returns the ending with the fewest tokens, which may be `text` itself, or `None` if the vocabulary has no tokens for any ending.
    fn shorter(&self, start: &Parse, text: Vec<u8>) -> Option<ClosingText> {
        let size = |ending: &ClosingText| (ending.tokens.len(), ending.text.len());
        let (mut best, mut text) = (self.ending_of(text.clone()), text);
        let (mut at, mut from, mut left) = (start.fork(), 0, TRIES);
        while from < text.len() && left > 0 {
            let mut others = self.order.choices(&at.allowed().ok()?);
            others.retain(|&byte| byte != text[from]);
            for byte in others {
                let longest = left.min(text.len() - from + 8);
                let mut other = at.fork();
                let found = other.read(&[byte]).ok().and_then(|()| search(other, &self.order, &[], longest));
                left = left.saturating_sub(1 + found.as_ref().map_or(longest, Vec::len));
                let ending = found.and_then(|rest| self.ending_of([&text[..from], &[byte], &rest].concat()));
                if ending.as_ref().is_some_and(|ending| best.as_ref().is_none_or(|best| size(ending) < size(best))) {
                    best = ending;
                }
            }
            if let Some(ending) = &best {
                text.clone_from(&ending.text);
            }
            at.read(&[*text.get(from)?]).ok()?;
            from += 1;
        }
        best
    }
}

/// Returns an ending of the text that `at` has parsed. Appends, again and again, the byte that is likely to end the text soonest. `known` is the
/// ending of an earlier text; if it also ends this text, the search appends it and stops. Returns `None` if the text is not complete after about
/// `longest` bytes.
fn search(mut at: Parse, order: &ByteOrder, known: &[u8], longest: usize) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    // for each set of allowed bytes: how often the search had to choose from this set
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
        // For each set of allowed bytes, the search takes the first choice 16 times, then the second choice 32 times, the third 64 times and so on,
        // cyclically. So the search gives up a choice that does not end the text. A choice that ends the text has enough steps to close all open
        // strings and brackets.
        let n = visits.entry(place).or_default();
        let byte = *choices.get((*n / 16 + 1).ilog2() as usize % choices.len().max(1))?;
        *n += 1;
        at.read(&[byte]).ok()?;
        text.push(byte);
    }
    None
}

/// The order in which the search tries bytes. Bytes that are likely to end a text soonest are first.
struct ByteOrder {
    /// Says for each byte how tokens contain the byte. `Alone` means that a token consists of this byte alone. `Within` means that only longer
    /// tokens contain the byte. `Nowhere` means that no token contains the byte.
    found: [BytePlace; 256],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BytePlace {
    Alone,
    Within,
    Nowhere,
}

impl ByteOrder {
    fn of(vocab: &TokTrie) -> ByteOrder {
        let mut found = [BytePlace::Nowhere; 256];
        for id in 0..vocab.vocab_size() as u32 {
            let token = vocab.token(id);
            let as_what = if token.len() == 1 { BytePlace::Alone } else { BytePlace::Within };
            token.iter().for_each(|&byte| found[usize::from(byte)] = found[usize::from(byte)].min(as_what));
        }
        ByteOrder { found }
    }

    /// Returns the allowed bytes that the search should try next, the most promising byte first.
    fn choices(&self, allowed: &Allowed<'_>) -> Vec<u8> {
        let may = |byte: u8| allowed.ids.get(usize::from(byte) / 32).is_some_and(|word| word >> (byte % 32) & 1 == 1);
        let is_text = may(b'q') && may(b'z');
        let found = |byte: u8| self.found[usize::from(byte)];
        let mut bytes: Vec<u8> = (0..=u8::MAX).filter(|&byte| may(byte) && found(byte) != BytePlace::Nowhere).collect();
        let key = |byte: u8| rank(byte, is_text) + if found(byte) == BytePlace::Alone { 0 } else { WITHIN };
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

/// Returns the rank of a byte; the search tries low ranks first. Bytes that close a string or bracket come first, then bytes that begin a short
/// value. `is_text` is true if any letter may come next: inside a string, a quote ends the string and brackets are plain characters.
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
