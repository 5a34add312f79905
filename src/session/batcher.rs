//! The decode loop, for one text or many: continuous batching. When a sequence finishes, its slot goes to the next job. The prompt of that job is
//! prefilled while the other sequences decode.
//!
//! A batcher has no queue: the caller decides which job to add next.

mod ahead;
mod aside;
mod guess;
mod guessing;
mod job;
mod read_all;
mod sequence;
mod step;
mod swap;

pub use job::{Done, Job, JobId, JobOutput, Keeps, KeptSlot};
pub(super) use sequence::Sequence;
use step::Hear;

use super::Session;
use super::continuation::{Continuation, Finish, TokenEvent, nothing_to_continue};
use super::logprobs::Logprobs;
use super::prefill_bound::PrefillBound;
use super::slots::Slot;
use super::vectors::Pool;
use crate::error::{Error, Result};
use ahead::Ahead;
use job::AtEnd;
use sequence::Follower;
use std::borrow::BorrowMut;
use std::sync::Arc;
use step::{Flight, OnEvent, Teller};

/// Continuous batching over the slots of a session: when a text is finished, its slot takes the next job while the other texts continue.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::low_level::sample::{Sampler, Sampling};
/// use wingbeat::low_level::session::{Batcher, Job, Limits, Model, ModelSource, Options, Prompt, Session};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the first GPU, or the CPU without one
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let mut batcher = Batcher::new(Session::new(&model, 2)?);
/// let mut waiting = vec!["In the beginning", "And Moses said", "Thou shalt not"].into_iter();
/// let mut texts = Vec::new();
/// while texts.len() < 3 {
///     while batcher.n_free() > 0 && let Some(text) = waiting.next() {
///         let prompt = batcher.session().encode(&Prompt::Text(text))?;
///         batcher.add(Job::new(prompt, Sampler::new(Sampling::greedy(0)), Limits::new(8)))?;
///     }
///     for done in batcher.step(&mut |_job, _event| ())? {
///         texts.push(done.output?.text);
///     }
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded-model"))]
/// # fn main() {}
/// ```
///
/// If the model was opened as `deterministic`, a text depends only on its prompt, its sampler and the model. It is bit-identical in any slot, in any
/// batch and at any time. Otherwise the other sequences of the batch may change how logits are rounded.
///
/// A batcher owns its session, or borrows it: `Batcher::new(&mut session)`.
pub struct Batcher<S = Session> {
    session: S,
    /// The running jobs, without the jobs that wait in [`Sequence::followers`].
    sequences: Vec<Sequence>,
    /// Indices of the sequences that take part in the current step.
    order: Vec<usize>,
    ahead: Ahead,
    /// True if the device has up-to-date copies of the samplers of all running sequences.
    has_samplers: bool,
    /// The number of jobs that were added so far. This number is also the id of the next job.
    n_jobs: u64,
    /// Bound on prefill while other sequences decode. `None` means no bound.
    prefill: Option<PrefillBound>,
    /// Slots that [`Batcher::take_kept`] will return.
    kept: Vec<KeptSlot>,
    /// Results that [`Batcher::take_prompt_logprobs`] will return.
    prompt_logprobs: Vec<(JobId, Vec<Logprobs>)>,
    /// Results that [`Batcher::take_pooled`] will return.
    pooled: Vec<(JobId, Vec<f32>)>,
    /// Threads that draw tokens under constraints. If `None`, the thread that runs the step draws them.
    aside: Option<aside::Aside>,
    /// The step that was begun and not finished yet. Until this step is finished, no sequence is removed.
    flight: Option<Flight>,
    guesses: guess::Guesses,
    /// The jobs without slots, in the order in which they gave up their slots.
    swapped: Vec<swap::Swapped>,
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Creates a batcher over the free slots of a session. A model that does not predict tokens, such as an embedding model, runs only jobs with a
    /// limit of 0 tokens.
    pub fn new(session: S) -> Batcher<S> {
        Batcher {
            session,
            sequences: Vec::new(),
            order: Vec::new(),
            ahead: Ahead::default(),
            has_samplers: false,
            n_jobs: 0,
            prefill: None,
            kept: Vec::new(),
            prompt_logprobs: Vec::new(),
            pooled: Vec::new(),
            aside: None,
            flight: None,
            guesses: guess::Guesses::default(),
            swapped: Vec::new(),
        }
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        self.session.borrow()
    }

    /// Returns the session for work between two steps, such as opening slots and loading states. During a step, slots may be opened, forked and
    /// closed. Any other device work during a step makes the step end with an error.
    pub fn session_mut(&mut self) -> &mut Session {
        // The caller may replace the samplers on the device, so they are sent again before the device samples.
        self.has_samplers = false;
        self.session.borrow_mut()
    }

    /// Returns the number of jobs that can be added now.
    pub fn n_free(&self) -> usize {
        self.session().n_free()
    }

    /// Returns the number of jobs that have not ended.
    pub fn n_running(&self) -> usize {
        let waiting: usize = self.sequences.iter().map(|sequence| sequence.followers.len()).sum();
        self.sequences.iter().filter(|sequence| !sequence.is_cancelled).count() + waiting
    }

    /// Adds a job to a free slot. The next steps prefill the job's prompt, after the prompts of earlier jobs. The job's `limits` mean the same
    /// as in [`Session::continue_many`].
    ///
    /// # Errors
    /// `Input` if all slots are in use, or if tokens are out of range or exceed the context; `Input` if the prompt is empty and the slot `from` has
    /// no logits; `Usage` if a setting of the sampler is wrong; `Model` if the job may generate tokens and the model predicts none. An error leaves
    /// the batcher unchanged.
    pub fn add(&mut self, job: Job) -> Result<JobId> {
        let session: &mut Session = self.session.borrow_mut();
        if job.limits.max_tokens > 0 {
            session.model().check_speaks()?;
        }
        job.sampler.settings().check(session.model().facts().n_vocab)?;
        let slot = match job.from {
            Some(from) => session.fork(from)?,
            None => session.open()?,
        };
        self.add_in(slot, job)
    }

    /// Adds a job to an open slot. The slot then belongs to the job. Closes the slot after an error.
    fn add_in(&mut self, slot: Slot, job: Job) -> Result<JobId> {
        self.begin(slot, job).inspect_err(|_| self.session.borrow_mut().close(slot).unwrap_or(()))
    }

    /// Adds jobs with the same prompt and the same `from`. The prompt is read once for all jobs. Returns the ids in the order of `jobs`.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add); `Input` if there are fewer free slots than jobs, or if the jobs differ in `prompt` or `from`.
    pub fn add_alike(&mut self, jobs: Vec<Job>) -> Result<Vec<JobId>> {
        if jobs.len() > self.n_free() {
            return Err(Error::input(format!("expected a free slot for each of {} jobs, found {} free slots", jobs.len(), self.n_free())));
        }
        if jobs.iter().any(|job| !Arc::ptr_eq(&job.prompt, &jobs[0].prompt) && job.prompt != jobs[0].prompt || job.from != jobs[0].from) {
            return Err(Error::input("jobs that are added together must have the same `prompt` and the same `from`"));
        }
        let n_vocab = self.session().model().facts().n_vocab;
        jobs.iter().try_for_each(|job| job.sampler.settings().check(n_vocab))?;
        let mut jobs = jobs.into_iter();
        let Some(first) = jobs.next() else { return Ok(Vec::new()) };
        let mut ids = vec![self.add(first)?];
        for job in jobs {
            match self.add_to_last(job) {
                Ok(id) => ids.push(id),
                Err(e) => {
                    ids.into_iter().rev().try_for_each(|id| self.cancel(id, &mut |_, _| ()).map(drop))?;
                    return Err(e);
                }
            }
        }
        Ok(ids)
    }

    /// Adds a job that has the same prompt as the job that was added last.
    fn add_to_last(&mut self, job: Job) -> Result<JobId> {
        let at_end = job.at_end();
        let leader = self.sequences.last().expect("one was added").continuation.slot;
        let (mut continuation, _) = self.continuation(leader, job)?;
        continuation.slot = self.session.borrow_mut().open()?;
        let job = self.next_id();
        self.sequences.last_mut().expect("one was added").followers.push(Follower { job, continuation, at_end });
        Ok(job)
    }

    /// Begins a job in an open slot.
    fn begin(&mut self, slot: Slot, job: Job) -> Result<JobId> {
        let session: &Session = self.session.borrow();
        if job.prompt.is_empty() && session.logits(slot)?.is_empty() {
            return Err(nothing_to_continue());
        }
        session.check_reads(slot, &job.prompt, session.n_tokens(slot)?)?;
        let n = job.prompt.len();
        let mut marks: Vec<usize> = job.keeps.at.iter().filter(|at| (1..=n).contains(*at)).map(|at| n - at).collect();
        marks.sort_unstable();
        marks.dedup();
        let n_prompt_logprobs = job.n_prompt_logprobs.filter(|_| n > 0);
        let pool = job.pooling.as_ref().filter(|_| n > 0).map(|rule| Pool::new(rule.clone(), &job.prompt));
        let (reads_prompt, at_end, chunk) = (job.keeps.pending && n > 0, job.at_end(), job.chunk);
        let (continuation, prompt) = self.continuation(slot, job)?;
        let sequence = Sequence::new(self.next_id(), continuation, prompt.to_vec(), at_end);
        let sequence = Sequence { marks, n_prompt_logprobs, pool, chunk, reads_prompt, ..sequence };
        Ok(self.push(sequence))
    }

    /// Creates the continuation of a job in `slot`. Also returns the prompt, which `slot` must still read.
    fn continuation(&mut self, slot: Slot, job: Job) -> Result<(Continuation, Arc<[u32]>)> {
        let Job {
            prompt,
            mut sampler,
            limits,
            processor,
            constraint,
            pending,
            n_logprobs,
            grace,
            counts_every_token,
            keeps,
            owner,
            speculation,
            before,
            ..
        } = job;
        sampler.read(&prompt);
        let mut continuation = Continuation::new(slot, sampler, &limits);
        (continuation.processor, continuation.constraint, continuation.n_logprobs) = (processor, constraint, n_logprobs);
        (continuation.grace, continuation.counts_every_token, continuation.keeps_end) = (grace, counts_every_token, keeps.pending);
        continuation.owner = owner;
        if speculation.is_on() {
            (continuation.speculation, continuation.before) = (speculation, [&*before, &*prompt].concat().into());
        }
        let session: &mut Session = self.session.borrow_mut();
        continuation.begin_after(&pending, &prompt, session.model().vocab());
        session.bound(&mut continuation, &limits, prompt.len())?;
        Ok((continuation, prompt))
    }

    /// Adds a job that continues `continuation` in its own slot, from the slot's logits. The slot stays open when the text ends. Reports text that no
    /// event has reported yet.
    pub(super) fn resume(&mut self, continuation: Continuation, hear: &mut Hear<'_>) {
        let mut sequence = Sequence::new(self.next_id(), continuation, Vec::new(), AtEnd::Stay);
        if sequence.continuation.has_news() {
            Teller { vocab: None, hear, is_broken: false }.tell(self.sequences.len(), &mut sequence);
        }
        self.push(sequence);
    }

    fn next_id(&mut self) -> JobId {
        self.n_jobs += 1;
        JobId(self.n_jobs - 1)
    }

    fn push(&mut self, sequence: Sequence) -> JobId {
        self.has_samplers = false;
        let job = sequence.job;
        self.sequences.push(sequence);
        job
    }

    /// Forks the slot of sequence `i` for each job that waits until this sequence has read their common prompt.
    fn fork_followers(&mut self, i: usize) -> Result<()> {
        for Follower { job, mut continuation, at_end } in std::mem::take(&mut self.sequences[i].followers) {
            let session: &mut Session = self.session.borrow_mut();
            session.close(continuation.slot)?;
            let leader = &self.sequences[i];
            continuation.slot = session.fork(leader.continuation.slot)?;
            let (unread, error) = (leader.unread.clone(), leader.error.clone());
            self.sequences.push(Sequence { error, ..Sequence::new(job, continuation, unread, at_end) });
        }
        Ok(())
    }

    /// Forks the slot of sequence `i` for the caller if the slot is at a position in `marks` and another slot is free.
    fn keep_marked(&mut self, i: usize) -> Result<()> {
        let sequence = &mut self.sequences[i];
        if sequence.marks.last() != Some(&sequence.unread.len()) {
            return Ok(());
        }
        sequence.marks.pop();
        let session: &mut Session = self.session.borrow_mut();
        if session.n_free() > 0 {
            self.kept.push(KeptSlot { job: sequence.job, slot: session.fork(sequence.continuation.slot)?, is_end: false });
        }
        Ok(())
    }

    /// Returns the slots that were kept for the caller since the last call, as requested by the [`Keeps`] of the jobs. The caller must close these
    /// slots. A slot that was kept when its text ended may lack the last tokens of the text. [`Session::n_tokens`] returns how many tokens of prompt
    /// and text it has read.
    pub fn take_kept(&mut self) -> Vec<KeptSlot> {
        std::mem::take(&mut self.kept)
    }

    /// Returns the log-probabilities of the prompts that were completely read since the last call, for jobs that request them
    /// ([`Job::n_prompt_logprobs`]). Each prompt has one entry per token except the first.
    pub fn take_prompt_logprobs(&mut self) -> Vec<(JobId, Vec<Logprobs>)> {
        std::mem::take(&mut self.prompt_logprobs)
    }

    /// Returns the vectors of the prompts that were completely read since the last call, for jobs that request a vector ([`Job::pooling`]). A vector
    /// is `[n_embd]`.
    pub fn take_pooled(&mut self) -> Vec<(JobId, Vec<f32>)> {
        std::mem::take(&mut self.pooled)
    }

    /// Returns the number of tokens that a running job must still read before it samples again. `None` if the job has ended.
    pub(crate) fn n_unread(&self, job: JobId) -> Option<usize> {
        Some(self.sequences.iter().find(|sequence| sequence.job == job)?.unread.len())
    }

    /// Bounds how much prefill slows decoding sequences down. While prompts are prefilled, the mean time of a step is at most about `slowdown` times
    /// the time of a step without prompt tokens. A single step takes at most about twice this mean. `None`, the default, sets no bound: a step
    /// prefills up to a whole chunk of tokens.
    pub fn bound_prefill(&mut self, slowdown: Option<f64>) {
        self.prefill = slowdown.map(PrefillBound::new);
    }

    /// Draws under constraints on other threads from now on, so that a slow constraint delays its own text alone. `wake` is called when a draw has
    /// ended. `most` limits the time that the constraint of one text may take in total. A text whose constraint exceeds the limit ends with an error.
    pub(crate) fn draw_aside(&mut self, wake: std::sync::Arc<dyn Fn() + Send + Sync>, most: Option<std::time::Duration>) {
        self.aside = Some(aside::Aside::new(wake, most));
    }

    /// Returns whether a step has work: a job that is neither paused nor being drawn, or a draw that has ended.
    pub(crate) fn can_step(&self) -> bool {
        if self.aside.as_ref().is_some_and(aside::Aside::has_ended) {
            return true;
        }
        self.sequences.iter().any(|sequence| !sequence.is_paused && !sequence.is_drawing())
    }

    /// Pauses the jobs for which `is_paused` returns true, and resumes all other jobs. A paused job keeps its slot and takes part in no step. Jobs of
    /// one [`add_alike`](Self::add_alike) call share a prefill, which one of them runs. Until the prompt is read, all these jobs pause and resume
    /// with that job.
    pub fn pause(&mut self, is_paused: impl Fn(JobId) -> bool) {
        for sequence in &mut self.sequences {
            let was_paused = std::mem::replace(&mut sequence.is_paused, is_paused(sequence.job));
            // The device has the samplers of the last step's jobs. These samplers are outdated if other jobs take part now.
            self.has_samplers &= sequence.is_paused == was_paused;
        }
    }

    /// Ends a job and returns its text so far, or `None` if the job had ended before. Calls `on_event` with text that was held back as the possible
    /// beginning of a stop text, so that the job's events add up to the returned text.
    ///
    /// The job's slot is closed at once, or when the current step is finished. If [`Keeps::end`] is set, [`take_kept`](Self::take_kept) returns the
    /// slot instead. A job that still waits for the shared prefill of its [`add_alike`](Self::add_alike) call has an empty slot, which is always
    /// closed.
    ///
    /// # Errors
    /// `Input` if a slot cannot be closed or forked.
    pub fn cancel(&mut self, job: JobId, on_event: &mut OnEvent<'_>) -> Result<Option<JobOutput>> {
        let waiting = self.sequences.iter().enumerate().find_map(|(i, sequence)| {
            let at = sequence.followers.iter().position(|follower| follower.job == job)?;
            Some((i, at))
        });
        let found = self.sequences.iter().position(|sequence| sequence.job == job && !sequence.is_cancelled);
        let (i, mut continuation) = match (waiting, found) {
            (Some((i, at)), _) => {
                let Follower { continuation, .. } = self.sequences[i].followers.remove(at);
                self.session.borrow_mut().close(continuation.slot)?;
                (i, continuation)
            }
            (None, Some(i)) if self.flight.is_some() => {
                let sequence = &mut self.sequences[i];
                sequence.is_cancelled = true;
                let ended = Continuation::ended(sequence.continuation.slot);
                (i, std::mem::replace(&mut sequence.continuation, ended))
            }
            (None, Some(i)) => (i, self.remove(i)?.continuation),
            (None, None) => match self.take_swapped(job) {
                Some(continuation) => (usize::MAX, continuation),
                None => return Ok(None),
            },
        };
        if continuation.finish.is_none() {
            continuation.end(Finish::Interrupted);
        }
        let piece = continuation.new_text();
        if !piece.is_empty() {
            on_event(job, TokenEvent { continuation: i, token: None, piece, n_together: 0, logprobs: None });
        }
        Ok(JobOutput::of(continuation))
    }

    /// Ends the running texts for which `ends` returns true, with [`Finish::Interrupted`].
    pub(super) fn interrupt(&mut self, ends: impl Fn(&Sequence) -> bool, hear: &mut Hear<'_>) {
        let mut teller = Teller { vocab: None, hear, is_broken: false };
        for (i, sequence) in self.sequences.iter_mut().enumerate().filter(|(_, sequence)| sequence.is_live() && ends(sequence)) {
            teller.end(i, sequence, Finish::Interrupted);
        }
    }

    /// Removes the jobs that have ended. Returns the sequences of all removed jobs that were not cancelled.
    fn retire(&mut self) -> Result<Vec<Sequence>> {
        let mut all = Vec::new();
        while let Some(i) = self.sequences.iter().position(Sequence::has_ended) {
            let sequence = self.remove(i)?;
            if !sequence.is_cancelled {
                all.push(sequence);
            }
        }
        Ok(all)
    }

    fn remove(&mut self, i: usize) -> Result<Sequence> {
        self.has_samplers = false;
        self.fork_followers(i)?;
        let sequence = self.sequences.remove(i);
        self.guesses.forget(sequence.job);
        let (job, slot) = (sequence.job, sequence.continuation.slot);
        match sequence.at_end {
            AtEnd::Keep | AtEnd::KeepWhole if sequence.error.is_none() => self.kept.push(KeptSlot { job, slot, is_end: true }),
            AtEnd::Keep | AtEnd::KeepWhole | AtEnd::Close => self.session.borrow_mut().close(slot)?,
            AtEnd::Stay => {}
        }
        Ok(sequence)
    }

    /// Returns the continuations of all jobs that still run, with their ids.
    pub(super) fn into_continuations(self) -> impl Iterator<Item = (JobId, Continuation)> {
        self.sequences.into_iter().map(|sequence| (sequence.job, sequence.continuation))
    }
}
