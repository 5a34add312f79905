//! Requests for vectors and scores. Such a request has any number of texts.

use super::Scheduler;
use super::admit::Beginning;
use crate::engine::answer::AnswerProgress;
use crate::engine::event::Event;
use crate::engine::prefix::FEWEST;
use crate::engine::prepared::UnreadText;
use crate::error::{Error, Result};
use crate::session::{KeptSlot, TextSpec};

impl Scheduler {
    /// Gives a slot to the next text of a request. If the request has further texts, it then waits after all other requests of its priority. So
    /// requests of one caller take turns, and a request with one text waits for at most one text of a request with many.
    pub(super) fn begin_text(&mut self, id: u64) -> Result<()> {
        let Some(submission) = self.requests.get_mut(&id) else { return Ok(()) };
        let namespace = submission.request.namespace.clone();
        let Some(texts) = &mut submission.prepared.texts else { return Ok(()) };
        let index = texts.n_texts - texts.waiting.len();
        let Some(UnreadText { mut tokens, kept }) = texts.waiting.pop_front() else { return Ok(()) };
        texts.n_unread -= tokens.len();
        let (rule, has_more) = (texts.rule.clone(), !texts.waiting.is_empty());
        if index == 0 {
            submission.events.send(Event::Started { prompt_tokens: texts.n_tokens, cached_tokens: 0 });
        }
        match has_more {
            true => self.enqueue(id),
            false => self.left.push(namespace.clone()),
        }
        let from = if kept >= FEWEST { self.cached(&namespace, &tokens, 1, kept)? } else { Beginning::default() };
        let mut progress = AnswerProgress::new(id, index, 0, None);
        let mut at = Vec::new();
        if kept >= FEWEST && from.n_tokens < kept {
            progress.document = tokens[..kept].to_vec();
            progress.leaves_forks = true;
            at.push(kept - from.n_tokens);
        }
        let tokens = tokens.split_off(from.n_tokens);
        let mut spec = match rule {
            Some(rule) => TextSpec::vector(tokens, rule),
            None => TextSpec::read(tokens),
        };
        (spec.from, spec.keeps.at) = (from.slot, at);
        let text = self.add_from(from.slot, spec)?;
        self.sequences.insert(text, progress);
        if let Some(submission) = self.requests.get_mut(&id) {
            submission.cached_tokens += from.n_tokens;
        }
        Ok(())
    }

    /// Scores the documents that ended in the last step, and makes cache entries from the slots that were kept before the query. An error ends the
    /// requests of these documents.
    pub(super) fn score(&mut self) {
        let Some(scorer) = &mut self.scorer else { return };
        let logged = |e: Error| log::warn!("prefix cache: {e}");
        let (mut of, mut states) = (Vec::new(), Vec::new());
        let mut failed = None;
        for KeptSlot { id, slot, is_end } in self.batcher.take_kept() {
            let session = self.batcher.session_mut();
            let request = self.sequences.get_mut(&id).and_then(|progress| Some((self.requests.get(&progress.request)?, progress)));
            // A cancelled text has no request.
            let Some((submission, progress)) = request else {
                session.close(slot).unwrap_or_else(logged);
                continue;
            };
            if !is_end {
                self.cache.insert(submission.owner(), std::mem::take(&mut progress.document), slot, session).unwrap_or_else(logged);
                continue;
            }
            of.push((progress.request, progress.index));
            let state = session.snapshot(slot);
            match session.close(slot).and(state) {
                Ok(state) => states.push(state),
                Err(e) => failed = Some(e),
            }
        }
        let scores = failed.map_or_else(|| scorer.scores(&states), Err);
        for (i, (request, index)) in of.into_iter().enumerate() {
            match &scores {
                Ok(scores) => {
                    if let Some(submission) = self.requests.get(&request) {
                        submission.events.send(Event::Score { index, logit: scores[i] });
                    }
                }
                Err(e) => self.fail(request, e.clone()),
            }
        }
    }
}
