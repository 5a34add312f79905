//! Requests for vectors and scores. Such a request has any number of texts.

use super::Scheduler;
use crate::engine::answer::AnswerProgress;
use crate::engine::event::Event;
use crate::session::TextSpec;

impl Scheduler {
    /// Gives a slot to the next text of a request. If the request has further texts, it then waits after all other requests of its priority. So
    /// requests of one caller take turns, and a request with one text waits for at most one text of a request with many.
    pub(super) fn begin_text(&mut self, id: u64) {
        let Some(submission) = self.requests.get_mut(&id) else { return };
        let Some(texts) = &mut submission.prepared.texts else { return };
        let index = texts.n_texts - texts.waiting.len();
        let Some(tokens) = texts.waiting.pop_front() else { return };
        let has_more = !texts.waiting.is_empty();
        let spec = match &texts.rule {
            Some(rule) => TextSpec::vector(tokens, rule.clone()),
            None => TextSpec::read(tokens),
        };
        if index == 0 {
            submission.events.send(Event::Started { prompt_tokens: texts.n_tokens, cached_tokens: 0 });
        }
        match has_more {
            true => self.enqueue(id),
            false => self.left.push(submission.request.namespace.clone()),
        }
        self.cache.make_room(1, self.batcher.session_mut());
        match self.batcher.add(spec) {
            Ok(text) => drop(self.sequences.insert(text, AnswerProgress::new(id, index, 0, None))),
            Err(e) => self.fail(id, e),
        }
    }

    /// Scores the documents that ended in the last step. An error ends the requests of these documents.
    pub(super) fn score(&mut self) {
        let Some(scorer) = &mut self.scorer else { return };
        let (mut of, mut states) = (Vec::new(), Vec::new());
        let mut failed = None;
        for (job, state) in self.batcher.take_states() {
            // A cancelled text has no sequence.
            let Some(sequence) = self.sequences.get(&job) else { continue };
            of.push((sequence.request, sequence.index));
            match state {
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
