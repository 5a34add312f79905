//! Swapping: a text gives up its slots, and continues later from a copy of its slot in host memory. So a caller can share the slots between more
//! texts than there are slots.

use super::Batcher;
use crate::error::Result;
use crate::session::text::{Text, TextId};
use crate::session::{Session, Snapshot};
use std::borrow::BorrowMut;

/// A text without slots.
pub struct Swapped {
    /// The text. Its slot handles are invalid.
    pub text: Text,
    /// The contents of the text's slot.
    pub snapshot: Snapshot,
}

impl Text {
    /// Returns the number of slots that the text and its followers need.
    fn n_slots(&self) -> usize {
        1 + self.followers.len()
    }
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Returns the number of slots that [`swap_out`](Self::swap_out) would free: one for the text, and one for each text that waits for the same
    /// prompt. Returns 0 if a step was begun, the text has ended, another text prefills its prompt, or the slot is the caller's own.
    pub(crate) fn n_swappable(&self, id: TextId) -> usize {
        let found = self.texts.iter().find(|text| text.id == id);
        let may = |text: &&Text| self.pending_step.is_none() && !text.has_ended() && !text.spec.keeps.own;
        found.filter(may).map_or(0, Text::n_slots)
    }

    /// Returns the bytes of host memory that [`swap_out`](Self::swap_out) would take, or 0 if the text has no slot of its own.
    pub(crate) fn swap_bytes(&self, id: TextId) -> u64 {
        let found = self.texts.iter().find(|text| text.id == id);
        found.map_or(0, |text| self.session().snapshot_bytes(text.slot))
    }

    /// Returns whether another thread draws the next token of a text that has a slot.
    pub(crate) fn is_drawing(&self, id: TextId) -> bool {
        self.texts.iter().any(|text| text.id == id && text.is_drawing())
    }

    /// Copies the slot of a text to host memory and closes the slot. The text takes part in no step until [`swap_in`](Self::swap_in). Texts that wait
    /// for the same prompt give up their slots, too. Does nothing if [`n_swappable`](Self::n_swappable) returns 0.
    ///
    /// # Errors
    /// `Memory` if there is too little memory for the copy, `Device` if the device failed. The text then keeps its slots.
    pub(crate) fn swap_out(&mut self, id: TextId) -> Result<()> {
        if self.n_swappable(id) == 0 {
            return Ok(());
        }
        let Some(at) = self.texts.iter().position(|text| text.id == id) else { return Ok(()) };
        let session: &mut Session = self.session.borrow_mut();
        let snapshot = session.snapshot(self.texts[at].slot)?;
        self.has_samplers = false;
        let text = self.texts.remove(at);
        self.guesses.forget(id);
        let slots = text.followers.iter().map(|follower| follower.slot).chain([text.slot]);
        slots.into_iter().try_for_each(|slot| session.close(slot))?;
        self.swapped.push(Swapped { text, snapshot });
        Ok(())
    }

    /// Gives slots to a text that was swapped out. The text continues bit-identically.
    ///
    /// # Errors
    /// `Input` if too few slots are free. The text then stays swapped out.
    pub(crate) fn swap_in(&mut self, id: TextId) -> Result<()> {
        let Some(at) = self.swapped.iter().position(|swapped| swapped.text.id == id) else { return Ok(()) };
        let Swapped { text, snapshot } = &mut self.swapped[at];
        let session: &mut Session = self.session.borrow_mut();
        let mut opened = vec![session.restore(snapshot)?];
        for follower in &mut text.followers {
            match session.open() {
                Ok(slot) => follower.slot = slot,
                Err(e) => {
                    opened.into_iter().try_for_each(|slot| session.close(slot))?;
                    return Err(e);
                }
            }
            opened.push(follower.slot);
        }
        text.slot = opened[0];
        text.is_paused = false;
        let Swapped { text, .. } = self.swapped.remove(at);
        self.push(text);
        Ok(())
    }

    /// Returns the id of each text that was swapped out, and the number of slots that the text needs. The texts are in the order in which they gave
    /// up their slots.
    pub(crate) fn swapped(&self) -> impl Iterator<Item = (TextId, usize)> {
        self.swapped.iter().map(|swapped| (swapped.text.id, swapped.text.n_slots()))
    }

    /// Returns the bytes of host memory that the copies of all swapped slots take.
    pub(crate) fn swapped_bytes(&self) -> u64 {
        self.swapped.iter().map(|swapped| swapped.snapshot.n_bytes()).sum()
    }

    /// Removes a text without slots, and returns it. If other texts wait for its prompt, the first of them takes its place.
    pub(super) fn take_swapped(&mut self, id: TextId) -> Option<Text> {
        for i in 0..self.swapped.len() {
            let text = &mut self.swapped[i].text;
            if let Some(at) = text.followers.iter().position(|follower| follower.id == id) {
                return Some(text.followers.remove(at));
            }
            if text.id != id {
                continue;
            }
            if text.followers.is_empty() {
                return Some(self.swapped.remove(i).text);
            }
            let mut next = text.followers.remove(0);
            (next.unread, next.followers) = (text.unread.clone(), std::mem::take(&mut text.followers));
            return Some(std::mem::replace(text, next));
        }
        None
    }
}
