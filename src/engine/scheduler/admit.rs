//! Starts requests: gives slots to the requests in the queue.

use super::Scheduler;
use super::shares::CandidateKind;
use crate::engine::answer::AnswerProgress;
use crate::engine::event::Event;
use crate::engine::prefix::FEWEST;
use crate::engine::prepare::Prepared;
use crate::engine::request::Input;
use crate::engine::states::State;
use crate::engine::submission::Submission;
use crate::error::Result;
use crate::session::{Keeps, Model, Slot, TextSpec, caught};
use crate::vocab::Utf8Stream;
use std::sync::Arc;
use web_time::Instant;

/// The slot from which the texts of a request continue. The slot is closed as soon as every text has its own fork. A text is a continuation in the
/// batcher.
#[derive(Default)]
pub(super) struct Beginning {
    pub slot: Option<Slot>,
    /// The number of prompt tokens that the slot has already read.
    pub n_tokens: usize,
    /// The bytes at the end of the slot's tokens that are not part of the output text yet: an incomplete character, or the beginning of a stop
    /// text. Later tokens determine whether these bytes become text.
    pub pending: Vec<u8>,
}

impl Scheduler {
    /// Gives free slots to waiting requests and to texts that were swapped out. Stops at the first candidate for which too few slots are free, even
    /// if a later candidate needs fewer.
    pub(super) fn admit(&mut self) {
        while let Some(next) = self.next()
            && (next.n_slots <= self.n_free() || self.make_way(&next))
        {
            let next = match next.kind {
                CandidateKind::Swapped(job) => {
                    self.resume(job, next.n_slots);
                    continue;
                }
                CandidateKind::Waiting(next) => next,
            };
            let id = self.waiting.remove(next);
            let Some(submission) = self.requests.get_mut(&id) else { continue };
            let namespace = submission.request.namespace.clone();
            submission.began.get_or_insert_with(Instant::now);
            self.note_admitted(&namespace);
            if self.requests[&id].prepared.texts.is_some() {
                if let Err(e) = self.begin_text(id) {
                    self.fail(id, e);
                }
                continue;
            }
            self.left.push(namespace);
            if let Err(e) = self.begin(id) {
                self.fail(id, e);
            }
        }
    }

    /// Records that a request of a namespace gets slots.
    pub(super) fn note_admitted(&mut self, namespace: &str) {
        const MOST: usize = 1024;
        if self.last_admitted.len() >= MOST && !self.last_admitted.contains_key(namespace) {
            self.last_admitted.clear();
        }
        self.last_admitted.insert(namespace.into(), self.n_admitted);
        self.n_admitted += 1;
    }

    /// Starts the texts of a request, one per continuation.
    fn begin(&mut self, id: u64) -> Result<()> {
        let Some(mut submission) = self.requests.remove(&id) else { return Ok(()) };
        let begun = self.begin_texts(id, &mut submission);
        // Inserted even after an error, which the caller reports to the request's reader.
        self.requests.insert(id, submission);
        begun
    }

    fn begin_texts(&mut self, id: u64, submission: &mut Submission) -> Result<()> {
        // A state that is a part of the prompt counts as cached tokens.
        let prefix = if submission.request.state_is_prefix { submission.state.take() } else { None };
        let constraint = submission.prepared.constraint.take();
        let Submission { request, prepared, events, state, .. } = &*submission;
        let Prepared { prompt, ends, limits, question, speculation, .. } = prepared;
        let make = || (0..request.n).map(|_| constraint.as_ref().map(|make| make()).transpose()).collect::<Result<Vec<_>>>();
        let constraints = caught(make)?;
        // A vector needs the hidden states after the prompt's tokens. A cache entry lacks hidden states.
        let uses_cache = !request.no_cache && state.is_none() && request.pooling.is_none();
        let namespace = self.shared.cache_namespace(request)?;
        let scores_prompt = request.echo && request.logprobs.is_some();
        let mut from = match (&prefix, state) {
            (Some(prefix), _) => self.after_prefix(prefix, prompt, request.n)?,
            (None, Some(state)) => self.after_state(state, request.n)?,
            // `scores_prompt` needs the logits of every prompt token, and a cache entry has only the logits after its last token.
            (None, None) if uses_cache && !scores_prompt => self.cached(&namespace, prompt, request.n, FEWEST)?,
            (None, None) => Beginning::default(),
        };
        if from.slot.is_none()
            && let Some(name) = &request.initial
        {
            from.slot = Some(self.initial(name, request.n)?);
        }
        // All texts share one list of unread tokens. If no token was cached, the texts share the request's own prompt.
        let prompt = prompt.clone();
        let unread: Arc<[u32]> = if from.n_tokens == 0 { prompt.clone() } else { prompt[from.n_tokens..].into() };
        let before: Arc<[u32]> = match speculation.is_on() {
            true => [state.as_ref().and_then(|state| state.tokens()).unwrap_or_default(), &prompt[..from.n_tokens]].concat().into(),
            false => Arc::default(),
        };
        let owner: Arc<str> = request.namespace.as_str().into();
        let (mut seeds, mut jobs) = (Vec::with_capacity(request.n), Vec::with_capacity(request.n));
        for (index, constraint) in constraints.into_iter().enumerate() {
            let sampler = submission.sampler(index, from.n_tokens);
            seeds.push(sampler.settings().seed);
            let mut job = TextSpec::new(unread.clone(), sampler, limits.clone());
            job.n_logprobs = request.logprobs;
            job.n_prompt_logprobs = request.logprobs.filter(|_| scores_prompt);
            job.pooling = request.pooling.map(|pooling| self.shared.rule(Some(pooling))).transpose()?;
            job.constraint = constraint;
            job.owner = owner.clone();
            (job.speculation, job.before) = (*speculation, before.clone());
            job.from = from.slot;
            job.pending.clone_from(&from.pending);
            let is_kept = uses_cache && self.cache.is_on();
            let at = if is_kept && index == 0 { self.cache.marks(&prompt, ends, from.n_tokens) } else { Vec::new() };
            let at = at.into_iter().map(|at| at - from.n_tokens).collect();
            job.keeps = Keeps {
                at,
                end: is_kept || request.save_state.is_some(),
                whole: false,
                // `pending` also makes a text with a limit of 0 tokens prefill its prompt.
                pending: if request.save_state.is_some() { !request.state_is_prefix } else { limits.max_tokens == 0 },
                own: false,
            };
            jobs.push(job);
        }
        let lent = self.cache.lend(0, self.batcher.session_mut());
        self.cache.make_room(request.n, self.batcher.session_mut());
        let added = lent.and_then(|()| self.batcher.add_alike(jobs));
        if let Some(slot) = from.slot {
            // Every text has a fork of the slot, or no text was added. The slot is no longer needed.
            self.batcher.session_mut().close(slot)?;
        }
        if added.is_err() {
            self.close_kept();
        }
        let ids = added?;
        events.send(Event::Started { prompt_tokens: prompt.len(), cached_tokens: from.n_tokens });
        let echoed = request.echo.then(|| match &request.input {
            Input::Text(text) => text.clone(),
            _ => text_of(&self.shared.model, &prompt),
        });
        for (index, (job, seed)) in ids.into_iter().zip(seeds).enumerate() {
            let vocab = self.shared.model.vocab();
            let reader = question.as_ref().zip(vocab).map(|(question, vocab)| question.reader(vocab, limits.stop_texts.clone()));
            let mut sequence = AnswerProgress::new(id, index, seed, reader);
            sequence.returns_tokens = request.return_tokens;
            sequence.leaves_forks = index == 0 && uses_cache && self.cache.is_on();
            if let Some(echoed) = &echoed {
                sequence.echo(echoed, events);
            }
            self.sequences.insert(job, sequence);
        }
        submission.cache = uses_cache.then_some(namespace);
        submission.cached_tokens = from.n_tokens;
        Ok(())
    }

    /// Opens a slot with a named state. Before that, moves cache entries off the device until `n + 1` slots are free: one for the state, and one for
    /// each of the `n` texts.
    fn after_state(&mut self, state: &State, n: usize) -> Result<Beginning> {
        self.cache.make_room(n + 1, self.batcher.session_mut());
        let slot = self.batcher.session_mut().restore(&state.snapshot)?;
        Ok(Beginning { slot: Some(slot), n_tokens: 0, pending: state.pending().to_vec() })
    }

    /// Opens a slot with a tuned initial state. Makes room for `n` texts, as [`after_state`](Self::after_state) does.
    fn initial(&mut self, name: &str, n: usize) -> Result<Slot> {
        let snapshot = self.shared.initial(name)?;
        self.cache.make_room(n + 1, self.batcher.session_mut());
        self.batcher.session_mut().restore(&snapshot)
    }

    /// Opens a slot with a named state that holds the beginning of `prompt`.
    fn after_prefix(&mut self, state: &State, prompt: &[u32], n: usize) -> Result<Beginning> {
        self.cache.make_room(n + 1, self.batcher.session_mut());
        let slot = self.batcher.session_mut().restore(&state.snapshot)?;
        let n_tokens = state.snapshot.n_tokens();
        let pending = Utf8Stream::after_tokens(&[], &prompt[..n_tokens], self.shared.model.vocab()).pending().to_vec();
        Ok(Beginning { slot: Some(slot), n_tokens, pending })
    }

    /// Opens a slot with the longest prefix of `prompt` in the cache, of at least `fewest` tokens. Makes room for `n` texts, as
    /// [`after_state`](Self::after_state) does. Returns a `Beginning` without a slot if the cache has no such prefix.
    pub(super) fn cached(&mut self, namespace: &str, prompt: &[u32], n: usize, fewest: usize) -> Result<Beginning> {
        let model = self.shared.model.clone();
        let pending = |n: usize| Utf8Stream::after_tokens(&[], &prompt[..n], model.vocab()).pending().to_vec();
        let may_end = pending(prompt.len()).is_empty();
        let Some(found) = self.cache.find(namespace, prompt, may_end, fewest) else { return Ok(Beginning::default()) };
        self.cache.touch(found);
        self.cache.make_room(n + 1, self.batcher.session_mut());
        let slot = self.cache.open(found, self.batcher.session_mut())?;
        Ok(slot.map_or_else(Beginning::default, |slot| Beginning {
            slot: Some(slot),
            n_tokens: found.n_tokens,
            pending: pending(found.n_tokens),
        }))
    }
}

/// Returns the text of tokens, or an empty text if the model has no vocabulary.
fn text_of(model: &Model, tokens: &[u32]) -> String {
    model.vocab().map_or_else(String::new, |vocab| String::from_utf8_lossy(&vocab.decode(tokens)).into_owned())
}
