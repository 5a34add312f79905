//! One turn of a conversation: the prompt, the model's answer, and what the history is then.

use super::answer::process_segments;
use super::deltas::{OnDelta, Writer};
use super::{Answer, Delta, GenerationConfig};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling};
use crate::session::{Finish, Processor, Request, Session, Slot, Stream, Timings};
use crate::template::{Message, Role, Template, encode};
use crate::vocab::Vocab;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// Whether an answer ends after these tokens of it.
pub type StopWhen<'a> = Box<dyn FnMut(&[u32]) -> bool + 'a>;

/// How a model is talked to.
#[derive(Clone)]
pub struct Options {
    pub template: Arc<dyn Template>,
    pub generation: GenerationConfig,
    /// How tokens are drawn, in place of what `generation` says of it.
    pub sampling: Option<Sampling>,
    /// The invalid-score guard: drawn while a logit of the model is NaN or infinite. None is off, and an error where no logit is
    /// finite.
    pub guard: Option<u32>,
    /// Ids that end an answer, in place of those of the template's family and of `generation`.
    pub stop_ids: Option<Vec<u32>>,
}

impl Options {
    /// The defaults of the template's family.
    pub fn new(template: Arc<dyn Template>) -> Options {
        let guard = Some(template.family().guard());
        Options { template, generation: GenerationConfig::glm(), sampling: None, guard, stop_ids: None }
    }

    pub(super) fn stop_ids(&self, vocab: &Vocab) -> Result<Vec<u32>> {
        match &self.stop_ids {
            Some(ids) => Ok(ids.clone()),
            None => Ok([self.template.family().stop_ids(vocab)?, self.generation.eos.clone()].concat()),
        }
    }
}

/// What is said, to whom.
pub struct Turn<'a> {
    /// Stands after this turn's answer then; what it has read of the conversation is not read again.
    pub slot: Slot,
    /// What was said before. Tools stand in its first message, one of the system.
    pub history: &'a [Message],
    /// Of the user, or the observation of what a tool gave.
    pub query: Message,
    pub processor: Option<Processor>,
    /// What the answer is to follow, from its first token.
    pub constraint: Option<Box<dyn Constraint>>,
    pub stop_when: Option<StopWhen<'a>>,
    /// Hears how much of the prompt is read: tokens read, and tokens to read in all.
    pub on_read: Option<&'a mut dyn FnMut(usize, usize)>,
}

impl<'a> Turn<'a> {
    pub fn new(slot: Slot, history: &'a [Message], query: Message) -> Turn<'a> {
        Turn { slot, history, query, processor: None, constraint: None, stop_when: None, on_read: None }
    }
}

/// What came of a turn.
#[derive(Debug, Clone)]
pub struct Reply {
    pub answer: Answer,
    /// With the query and the answer.
    pub history: Vec<Message>,
    pub prompt: Vec<u32>,
    /// How many of the prompt's tokens the slot had read before.
    pub n_reused: usize,
    /// Of the answer. The id that ended it is none of them.
    pub tokens: Vec<u32>,
    pub finish: Finish,
    /// As [`Stream::complete`](crate::session::Stream::complete).
    pub complete: Option<bool>,
    /// How many tokens the guard drew: above 0 the model's numbers fail.
    pub n_guarded: u64,
    pub timings: Timings,
}

/// The model's answer to a query.
///
/// # Errors
/// `Input` when the query is of another role than user or observation, when it is too long, or where the template has no place for
/// something or the vocabulary no special tokens; `Usage` at a setting; else as [`Session::prefill`] and
/// [`Session::continue_many`].
pub fn chat(session: &mut Session, turn: Turn<'_>, options: &Options) -> Result<Reply> {
    stream_chat(session, turn, options, &mut |_| ControlFlow::Continue(()))
}

/// The same; `on_delta` hears of the answer while it is written, and may break it off. What it hears adds up to the reply's answer.
///
/// # Errors
/// As [`chat`].
pub fn stream_chat(
    session: &mut Session,
    turn: Turn<'_>,
    options: &Options,
    on_delta: &mut dyn FnMut(Delta<'_>) -> ControlFlow<()>,
) -> Result<Reply> {
    let model = session.model().clone();
    let vocab = model.vocab().ok_or_else(|| {
        let e = Error::input("chat needs a vocabulary, and none was found for this model");
        e.hint(model.vocab_hint().unwrap_or("give one with `vocab`"))
    })?;
    answer(session, vocab, turn, options, on_delta)
}

/// The same with any vocabulary.
pub(super) fn answer(session: &mut Session, vocab: &Vocab, turn: Turn<'_>, options: &Options, on_delta: &mut OnDelta<'_>) -> Result<Reply> {
    let Turn { slot, history, query, processor, constraint, mut stop_when, on_read } = turn;
    if !matches!(query.role, Role::User | Role::Observation) {
        return Err(Error::input(format!("expected a query of user or observation, found one of {}", query.role.name())));
    }
    let mut history = history.to_vec();
    history.push(query);
    let prompt = encode(&options.template.render(&history)?, vocab)?;
    let config = &options.generation;
    config.check()?;
    let request =
        Request { stop_ids: Some(options.stop_ids(vocab)?), stop_texts: Vec::new(), max_tokens: config.max_tokens(prompt.len())? };
    let mut sampling = options.sampling.clone().unwrap_or_else(|| config.sampling());
    sampling.guard = options.guard;
    sampling.check(session.model().facts().n_vocab)?;

    let started = Instant::now();
    let n_reused = session.read_to_with(slot, &prompt, on_read.unwrap_or(&mut |_, _| ()))?;
    let prefill_ms = started.elapsed().as_secs_f64() * 1e3;

    let mut streams = [Stream::new(slot, sampler(sampling, &prompt), &request)];
    (streams[0].processor, streams[0].constraint) = (processor, constraint);
    let mut writer = Writer::new(vocab, config.stop_strings.clone(), opening(&prompt, vocab));
    let mut tokens = Vec::new();
    let mut has_stopped = false;
    // whoever breaks off hears no more
    let mut has_broken = false;
    let mut hear = |delta: Delta<'_>| {
        has_broken = has_broken || on_delta(delta).is_break();
        if has_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut timings = session.continue_many(&mut streams, &request, &mut |event| {
        let Some(id) = event.token else { return ControlFlow::Continue(()) };
        tokens.push(id);
        writer.push(id, &mut hear)?;
        has_stopped = stop_when.as_mut().is_some_and(|is_enough| is_enough(&tokens));
        if has_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    (timings.prefill_ms, timings.prefill_tokens) = (prefill_ms, prompt.len() - n_reused);

    let [stream] = streams;
    let (segments, at_stop_text) = writer.finish(&mut hear);
    let is_stopped = has_stopped || at_stop_text;
    let finish = if is_stopped { Finish::Stop } else { stream.finish.unwrap_or(Finish::Interrupted) };
    let complete = stream.complete.map(|complete| complete && !at_stop_text);
    let answer = process_segments(segments.iter().map(String::as_str), &mut history, options.template.family());
    let n_guarded = stream.sampler.n_guarded();
    Ok(Reply { answer, history, prompt, n_reused, tokens: stream.tokens, finish, complete, n_guarded, timings })
}

/// A sampler whose repetition penalty knows the prompt, as in transformers.
fn sampler(sampling: Sampling, prompt: &[u32]) -> Sampler {
    let penalises = sampling.repeat_penalty != 1.0;
    let mut sampler = Sampler::new(sampling);
    if penalises {
        let mut seen = prompt.to_vec();
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|id| sampler.accept(id, 0.0));
    }
    // What looks back wants the tokens in their order.
    sampler.read(prompt);
    sampler
}

/// What a prompt holds of the answer: the ids after its last `<|assistant|>`.
pub(super) fn opening<'a>(prompt: &'a [u32], vocab: &Vocab) -> &'a [u32] {
    let assistant = vocab.special(Role::Assistant.special());
    prompt.iter().rposition(|id| Some(*id) == assistant).map_or(&[], |at| &prompt[at + 1..])
}

#[cfg(test)]
mod tests;
