//! Requests for vectors and scores. Such a request has any number of texts.

use super::Scheduler;
use crate::engine::event::Event;
use crate::engine::sequence::{Running, Sequence};
use crate::session::TextSpec;
use web_time::Instant;

impl Scheduler {
    /// Gives a slot to the next text of the waiting request number `next`. If the request has further texts, it then waits after all other requests
    /// of its priority. So requests of one caller take turns, and a request with one text waits for at most one text of a request with many.
    pub(super) fn begin_text(&mut self, next: usize) {
        let mut submission = self.waiting.remove(next);
        let Some(texts) = &mut submission.prepared.texts else { return };
        let index = texts.n_texts - texts.waiting.len();
        let Some(tokens) = texts.waiting.pop_front() else { return };
        let id = *texts.request.get_or_insert(self.n_requests);
        let (is_first, has_more) = (index == 0, !texts.waiting.is_empty());
        let job = match &texts.rule {
            Some(rule) => TextSpec::vector(tokens, rule.clone()),
            None => TextSpec::read(tokens),
        };
        if is_first {
            let began = Instant::now();
            submission.events.send(Event::Started { prompt_tokens: texts.n_tokens, cached_tokens: 0 });
            let running = Running {
                events: submission.events.clone(),
                prompt: Default::default(),
                prompt_tokens: texts.n_tokens,
                texts_left: texts.n_texts,
                cached_tokens: 0,
                n_told: None,
                namespace: None,
                owner: submission.request.namespace.clone(),
                state: None,
                saves: None,
                queue_ms: (began - submission.at).as_secs_f64() * 1e3,
                began,
                prompt_logprobs: Vec::new(),
                vector: None,
                n_left: 1,
                is_paused: false,
            };
            self.running.insert(id, running);
        }
        self.note_admitted(&submission.request.namespace);
        self.n_requests += 1;
        match has_more {
            true => self.enqueue(submission),
            false => self.left.push(submission.request.namespace),
        }
        self.cache.make_room(1, self.batcher.session_mut());
        match self.batcher.add(job) {
            Ok(job) => drop(self.sequences.insert(job, Sequence::new(id, index, 0, None))),
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
                    if let Some(running) = self.running.get(&request) {
                        running.events.send(Event::Score { index, logit: scores[i] });
                    }
                }
                Err(e) => self.fail(request, e.clone()),
            }
        }
    }
}
