//! Slots: the handle of a sequence, and what the host stores for it. A session refuses handles of closed slots and of other sessions.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicU32, Ordering};

/// Handle of a sequence in a [`Session`](super::Session). Every method refuses the handle of a closed slot or of another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    session: u32,
    index: u32,
    /// How many slots with this index were closed before this slot was opened.
    generation: u64,
}

impl Slot {
    /// A handle that no session accepts.
    #[cfg(test)]
    pub(super) const NOWHERE: Slot = Slot { session: 0, index: 0, generation: 0 };
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slot {}", self.index)
    }
}

/// The part of a slot's contents that is in host memory.
#[derive(Clone, Default)]
pub struct SlotContents {
    /// Index of the page: the device memory with the slot's recurrent states.
    pub page: usize,
    /// Logits after the last token, `[vocab]`; empty if unknown.
    pub logits: Vec<f32>,
    /// The number of tokens that the slot has read.
    pub n_tokens: usize,
    /// Indices of the slot's KV cache blocks. The slot may have more blocks than its tokens need.
    pub blocks: Vec<u32>,
    /// The tokens that the slot has read, recorded to compare them with another text ([`read_to`](super::Session::read_to)). Empty if the model has
    /// no KV cache, or if the slot's first tokens are unknown.
    pub tokens: Vec<u32>,
}

impl SlotContents {
    /// Updates the contents after a step that read `tokens` and wrote the recurrent states to `page`. Clears the logits. Records the token ids if
    /// `keeps` is true.
    pub fn advance(&mut self, page: usize, tokens: &[u32], keeps: bool) {
        // A state file without tokens leaves the first tokens unknown. Later tokens would then be at wrong positions, so none is recorded.
        if keeps && self.tokens.len() == self.n_tokens {
            self.tokens.extend_from_slice(tokens);
        }
        (self.page, self.n_tokens) = (page, self.n_tokens + tokens.len());
        self.logits.clear();
    }
}

/// The slots of a session.
pub struct Slots {
    session: u32,
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    generation: u64,
    /// The contents of the slot. `None` if the slot is free.
    contents: Option<SlotContents>,
}

impl Slots {
    /// Creates `n` free slots of a new session. A number in each handle identifies the session.
    pub fn new(n: usize) -> Slots {
        static N_SESSIONS: AtomicU32 = AtomicU32::new(0);
        let session = N_SESSIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Slots { session, places: (0..n).map(|_| Place::default()).collect() }
    }

    /// Returns the number of free slots.
    pub fn n_free(&self) -> usize {
        self.places.iter().filter(|place| place.contents.is_none()).count()
    }

    /// Opens the first free slot with the given contents.
    ///
    /// # Errors
    /// `Input` if no slot is free.
    pub fn open(&mut self, contents: SlotContents) -> Result<Slot> {
        let n = self.places.len();
        let mut places = self.places.iter_mut().enumerate();
        let (index, place) = places.find(|(_, place)| place.contents.is_none()).ok_or_else(|| {
            Error::input(format!("no slot is free: {n} of {n} slots are in use")).hint("close a slot, or open the session with more slots")
        })?;
        place.contents = Some(contents);
        Ok(Slot { session: self.session, index: index as u32, generation: place.generation })
    }

    /// Returns the contents of an open slot.
    ///
    /// # Errors
    /// `Input` if the slot was closed, or belongs to another session.
    pub fn get(&self, slot: Slot) -> Result<&SlotContents> {
        let place =
            self.places.get(slot.index as usize).filter(|place| slot.session == self.session && slot.generation == place.generation);
        place.and_then(|place| place.contents.as_ref()).ok_or_else(|| self.refused(slot))
    }

    /// Returns the contents of an open slot, or the same errors as [`get`](Self::get).
    pub fn get_mut(&mut self, slot: Slot) -> Result<&mut SlotContents> {
        self.get(slot)?;
        let place = &mut self.places[slot.index as usize];
        Ok(place.contents.as_mut().expect("it was found"))
    }

    /// Frees a slot and returns its contents, or the same errors as [`get`](Self::get).
    pub fn close(&mut self, slot: Slot) -> Result<SlotContents> {
        self.get(slot)?;
        let place = &mut self.places[slot.index as usize];
        place.generation += 1;
        Ok(place.contents.take().expect("it was found"))
    }

    fn refused(&self, slot: Slot) -> Error {
        let (why, hint) = match slot.session == self.session {
            true => ("cannot be used: it was closed", "open another slot"),
            false => ("cannot be used here: it belongs to another session", "use the session that opened the slot"),
        };
        Error::input(format!("{slot} {why}")).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_one_slot_for_good() {
        let (mut slots, mut other) = (Slots::new(2), Slots::new(2));
        let contents = |n_tokens| SlotContents { n_tokens, ..SlotContents::default() };
        let [a, b] = [1, 2].map(|n| slots.open(contents(n)).unwrap());
        assert_eq!(slots.open(contents(3)).unwrap_err().message, "no slot is free: 2 of 2 slots are in use");
        assert_eq!(slots.close(b).unwrap().n_tokens, 2);
        let c = slots.open(contents(4)).unwrap();
        for closed in [slots.get(b).err(), slots.get_mut(b).err(), slots.close(b).err()] {
            assert_eq!(closed.unwrap().message, "slot 1 cannot be used: it was closed");
        }
        assert_eq!((slots.get(a).unwrap().n_tokens, slots.get(c).unwrap().n_tokens, slots.n_free()), (1, 4, 0));
        other.open(contents(5)).unwrap();
        assert_eq!(other.get(a).err().unwrap().message, "slot 0 cannot be used here: it belongs to another session");
        assert!(slots.get(Slot::NOWHERE).is_err() && b != c && a != other.open(contents(0)).unwrap());
    }
}
