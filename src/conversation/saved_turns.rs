//! The earlier states of a conversation in lines. A file has only the state after the last turn, and the engine holds a limited number of states,
//! because a state is large. Other states are kept as tokens, and prefilled again when an undo or a retry needs them.

use super::branch::{Branch, TurnRequest, TurnStart};
use super::core::{Core, TextState};
use super::schedule::{Change, before_reply};
use crate::error::{Error, Result};
use crate::session::Timings;
use serde::{Deserialize, Serialize};

/// The states before the last turn. Numbers of tokens count from the beginning of the conversation's tokens.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SavedTurns {
    /// For each turn that can be taken back, oldest first: the number of tokens and the number of turns before the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    undo: Vec<(usize, usize)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<SavedRequest>,
}

/// A [`TurnRequest`] without its states.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedRequest {
    /// How many tokens at its beginning the prompt has in common with the conversation.
    shared: usize,
    /// The further tokens of the prompt.
    further: Vec<u32>,
    /// The number of tokens of the state in [`TurnRequest::lead`], and the tokens between this state and the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lead: Option<(usize, Vec<u32>)>,
    n_turns: usize,
    is_answered: bool,
}

impl SavedTurns {
    pub fn is_empty(&self) -> bool {
        self.undo.is_empty() && self.request.is_none()
    }

    pub fn of(branch: &Branch) -> SavedTurns {
        let request = branch.request.as_ref().map(|request| {
            let prompt = &request.prompt.tokens;
            let shared = prompt.iter().zip(&branch.chat.tokens).take_while(|(a, b)| a == b).count();
            let lead = request.lead.as_ref().map(|(lead, rest)| (lead.tokens.len(), rest.clone()));
            let &TurnRequest { n_turns, is_answered, .. } = request;
            SavedRequest { shared, further: prompt[shared..].to_vec(), lead, n_turns, is_answered }
        });
        SavedTurns { undo: branch.undo.iter().map(|start| (start.n_tokens, start.n_turns)).collect(), request }
    }

    /// Puts the earlier states into a loaded branch. They have tokens and no state yet; [`read_again`] prefills them.
    ///
    /// # Errors
    /// `File` if a number of tokens is too large or a token is unknown.
    pub fn restore(self, branch: &mut Branch, n_vocab: usize) -> Result<()> {
        let too_few = |n: usize| {
            let n_tokens = branch.chat.tokens.len();
            Error::file(format!("the saved conversation has {n_tokens} tokens, but a turn begins after {n} tokens"))
        };
        let cut = |tokens: &[u32], n: usize, change: Change| {
            let tokens = tokens.get(..n).ok_or_else(|| too_few(n))?;
            Ok(TextState { pinned: None, tokens: tokens.to_vec(), change })
        };
        let all = &branch.chat.tokens;
        if let Some((n, _)) = self.undo.iter().find(|(n, _)| *n > all.len()) {
            return Err(too_few(*n));
        }
        if self.undo.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(Error::file("the saved conversation has turns without tokens"));
        }
        let undo = self.undo.into_iter().map(|(n_tokens, n_turns)| TurnStart { pinned: None, n_tokens, n_turns }).collect();
        let request = self.request.map(|saved| {
            let mut prompt = cut(all, saved.shared, before_reply(branch.lines().ending))?;
            prompt.tokens.extend(&saved.further);
            let lead = saved.lead.map(|(n, rest)| Ok((cut(&prompt.tokens, n, Change::default())?, rest))).transpose()?;
            let mut further = saved.further.iter().chain(lead.iter().flat_map(|(_, rest)| rest));
            if let Some(id) = further.find(|id| **id as usize >= n_vocab) {
                return Err(Error::file(format!("expected token ids below {n_vocab} in the saved conversation, found {id}")));
            }
            Ok(TurnRequest { prompt, lead, read: Timings::default(), n_turns: saved.n_turns, is_answered: saved.is_answered })
        });
        (branch.undo, branch.request) = (undo, request.transpose()?);
        Ok(())
    }
}

/// Prefills a state that is kept as tokens only. Returns any other state as it is. The prefill continues `from` if the state begins with the tokens
/// of `from`, and otherwise the state in which every text begins.
///
/// # Errors
/// `File` if the tokens do not begin like the conversation's prompt; the errors of [`Core::read`].
pub fn read_again(core: &mut Core, from: &TextState, state: &TextState) -> Result<TextState> {
    if state.pinned.is_some() {
        return Ok(state.clone());
    }
    let start = core.start.clone();
    let from = [from, &start].into_iter().find(|from| state.tokens.starts_with(&from.tokens));
    let from = from.ok_or_else(|| Error::file("the saved conversation does not begin with the prompt of its format"))?;
    core.read(from, &state.tokens[from.tokens.len()..], state.change)
}

impl TurnRequest {
    /// Returns the states of the request, also states that the engine no longer holds.
    pub fn states_mut(&mut self) -> impl Iterator<Item = &mut TextState> {
        self.lead.iter_mut().map(|(lead, _)| lead).chain([&mut self.prompt])
    }

    /// Prefills the states of a request that are kept as tokens only, after `init`.
    pub fn read_again(&mut self, core: &mut Core, init: &TextState) -> Result<()> {
        let mut from = init.clone();
        if let Some((lead, _)) = &mut self.lead {
            *lead = read_again(core, init, lead)?;
            from = lead.clone();
        }
        self.prompt = read_again(core, &from, &self.prompt)?;
        Ok(())
    }
}
