//! Swapping: a job gives up its slots, and continues later from a copy of its slot in host memory. So a caller can share the slots between more
//! jobs than there are slots.

use super::{AtEnd, Batcher, Follower, JobId, Sequence};
use crate::error::Result;
use crate::session::continuation::Continuation;
use crate::session::{Session, Snapshot};
use std::borrow::BorrowMut;

/// A job without slots.
pub struct Swapped {
    /// The job. Its handles of slots are not valid.
    pub sequence: Sequence,
    /// The contents of the job's slot.
    pub snapshot: Snapshot,
}

impl Sequence {
    /// Returns the number of slots that the job and its followers need.
    fn n_slots(&self) -> usize {
        1 + self.followers.len()
    }
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Returns the number of slots that [`swap_out`](Self::swap_out) would free: one for the job, and one for each job that waits for the same
    /// prompt. Returns 0 if the job cannot be swapped out now: a step was begun, the job has ended, or the job is itself one that waits for a prompt.
    pub(crate) fn n_swappable(&self, job: JobId) -> usize {
        let found = self.sequences.iter().find(|sequence| sequence.job == job);
        let may = |sequence: &&Sequence| self.flight.is_none() && !sequence.has_ended() && sequence.at_end != AtEnd::Stay;
        found.filter(may).map_or(0, Sequence::n_slots)
    }

    /// Returns the bytes of host memory that [`swap_out`](Self::swap_out) would take.
    pub(crate) fn swap_bytes(&self, job: JobId) -> u64 {
        let found = self.sequences.iter().find(|sequence| sequence.job == job);
        found.map_or(0, |sequence| self.session().snapshot_bytes(sequence.continuation.slot))
    }

    /// Returns whether another thread draws the next token of a job that has a slot.
    pub(crate) fn is_drawing(&self, job: JobId) -> bool {
        self.sequences.iter().any(|sequence| sequence.job == job && sequence.is_drawing())
    }

    /// Copies the slot of a job to host memory and closes the slot. The job takes part in no step until [`swap_in`](Self::swap_in). Jobs that wait
    /// for the same prompt give up their slots, too. Does nothing if [`n_swappable`](Self::n_swappable) returns 0.
    ///
    /// # Errors
    /// `Memory` if there is too little memory for the copy, `Device` if the device failed. The job then keeps its slots.
    pub(crate) fn swap_out(&mut self, job: JobId) -> Result<()> {
        if self.n_swappable(job) == 0 {
            return Ok(());
        }
        let Some(at) = self.sequences.iter().position(|sequence| sequence.job == job) else { return Ok(()) };
        let session: &mut Session = self.session.borrow_mut();
        let snapshot = session.snapshot(self.sequences[at].continuation.slot)?;
        self.has_samplers = false;
        let sequence = self.sequences.remove(at);
        self.guesses.forget(job);
        let slots = sequence.followers.iter().map(|follower| follower.continuation.slot).chain([sequence.continuation.slot]);
        slots.into_iter().try_for_each(|slot| session.close(slot))?;
        self.swapped.push(Swapped { sequence, snapshot });
        Ok(())
    }

    /// Gives slots to a job that was swapped out. The job continues bit-identically.
    ///
    /// # Errors
    /// `Input` if too few slots are free. The job then stays swapped out.
    pub(crate) fn swap_in(&mut self, job: JobId) -> Result<()> {
        let Some(at) = self.swapped.iter().position(|swapped| swapped.sequence.job == job) else { return Ok(()) };
        let Swapped { sequence, snapshot } = &mut self.swapped[at];
        let session: &mut Session = self.session.borrow_mut();
        let mut opened = vec![session.restore(snapshot)?];
        for follower in &mut sequence.followers {
            match session.open() {
                Ok(slot) => follower.continuation.slot = slot,
                Err(e) => {
                    opened.into_iter().try_for_each(|slot| session.close(slot))?;
                    return Err(e);
                }
            }
            opened.push(follower.continuation.slot);
        }
        sequence.continuation.slot = opened[0];
        sequence.is_paused = false;
        let Swapped { sequence, .. } = self.swapped.remove(at);
        self.push(sequence);
        Ok(())
    }

    /// Returns the jobs that were swapped out, and for each job the number of slots that it needs, in the order in which the jobs gave up their
    /// slots.
    pub(crate) fn swapped(&self) -> impl Iterator<Item = (JobId, usize)> {
        self.swapped.iter().map(|swapped| (swapped.sequence.job, swapped.sequence.n_slots()))
    }

    /// Returns the bytes of host memory that the copies of all swapped slots take.
    pub(crate) fn swapped_bytes(&self) -> u64 {
        self.swapped.iter().map(|swapped| swapped.snapshot.n_bytes()).sum()
    }

    /// Removes a job without slots, and returns its text. A job that waits for the same prompt takes its place.
    pub(super) fn take_swapped(&mut self, job: JobId) -> Option<Continuation> {
        for i in 0..self.swapped.len() {
            let sequence = &mut self.swapped[i].sequence;
            if let Some(at) = sequence.followers.iter().position(|follower| follower.job == job) {
                return Some(sequence.followers.remove(at).continuation);
            }
            if sequence.job != job {
                continue;
            }
            if sequence.followers.is_empty() {
                return Some(self.swapped.remove(i).sequence.continuation);
            }
            let Follower { job, continuation, at_end } = sequence.followers.remove(0);
            let (unread, followers) = (sequence.unread.clone(), std::mem::take(&mut sequence.followers));
            let next = Sequence { followers, ..Sequence::new(job, continuation, unread, at_end) };
            return Some(std::mem::replace(sequence, next).continuation);
        }
        None
    }
}
