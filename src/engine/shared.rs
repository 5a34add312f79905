//! Data that the handles of an engine share with its thread: the model, named states, counts and the preparers of requests.

use super::EngineOptions;
use super::prepare::{Prepared, Preparer, check_pooling};
use super::prepared::UnreadText;
use super::queue::{Bounds, Queue};
use super::request::{Input, Request};
use super::states::{State as NamedState, States};
use crate::error::{Error, Kind, Result, short};
use crate::exec::wait::MAY_BLOCK;
use crate::session::{
    EmbedOptions, Model, Pooling, Snapshot, Speculate, Speculation, VectorRule, before_any_query, check_query, encode_pair,
    nothing_to_continue,
};
use crate::vocab::Vocab;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of an engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// The number of slots.
    pub slots: usize,
    /// The number of slots without a continuation.
    pub free_slots: usize,
    /// The number of requests that have slots, or whose named states are being saved after their texts have ended.
    pub running: usize,
    /// The number of running requests that pause because their readers are slow: see [`EngineOptions::event_bytes`].
    pub paused: usize,
    /// The number of requests that wait for slots.
    pub waiting: usize,
    /// The number of texts that gave up their slots because others wait: see [`EngineOptions::swap_bytes`].
    pub swapped: usize,
    /// The number of entries in the prefix cache.
    pub cached: usize,
    /// The number of states that conversations hold: see [`EngineOptions::pinned`].
    pub pinned: usize,
    /// The number of tokens sampled since the engine started.
    pub drawn: u64,
    /// The number of guessed tokens that steps have checked since the engine started.
    pub drafted: u64,
    /// The number of guessed tokens that were right.
    pub accepted: u64,
}

/// Data that the handles and the engine's thread share.
pub(super) struct Shared {
    /// The digests of the tuned initial states, in the order of the options.
    digests: Vec<String>,
    pub model: Model,
    /// Preparers that no thread uses at the moment. Each preparer keeps the grammars that it has compiled.
    preparers: Mutex<Vec<Preparer>>,
    pub states: States,
    pub options: EngineOptions,
    /// Computes the vectors of requests that choose no pooling.
    rule: Arc<VectorRule>,
    /// True if texts may guess their next tokens.
    may_guess: bool,
    /// The number of pinned states with handles.
    pub pinned: Arc<AtomicUsize>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub stats: EngineStats,
    pub queue: Queue,
    pub is_draining: bool,
}

impl Shared {
    /// Returns the shared data of a new engine.
    ///
    /// # Errors
    /// The errors of [`VectorRule::new`].
    pub fn new(model: &Model, options: EngineOptions, states: States, stats: EngineStats, may_guess: bool) -> Result<Shared> {
        let state = Mutex::new(State { stats, ..State::default() });
        let rule = VectorRule::new(model, &options.embed)?;
        let digests = options.initial.iter().map(|(_, snapshot)| snapshot.digest()).collect();
        Ok(Shared {
            digests,
            model: model.clone(),
            preparers: Mutex::default(),
            states,
            options,
            rule,
            may_guess,
            pinned: Arc::default(),
            state,
        })
    }

    /// Returns the rule that computes the vectors of a request. `None` selects the pooling in the engine's options.
    ///
    /// # Errors
    /// `Usage` if the model has its own pooling.
    pub fn rule(&self, pooling: Option<Pooling>) -> Result<Arc<VectorRule>> {
        match pooling {
            None => Ok(self.rule.clone()),
            Some(_) => VectorRule::new(&self.model, &EmbedOptions { pooling, ..self.options.embed.clone() }),
        }
    }

    /// Prepares a request for vectors or scores. Returns `None` if the request has a prompt.
    ///
    /// # Errors
    /// `Input` or `Usage` that names the invalid field; `Input` that names the field `model` if the model cannot do what the request needs.
    fn prepare_texts(&self, request: &Request) -> Result<Option<Prepared>> {
        let model = &self.model;
        let of_model = |e: Error| Error { kind: Kind::Input, ..e }.field("model");
        let (texts, rule): (Result<Vec<_>>, _) = match &request.input {
            Input::Vectors(texts) | Input::Classes(texts) => {
                let rule = match &request.input {
                    Input::Classes(_) => VectorRule::classes(model).map_err(of_model)?,
                    _ => self.rule(request.pooling)?,
                };
                let encode = |text: &Input| {
                    let tokens = match text {
                        Input::Text(text) => rule.encode(model, text),
                        Input::Tokens(tokens) => rule.encode_tokens(model, tokens),
                        _ => Err(Error::input("expected a text or token ids")),
                    };
                    tokens.map(|tokens| UnreadText { tokens, kept: 0 })
                };
                let encoded = texts.iter().enumerate().map(|(i, text)| encode(text).map_err(|e| e.field(&format!("input[{i}]"))));
                (encoded.collect(), Some(rule.clone()))
            }
            Input::Ranking { query, documents } => {
                if self.options.reranker.is_none() || !MAY_BLOCK {
                    return Err(of_model(Error::input("this model has no reranker")));
                }
                check_query(query).map_err(|e| e.field("query"))?;
                let keeps = self.options.cache.is_on() && !request.no_cache;
                let encode = |text: &str| {
                    let kept = if keeps { before_any_query(model, text)? } else { 0 };
                    Ok(UnreadText { tokens: encode_pair(model, query, text)?, kept })
                };
                let encoded =
                    documents.iter().enumerate().map(|(i, text)| encode(text).map_err(|e: Error| e.field(&format!("documents[{i}]"))));
                (encoded.collect(), None)
            }
            _ if request.pooling.is_some() => return self.rule(request.pooling).map(|_| None),
            _ => return model.check_speaks().map(|()| None).map_err(of_model),
        };
        let field = request.input.field();
        check_pooling(request).map_err(|e| e.field(field))?;
        match texts? {
            texts if texts.is_empty() => Err(Error::input("expected at least one text, found none").field(field)),
            texts => Ok(Some(Prepared::of_texts(texts, rule))),
        }
    }

    /// Prepares a request that names no state but may continue from `state`: see [`Request::state_is_prefix`]. Returns the state if the request continues
    /// from it. The prompt then begins with the tokens of the state.
    pub fn prepare_after(&self, request: &Request, state: Option<Arc<NamedState>>) -> Result<(Prepared, Option<Arc<NamedState>>)> {
        let mut prepared = self.prepare(request, None)?;
        let scores_prompt = request.echo && request.logprobs.is_some();
        let state = state.filter(|state| !scores_prompt && state.tokens().is_some_and(|tokens| tokens.len() == state.snapshot.n_tokens()));
        let (Some(state), Some(vocab)) = (state, self.model.vocab()) else { return Ok((prepared, None)) };
        let tokens = state.tokens().unwrap_or_default();
        let rest = match rest_after(tokens, &prepared.prompt, vocab)? {
            Some(rest) if !rest.is_empty() || state.snapshot.has_logits() => rest,
            _ => return Ok((prepared, None)),
        };
        let (n_old, prompt) = (prepared.prompt.len(), [tokens, &rest].concat());
        if self.model.context().is_some_and(|context| prompt.len() > context) {
            return Ok((prepared, None));
        }
        // Positions keep their distance to the end of the prompt, because the prompt's last tokens do not change.
        let moved = prepared.ends.iter().filter_map(|end| (prompt.len() + end).checked_sub(n_old)).filter(|end| *end > tokens.len());
        prepared.ends = moved.collect();
        prepared.prompt = prompt.into();
        Ok((prepared, Some(state)))
    }

    /// Prepares a request. If `state` is given, the prompt follows this state. Several threads can prepare requests at once.
    ///
    /// # Errors
    /// The errors of [`Preparer::prepare`]; `Input` if the prompt cannot follow the state, or with the field `model` if the model cannot do what the
    /// request needs.
    pub fn prepare(&self, request: &Request, state: Option<&NamedState>) -> Result<Prepared> {
        if let Some(prepared) = self.prepare_texts(request)? {
            return Ok(prepared);
        }
        let lock = || self.preparers.lock().unwrap_or_else(PoisonError::into_inner);
        let preparer = lock().pop();
        let mut preparer =
            preparer.unwrap_or_else(|| Preparer::new(&self.model, self.options.format.clone()).with_ends(self.options.cache.is_on()));
        let prepared = match state {
            None => preparer.prepare(request),
            Some(state) => {
                let is_begun = state.snapshot.n_tokens() > 0;
                let encode = if is_begun { Vocab::encode_further } else { Vocab::encode_prompt };
                preparer.prepare_with(request, encode).and_then(|prepared| check_after(state, prepared, request, self.model.context()))
            }
        };
        lock().push(preparer);
        let mut prepared = prepared?;
        prepared.limits.max_tokens = prepared.limits.max_tokens.min(self.options.max_answer);
        prepared.speculation = self.speculation(request)?;
        Ok(prepared)
    }

    /// Returns how the text of a request speculates.
    ///
    /// # Errors
    /// `Input` if the request asks for guesses that this engine cannot make.
    fn speculation(&self, request: &Request) -> Result<Speculation> {
        let EngineOptions { speculation: default, draft, .. } = &self.options;
        if let Some(name) = &request.draft
            && draft.as_ref().is_none_or(|draft| draft.name() != name)
        {
            let loaded = draft.as_ref().map_or("none was loaded".into(), |draft| format!("only {} was loaded", draft.name()));
            return Err(Error::input(format!("unknown draft model {:?}: {loaded}", short(name, 100))).field("draft"));
        }
        let by = match (request.speculate, default.by) {
            (Some(by), _) => by,
            (None, Speculate::Off) if request.draft.is_some() => Speculate::Auto,
            (None, by) => by,
        };
        let (refused, hint) = match by {
            Speculate::Draft if draft.is_none() => {
                ("this engine has no draft model", "start the engine with `draft`, or choose another value")
            }
            by if by != Speculate::Off && !self.may_guess => {
                ("this engine has no memory for guesses", "start the engine with `speculate`, or leave the field out")
            }
            _ => {
                let n_guesses = request.draft_tokens.or(default.n_guesses).filter(|_| by != Speculate::Off);
                let speculation = Speculation { by, n_guesses };
                return speculation.check(draft.is_some()).map(|()| speculation).map_err(|e| Error { kind: Kind::Input, ..e });
            }
        };
        Err(Error::input(refused).field("speculate").hint(hint))
    }

    /// Returns the tuned initial state with this name.
    ///
    /// # Errors
    /// `Input` if the engine has no such state.
    pub fn initial(&self, name: &str) -> Result<Arc<Snapshot>> {
        let found = self.options.initial.iter().find(|(known, _)| known == name);
        found.map(|(_, snapshot)| snapshot.clone()).ok_or_else(|| unknown_initial(name))
    }

    /// Returns the namespace of a request's cache entries. Texts that begin in different initial states share no entries. The namespace contains the
    /// digest of the initial state, because files may have entries of an earlier state with the same name.
    pub fn cache_namespace(&self, request: &Request) -> Result<String> {
        Ok(match &request.initial {
            Some(name) => format!("{}\u{1f}{}", request.namespace, self.initial_digest(name)?),
            None => request.namespace.clone(),
        })
    }

    /// Returns the digest of the tuned initial state with this name.
    ///
    /// # Errors
    /// `Input` if the engine has no such state.
    pub fn initial_digest(&self, name: &str) -> Result<&str> {
        let at = self.options.initial.iter().position(|(known, _)| known == name);
        at.and_then(|at| self.digests.get(at)).map(String::as_str).ok_or_else(|| unknown_initial(name))
    }

    /// Checks that a request of a namespace may enter the queue, and returns the locked counts.
    ///
    /// # Errors
    /// `Busy` if the queue is full, for all callers or for this namespace; `Device` after a call of `Engine::drain`.
    pub fn check_room(&self, namespace: &str) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.is_draining {
            return Err(gone());
        }
        state.queue.check(namespace, state.stats.free_slots, self.bounds())?;
        Ok(state)
    }

    /// Returns the bounds of the queue.
    pub fn bounds(&self) -> Bounds {
        let all = self.options.queue.max(1);
        Bounds { all, per_namespace: self.options.queue_per_namespace.map_or(all, |n| n.clamp(1, all)) }
    }

    /// Locks and returns the counts and the flag `is_draining`.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown_initial(name: &str) -> Error {
    Error::input(format!("unknown initial state {:?}", short(name, 100))).field("initial")
}

/// Checks that a prompt can follow a state. The context must have room for the tokens of the state and of the prompt. A prompt without
/// tokens needs a state with logits.
fn check_after(state: &NamedState, prepared: Prepared, request: &Request, context: Option<usize>) -> Result<Prepared> {
    let n = prepared.prompt.len();
    let all = n + state.snapshot.n_tokens();
    if let Some(context) = context.filter(|context| all > *context) {
        let text = format!("the prompt and the state have {all} tokens together, but the context holds {context} tokens");
        return Err(Error::input(text).field(request.input.field()).hint("send a shorter prompt, or give a larger `context`"));
    }
    if n == 0 && !state.snapshot.has_logits() {
        return Err(nothing_to_continue().field(request.input.field()));
    }
    Ok(prepared)
}

/// Returns the tokens that complete the text of `state` to the text of `prompt`. Returns `None` if the prompt's text does not begin with the state's
/// text. Only the token of `prompt` in which the state's text ends is split and tokenized again.
fn rest_after(state: &[u32], prompt: &[u32], vocab: &Vocab) -> Result<Option<Vec<u32>>> {
    let n_common = state.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let (text, later) = (units(&state[n_common..], vocab), &prompt[n_common..]);
    let (mut n_tokens, mut covered) = (0, Vec::new());
    while covered.len() < text.len() && n_tokens < later.len() {
        covered.extend(units(&later[n_tokens..=n_tokens], vocab));
        n_tokens += 1;
    }
    let Some(tail) = covered.strip_prefix(text.as_slice()) else { return Ok(None) };
    let tail: Vec<u8> = tail.iter().filter_map(|unit| u8::try_from(*unit).ok()).collect();
    let tail = if tail.is_empty() { Vec::new() } else { vocab.encode_further(&tail)? };
    Ok(Some([tail, later[n_tokens..].to_vec()].concat()))
}

/// Returns the bytes of tokens. A token without bytes, such as the mark between two messages, becomes a number above 255, so that texts with different
/// marks differ.
fn units(tokens: &[u32], vocab: &Vocab) -> Vec<u64> {
    let of_token = |token: &u32| match vocab.token(*token) {
        [] => vec![256 + u64::from(*token)],
        bytes => bytes.iter().map(|byte| u64::from(*byte)).collect(),
    };
    tokens.iter().flat_map(of_token).collect()
}

pub(super) fn gone() -> Error {
    Error::device("the engine is shutting down and takes no more requests")
}
