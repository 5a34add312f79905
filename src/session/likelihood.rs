//! Log-likelihoods of many continuations, such as the answers to the questions of a benchmark. Beginnings that several texts share are read once.

use super::quality::logprob;
use super::work::{ChunkRule, LogitRows};
use super::{Session, Slot};
use crate::error::{Error, Result};

/// The maximum number of shared beginnings that are open at once, each an extension of the one before. Each takes a slot besides the slots of the
/// texts.
pub const MAX_NESTED: usize = 8;

/// A shared beginning is prefilled alone only if this saves at least this many tokens, because the prefill takes an additional step.
const LEAST_SAVED: usize = 32;

/// How likely a continuation is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likelihood {
    /// The sum of the log-probabilities (natural) of the continuation's tokens.
    pub logprob: f64,
    /// True if each token of the continuation is the most likely token at its place.
    pub is_greedy: bool,
}

/// A context with its continuation.
struct Text {
    /// The tokens of the context, then of the continuation.
    tokens: Vec<u32>,
    /// The number of tokens in the context, at least 1.
    context: usize,
    /// The place of the text in the caller's list.
    place: usize,
}

impl Text {
    /// Returns how many tokens can be read together with another text: the shared tokens, without the last token of either context. The logits after
    /// this last token belong to one text only.
    fn shared(&self, other: &Text) -> usize {
        let most = self.context.min(other.context) - 1;
        self.tokens.iter().zip(&other.tokens).take(most).take_while(|(a, b)| a == b).count()
    }
}

impl Session {
    /// Returns how likely each continuation is after its context. `requests` are pairs of a context and a continuation. Calls
    /// `progress(continuations done so far, all continuations)` after each step.
    ///
    /// # Errors
    /// `Input` if a context has no token, a token is out of range, or no slot is free; the errors of [`prefill_many`](Self::prefill_many); `Model` if
    /// the logits are not finite.
    pub fn loglikelihoods(&mut self, requests: &[(&[u32], &[u32])], progress: &mut dyn FnMut(usize, usize)) -> Result<Vec<Likelihood>> {
        let mut texts = Vec::with_capacity(requests.len());
        for (place, (context, continuation)) in requests.iter().enumerate() {
            let named = |e: Error| e.field(&format!("requests[{place}]"));
            if context.is_empty() {
                return Err(named(Error::input("expected a context of at least 1 token, found none")));
            }
            // The last token of a text is never read, so no slot would check it.
            [*context, *continuation].into_iter().try_for_each(|tokens| self.model().check_ids(tokens)).map_err(named)?;
            texts.push(Text { tokens: [*context, *continuation].concat(), context: context.len(), place });
        }
        texts.sort_by(|a, b| a.tokens.cmp(&b.tokens));
        let mut work = Tree {
            session: self,
            found: vec![Likelihood { logprob: 0.0, is_greedy: true }; requests.len()],
            open: Vec::new(),
            done: 0,
            progress,
        };
        let read = work.read(&texts, 0, None);
        let Tree { found, open, .. } = work;
        if read.is_err() {
            open.into_iter().try_for_each(|slot| self.close(slot))?;
        }
        read.map(|()| found)
    }
}

/// Scores texts. Prefills a shared beginning once, and forks its slot.
struct Tree<'a> {
    session: &'a mut Session,
    found: Vec<Likelihood>,
    /// The open slots. After an error, the caller closes them.
    open: Vec<Slot>,
    done: usize,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl Tree<'_> {
    /// Scores `texts`, which are sorted by their tokens. `slot` has read the first `read` tokens, which all of them share; `None` has read nothing.
    fn read(&mut self, texts: &[Text], read: usize, slot: Option<Slot>) -> Result<()> {
        let mut alone = Vec::new();
        let mut rest = texts;
        while let Some(first) = rest.first() {
            let (mut n, mut shared) = (1, first.context - 1);
            while let Some(next) = rest.get(n)
                && first.shared(next) > read
            {
                (n, shared) = (n + 1, shared.min(first.shared(next)));
            }
            let (group, others) = rest.split_at(n);
            // The shared beginning takes one free slot, and a text of the group needs a second.
            if (n - 1) * shared.saturating_sub(read) >= LEAST_SAVED && self.session.n_free() > 1 && self.open.len() < MAX_NESTED {
                let begun = self.begin(slot)?;
                self.prefill(&[(begun, &first.tokens[read..shared])])?;
                self.read(group, shared, Some(begun))?;
                self.end(begun)?;
            } else {
                alone.extend(group);
            }
            rest = others;
        }
        while !alone.is_empty() {
            let together = alone.len().min(self.session.n_free()).max(1);
            let texts: Vec<&Text> = alone.drain(..together).collect();
            self.score(&texts, read, slot)?;
        }
        Ok(())
    }

    /// Reads the tokens after the first `read` of several texts together, and adds up the log-probabilities of their continuations.
    fn score(&mut self, texts: &[&Text], read: usize, slot: Option<Slot>) -> Result<()> {
        self.session.check_stop(self.done, self.found.len())?;
        let slots = texts.iter().map(|_| self.begin(slot)).collect::<Result<Vec<_>>>()?;
        let of_texts = || slots.iter().copied().zip(texts);
        let contexts: Vec<(Slot, &[u32])> =
            of_texts().map(|(slot, text)| (slot, &text.tokens[read..text.context - 1])).filter(|(_, tokens)| !tokens.is_empty()).collect();
        if !contexts.is_empty() {
            self.prefill(&contexts)?;
        }
        // The last token of a context predicts the first token of the continuation. The logits after the text's last token are not needed.
        let scored: Vec<&Text> = texts.iter().copied().filter(|text| text.tokens.len() > text.context).collect();
        let continuations: Vec<(Slot, &[u32])> = of_texts()
            .filter(|(_, text)| text.tokens.len() > text.context)
            .map(|(slot, text)| (slot, &text.tokens[text.context - 1..text.tokens.len() - 1]))
            .collect();
        if !continuations.is_empty() {
            let Tree { session, found, done, progress, .. } = self;
            let all = found.len();
            let mut each = |i: usize, t: usize, logits: &[f32]| {
                let text = scored[i];
                let token = text.tokens[text.context + t];
                let sum = &mut found[text.place];
                sum.logprob += logprob(logits, token)?;
                sum.is_greedy &= logits.iter().all(|&x| x <= logits[token as usize]);
                Ok(())
            };
            session
                .read(continuations.as_slice(), ChunkRule::Chunks, (LogitRows::All, Some(&mut each)), &mut |_, _| progress(*done, all))?;
        }
        slots.into_iter().try_for_each(|slot| self.end(slot))?;
        self.done += texts.len();
        (self.progress)(self.done, self.found.len());
        Ok(())
    }

    /// Prefills tokens, and reports the progress after each step.
    fn prefill(&mut self, work: &[(Slot, &[u32])]) -> Result<()> {
        let (done, all, progress) = (self.done, self.found.len(), &mut self.progress);
        self.session.prefill_many(work, &mut |_, _| progress(done, all))
    }

    fn begin(&mut self, slot: Option<Slot>) -> Result<Slot> {
        let begun = match slot {
            Some(slot) => self.session.fork(slot)?,
            None => self.session.open()?,
        };
        self.open.push(begun);
        Ok(begun)
    }

    fn end(&mut self, slot: Slot) -> Result<()> {
        self.open.retain(|open| *open != slot);
        self.session.close(slot)
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{Model, ModelSource, Options};
    use rand_chacha::rand_core::{Rng, SeedableRng};

    /// Returns the likelihood of a continuation, read alone.
    fn alone(session: &mut Session, context: &[u32], continuation: &[u32]) -> Likelihood {
        let slot = session.open().unwrap();
        let mut found = Likelihood { logprob: 0.0, is_greedy: true };
        for (t, &token) in context.iter().chain(continuation).enumerate() {
            if t >= context.len() {
                let logits = session.logits(slot).unwrap();
                found.logprob += logprob(logits, token).unwrap();
                found.is_greedy &= logits.iter().all(|&x| x <= logits[token as usize]);
            }
            session.decode(slot, token).unwrap();
        }
        session.close(slot).unwrap();
        found
    }

    #[test]
    fn shared_beginnings_change_no_likelihood() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let mut tokens = |n: usize| (0..n).map(|_| random.next_u32() % 500).collect::<Vec<u32>>();
        let header = tokens(60);
        let mut requests = vec![(tokens(1), tokens(1)), (tokens(3), Vec::new()), (header.clone(), tokens(2)), (header.clone(), tokens(2))];
        for n in 0..6 {
            let question = [header.as_slice(), &tokens(5 + 9 * n)].concat();
            (1..4).for_each(|n| requests.push((question.clone(), tokens(n))));
        }
        // The most likely continuation is greedy, and a text that occurs twice has two results.
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let logits = session.prefill(slot, &header).unwrap();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
        session.close(slot).unwrap();
        requests.push((header.clone(), vec![best]));
        requests.push((header.clone(), vec![best]));
        let want: Vec<Likelihood> = requests.iter().map(|(context, rest)| alone(&mut session, context, rest)).collect();
        assert!(want[requests.len() - 1].is_greedy && want.iter().any(|found| !found.is_greedy));
        let pairs: Vec<(&[u32], &[u32])> = requests.iter().map(|(context, rest)| (context.as_slice(), rest.as_slice())).collect();
        for n_slots in [1, 2, 4 + MAX_NESTED] {
            let mut session = Session::new(&model, n_slots).unwrap();
            let (mut last, before) = ((0, 0), session.n_free());
            let found = session.loglikelihoods(&pairs, &mut |done, all| last = (done, all)).unwrap();
            assert_eq!((last, session.n_free()), ((pairs.len(), pairs.len()), before));
            for (i, (found, want)) in found.iter().zip(&want).enumerate() {
                assert!((found.logprob - want.logprob).abs() < 1e-3 && found.is_greedy == want.is_greedy, "{i}: {found:?}, {want:?}");
            }
            let e = session.loglikelihoods(&[(&[1], &[2]), (&[], &[1])], &mut |_, _| ()).unwrap_err();
            assert_eq!(e.field_name(), Some("requests[1]"));
            let e = session.loglikelihoods(&[(&[1], &[2]), (&[1], &[1 << 30])], &mut |_, _| ()).unwrap_err();
            assert_eq!(e.field_name(), Some("requests[1]"));
            session.stop_flag().store(true, std::sync::atomic::Ordering::SeqCst);
            session.loglikelihoods(&pairs, &mut |_, _| ()).unwrap_err();
            session.stop_flag().store(false, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(session.n_free(), before);
        }
    }
}
