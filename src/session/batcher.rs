//! Continuous batching. When a sequence finishes, its slot goes to the next job, whose prompt is prefilled while the others decode.
//!
//! Keeps no queue: which job waits, and for how long, the caller decides.

mod job;
mod step;

pub use job::{Done, Job, JobId, JobOutput, Keeps, KeptSlot};

use super::Session;
use super::ahead::Ahead;
use super::generate::nothing_to_continue;
use super::logprobs::Logprobs;
use super::prefill_bound::PrefillBound;
use super::slots::Slot;
use super::stream::{Finish, Limits, Stream};
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use step::Flight;

/// Continuous batching over the slots of a session.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::sample::{Sampler, Sampling};
/// use wingbeat::session::{Batcher, Job, Limits, Model, ModelSource, Options, Prompt, Session};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the fastest GPU
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
/// A text depends on its prompt, its sampler and the model alone if the model was opened as `deterministic`: then it is the same to the
/// bit in any slot, beside any others, whenever it came. Else neighbours may change how its logits are rounded.
pub struct Batcher {
    session: Session,
    /// In the order in which their jobs came.
    streams: Vec<Stream>,
    /// One for each stream.
    sequences: Vec<Sequence>,
    ahead: Ahead,
    /// The device has the samplers of the streams as they are.
    has_samplers: bool,
    n_jobs: u64,
    /// Of prompts, while others decode.
    prefill: Option<PrefillBound>,
    kept: Vec<KeptSlot>,
    /// Of prompts that were read: see [`Batcher::take_prompt_logprobs`].
    prompt_logprobs: Vec<(JobId, Vec<Logprobs>)>,
    /// The step that was begun and not finished. No stream is removed meanwhile.
    flight: Option<Flight>,
}

/// A running job, beside its stream.
struct Sequence {
    job: JobId,
    /// What the slot reads before the next draw: the rest of a prompt, or the token that was drawn last.
    unread: Vec<u32>,
    /// Jobs with the same prompt, which go on from this one's slot once the prompt is read: job, stream, whether the slot outlives the job. Each
    /// holds an empty slot until then.
    continuations: Vec<(JobId, Stream, bool)>,
    /// Where the slot is forked for [`Batcher::take_kept`]: how many tokens are unread there. The next one is last.
    marks: Vec<usize>,
    /// Log-probabilities of the prompt's tokens are wanted, with so many likeliest ones.
    n_prompt_logprobs: Option<usize>,
    /// Of the prompt's tokens after the first, as far as it is read.
    prompt_logprobs: Vec<Logprobs>,
    /// The slot outlives the job.
    keeps_slot: bool,
    /// The prompt is read even if the text ends before it begins: its state is kept.
    reads_prompt: bool,
    /// The device found nothing to draw: the slot reads token by token, as the device did, and the host draws or says why not.
    is_stuck: bool,
    /// Takes part in no step.
    is_paused: bool,
    /// It was cancelled while the device worked: nobody hears of its end.
    is_cancelled: bool,
    /// Why it cannot go on.
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
            keeps_slot,
            reads_prompt: false,
            is_stuck: false,
            is_paused: false,
            is_cancelled: false,
            error: None,
        }
    }

    /// What the next step reads at most: as far as the next mark.
    fn next(&self) -> &[u32] {
        let n = if self.is_stuck { 1 } else { self.unread.len() - self.marks.last().unwrap_or(&0) };
        &self.unread[..n.min(self.unread.len())]
    }

    /// Whether the prompt is still to be read, whatever became of its text: for its log-probabilities or its state.
    fn has_to_read(&self) -> bool {
        (self.n_prompt_logprobs.is_some() || self.reads_prompt) && self.error.is_none() && !self.is_cancelled
    }

    /// Whether one step reads all of it.
    fn is_decoding(&self) -> bool {
        self.unread.len() <= 1 || self.is_stuck
    }
}

impl Batcher {
    /// Over all slots of a session that are free.
    ///
    /// # Errors
    /// `Model` where the model tells classes, no tokens.
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
            flight: None,
        })
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// For what is done between two steps: slots to go on from, states to load. Slots of running jobs are not known outside. Slots may be opened,
    /// forked and closed while a step is under way; other device work that begins then ends the step with an error.
    pub fn session_mut(&mut self) -> &mut Session {
        // The device may get other samplers, or lose those that it has.
        self.has_samplers = false;
        &mut self.session
    }

    /// How many jobs can be added now.
    pub fn n_free(&self) -> usize {
        self.session.n_free()
    }

    /// Returns the number of running jobs.
    pub fn n_running(&self) -> usize {
        let waiting: usize = self.sequences.iter().map(|sequence| sequence.continuations.len()).sum();
        self.sequences.iter().filter(|sequence| !sequence.is_cancelled).count() + waiting
    }

    /// Takes a job into a free slot; its prompt is read in the next steps, after those of jobs that came before. `limits` counts as of
    /// [`Session::continue_many`].
    ///
    /// # Errors
    /// `Input` when all slots are in use, when there is nothing to continue, or at tokens that the model does not have or its context has no
    /// room for; `Usage` at the sampler's settings. Nothing has changed then.
    pub fn add(&mut self, job: Job) -> Result<JobId> {
        job.sampler.settings().check(self.session.model().facts().n_vocab)?;
        let slot = match job.from {
            Some(from) => self.session.fork(from)?,
            None => self.session.open()?,
        };
        self.begin(slot, job).inspect_err(|_| self.session.close(slot).unwrap_or(()))
    }

    /// Takes jobs with the same prompt and the same beginning: the prompt is read once, for all of them. Returns them in their order.
    ///
    /// # Errors
    /// As [`add`](Self::add); `Input` when there are fewer free slots than jobs, or their prompts differ. Nothing has changed then.
    pub fn add_alike(&mut self, jobs: Vec<Job>) -> Result<Vec<JobId>> {
        if jobs.len() > self.n_free() {
            return Err(Error::input(format!("{} texts need as many free slots, found {}", jobs.len(), self.n_free())));
        }
        if jobs.iter().any(|job| job.prompt != jobs[0].prompt || job.from != jobs[0].from) {
            return Err(Error::input("expected jobs with the same prompt and the same slot to go on from, found others"));
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
                    ids.into_iter().rev().try_for_each(|id| self.cancel(id).map(drop))?;
                    return Err(e);
                }
            }
        }
        Ok(ids)
    }

    /// Takes a job that has the prompt of the one that came last.
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

    /// Gives the continuations of a job forks of its slot, from where they go on by themselves.
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

    /// Forks the slot of a job that has come to a mark in its prompt, if there is room.
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

    /// Slots that jobs left since the last call, as their [`Keeps`] asked. They are the caller's, who closes them.
    /// [`Session::n_tokens`] says how much of prompt and text a slot has read: a text's last tokens may not be read yet.
    pub fn take_kept(&mut self) -> Vec<KeptSlot> {
        std::mem::take(&mut self.kept)
    }

    /// Log-probabilities of prompts that were read since the last call, where their jobs ask for them: one for each token but the first.
    pub fn take_prompt_logprobs(&mut self) -> Vec<(JobId, Vec<Logprobs>)> {
        std::mem::take(&mut self.prompt_logprobs)
    }

    /// Bounds what reading prompts may cost texts that go on: a step with a prompt takes at most about `slowdown` times as long as one
    /// without. `None`, as at first: a step reads as much as a chunk has room for.
    pub fn bound_prefill(&mut self, slowdown: Option<f64>) {
        self.prefill = slowdown.map(PrefillBound::new);
    }

    fn begin(&mut self, slot: Slot, job: Job) -> Result<JobId> {
        let Job { prompt, mut sampler, limits, processor, constraint, pending, n_logprobs, n_prompt_logprobs, keeps, .. } = job;
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
        let mut marks: Vec<usize> = keeps.at.iter().filter(|at| (1..=prompt.len()).contains(*at)).map(|at| prompt.len() - at).collect();
        marks.sort_unstable();
        marks.dedup();
        let job = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.has_samplers = false;
        self.streams.push(stream);
        let reads_prompt = keeps.pending && !prompt.is_empty();
        self.sequences.push(Sequence { marks, n_prompt_logprobs, reads_prompt, ..Sequence::new(job, prompt, keeps.end) });
        Ok(job)
    }

    /// Pauses the jobs for which `is_paused` returns true, and resumes the others. A paused job keeps its slot and takes part in no step. Jobs that
    /// wait for another job to read their prompt wait with that job.
    pub fn pause(&mut self, is_paused: impl Fn(JobId) -> bool) {
        for sequence in &mut self.sequences {
            let was_paused = std::mem::replace(&mut sequence.is_paused, is_paused(sequence.job));
            // The device has the samplers of the jobs that took part.
            self.has_samplers &= sequence.is_paused == was_paused;
        }
    }

    /// Ends a job where it is and returns what there is of its text, or `None` if the job has ended. Its slot is free at once, or once the step
    /// that is under way is finished.
    pub fn cancel(&mut self, job: JobId) -> Result<Option<JobOutput>> {
        let waits = |sequence: &Sequence| sequence.continuations.iter().position(|(id, ..)| *id == job);
        if let Some((sequence, at)) = self.sequences.iter_mut().find_map(|sequence| waits(sequence).map(|at| (sequence, at))) {
            let (_, mut stream, _) = sequence.continuations.remove(at);
            self.session.close(stream.slot)?;
            stream.end(Finish::Interrupted);
            return Ok(JobOutput::of(stream));
        }
        let found = self.sequences.iter().position(|sequence| sequence.job == job && !sequence.is_cancelled);
        let Some(i) = found else { return Ok(None) };
        let mut stream = if self.flight.is_some() {
            self.sequences[i].is_cancelled = true;
            let mut ended = Stream::new(self.streams[i].slot, Sampler::new(Sampling::greedy(0)), &Limits::new(0));
            ended.finish = Some(Finish::Interrupted);
            std::mem::replace(&mut self.streams[i], ended)
        } else {
            self.remove(i)?.0
        };
        if stream.finish.is_none() {
            stream.end(Finish::Interrupted);
        }
        Ok(JobOutput::of(stream))
    }

    /// Frees the slots of the jobs that ended.
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
