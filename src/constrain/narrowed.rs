//! A constraint from the plain lists of a request: a minimum length, texts that must not occur, and the only tokens that may occur. The constraint
//! narrows the rules of a grammar, or applies alone.

use super::{Allowed, Constraint};
use crate::error::{Error, Result};
use crate::vocab::Vocab;
use std::sync::Arc;

/// The lists of a request, for one vocabulary.
#[derive(Debug, Clone)]
pub struct Narrowing {
    /// One bit per id, set if the token may occur at all. Forbidden texts exclude further tokens.
    ids: Arc<[u32]>,
    /// The text may not end before it has this many tokens.
    min_tokens: usize,
    /// True if the text may end after `min_tokens`. Has no effect if there are rules: they determine where the text may end.
    may_end: bool,
    words: Option<Arc<Words>>,
}

/// Texts that must not occur.
#[derive(Debug)]
struct Words {
    words: Vec<Vec<u8>>,
    vocab: Vocab,
    /// The ids of the tokens that have bytes, sorted by these bytes.
    order: Vec<u32>,
}

impl Narrowing {
    /// Returns a narrowing that forbids nothing, for a model with `n_vocab` tokens.
    pub fn none(n_vocab: usize) -> Narrowing {
        let mut ids = vec![u32::MAX; n_vocab.div_ceil(32)];
        if let Some(last) = ids.last_mut().filter(|_| !n_vocab.is_multiple_of(32)) {
            *last = (1 << (n_vocab % 32)) - 1;
        }
        Narrowing { ids: ids.into(), min_tokens: 0, may_end: true, words: None }
    }

    /// Forbids the end of the text before it has `n` tokens.
    pub fn min_tokens(self, n: usize) -> Narrowing {
        Narrowing { min_tokens: n, ..self }
    }

    /// Allows only the tokens `ids`, which must be below the number of tokens: a larger id may panic. `may_end` determines whether the text may end,
    /// unless rules determine this.
    pub fn only(mut self, ids: &[u32], may_end: bool) -> Narrowing {
        let mut bits = vec![0; self.ids.len()];
        ids.iter().for_each(|&id| bits[id as usize / 32] |= 1 << (id % 32));
        bits.iter_mut().zip(self.ids.iter()).for_each(|(bits, before)| *bits &= before);
        self.ids = bits.into();
        Narrowing { may_end, ..self }
    }

    /// Forbids the texts `words`, however the tokens of `vocab` spell them. Panics if one of the texts is empty.
    pub fn without(mut self, words: &[String], vocab: &Vocab) -> Narrowing {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut bits = self.ids.to_vec();
        let contains = |token: &[u8]| words.iter().any(|word| token.windows(word.len()).any(|part| part == word));
        let mut order: Vec<u32> = (0..=vocab.max_id()).take(bits.len() * 32).filter(|id| !vocab.token(*id).is_empty()).collect();
        order.iter().filter(|id| contains(vocab.token(**id))).for_each(|id| forbid(&mut bits, *id));
        order.sort_by(|a, b| vocab.token(*a).cmp(vocab.token(*b)));
        self.ids = bits.into();
        Narrowing { words: Some(Arc::new(Words { words, vocab: vocab.clone(), order })), ..self }
    }

    /// Returns the constraint of one text. The text must also follow `rules`, such as a grammar.
    pub fn follow(&self, rules: Option<Box<dyn Constraint>>) -> Narrowed {
        Narrowed { rules, by: self.clone(), n_tokens: 0, tail: Vec::new(), bits: self.ids.to_vec() }
    }
}

/// The constraint of one text.
pub struct Narrowed {
    rules: Option<Box<dyn Constraint>>,
    by: Narrowing,
    n_tokens: usize,
    /// The last bytes of the text: one byte less than the longest forbidden text has.
    tail: Vec<u8>,
    bits: Vec<u32>,
}

/// Clears the bit of a token.
fn forbid(bits: &mut [u32], id: u32) {
    bits[id as usize / 32] &= !(1 << (id % 32));
}

impl Words {
    /// Clears the bits of the tokens with which one of the texts would be complete after `tail`.
    fn forbid(&self, tail: &[u8], bits: &mut [u32]) {
        for word in &self.words {
            // The tail ends with the first `n` bytes of the word. A token that begins with the rest would complete the word.
            for n in (1..word.len()).filter(|n| tail.ends_with(&word[..*n])) {
                let rest = &word[n..];
                let from = self.order.partition_point(|id| self.vocab.token(*id) < rest);
                let completing = self.order[from..].iter().take_while(|id| self.vocab.token(**id).starts_with(rest));
                completing.for_each(|id| forbid(bits, *id));
            }
        }
    }

    fn longest(&self) -> usize {
        self.words.iter().map(Vec::len).max().unwrap_or(0)
    }
}

impl Constraint for Narrowed {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        let Narrowed { rules, by, n_tokens, tail, bits } = self;
        bits.copy_from_slice(&by.ids);
        if let Some(words) = &by.words {
            words.forbid(tail, bits);
        }
        let is_long_enough = *n_tokens >= by.min_tokens;
        let mut may_end = by.may_end && is_long_enough;
        if let Some(rules) = rules {
            let allowed = rules.allowed()?;
            // A text whose rules allow no further token ends, however short it is.
            if allowed.is_complete() {
                bits.fill(0);
                return Ok(Allowed { ids: bits, may_end: true });
            }
            may_end = allowed.may_end && is_long_enough;
            let others = allowed.ids.iter().copied().chain(std::iter::repeat(0));
            bits.iter_mut().zip(others).for_each(|(bits, other)| *bits &= other);
        }
        match may_end || bits.iter().any(|word| *word != 0) {
            true => Ok(Allowed { ids: bits, may_end }),
            false => Err(Error::input("no token may follow: min_tokens, bad_words, allowed_token_ids or the rules exclude every token")),
        }
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        self.n_tokens += 1;
        if let Some(words) = &self.by.words {
            self.tail.extend(words.vocab.token(id));
            let spare = self.tail.len().saturating_sub(words.longest() - 1);
            self.tail.drain(..spare);
        }
        self.rules.as_mut().map_or(Ok(()), |rules| rules.accept(id))
    }

    fn closing(&mut self) -> Option<&[u32]> {
        self.rules.as_mut()?.closing()
    }

    fn forced(&mut self) -> Vec<u8> {
        self.rules.as_mut().map(|rules| rules.forced()).unwrap_or_default()
    }

    fn closes_within(&mut self, id: u32, left: usize) -> bool {
        self.rules.as_mut().is_none_or(|rules| rules.closes_within(id, left))
    }

    fn has_rules(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.has_rules())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(constraint: &mut Narrowed, id: u32) -> bool {
        let allowed = constraint.allowed().unwrap();
        allowed.ids[id as usize / 32] >> (id % 32) & 1 == 1
    }

    #[test]
    fn a_forbidden_text_is_forbidden_however_it_is_spelled() {
        let vocab = Vocab::world();
        let narrowing = Narrowing::none(65536).without(&["the cat".into(), "zz".into()], &vocab);
        let id = |text: &str| vocab.encode(text.as_bytes()).unwrap()[0];
        // Every way to divide the text into two: the second part is forbidden after the first.
        for at in 1..7 {
            let (before, after) = "the cat".split_at(at);
            let mut text = narrowing.follow(None);
            for part in vocab.encode(before.as_bytes()).unwrap() {
                text.accept(part).unwrap();
            }
            let begins: Vec<u32> = (1..=after.len())
                .map(|n| vocab.encode(&after.as_bytes()[..n]).unwrap())
                .filter(|ids| ids.len() == 1)
                .map(|ids| ids[0])
                .collect();
            for id in begins {
                let is_whole = vocab.token(id) == after.as_bytes();
                assert_eq!(is_allowed(&mut text, id), !is_whole, "{before:?} {:?}", String::from_utf8_lossy(vocab.token(id)));
            }
        }
        let mut text = narrowing.follow(None);
        assert!(is_allowed(&mut text, id("z")) && is_allowed(&mut text, id(" cat")));
        text.accept(id("z")).unwrap();
        assert!(!is_allowed(&mut text, id("z")) && is_allowed(&mut text, id("a")));
        text.accept(id("a")).unwrap();
        assert!(is_allowed(&mut text, id("z")), "the text before is no longer a beginning");
        let with_zz = (1..=vocab.max_id()).filter(|id| vocab.token(*id).windows(2).any(|part| part == b"zz"));
        assert!(with_zz.into_iter().all(|id| !is_allowed(&mut text, id)));
    }

    #[test]
    fn the_end_comes_after_the_least_number_of_tokens() {
        let mut text = Narrowing::none(40).min_tokens(2).follow(None);
        for may_end in [false, false, true] {
            assert_eq!(text.allowed().unwrap().may_end, may_end);
            assert!(!text.has_rules() && is_allowed(&mut text, 39));
            text.accept(3).unwrap();
        }
        assert_eq!(text.allowed().unwrap().ids, [u32::MAX, 0xff], "no bits beyond the vocabulary");
    }

    #[test]
    fn only_listed_tokens_are_allowed() {
        let mut text = Narrowing::none(70).only(&[3, 69], false).follow(None);
        let allowed: Vec<u32> = (0..70).filter(|id| is_allowed(&mut text, *id)).collect();
        assert_eq!((allowed, text.allowed().unwrap().may_end), (vec![3, 69], false));
        assert!(Narrowing::none(70).only(&[], false).follow(None).allowed().is_err());
    }

    #[test]
    fn rules_are_narrowed() {
        struct Even;
        impl Constraint for Even {
            fn allowed(&mut self) -> Result<Allowed<'_>> {
                Ok(Allowed { ids: &[0x5555_5555], may_end: true })
            }
            fn accept(&mut self, _: u32) -> Result<()> {
                Ok(())
            }
        }
        let mut text = Narrowing::none(40).only(&[1, 2, 34], false).min_tokens(1).follow(Some(Box::new(Even)));
        let allowed = text.allowed().unwrap();
        assert_eq!((allowed.ids, allowed.may_end), ([4, 0].as_slice(), false));
        text.accept(2).unwrap();
        assert!(text.allowed().unwrap().may_end && text.has_rules());
    }
}
