//! Makes named states and entries of the prefix cache from the slots of continuations.

use super::Scheduler;
use crate::engine::event::{Completion, Event};
use crate::engine::outbox::Outbox;
use crate::engine::states::{State, StateInfo};
use crate::error::{Error, Result};
use crate::session::{Done, Finish, KeptSlot};
use crate::vocab::Utf8Stream;
use async_channel::{Receiver, TryRecvError};

/// A complete continuation whose event `Done` waits until the file of its named state is written.
pub struct Saving {
    pub completion: Completion,
    pub events: Outbox,
    pub saved: Receiver<Result<StateInfo>>,
}

impl Scheduler {
    /// Turns the slots that the batcher kept for the engine into named states and cache entries. `done` has the continuations that ended in this
    /// step.
    pub(super) async fn keep(&mut self, done: &mut [Done]) {
        // An engine with a reranker generates no texts, so it keeps slots only for scores.
        if self.scorer.is_some() {
            return self.score();
        }
        for kept in self.batcher.take_kept() {
            self.keep_slot(kept, done).await.unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
        }
    }

    async fn keep_slot(&mut self, KeptSlot { id, slot, is_end }: KeptSlot, done: &mut [Done]) -> Result<()> {
        let mut ended = {
            let text = done.iter().find(|done| done.id == id).and_then(|done| done.output.as_ref().ok());
            if self.keep_passage(id, slot, is_end, text.map_or(&[], |text| &text.tokens))? {
                return Ok(());
            }
            text.filter(|_| is_end).map(|text| (text.tokens.clone(), text.spec.sampler.memory(), text.pending(), text.finish))
        };
        let session = self.batcher.session_mut();
        let request = self.sequences.get_mut(&id).and_then(|sequence| Some((self.requests.get(&sequence.request)?, sequence)));
        let (Some((request, progress)), true) = (request, ended.is_some() || !is_end) else {
            return session.close(slot);
        };
        let mut tokens = request.prepared.prompt.to_vec();
        tokens.extend(ended.iter().flat_map(|(said, ..)| said));
        let n_before = request.state.as_ref().map_or(0, |state| state.snapshot.n_tokens());
        let n_read = session.n_tokens(slot)? - n_before;
        let cache = request.cache.clone();
        if let Some((_, memory, pending, Some(Finish::Interrupted))) = &mut ended
            && n_read < request.prepared.prompt.len()
        {
            // The text ended within its prompt, so the state has only the prefilled tokens.
            tokens.truncate(n_read);
            *memory = request.sampler(progress.index, n_read).memory();
            let before = request.state.as_ref().map_or(&[][..], |state| state.pending());
            *pending = Utf8Stream::after_tokens(before, &tokens, session.model().vocab()).pending().to_vec();
        }
        let saves = request.request.save_state.clone().zip(ended);
        let saves = saves.map(|(name, ended)| (request.owner().to_string(), name, ended, request.tokens_before(&tokens)));
        if let Some((namespace, name, (_, memory, pending, _), all)) = saves {
            // The slot may not have read the last tokens of the text yet. The named state must include these tokens.
            let rest = &tokens[n_read.min(tokens.len())..];
            if let Err(e) = session.prefill_awaited(slot, rest).await {
                // After an error, the contents of the slot are unknown, so the slot becomes neither a state nor an entry.
                progress.saved = Some(failed(e));
                return session.close(slot);
            }
            let snapshot = session.snapshot_awaited(slot).await;
            let state = snapshot.map(|snapshot| State::new(snapshot, memory, pending, all));
            progress.saved = Some(state.map_or_else(failed, |state| self.shared.states.begin_put(&namespace, &name, state)));
        }
        match cache {
            // The slot becomes an entry only if `tokens` contains all tokens that the slot has read.
            Some(namespace) if n_read <= tokens.len() => {
                tokens.truncate(session.n_tokens(slot)?);
                self.cache.insert(&namespace, tokens, slot, session)
            }
            _ => session.close(slot),
        }
    }

    /// Sends `Done` for continuations whose named states have been saved or could not be saved.
    pub(super) fn report_saved(&mut self) {
        let waiting = std::mem::take(&mut self.saving);
        for mut saving in waiting {
            let saved = match saving.saved.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.saving.push(saving);
                    continue;
                }
                Ok(saved) => saved,
                Err(TryRecvError::Closed) => Err(Error::device("the thread that writes states has ended")),
            };
            saving.completion.state = Some(saved.map_err(|e| e.field("save_state")));
            saving.events.send(Event::Done(Box::new(saving.completion)));
        }
    }
}

fn failed(e: Error) -> Receiver<Result<StateInfo>> {
    let (saved, is_saved) = async_channel::bounded(1);
    let _ = saved.try_send(Err(e));
    is_saved
}
