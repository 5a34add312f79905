//! Continuous batching. When a sequence finishes, its slot goes to the next job. The prompt of that job is prefilled while the other sequences
//! decode.
//!
//! A batcher has no queue: the caller decides which job to add next.

mod job;
mod pool;
mod step;

pub use job::{Done, Job, JobId, JobOutput, Keeps, KeptSlot};

use super::Session;
use super::ahead::Ahead;
use super::generate::{Event, nothing_to_continue};
use super::logprobs::Logprobs;
use super::prefill_bound::PrefillBound;
use super::slots::Slot;
use super::stream::{Finish, Limits, Stream};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use pool::Pool;
use step::{Flight, OnEvent};

/// Continuous batching over the slots of a session: when a text is finished, its slot takes the next job while the other texts continue.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::sample::{Sampler, Sampling};
/// use wingbeat::session::{Batcher, Job, Limits, Model, ModelSource, Options, Prompt, Session};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the first GPU, or the CPU without one
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
/// let mut batcher = Batcher::new(Session::new(&model, 2)?)?;
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
/// If the model was opened as `deterministic`, a text depends only on its prompt, its sampler and the model. The text is bit-identical in any
/// slot, in any batch and at any time. Otherwise the other sequences of the batch may change how logits are rounded.
pub struct Batcher {
    session: Session,
    /// The texts of all jobs, except for jobs that wait in `Sequence::continuations`.
    streams: Vec<Stream>,
    /// One entry per stream, in the same order.
    sequences: Vec<Sequence>,
    ahead: Ahead,
    /// True if the device has up-to-date copies of the samplers of all streams.
    has_samplers: bool,
    /// The number of jobs that were added so far. The next job gets this number as its id.
    n_jobs: u64,
    /// Bound on prefill while other sequences decode. `None` means no bound.
    prefill: Option<PrefillBound>,
    /// Slots that [`Batcher::take_kept`] will return.
    kept: Vec<KeptSlot>,
    /// Results that [`Batcher::take_prompt_logprobs`] will return.
    prompt_logprobs: Vec<(JobId, Vec<Logprobs>)>,
    /// Results that [`Batcher::take_pooled`] will return.
    pooled: Vec<(JobId, Vec<f32>)>,
    /// The step that was begun and not finished yet. Until this step is finished, no stream is removed.
    flight: Option<Flight>,
}

/// The data of a running job, except for the data in the job's [`Stream`].
struct Sequence {
    job: JobId,
    /// Tokens that the slot must read before the next sampling: the remaining tokens of the prompt, or the token that was sampled last.
    unread: Vec<u32>,
    /// Jobs with the same prompt as this job, which wait until this job has read the prompt. Then each waiting job continues in a fork of this job's
    /// slot. An entry has the waiting job's id, stream and `keeps_slot`. Until the fork, a waiting job has an empty slot.
    continuations: Vec<(JobId, Stream, bool)>,
    /// Positions in the prompt at which the slot is forked for [`Batcher::take_kept`]. An entry is the number of prompt tokens after the position.
    /// Entries ascend, so the slot reaches the position of the last entry first.
    marks: Vec<usize>,
    /// The number of most likely tokens whose log-probabilities are computed with each prompt token. `None` if the job requests no
    /// log-probabilities of the prompt, or if the log-probabilities of the whole prompt have been computed.
    n_prompt_logprobs: Option<usize>,
    /// Log-probabilities of the prompt tokens that were read so far. The first token of the prompt has no log-probability.
    prompt_logprobs: Vec<Logprobs>,
    /// Collects the hidden states of the prompt. `None` if the job requests no vector, or if the vector is complete.
    pool: Option<Pool>,
    /// True if the slot is kept for the caller when the job ends ([`Keeps::end`]).
    keeps_slot: bool,
    /// True if the prompt must be read even if the job may generate no token, because the caller keeps the state.
    reads_prompt: bool,
    /// True if the device could not sample a token. Then the slot reads its unread tokens one per step, as the device did, so that the state is
    /// bit-identical. After that, the host samples or returns an error.
    is_stuck: bool,
    /// True if the job is paused and takes part in no step.
    is_paused: bool,
    /// True if the job was cancelled during a step. No result is returned for a cancelled job.
    is_cancelled: bool,
    /// The error that ends the job.
    error: Option<Error>,
}

impl Sequence {
    fn new(job: JobId, unread: Vec<u32>, keeps_slot: bool) -> Sequence {
        Sequence {
            job,
            unread,
            continuations: Vec::new(),
            marks: Vec::new(),
            n_prompt_logprobs: None,
            prompt_logprobs: Vec::new(),
            pool: None,
            keeps_slot,
            reads_prompt: false,
            is_stuck: false,
            is_paused: false,
            is_cancelled: false,
            error: None,
        }
    }

    /// Returns the tokens that the next step may read: the unread tokens up to the next position in `marks`, or one token if `is_stuck`.
    fn next(&self) -> &[u32] {
        let n = if self.is_stuck { 1 } else { self.unread.len() - self.marks.last().unwrap_or(&0) };
        &self.unread[..n.min(self.unread.len())]
    }

    /// Returns whether the slot must read its whole prompt even if the job's text has ended, for example at a limit of 0 tokens. This is needed for
    /// log-probabilities, for a vector, or because the caller keeps the state.
    fn has_to_read(&self) -> bool {
        (self.n_prompt_logprobs.is_some() || self.pool.is_some() || self.reads_prompt) && self.error.is_none() && !self.is_cancelled
    }

    /// Returns whether a step must return a row (logits and hidden state) after each token of the prompt. Otherwise only the row after the prompt's
    /// last token is needed.
    fn needs_all_rows(&self) -> bool {
        self.n_prompt_logprobs.is_some() || self.pool.as_ref().is_some_and(Pool::needs_all)
    }

    /// Returns whether the sequence decodes: at most one token is unread, or the slot reads token by token.
    fn is_decoding(&self) -> bool {
        self.unread.len() <= 1 || self.is_stuck
    }
}

impl Batcher {
    /// Creates a batcher over the free slots of a session.
    ///
    /// # Errors
    /// `Model` if the model does not predict tokens, such as a classifier or an embedding model.
    pub fn new(session: Session) -> Result<Batcher> {
        session.check_speaks()?;
        Ok(Batcher {
            session,
            streams: Vec::new(),
            sequences: Vec::new(),
            ahead: Ahead::default(),
            has_samplers: false,
            n_jobs: 0,
            prefill: None,
            kept: Vec::new(),
            prompt_logprobs: Vec::new(),
            pooled: Vec::new(),
            flight: None,
        })
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the session for work between two steps, such as opening slots and loading states. During a step, slots may be opened, forked and
    /// closed. Any other device work during a step makes the step end with an error.
    pub fn session_mut(&mut self) -> &mut Session {
        // The caller may replace the samplers on the device.
        self.has_samplers = false;
        &mut self.session
    }

    /// Returns the number of jobs that can be added now.
    pub fn n_free(&self) -> usize {
        self.session.n_free()
    }

    /// Returns the number of jobs that have not ended.
    pub fn n_running(&self) -> usize {
        let waiting: usize = self.sequences.iter().map(|sequence| sequence.continuations.len()).sum();
        self.sequences.iter().filter(|sequence| !sequence.is_cancelled).count() + waiting
    }

    /// Adds a job to a free slot. The next steps prefill the job's prompt, after the prompts of earlier jobs. The job's `limits` mean the same
    /// as in [`Session::continue_many`].
    ///
    /// # Errors
    /// `Input` if all slots are in use, or if tokens are out of range or exceed the context; `Input` if the prompt is empty and the slot `from` has
    /// no logits; `Usage` if a setting of the sampler is wrong. After an error, the batcher has not changed.
    pub fn add(&mut self, job: Job) -> Result<JobId> {
        job.sampler.settings().check(self.session.model().facts().n_vocab)?;
        let slot = match job.from {
            Some(from) => self.session.fork(from)?,
            None => self.session.open()?,
        };
        self.begin(slot, job).inspect_err(|_| self.session.close(slot).unwrap_or(()))
    }

    /// Adds jobs with the same prompt and the same `from`. The prompt is read once for all jobs. Returns the ids in the order of `jobs`.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add); `Input` if there are fewer free slots than jobs, or if the jobs differ in `prompt` or `from`.
    pub fn add_alike(&mut self, jobs: Vec<Job>) -> Result<Vec<JobId>> {
        if jobs.len() > self.n_free() {
            return Err(Error::input(format!("expected a free slot for each of {} jobs, found {} free slots", jobs.len(), self.n_free())));
        }
        if jobs.iter().any(|job| job.prompt != jobs[0].prompt || job.from != jobs[0].from) {
            return Err(Error::input("jobs that are added together must have the same `prompt` and the same `from`"));
        }
        let n_vocab = self.session.model().facts().n_vocab;
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
        let Job { prompt, mut sampler, limits, processor, constraint, pending, n_logprobs, keeps, .. } = job;
        sampler.read(&prompt);
        let leader = self.streams.last().expect("one was added").slot;
        let mut stream = Stream::new(leader, sampler, &limits);
        (stream.processor, stream.constraint, stream.n_logprobs) = (processor, constraint, n_logprobs);
        stream.keeps_end = keeps.pending;
        stream.begin_after(&pending, &prompt, self.session.model().vocab());
        self.session.bound(&mut stream, &limits, prompt.len())?;
        stream.slot = self.session.open()?;
        let job = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.sequences.last_mut().expect("one was added").continuations.push((job, stream, keeps.end));
        Ok(job)
    }

    /// Forks the slot of sequence `i` once for each job that waits until sequence `i` has read their common prompt. Each waiting job becomes a
    /// sequence.
    fn fork_continuations(&mut self, i: usize) -> Result<()> {
        for (job, mut stream, keeps_slot) in std::mem::take(&mut self.sequences[i].continuations) {
            self.session.close(stream.slot)?;
            stream.slot = self.session.fork(self.streams[i].slot)?;
            let Sequence { unread, error, .. } = &self.sequences[i];
            let (unread, error) = (unread.clone(), error.clone());
            self.streams.push(stream);
            self.sequences.push(Sequence { error, ..Sequence::new(job, unread, keeps_slot) });
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
        if self.session.n_free() > 0 {
            let (job, slot) = (sequence.job, self.session.fork(self.streams[i].slot)?);
            self.kept.push(KeptSlot { job, slot, is_end: false });
        }
        Ok(())
    }

    /// Returns the slots that were kept for the caller since the last call, as requested by the [`Keeps`] of the jobs. The caller must close
    /// these slots. If a slot was kept when its text ended, the slot's state can lack the last tokens of the text. [`Session::n_tokens`] returns
    /// how many tokens of prompt and text the slot has read.
    pub fn take_kept(&mut self) -> Vec<KeptSlot> {
        std::mem::take(&mut self.kept)
    }

    /// Returns the log-probabilities of the prompts that were completely read since the last call, for jobs that request these log-probabilities
    /// ([`Job::n_prompt_logprobs`]). Each prompt has one entry per token, except for its first token.
    pub fn take_prompt_logprobs(&mut self) -> Vec<(JobId, Vec<Logprobs>)> {
        std::mem::take(&mut self.prompt_logprobs)
    }

    /// Returns the vectors of the prompts that were completely read since the last call, for jobs that request a vector ([`Job::pooling`]). A vector
    /// is `[n_embd]` and has the Euclidean length 1.
    pub fn take_pooled(&mut self) -> Vec<(JobId, Vec<f32>)> {
        std::mem::take(&mut self.pooled)
    }

    /// Bounds how much prefill slows decoding sequences down. While prompts are prefilled, the mean time of a step is at most about `slowdown` times
    /// the time of a step without prompt tokens. A single step takes at most about twice this mean. `None`, the default, sets no bound: a step
    /// prefills up to a whole chunk of tokens.
    pub fn bound_prefill(&mut self, slowdown: Option<f64>) {
        self.prefill = slowdown.map(PrefillBound::new);
    }

    fn begin(&mut self, slot: Slot, job: Job) -> Result<JobId> {
        let Job { prompt, mut sampler, limits, processor, constraint, pending, n_logprobs, n_prompt_logprobs, pooling, keeps, .. } = job;
        if prompt.is_empty() && self.session.logits(slot)?.is_empty() {
            return Err(nothing_to_continue());
        }
        self.session.check_reads(slot, &prompt, self.session.n_tokens(slot)?)?;
        sampler.read(&prompt);
        let mut stream = Stream::new(slot, sampler, &limits);
        (stream.processor, stream.constraint, stream.n_logprobs) = (processor, constraint, n_logprobs);
        stream.keeps_end = keeps.pending;
        stream.begin_after(&pending, &prompt, self.session.model().vocab());
        self.session.bound(&mut stream, &limits, prompt.len())?;
        let n_prompt_logprobs = n_prompt_logprobs.filter(|_| !prompt.is_empty());
        let pool = pooling.filter(|_| !prompt.is_empty()).map(Pool::new);
        let mut marks: Vec<usize> = keeps.at.iter().filter(|at| (1..=prompt.len()).contains(*at)).map(|at| prompt.len() - at).collect();
        marks.sort_unstable();
        marks.dedup();
        let job = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.has_samplers = false;
        self.streams.push(stream);
        let reads_prompt = keeps.pending && !prompt.is_empty();
        self.sequences.push(Sequence { marks, n_prompt_logprobs, pool, reads_prompt, ..Sequence::new(job, prompt, keeps.end) });
        Ok(job)
    }

    /// Pauses the jobs for which `is_paused` returns true, and resumes all other jobs. A paused job keeps its slot and takes part in no step. Jobs of
    /// one [`add_alike`](Self::add_alike) call share the prefill of their prompt, which one of these jobs runs. Until the prompt is read, all jobs of
    /// the call pause and resume together with that job.
    pub fn pause(&mut self, is_paused: impl Fn(JobId) -> bool) {
        for sequence in &mut self.sequences {
            let was_paused = std::mem::replace(&mut sequence.is_paused, is_paused(sequence.job));
            // The device has the samplers of the jobs that took part in the last step. If other jobs take part now, these samplers are
            // outdated.
            self.has_samplers &= sequence.is_paused == was_paused;
        }
    }

    /// Ends a job and returns its text so far. Calls `on_event` with the text that was held back as the possible beginning of a stop text. So the
    /// events of the job together have the whole returned text. Returns `None` if the job had ended before. The job's slot is closed at once, or
    /// when the current step is finished. If [`Keeps::end`] is set, [`take_kept`](Self::take_kept) returns the slot instead. A job that still waits
    /// for another job of the same [`add_alike`](Self::add_alike) call to read the prompt has an empty slot, which is closed in any case.
    ///
    /// # Errors
    /// `Input` if a slot cannot be closed or forked.
    pub fn cancel(&mut self, job: JobId, on_event: &mut OnEvent<'_>) -> Result<Option<JobOutput>> {
        let waits = |sequence: &Sequence| sequence.continuations.iter().position(|(id, ..)| *id == job);
        let waiting = self.sequences.iter().enumerate().find_map(|(i, sequence)| Some((i, waits(sequence)?)));
        let found = self.sequences.iter().position(|sequence| sequence.job == job && !sequence.is_cancelled);
        let (i, mut stream) = match (waiting, found) {
            (Some((i, at)), _) => {
                let (_, stream, _) = self.sequences[i].continuations.remove(at);
                self.session.close(stream.slot)?;
                (i, stream)
            }
            (None, Some(i)) if self.flight.is_some() => {
                self.sequences[i].is_cancelled = true;
                let mut ended = Stream::new(self.streams[i].slot, Sampler::new(Sampling::greedy(0)), &Limits::new(0));
                ended.finish = Some(Finish::Interrupted);
                (i, std::mem::replace(&mut self.streams[i], ended))
            }
            (None, Some(i)) => (i, self.remove(i)?.0),
            (None, None) => return Ok(None),
        };
        if stream.finish.is_none() {
            stream.end(Finish::Interrupted);
        }
        let piece = stream.new_text();
        if !piece.is_empty() {
            on_event(job, Event { stream: i, token: None, piece, n_together: 0, logprobs: None });
        }
        Ok(JobOutput::of(stream))
    }

    /// Removes the jobs that have ended, and returns their results.
    fn retire(&mut self) -> Result<Vec<Done>> {
        let mut all = Vec::new();
        let has_ended = |batcher: &Batcher, i: usize| {
            let sequence = &batcher.sequences[i];
            sequence.error.is_some() || batcher.streams[i].finish.is_some() && !sequence.has_to_read()
        };
        while let Some(i) = (0..self.streams.len()).find(|&i| has_ended(self, i)) {
            let (stream, Sequence { job, error, is_cancelled, .. }) = self.remove(i)?;
            if !is_cancelled {
                let output = error.map_or_else(|| Ok(JobOutput::of(stream).expect("it ended, with an error or without")), Err);
                all.push(Done { job, output });
            }
        }
        Ok(all)
    }

    fn remove(&mut self, i: usize) -> Result<(Stream, Sequence)> {
        self.has_samplers = false;
        self.fork_continuations(i)?;
        let (stream, sequence) = (self.streams.remove(i), self.sequences.remove(i));
        if sequence.keeps_slot && sequence.error.is_none() {
            self.kept.push(KeptSlot { job: sequence.job, slot: stream.slot, is_end: true });
        } else {
            self.session.close(stream.slot)?;
        }
        Ok((stream, sequence))
    }
}
