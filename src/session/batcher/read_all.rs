//! Runs many jobs that generate no text, one per slot at a time, and takes the states after their texts.

use super::{Batcher, Job, JobId};
use crate::error::Result;
use crate::session::Session;
use crate::session::snapshot::Snapshot;
use std::borrow::BorrowMut;

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Returns the states of the slots that were kept for the caller since the last call, and closes these slots.
    pub(crate) fn take_states(&mut self) -> Vec<(JobId, Result<Snapshot>)> {
        let kept = self.take_kept().into_iter();
        let session: &mut Session = self.session.borrow_mut();
        kept.map(|kept| {
            let state = session.snapshot(kept.slot);
            (kept.job, session.close(kept.slot).and(state))
        })
        .collect()
    }
}

impl Batcher<&mut Session> {
    /// Runs jobs, each from a snapshot or from an empty state. A free slot takes the next job while the other jobs continue. Calls `take` after each
    /// step to take the results of the jobs that have ended, and then `progress(tokens read so far, total)`. Closes all slots of the jobs.
    ///
    /// # Errors
    /// The first error of a job, of a step or of `take`; `Interrupted` by the stop flag, between two steps.
    pub(in crate::session) fn read_all<'s>(
        mut self,
        mut jobs: impl Iterator<Item = (Option<&'s Snapshot>, Job)>,
        total: usize,
        progress: &mut dyn FnMut(usize, usize),
        take: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        let mut run = || {
            loop {
                while self.n_free() > 0
                    && let Some((from, job)) = jobs.next()
                {
                    let slot = match from {
                        Some(state) => self.session_mut().restore(state)?,
                        None => self.session_mut().open()?,
                    };
                    self.add_in(slot, job)?;
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
        while let Some(job) = self.sequences.first().map(|sequence| sequence.job) {
            self.cancel(job, &mut |_, _| ())?;
        }
        for kept in self.take_kept() {
            self.session.close(kept.slot)?;
        }
        all
    }
}
