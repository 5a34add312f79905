//! The slots of a draft model: which tokens of each text it reads, and when.
//!
//! A draft may turn out to be useless, and prefilling a long prompt for it would make short answers slower. So the draft first reads only the last
//! tokens of a new text. Each right guess allows it to read some more tokens from the beginning of the text, in a second slot. When this slot has
//! caught up, it replaces the first. After a text, its slot is kept for a text that begins with the same tokens, such as the next turn of a chat.

use crate::error::Result;
use crate::session::{Idle, MAX_SLOTS, Model, Session, Slot};
use std::collections::{HashMap, VecDeque};

/// A draft reads this many of a new text's last tokens before it guesses. A text of at most twice as many tokens is read from its beginning.
const RECENT: usize = 16;
/// The number of earlier tokens that a draft may read per right guess.
const EARNED: usize = 8;
/// Earlier tokens are read at least this many at a time, because one token takes nearly as long as several.
const LEAST_READ: usize = 32;
/// The largest number of earlier tokens that one step reads.
const MOST_READ: usize = 128;

/// The texts that a draft model follows.
pub struct Texts {
    pub session: Session,
    texts: HashMap<usize, Followed>,
    /// Slots of texts that have ended, the oldest first.
    kept: VecDeque<IdleDraftSlot>,
}

/// A slot that has read the tokens of a text from token `start` on.
#[derive(Clone, Copy)]
struct Reader {
    slot: Slot,
    start: usize,
}

/// The slots that follow a text.
struct Followed {
    /// The known tokens of the text.
    tokens: Vec<u32>,
    /// The slot that guesses. It has read the last tokens of the text.
    reader: Reader,
    /// A fork of `reader` that has also read the last guesses, and these guesses.
    ahead: Option<(Slot, Vec<u32>)>,
    /// A slot that began earlier in the text than `reader`. When this slot has caught up, it replaces `reader`.
    longer: Option<Reader>,
    /// The number of tokens that `longer` may read.
    n_earned: usize,
}

/// The slot of a text that has ended.
struct IdleDraftSlot {
    reader: Reader,
    /// The tokens of the text up to the last token that the slot has read.
    tokens: Vec<u32>,
}

impl Texts {
    /// Opens a session of `draft` for `n_texts` texts, with three slots each: the slot that guesses, its fork and the longer slot. A draft with
    /// attention has KV cache blocks for two full contexts per text, because the fork shares blocks.
    ///
    /// # Errors
    /// The errors of [`Session::with_idle`].
    pub fn new(draft: &Model, n_texts: usize) -> Result<Texts> {
        let n = n_texts.clamp(1, MAX_SLOTS / 3);
        let session = Session::with_idle(draft, 2 * n, Idle { slots: n, ..Idle::default() })?;
        Ok(Texts { session, texts: HashMap::new(), kept: VecDeque::new() })
    }

    /// Moves the slot of a text forward to the guesses that were right, and opens a slot for a new text. Adds to `work` what the slots of the text
    /// must read before the next guess. Returns the largest possible number of guesses.
    pub fn follow<'t>(&mut self, key: usize, tokens: &'t [u32], work: &mut Vec<(Slot, &'t [u32])>) -> Result<usize> {
        let mut followed = match self.texts.remove(&key) {
            Some(followed) => followed,
            None => match self.begin(tokens)? {
                Some(followed) => followed,
                None => return Ok(0),
            },
        };
        followed.tokens.extend_from_slice(tokens.get(followed.tokens.len()..).unwrap_or_default());
        let room = self.advance(&mut followed, tokens, work);
        self.texts.insert(key, followed);
        room
    }

    fn advance<'t>(&mut self, followed: &mut Followed, tokens: &'t [u32], work: &mut Vec<(Slot, &'t [u32])>) -> Result<usize> {
        if let Some((fork, guesses)) = followed.ahead.take() {
            let since = self.unread(followed.reader, tokens)?;
            // The draft must read at least one token, because the logits after the last token are needed.
            let is_right = since.len() > guesses.len() && since.starts_with(&guesses);
            let unused = if is_right { std::mem::replace(&mut followed.reader.slot, fork) } else { fork };
            self.session.close(unused)?;
        }
        // After many tokens without guesses, the text counts as new: only its last tokens are read.
        if self.unread(followed.reader, tokens)?.len() > 2 * RECENT && self.make_room() {
            let late = std::mem::replace(&mut followed.reader, self.recent(tokens)?);
            match followed.longer {
                Some(_) => self.session.close(late.slot)?,
                None => followed.longer = Some(late),
            }
            followed.n_earned = 0;
        }
        let fits = self.session.model().context().is_none_or(|context| tokens.len() <= context);
        if fits && followed.reader.start > 0 && followed.longer.is_none() && followed.n_earned >= LEAST_READ && self.make_room() {
            followed.longer = Some(Reader { slot: self.session.open()?, start: 0 });
        }
        if let Some(longer) = followed.longer {
            let rest = self.unread(longer, tokens)?;
            let n = rest.len().min(followed.n_earned).min(MOST_READ);
            if rest.len() > self.room(longer.slot)? {
                self.session.close(longer.slot)?;
                followed.longer = None;
            } else if n == rest.len() {
                self.session.close(std::mem::replace(&mut followed.reader, longer).slot)?;
                followed.longer = None;
            } else if n >= LEAST_READ {
                followed.n_earned -= n;
                work.push((longer.slot, &rest[..n]));
            }
        }
        let unread = self.unread(followed.reader, tokens)?;
        // A draft with attention may have no room left.
        let room = self.room(followed.reader.slot)?;
        if unread.len() <= room && !unread.is_empty() {
            work.push((followed.reader.slot, unread));
        }
        Ok(room.saturating_sub(unread.len()))
    }

    /// Opens the slots of a new text. Returns `None` if no slot is free.
    fn begin(&mut self, tokens: &[u32]) -> Result<Option<Followed>> {
        let known = (0..self.kept.len()).filter(|&i| tokens.starts_with(&self.kept[i].tokens)).max_by_key(|&i| self.kept[i].tokens.len());
        let known = known.and_then(|i| self.kept.remove(i));
        let (reader, longer) = match known {
            Some(IdleDraftSlot { reader, tokens: read }) if tokens.len() - read.len() <= 2 * RECENT => (reader, None),
            known => {
                let longer = known.map(|kept| kept.reader);
                if !self.make_room() {
                    return longer.map_or(Ok(()), |longer| self.session.close(longer.slot)).map(|()| None);
                }
                (self.recent(tokens)?, longer)
            }
        };
        Ok(Some(Followed { tokens: Vec::new(), reader, ahead: None, longer, n_earned: 0 }))
    }

    /// Opens a slot for the last tokens of a text.
    fn recent(&mut self, tokens: &[u32]) -> Result<Reader> {
        let start = if tokens.len() <= 2 * RECENT { 0 } else { tokens.len() - RECENT };
        Ok(Reader { slot: self.session.open()?, start })
    }

    /// Returns the tokens of a text that a slot has not read.
    fn unread<'t>(&self, reader: Reader, tokens: &'t [u32]) -> Result<&'t [u32]> {
        Ok(tokens.get(reader.start + self.session.n_tokens(reader.slot)?..).unwrap_or_default())
    }

    /// Returns how many more tokens a slot can read.
    fn room(&self, slot: Slot) -> Result<usize> {
        Ok(self.session.n_left(slot)?.unwrap_or(usize::MAX))
    }

    /// Closes kept slots, the oldest first, until a slot is free. Returns whether a slot is free.
    fn make_room(&mut self) -> bool {
        while self.session.n_free() == 0
            && let Some(oldest) = self.kept.pop_front()
        {
            self.close(oldest.reader.slot);
        }
        self.session.n_free() > 0
    }

    /// Returns the logits after the tokens of a text and the guesses so far. `None` for a text without a slot.
    pub fn logits(&self, key: usize) -> Result<Option<&[f32]>> {
        let slot = self.texts.get(&key).map(|followed| followed.ahead.as_ref().map_or(followed.reader.slot, |(slot, _)| *slot));
        slot.map(|slot| self.session.logits(slot)).transpose()
    }

    /// Adds a guess that the draft must read before the next guess of a text. Returns the slot that must read the guess. `None` if no slot is free or
    /// the text is unknown.
    pub fn guessed(&mut self, key: usize, guess: u32) -> Result<Option<Slot>> {
        if self.texts.get(&key).is_some_and(|followed| followed.ahead.is_none()) && !self.make_room() {
            return Ok(None);
        }
        let Some(followed) = self.texts.get_mut(&key) else { return Ok(None) };
        if followed.ahead.is_none() {
            followed.ahead = Some((self.session.fork(followed.reader.slot)?, Vec::new()));
        }
        Ok(followed.ahead.as_mut().map(|(slot, read)| {
            read.push(guess);
            *slot
        }))
    }

    /// Lets the draft read more of a text after right guesses.
    pub fn earn(&mut self, key: usize, n_right: usize) {
        if let Some(followed) = self.texts.get_mut(&key) {
            followed.n_earned += EARNED * n_right;
        }
    }

    /// Ends a text. A recurrent draft keeps the slot that began earliest in the text. A draft with attention keeps none: its KV cache would take room
    /// from running texts.
    pub fn forget(&mut self, key: usize) {
        let Some(Followed { mut tokens, reader, ahead, longer, .. }) = self.texts.remove(&key) else { return };
        let kept = longer.unwrap_or(reader);
        let closed = longer.map(|_| reader.slot).into_iter().chain(ahead.map(|(slot, _)| slot));
        closed.for_each(|slot| self.close(slot));
        let n_read = self.session.n_tokens(kept.slot).unwrap_or(0);
        if n_read == 0 || self.session.model().context().is_some() {
            return self.close(kept.slot);
        }
        tokens.truncate(kept.start + n_read);
        self.kept.push_back(IdleDraftSlot { reader: kept, tokens });
    }

    fn close(&mut self, slot: Slot) {
        // A slot that cannot be closed was not open.
        let _ = self.session.close(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceChoice;
    use crate::session::{ModelSource, Options};

    fn texts(n: usize) -> Texts {
        let options = Options { device: DeviceChoice::Cpu, ..Options::default() };
        Texts::new(&Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap(), n).unwrap()
    }

    /// Reads what a text needs before its next guess. Returns the numbers of tokens that were read.
    fn read(texts: &mut Texts, key: usize, tokens: &[u32]) -> Vec<usize> {
        let mut work = Vec::new();
        assert!(texts.follow(key, tokens, &mut work).unwrap() > 0);
        texts.session.prefill_many(&work, &mut |_, _| ()).unwrap();
        work.iter().map(|(_, tokens)| tokens.len()).collect()
    }

    /// Returns the logits of a draft that reads all tokens.
    fn whole(texts: &Texts, tokens: &[u32]) -> Vec<f32> {
        let mut session = Session::new(texts.session.model(), 1).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, tokens).unwrap().to_vec()
    }

    #[test]
    fn a_long_text_is_read_as_far_as_right_guesses_have_earned_it() {
        let mut texts = texts(1);
        let tokens: Vec<u32> = (0..300).map(|i| 40 + i * 7 % 50).collect();
        assert_eq!(read(&mut texts, 0, &tokens[..200]), [RECENT]);
        assert_eq!(read(&mut texts, 0, &tokens[..201]), [1]);
        assert_eq!(texts.logits(0).unwrap().unwrap(), whole(&texts, &tokens[200 - RECENT..201]));
        texts.earn(0, 3);
        assert_eq!(read(&mut texts, 0, &tokens[..202]), [1], "too little to read");
        texts.earn(0, 1);
        assert_eq!(read(&mut texts, 0, &tokens[..203]), [4 * EARNED, 1]);
        texts.earn(0, 40);
        assert_eq!(read(&mut texts, 0, &tokens[..204]), [MOST_READ, 1]);
        assert_eq!(read(&mut texts, 0, &tokens[..205]), [205 - MOST_READ - 4 * EARNED], "the longer slot has caught up");
        assert_eq!(texts.logits(0).unwrap().unwrap(), whole(&texts, &tokens[..205]));
        assert_eq!(texts.session.n_free(), 2);
        // After a long time without guesses, the draft reads only the last tokens again.
        assert_eq!(read(&mut texts, 0, &tokens[..290]), [RECENT]);
        texts.earn(0, 20);
        assert_eq!(read(&mut texts, 0, &tokens[..291]), [291 - 205]);
        assert_eq!(texts.logits(0).unwrap().unwrap(), whole(&texts, &tokens[..291]));
    }

    #[test]
    fn a_guess_that_was_right_is_not_read_again() {
        let mut texts = texts(1);
        let tokens = [40, 41, 42, 43, 44, 45];
        read(&mut texts, 0, &tokens[..3]);
        let guess = |texts: &mut Texts, token| {
            let slot = texts.guessed(0, token).unwrap().unwrap();
            texts.session.decode(slot, token).unwrap();
        };
        guess(&mut texts, 43);
        assert_eq!(read(&mut texts, 0, &tokens[..5]), [1]);
        guess(&mut texts, 40);
        assert_eq!(read(&mut texts, 0, &tokens), [1], "a wrong guess is forgotten");
        assert_eq!(texts.logits(0).unwrap().unwrap(), whole(&texts, &tokens));
    }

    #[test]
    fn the_next_turn_of_a_chat_continues_the_slot_of_the_last_one() {
        let mut texts = texts(1);
        let tokens: Vec<u32> = (0..400).map(|i| 40 + i * 7 % 50).collect();
        read(&mut texts, 0, &tokens[..30]);
        read(&mut texts, 0, &tokens[..60]);
        texts.forget(0);
        assert_eq!(read(&mut texts, 1, &tokens[..80]), [20]);
        assert_eq!(texts.logits(1).unwrap().unwrap(), whole(&texts, &tokens[..80]));
        texts.forget(1);
        // The kept slot reads only as many tokens of a long new turn as right guesses have earned.
        assert_eq!(read(&mut texts, 2, &tokens[..300]), [RECENT]);
        texts.earn(2, 100);
        assert_eq!(read(&mut texts, 2, &tokens[..301]), [MOST_READ, 1]);
        texts.forget(2);
        let other: Vec<u32> = tokens.iter().map(|token| token + 1).collect();
        assert_eq!(read(&mut texts, 3, &other[..30]), [30], "another text");
        // Slots of ended texts make room for running ones.
        for key in 4..10 {
            texts.forget(key - 1);
            assert_eq!(read(&mut texts, key, &tokens[key..key + 30]), [30]);
            assert!(texts.guessed(key, 40).unwrap().is_some());
        }
    }
}
