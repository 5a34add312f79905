//! Answers that follow rules: where in a reply the rules begin, and what ends a text that follows them.

use super::core::Core;
use super::think::{Begins, END};
use crate::constrain::{Allowed, Constraint};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::vocab::Vocab;

/// Makes the rules for one answer. Gets the text that stands before it in the format, as a rule a blank: they are to want it there.
pub type MakeConstraint = Box<dyn Fn(&str) -> Result<Box<dyn Constraint>> + Send>;

impl Core {
    /// The rules for an answer, where there are any. `opening` is what the prompt holds of it; where that is nothing, `lead` stands before it.
    pub fn constraint(&self, opening: &str, lead: &str) -> Result<Option<Box<dyn Constraint>>> {
        let Some(make) = &self.rules else { return Ok(None) };
        Ok(Some(match Begins::after(opening) {
            Begins::WithThought(_) => {
                let n_ids = self.session.model().facts().n_vocab;
                Box::new(BehindThought::new(&self.vocab, n_ids, opening, make("")?))
            }
            Begins::AfterThought(rest) => make(rest)?,
            Begins::WithAnswer | Begins::WithEither if opening.is_empty() => make(lead)?,
            Begins::WithAnswer | Begins::WithEither => make("")?,
        }))
    }
}

/// The rules of one answer.
pub struct Rules {
    pub constraint: Box<dyn Constraint>,
    /// Any of them ends it where it may end.
    pub ends: Vec<u32>,
}

impl Rules {
    /// The next token; none where the answer ends.
    pub fn draw(&mut self, sampler: &mut Sampler, logits: &mut [f32]) -> Result<Option<u32>> {
        let allowed = self.constraint.allowed()?;
        if allowed.is_complete() {
            return Ok(None);
        }
        // Elsewhere a blank line is a text like any other, and the end of a text is none.
        let ends = if allowed.may_end { self.ends.as_slice() } else { &[] };
        allowed.mask(logits, ends);
        let token = sampler.draw(logits).map_err(|e: Error| e.hint("the grammar allows none of the tokens that are left"))?;
        Ok(Some(token).filter(|token| !ends.contains(token)))
    }
}

/// Rules that begin behind a thought, which is free.
struct BehindThought {
    inner: Box<dyn Constraint>,
    vocab: Vocab,
    /// The end of what was read, as long as the thought goes on.
    thought: Option<Vec<u8>>,
    /// All tokens with a text, a bit each.
    texts: Vec<u32>,
    /// Those that may end a thought and go on behind it.
    closers: Vec<u32>,
    /// `texts` without those of `closers` that would begin the answer.
    allowed: Vec<u32>,
}

impl BehindThought {
    fn new(vocab: &Vocab, n_ids: usize, opening: &str, inner: Box<dyn Constraint>) -> BehindThought {
        let mut texts = vec![0; n_ids.div_ceil(32)];
        let mut closers = Vec::new();
        for id in 0..n_ids as u32 {
            let text = vocab.token(id);
            if !text.is_empty() {
                texts[id as usize / 32] |= 1 << (id % 32);
            }
            let closes = text.iter().position(|b| *b == b'>');
            if closes.is_some_and(|at| !text[at + 1..].trim_ascii().is_empty()) {
                closers.push(id);
            }
        }
        let allowed = texts.clone();
        BehindThought { inner, vocab: vocab.clone(), thought: Some(opening.into()), texts, closers, allowed }
    }
}

impl Constraint for BehindThought {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        let Some(thought) = &self.thought else { return self.inner.allowed() };
        self.allowed.clone_from(&self.texts);
        for &id in &self.closers {
            if behind(thought, self.vocab.token(id)).is_some_and(|rest| !rest.trim_ascii().is_empty()) {
                self.allowed[id as usize / 32] &= !(1 << (id % 32));
            }
        }
        Ok(Allowed { ids: &self.allowed, may_end: false })
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        let Some(thought) = &mut self.thought else { return self.inner.accept(id) };
        let text = self.vocab.token(id);
        if behind(thought, text).is_some() {
            self.thought = None;
            return Ok(());
        }
        thought.extend_from_slice(text);
        thought.drain(..thought.len().saturating_sub(END.len()));
        Ok(())
    }
}

/// What of a token stands behind the thought, if it ends there.
fn behind(thought: &[u8], token: &[u8]) -> Option<Vec<u8>> {
    let all = [thought, token].concat();
    let end = all.windows(END.len()).position(|some| some == END.as_bytes())?;
    Some(all[end + END.len()..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allows one id.
    struct Only(u32, Vec<u32>);

    impl Constraint for Only {
        fn allowed(&mut self) -> Result<Allowed<'_>> {
            self.1 = vec![1 << self.0];
            Ok(Allowed { ids: &self.1, may_end: false })
        }
        fn accept(&mut self, id: u32) -> Result<()> {
            assert_eq!(id, self.0);
            Ok(())
        }
    }

    fn texts(held: &mut BehindThought) -> Vec<u32> {
        let ids = held.allowed().unwrap().ids.to_vec();
        (0..32).filter(|id| ids[0] >> id & 1 == 1).collect()
    }

    #[test]
    fn rules_begin_behind_a_thought() {
        let tokens = ["a", ">", ">\\n", ">a", "</think", "</think>b", " <"];
        let lines: String = tokens.iter().enumerate().map(|(i, t)| format!("{} '{t}' {}\n", i + 1, t.replace("\\n", "\n").len())).collect();
        let vocab = Vocab::parse(lines.as_bytes()).unwrap();
        let mut held = BehindThought::new(&vocab, 8, " <think", Box::new(Only(1, Vec::new())));
        // No token ends the thought and begins the answer; none without a text is allowed, and the text does not end.
        assert_eq!(texts(&mut held), [1, 2, 3, 4, 5, 7]);
        assert!(!held.allowed().unwrap().may_end);
        for id in [4, 1, 5] {
            assert!(texts(&mut held).contains(&id));
            held.accept(id).unwrap();
        }
        assert_eq!(texts(&mut held), [1, 2, 3, 5, 7], "> and a letter would begin the answer");
        held.accept(3).unwrap();
        assert_eq!(texts(&mut held), [1]);
        held.accept(1).unwrap();
    }
}
