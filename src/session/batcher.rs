//! Texts that come and go in one batch: whoever ends leaves a slot to the next, whose prompt is read in the steps in which the others
//! go on.
//!
//! Keeps no queue: who waits, and for how long, is the caller's business.

use super::ahead::{Ahead, Live};
use super::generate::{Batch, nothing_to_continue};
use super::prefill_bound::PrefillBound;
use super::{Event, Finish, Processor, Request, Session, Slot, Stream};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampler;
use std::ops::ControlFlow;
use std::time::Instant;

/// A text to be made.
pub struct Job {
    /// May be empty where a slot gives something to continue.
    pub prompt: Vec<u32>,
    /// Is told the prompt when the job is added.
    pub sampler: Sampler,
    pub request: Request,
    /// Changes logits before each draw; all texts then draw on the host.
    pub processor: Option<Processor>,
    /// What the text has to follow; as with a processor.
    pub constraint: Option<Box<dyn Constraint>>,
    /// An open slot of the session that it goes on from, and that stays as it is. None: from the beginning.
    pub from: Option<Slot>,
    /// What the text before kept back at its end, where `from` comes from a state file
    /// ([`LoadedState::pending`](super::LoadedState::pending)).
    pub pending: Vec<u8>,
    /// Log-probabilities of each token and of so many likeliest ones, as [`Stream::n_logprobs`].
    pub n_logprobs: Option<usize>,
    /// Which slots of the job outlive it: see [`Batcher::take_kept`].
    pub keeps: Keeps,
}

/// Slots of a job that its owner takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Forks after so many tokens of the prompt, in any order. One that finds no free slot is left out.
    pub at: Vec<usize>,
    /// The job's own slot, after its text.
    pub end: bool,
    /// The end of the text that is not certain yet is no part of the text, but of [`Made::pending`], as with
    /// [`Stream::keeps_end`].
    pub pending: bool,
}

/// A slot that a job left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSlot {
    pub job: JobId,
    pub slot: Slot,
    /// It stands after the text; else within the prompt or after it.
    pub is_end: bool,
}

impl Job {
    /// From the beginning; nothing changes or constrains its logits.
    pub fn new(prompt: Vec<u32>, sampler: Sampler, request: Request) -> Job {
        Job {
            prompt,
            sampler,
            request,
            processor: None,
            constraint: None,
            from: None,
            pending: Vec::new(),
            n_logprobs: None,
            keeps: Keeps::default(),
        }
    }
}

/// Names a job of a [`Batcher`]; no other of its jobs has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// A job that ended.
#[derive(Debug)]
pub struct Done {
    pub job: JobId,
    /// An error is the job's alone: nothing can be drawn from its logits.
    pub made: Result<Made>,
}

/// What came of a job.
#[derive(Debug, Clone)]
pub struct Made {
    pub tokens: Vec<u32>,
    /// Empty without a vocabulary.
    pub text: String,
    pub finish: Finish,
    /// As [`Stream::complete`].
    pub complete: Option<bool>,
    /// As it is after the last token.
    pub sampler: Sampler,
    /// What the text kept back at its end, where [`Keeps::pending`] asked for it.
    pub pending: Vec<u8>,
}

/// Continuous batching over the slots of a session.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::sample::{Sampler, Sampling};
/// use wingbeat::session::{Batcher, Job, Model, ModelSource, Options, Prompt, Request, Session};
///
/// let model = Model::load(&ModelSource::Embedded, &Options::default(), &mut |_done, _total| ())?;
/// let mut batcher = Batcher::new(Session::new(&model, 2)?)?;
/// let mut waiting = vec!["In the beginning", "And Moses said", "Thou shalt not"].into_iter();
/// let mut texts = Vec::new();
/// while texts.len() < 3 {
///     while batcher.n_free() > 0 && let Some(text) = waiting.next() {
///         let prompt = batcher.session().encode(&Prompt::Text(text))?;
///         batcher.add(Job::new(prompt, Sampler::new(Sampling::greedy(0)), Request::new(8)))?;
///     }
///     for done in batcher.step(&mut |_job, _event| ())? {
///         texts.push(done.made?.text);
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
    /// In the order in which they came.
    streams: Vec<Stream>,
    /// One a stream.
    seats: Vec<Seat>,
    ahead: Ahead,
    /// The device knows for whom it draws: the streams as they are.
    is_told: bool,
    n_jobs: u64,
    /// Of prompts, while others decode.
    prefill: Option<PrefillBound>,
    kept: Vec<KeptSlot>,
}

/// What there is of a running job beside its stream.
struct Seat {
    job: JobId,
    /// What the slot reads before the next draw: the rest of a prompt, or the token that was drawn last.
    unread: Vec<u32>,
    /// Jobs with the same prompt, which go on from this one's slot once it is read. Each holds an empty slot until then.
    alike: Vec<(JobId, Stream, bool)>,
    /// Where the slot is forked for [`Batcher::take_kept`]: how many tokens are unread there. The next one is last.
    marks: Vec<usize>,
    /// The slot outlives the job.
    keeps_slot: bool,
    /// Why it cannot go on.
    error: Option<Error>,
}

impl Seat {
    /// What the next step reads at most: as far as the next mark.
    fn next(&self) -> &[u32] {
        &self.unread[..self.unread.len() - self.marks.last().unwrap_or(&0)]
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
            seats: Vec::new(),
            ahead: Ahead::default(),
            is_told: false,
            n_jobs: 0,
            prefill: None,
            kept: Vec::new(),
        })
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// For what is done between two steps: slots to go on from, states to load. A slot of a running job is not known outside.
    pub fn session_mut(&mut self) -> &mut Session {
        // Whatever is done with it may tell the device of others, or make it forget.
        self.is_told = false;
        &mut self.session
    }

    /// How many jobs can be added now.
    pub fn n_free(&self) -> usize {
        self.session.n_free()
    }

    pub fn n_running(&self) -> usize {
        self.streams.len() + self.seats.iter().map(|seat| seat.alike.len()).sum::<usize>()
    }

    /// Takes a job into a free slot; its prompt is read in the next steps, after those of jobs that came before. `request` counts as of
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
        let Job { prompt, mut sampler, request, processor, constraint, pending, n_logprobs, keeps, .. } = job;
        sampler.read(&prompt);
        let leader = self.streams.last().expect("one was added").slot;
        let mut stream = Stream::new(leader, sampler, &request);
        (stream.processor, stream.constraint, stream.n_logprobs) = (processor, constraint, n_logprobs);
        stream.keeps_end = keeps.pending;
        stream.begin_after(&pending, &prompt, self.session.model().vocab());
        self.session.bound(&mut stream, &request, prompt.len())?;
        stream.slot = self.session.open()?;
        let job = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.seats.last_mut().expect("one was added").alike.push((job, stream, keeps.end));
        Ok(job)
    }

    /// Lets the jobs that share a job's prompt go on by themselves, from where it is.
    fn part(&mut self, i: usize) -> Result<()> {
        for (job, mut stream, keeps_slot) in std::mem::take(&mut self.seats[i].alike) {
            self.session.close(stream.slot)?;
            stream.slot = self.session.fork(self.streams[i].slot)?;
            let unread = self.seats[i].unread.clone();
            self.streams.push(stream);
            self.seats.push(Seat { job, unread, alike: Vec::new(), marks: Vec::new(), keeps_slot, error: None });
        }
        Ok(())
    }

    /// Forks the slot of a job that has come to a mark in its prompt, if there is room.
    fn keep_marked(&mut self, i: usize) -> Result<()> {
        let seat = &mut self.seats[i];
        if seat.marks.last() != Some(&seat.unread.len()) {
            return Ok(());
        }
        seat.marks.pop();
        if self.session.n_free() > 0 {
            let (job, slot) = (seat.job, self.session.fork(self.streams[i].slot)?);
            self.kept.push(KeptSlot { job, slot, is_end: false });
        }
        Ok(())
    }

    /// Slots that jobs left since the last call, as their [`Keeps`] asked. They are the caller's, who closes them.
    /// [`Session::n_tokens`] says how much of prompt and text a slot has read: a text's last tokens may not be read yet.
    pub fn take_kept(&mut self) -> Vec<KeptSlot> {
        std::mem::take(&mut self.kept)
    }

    /// Bounds what reading prompts may cost texts that go on: a step with a prompt takes at most about `slowdown` times as long as one
    /// without. `None`, as at first: a step reads as much as a chunk has room for.
    pub fn bound_prefill(&mut self, slowdown: Option<f64>) {
        self.prefill = slowdown.map(PrefillBound::new);
    }

    fn begin(&mut self, slot: Slot, job: Job) -> Result<JobId> {
        let Job { prompt, mut sampler, request, processor, constraint, pending, n_logprobs, keeps, .. } = job;
        if prompt.is_empty() && self.session.logits(slot)?.is_empty() {
            return Err(nothing_to_continue());
        }
        self.session.check_reads(slot, &prompt, self.session.n_tokens(slot)?)?;
        sampler.read(&prompt);
        let mut stream = Stream::new(slot, sampler, &request);
        (stream.processor, stream.constraint, stream.n_logprobs) = (processor, constraint, n_logprobs);
        stream.keeps_end = keeps.pending;
        stream.begin_after(&pending, &prompt, self.session.model().vocab());
        self.session.bound(&mut stream, &request, prompt.len())?;
        let mut marks: Vec<usize> = keeps.at.iter().filter(|at| (1..=prompt.len()).contains(*at)).map(|at| prompt.len() - at).collect();
        marks.sort_unstable();
        marks.dedup();
        let job = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.is_told = false;
        self.streams.push(stream);
        self.seats.push(Seat { job, unread: prompt, alike: Vec::new(), marks, keeps_slot: keeps.end, error: None });
        Ok(job)
    }

    /// Ends a job where it is and frees its slot; gives what there is of its text. None where it has ended.
    pub fn cancel(&mut self, job: JobId) -> Result<Option<Made>> {
        let waits = |seat: &Seat| seat.alike.iter().position(|(id, ..)| *id == job);
        if let Some((seat, at)) = self.seats.iter_mut().find_map(|seat| waits(seat).map(|at| (seat, at))) {
            let (_, mut stream, _) = seat.alike.remove(at);
            self.session.close(stream.slot)?;
            stream.end(Finish::Interrupted);
            return Ok(made(stream));
        }
        let Some(i) = self.seats.iter().position(|s| s.job == job) else { return Ok(None) };
        let mut stream = self.remove(i)?.0;
        if stream.finish.is_none() {
            stream.end(Finish::Interrupted);
        }
        Ok(made(stream))
    }

    /// Goes on with every job: a step that reads a token of each and as much of the prompts as a chunk has room for; where no prompt waits
    /// and the device draws, several tokens of each. Gives the jobs that ended. `on_event` gets text as it becomes certain; the event's `stream` is
    /// where the job stands among those that run.
    ///
    /// # Errors
    /// As [`Session::decode_many`], for all jobs: none of them can go on after it.
    pub fn step(&mut self, on_event: &mut dyn FnMut(JobId, Event<'_>)) -> Result<Vec<Done>> {
        let going: Vec<usize> = (0..self.streams.len()).filter(|&i| self.streams[i].finish.is_none()).collect();
        let reads_one = |i: &usize| {
            let seat = &self.seats[*i];
            // Who leaves a slot behind its prompt, or shares it, reads the prompt in a step of its own.
            seat.unread.len() == 1 && seat.alike.is_empty() && seat.marks.is_empty() && !self.streams[*i].needs_host()
        };
        if !going.is_empty() && self.session.draws_ahead && going.iter().all(reads_one) {
            self.draw_ahead(&going, on_event)?;
        } else {
            self.read_and_draw(going, on_event)?;
        }
        self.take_leave()
    }

    /// One step, and a draw for whoever has read all.
    fn read_and_draw(&mut self, going: Vec<usize>, on_event: &mut dyn FnMut(JobId, Event<'_>)) -> Result<()> {
        // A token of each that goes on comes first: they are few, and none of them waits for a prompt.
        let (mut order, prompts): (Vec<usize>, Vec<usize>) = going.into_iter().partition(|&i| self.seats[i].unread.len() <= 1);
        let n_first = order.len();
        let n_decoding = order.iter().filter(|&&i| !self.seats[i].unread.is_empty()).count();
        let most = match &mut self.prefill {
            Some(bound) if n_decoding > 0 && !prompts.is_empty() => n_first.saturating_add(bound.tokens()),
            _ => usize::MAX,
        };
        if most > n_first {
            order.extend(prompts);
        }
        let work: Vec<(Slot, &[u32])> = order.iter().map(|&i| (self.streams[i].slot, self.seats[i].next())).collect();
        let began = Instant::now();
        let read = self.session.read_some(&work, most)?;
        if let Some(bound) = self.prefill.as_mut().filter(|_| n_decoding > 0) {
            bound.learn(read[n_first..].iter().sum(), began.elapsed());
        }
        self.is_told = false;
        for (&i, n) in order.iter().zip(read) {
            self.seats[i].unread.drain(..n);
            self.keep_marked(i)?;
        }
        order.retain(|&i| self.seats[i].unread.is_empty());
        for i in order.clone() {
            let before = self.streams.len();
            self.part(i)?;
            order.extend(before..self.streams.len());
        }
        // One that was to have no tokens has ended already.
        order.retain(|&i| self.streams[i].finish.is_none());
        self.draw(&order, on_event)
    }

    /// Draws on the host for streams that have read all.
    fn draw(&mut self, ready: &[usize], on_event: &mut dyn FnMut(JobId, Event<'_>)) -> Result<()> {
        let Batcher { session, streams, seats, .. } = self;
        let model = session.model().clone();
        let jobs: Vec<JobId> = seats.iter().map(|s| s.job).collect();
        let mut tell = |event: Event<'_>| {
            on_event(jobs[event.stream], event);
            ControlFlow::Continue(())
        };
        let mut batch = Batch::new(streams, model.vocab(), &mut tell);
        for &i in ready {
            let stream = &mut batch.streams[i];
            match stream.draw(session.logits(stream.slot)?) {
                Ok(Some(token)) => {
                    batch.take(i, token, 1);
                    seats[i].unread.push(token);
                }
                Ok(None) => batch.end(i, Finish::Eos),
                Err(e) => seats[i].error = Some(e),
            }
        }
        Ok(())
    }

    /// Several tokens of each, drawn on the device.
    fn draw_ahead(&mut self, going: &[usize], on_event: &mut dyn FnMut(JobId, Event<'_>)) -> Result<()> {
        let Batcher { session, streams, seats, ahead, prefill, .. } = self;
        let model = session.model().clone();
        let jobs: Vec<JobId> = seats.iter().map(|s| s.job).collect();
        let mut live: Vec<Live> = Vec::with_capacity(going.len());
        for &i in going {
            live.push(Live::new(i, streams[i].slot, std::mem::take(&mut seats[i].unread)));
        }
        let mut tell = |event: Event<'_>| {
            on_event(jobs[event.stream], event);
            ControlFlow::Continue(())
        };
        let mut batch = Batch::new(streams, model.vocab(), &mut tell);
        if !self.is_told {
            session.begin_draws(&batch, &live)?;
        }
        let began = Instant::now();
        let n_drawn = session.draw_some(&mut batch, &mut live, ahead)?;
        if let Some(bound) = prefill {
            bound.learn(0, began.elapsed() / n_drawn.max(1) as u32);
        }
        // The host says why nothing could be drawn.
        let stuck: Vec<Live> = live.extract_if(.., |l| l.is_stuck && batch.is_live(l.stream)).collect();
        session.settle(&stuck)?;
        self.is_told = stuck.is_empty();
        for l in live {
            seats[l.stream].unread = l.unread;
        }
        self.draw(&stuck.iter().map(|l| l.stream).collect::<Vec<_>>(), on_event)
    }

    /// Frees the slots of those that ended.
    fn take_leave(&mut self) -> Result<Vec<Done>> {
        let mut all = Vec::new();
        while let Some(i) = (0..self.streams.len()).find(|&i| self.streams[i].finish.is_some() || self.seats[i].error.is_some()) {
            let (stream, Seat { job, error, .. }) = self.remove(i)?;
            let made = error.map_or_else(|| Ok(made(stream).expect("it ended, with an error or without")), Err);
            all.push(Done { job, made });
        }
        Ok(all)
    }

    fn remove(&mut self, i: usize) -> Result<(Stream, Seat)> {
        self.is_told = false;
        self.part(i)?;
        let (stream, seat) = (self.streams.remove(i), self.seats.remove(i));
        if seat.keeps_slot && seat.error.is_none() {
            self.kept.push(KeptSlot { job: seat.job, slot: stream.slot, is_end: true });
        } else {
            self.session.close(stream.slot)?;
        }
        Ok((stream, seat))
    }
}

/// None of a stream that has not ended.
fn made(stream: Stream) -> Option<Made> {
    let pending = if stream.keeps_end { stream.pending() } else { Vec::new() };
    let Stream { tokens, text, finish, complete, sampler, .. } = stream;
    Some(Made { tokens, text, finish: finish?, complete, sampler, pending })
}
