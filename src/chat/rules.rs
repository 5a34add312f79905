//! Constraints of answers. A constraint applies after the thought, and determines where the answer can end.

use super::think::{END, ReplyStart};
use crate::constrain::{Allowed, Constraint};
use crate::error::Result;
use crate::vocab::Vocab;

/// Function that returns the constraint of one answer. Its argument is the text between the prompt and the answer, usually a blank. The constraint
/// must allow this text first.
pub type MakeConstraint = Box<dyn Fn(&str) -> Result<Box<dyn Constraint>> + Send>;

/// The text before an answer, and the token that may end the answer.
#[derive(Debug, Clone)]
pub struct AnswerPlace {
    /// The beginning of the model's reply (thought and answer) that the prompt already contains, such as ` <think`.
    pub opening: String,
    /// The text that the model writes between the prompt and the answer. Used only if `opening` is empty.
    pub lead: &'static str,
    /// The token of a blank line, if this token ends the answer wherever the constraint allows an end. Otherwise `None`.
    pub blank_line: Option<u32>,
}

impl AnswerPlace {
    /// Returns a constraint for the whole text that the model writes here. `n_ids` is the number of the model's logits. `make` returns the constraint
    /// of the answer alone; a thought before the answer is not restricted.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn constrain(
        &self,
        vocab: &Vocab,
        n_ids: usize,
        make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>,
    ) -> Result<Box<dyn Constraint>> {
        let begins = ReplyStart::after(&self.opening);
        let inner = make(match begins {
            ReplyStart::AfterThought(rest) => rest,
            ReplyStart::Thought(_) => "",
            ReplyStart::Answer | ReplyStart::MaybeThought if self.opening.is_empty() => self.lead,
            ReplyStart::Answer | ReplyStart::MaybeThought => "",
        })?;
        let thinks = matches!(begins, ReplyStart::Thought(_));
        let thought = thinks.then(|| Thought::new(vocab, n_ids, &self.opening));
        let end = vocab.special(END).map_or_else(|| vocab.encode(END.as_bytes()).unwrap_or_default(), |id| vec![id]);
        let (vocab, blank_line) = (vocab.clone(), self.blank_line);
        Ok(Box::new(AnswerConstraint { inner, thought, end, vocab, blank_line, ids: Vec::new(), closing: Vec::new(), has_ended: false }))
    }
}

/// Returns the token whose text is a blank line (two newlines). Returns `None` if the vocabulary has no such token.
pub fn blank_line(vocab: &Vocab) -> Option<u32> {
    match vocab.encode(b"\n\n").as_deref() {
        Ok([id]) => Some(*id),
        _ => None,
    }
}

/// Constrains an answer, but not the thought before it.
struct AnswerConstraint {
    inner: Box<dyn Constraint>,
    /// Recognises the end of the thought. `None` after the thought, and if the model writes none.
    thought: Option<Thought>,
    /// The tokens of the tag that ends a thought.
    end: Vec<u32>,
    vocab: Vocab,
    blank_line: Option<u32>,
    /// Buffer for allowed tokens, one bit per token.
    ids: Vec<u32>,
    /// Buffer for the tokens that complete the text.
    closing: Vec<u32>,
    has_ended: bool,
}

impl Constraint for AnswerConstraint {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        if let Some(thought) = &self.thought {
            thought.allowed(&self.vocab, &mut self.ids);
            return Ok(Allowed { ids: &self.ids, may_end: false });
        }
        if self.has_ended {
            return Ok(Allowed { ids: &[], may_end: true });
        }
        let allowed = self.inner.allowed()?;
        match self.blank_line {
            Some(id) if allowed.may_end && !allowed.is_complete() => {
                allowed.ids.clone_into(&mut self.ids);
                set(&mut self.ids, id);
                Ok(Allowed { ids: &self.ids, may_end: true })
            }
            _ => Ok(allowed),
        }
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        if let Some(thought) = &mut self.thought {
            if thought.end == Some(id) || thought.ends_with(self.vocab.token(id)) {
                self.thought = None;
            }
            return Ok(());
        }
        if self.blank_line == Some(id) && self.inner.allowed()?.may_end {
            self.has_ended = true;
            return Ok(());
        }
        self.inner.accept(id)
    }

    fn closing(&mut self) -> Option<&[u32]> {
        if self.has_ended {
            return Some(&[]);
        }
        if self.thought.is_none() {
            return self.inner.closing();
        }
        self.closing.clone_from(&self.end);
        self.closing.extend_from_slice(self.inner.closing()?);
        Some(&self.closing)
    }

    fn closes_within(&mut self, id: u32, left: usize) -> bool {
        if self.blank_line == Some(id) && self.thought.is_none() && self.inner.allowed().is_ok_and(|allowed| allowed.may_end) {
            return true;
        }
        let Some(thought) = &self.thought else { return self.inner.closes_within(id, left) };
        let n_end = if thought.end == Some(id) || thought.after(self.vocab.token(id)).is_some() { 0 } else { self.end.len() };
        self.inner.closing().is_none_or(|way| n_end + way.len() <= left)
    }
}

/// Recognises the end of the thought before an answer.
struct Thought {
    /// The last bytes of the opening and the thought so far, in which the closing tag is searched for.
    read: Vec<u8>,
    /// One bit per token, set if the token has a text.
    texts: Vec<u32>,
    /// Tokens with text after a `>`. Such tokens could both end the thought and begin the answer.
    closers: Vec<u32>,
    /// The special token `</think>`, which has no text. `None` if the vocabulary lacks it.
    end: Option<u32>,
}

impl Thought {
    fn new(vocab: &Vocab, n_ids: usize, opening: &str) -> Thought {
        let (mut texts, mut closers) = (vec![0; n_ids.div_ceil(32)], Vec::new());
        for id in 0..n_ids as u32 {
            let text = vocab.token(id);
            if !text.is_empty() {
                set(&mut texts, id);
            }
            let closes = text.iter().position(|b| *b == b'>');
            if closes.is_some_and(|at| !text[at + 1..].trim_ascii().is_empty()) {
                closers.push(id);
            }
        }
        let end = vocab.special(END);
        end.into_iter().for_each(|id| set(&mut texts, id));
        Thought { read: opening.into(), texts, closers, end }
    }

    /// Writes the allowed tokens to `ids`, one bit per token. Allows all tokens with a text, except tokens that would both end the thought and begin
    /// the answer.
    fn allowed(&self, vocab: &Vocab, ids: &mut Vec<u32>) {
        self.texts.clone_into(ids);
        for &id in &self.closers {
            if self.after(vocab.token(id)).is_some_and(|rest| !rest.trim_ascii().is_empty()) {
                ids[id as usize / 32] &= !(1 << (id % 32));
            }
        }
    }

    /// Adds a token to the text. Returns `true` if the token ends the thought.
    fn ends_with(&mut self, token: &[u8]) -> bool {
        let ends = self.after(token).is_some();
        self.read.extend_from_slice(token);
        self.read.drain(..self.read.len().saturating_sub(END.len()));
        ends
    }

    /// Returns the part of the token's text after the end of the thought, or `None` if the token does not end the thought.
    fn after(&self, token: &[u8]) -> Option<Vec<u8>> {
        let all = [self.read.as_slice(), token].concat();
        let end = all.windows(END.len()).position(|some| some == END.as_bytes())?;
        Some(all[end + END.len()..].to_vec())
    }
}

/// Sets the bit of a token.
fn set(ids: &mut [u32], id: u32) {
    if let Some(word) = ids.get_mut(id as usize / 32) {
        *word |= 1 << (id % 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constraint that always allows the same token. The text may end after the first token.
    struct Only(u32, usize, [u32; 1]);

    impl Constraint for Only {
        fn allowed(&mut self) -> Result<Allowed<'_>> {
            self.2 = [1 << self.0];
            Ok(Allowed { ids: &self.2, may_end: self.1 > 0 })
        }
        fn accept(&mut self, id: u32) -> Result<()> {
            assert_eq!(id, self.0);
            self.1 += 1;
            Ok(())
        }
    }

    fn texts(held: &mut dyn Constraint) -> Vec<u32> {
        let ids = held.allowed().unwrap().ids.to_vec();
        (0..32).filter(|id| ids[0] >> id & 1 == 1).collect()
    }

    fn vocab(tokens: &[&str]) -> Vocab {
        let lines = tokens.iter().enumerate().map(|(i, t)| format!("{} '{t}' {}\n", i + 1, t.replace("\\n", "\n").len()));
        Vocab::parse(lines.collect::<String>().as_bytes()).unwrap()
    }

    #[test]
    fn a_special_token_can_end_the_thought() {
        let vocab = crate::template::testing::newer();
        let (end, n_ids) = (vocab.special(END).unwrap(), vocab.max_id() as usize + 1);
        let place = AnswerPlace { opening: "<think>".into(), lead: "", blank_line: None };
        let mut held = place.constrain(&vocab, n_ids, &mut |_| Ok(Box::new(Only(3, 0, [0])))).unwrap();
        assert_eq!(held.allowed().unwrap().ids[end as usize / 32] >> (end % 32) & 1, 1);
        held.accept(vocab.encode(b"x").unwrap()[0]).unwrap();
        assert_ne!(texts(&mut *held), [3]);
        held.accept(end).unwrap();
        assert_eq!(texts(&mut *held), [3]);
    }

    #[test]
    fn a_constraint_begins_after_a_thought() {
        let vocab = vocab(&["a", ">", ">\\n", ">a", "</think", "</think>b", " <"]);
        let mut leads = Vec::new();
        let mut make = |lead: &str| -> Result<Box<dyn Constraint>> {
            leads.push(lead.to_string());
            Ok(Box::new(Only(1, 0, [0])))
        };
        let place = |opening: &str| AnswerPlace { opening: opening.into(), lead: " ", blank_line: None };
        let mut held = place(" <think").constrain(&vocab, 8, &mut make).unwrap();
        // Every token with a text is allowed, unless it would both end the thought and begin the answer. The text cannot end here.
        assert_eq!(texts(held.as_mut()), [1, 2, 3, 4, 5, 7]);
        assert!(!held.allowed().unwrap().may_end);
        for id in [4, 1, 5] {
            assert!(texts(held.as_mut()).contains(&id));
            held.accept(id).unwrap();
        }
        assert_eq!(texts(held.as_mut()), [1, 2, 3, 5, 7], "> and a letter would begin the answer");
        held.accept(3).unwrap();
        assert_eq!(texts(held.as_mut()), [1]);
        held.accept(1).unwrap();
        for opening in [" <think>\n</think", "", "\n"] {
            assert_eq!(texts(place(opening).constrain(&vocab, 8, &mut make).unwrap().as_mut()), [1], "{opening:?}");
        }
        assert_eq!(leads, ["", ">", " ", ""]);
    }

    #[test]
    fn a_blank_line_ends_an_answer_where_it_may_end() {
        let vocab = vocab(&["a", "\\n\\n"]);
        assert_eq!(blank_line(&vocab), Some(2));
        let place = AnswerPlace { opening: String::new(), lead: "", blank_line: blank_line(&vocab) };
        let mut held = place.constrain(&vocab, 3, &mut |_| Ok(Box::new(Only(1, 0, [0])))).unwrap();
        assert_eq!(texts(held.as_mut()), [1]);
        held.accept(1).unwrap();
        assert_eq!(texts(held.as_mut()), [1, 2]);
        held.accept(1).unwrap();
        held.accept(2).unwrap();
        assert!(held.allowed().unwrap().is_complete());
    }
}
