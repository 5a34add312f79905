//! Runs many texts that generate no text, one per slot at a time, and takes the states after their texts.

use super::Batcher;
use crate::error::Result;
use crate::session::Session;
use crate::session::snapshot::Snapshot;
use crate::session::text::{TextId, TextSpec};
use std::borrow::BorrowMut;

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Returns the states of the slots that were kept for the caller since the last call, and closes these slots.
    pub(crate) fn take_states(&mut self) -> Vec<(TextId, Result<Snapshot>)> {
        let kept = self.take_kept().into_iter();
        let session: &mut Session = self.session.borrow_mut();
        kept.map(|kept| {
            let state = session.snapshot(kept.slot);
            (kept.id, session.close(kept.slot).and(state))
        })
        .collect()
    }
}

impl Batcher<&mut Session> {
    /// Runs texts, each from a snapshot or from an empty state. A free slot takes the next text while the other texts continue. Calls `take` after each
    /// step to take the results of the texts that have ended, and then `progress(tokens read so far, total)`. Closes all slots of the texts.
    ///
    /// # Errors
    /// The first error of a text, of a step or of `take`; `Interrupted` by the stop flag, between two steps.
    pub(in crate::session) fn read_all<'s>(
        mut self,
        mut texts: impl Iterator<Item = (Option<&'s Snapshot>, TextSpec)>,
        total: usize,
        progress: &mut dyn FnMut(usize, usize),
        take: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        let mut run = || {
            loop {
                while self.n_free() > 0
                    && let Some((from, spec)) = texts.next()
                {
                    let slot = match from {
                        Some(state) => self.session_mut().restore(state)?,
                        None => self.session_mut().open()?,
                    };
                    self.add_in(slot, spec)?;
                }
                if self.n_running() == 0 {
                    return Ok(());
                }
                if done > 0 {
                    self.session().check_stop(done, total)?;
                }
                let ended = self.step(&mut |_, _| ())?;
                ended.into_iter().try_for_each(|ended| ended.output.map(drop))?;
                take(&mut self)?;
                done += self.session().n_read().iter().sum::<usize>();
                progress(done, total);
            }
        };
        let all = run();
        while let Some(id) = self.texts.first().map(|text| text.id) {
            self.cancel(id, &mut |_, _| ())?;
        }
        for kept in self.take_kept() {
            self.session.close(kept.slot)?;
        }
        all
    }
}
