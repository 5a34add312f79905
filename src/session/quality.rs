//! Measures how much quality a weight format loses: compares a model's predictions of a text with the predictions of a reference model.
//!
//! Any two models with vocabularies of the same size can be compared. The models read the text alternately, some tokens at a time, so that only the
//! logits of these tokens are in memory.

use super::{Session, Slot};
use crate::error::{Error, Result, try_alloc};
use rayon::prelude::*;
use std::sync::atomic::Ordering;

/// A text whose tokens the models predict. The text is divided into windows, and each window begins with an empty state.
#[derive(Debug, Clone, Copy)]
pub struct Windows<'a> {
    /// Tokens that are read at the beginning of every window and are not predicted. If `start` is empty, the first token of each window is not
    /// predicted.
    pub start: &'a [u32],
    /// Tokens of the text.
    pub tokens: &'a [u32],
    /// The largest number of tokens in a window, including the tokens of `start`.
    pub len: usize,
}

impl Windows<'_> {
    /// Returns the index of the first predicted token in a window.
    fn first(&self) -> usize {
        self.start.len().max(1)
    }

    /// Returns the windows with at least one predicted token.
    pub(super) fn iter(&self) -> impl Iterator<Item = Vec<u32>> {
        let pieces = self.tokens.chunks(self.len.saturating_sub(self.start.len()).max(1));
        pieces.map(|piece| [self.start, piece].concat()).filter(|window| window.len() > self.first())
    }

    /// Returns the number of windows.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Returns the number of predicted tokens.
    ///
    /// # Errors
    /// `Input` if no token is predicted.
    pub fn n_predicted(&self) -> Result<usize> {
        match self.iter().map(|window| window.len() - self.first()).sum() {
            0 => Err(too_short(self.tokens.len())),
            n => Ok(n),
        }
    }
}

/// A comparison of a model's predictions of a text with the predictions of a reference model. Logarithms are natural; probabilities cover the
/// whole vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// The number of predicted tokens.
    pub n: usize,
    /// exp(mean of −log p(token)) of the reference.
    pub reference_perplexity: f64,
    /// exp(mean of −log p(token)) of the model.
    pub perplexity: f64,
    /// Mean of KL(p of the reference || p of the model), in nats per token.
    pub kl_mean: f64,
    /// 99th percentile of the KL divergence over all predicted tokens, in nats.
    pub kl_p99: f64,
    /// The largest KL divergence of a predicted token, in nats.
    pub kl_max: f64,
    /// Percentage of predicted tokens for which both models have the same most likely token.
    pub agreement_percent: f64,
}

impl Quality {
    /// Returns by how many percent the model's perplexity exceeds the reference's perplexity.
    pub fn loss_percent(&self) -> f64 {
        100.0 * (self.perplexity / self.reference_perplexity - 1.0)
    }
}

/// Reads the text with both models and compares their predictions. Calls `progress(tokens predicted so far, total tokens to predict)`. The stop flag
/// of the session `reference` interrupts the comparison between two steps.
///
/// # Errors
/// `Model` if the vocabularies have different sizes, the reference does not predict tokens, or a logit is not finite; `Input` if there is no token to
/// predict or a token is out of range; the errors of [`Session::score`].
pub fn quality(
    reference: &mut Session,
    model: &mut Session,
    text: &Windows<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Quality> {
    reference.model().check_speaks()?;
    let [expected, found] = [&*reference, &*model].map(|s| s.model().facts().n_vocab);
    if expected != found {
        return Err(Error::model(format!(
            "expected a model with a vocabulary of {expected} tokens, as the reference has; found {found} tokens"
        )));
    }
    if let Some(token) = text.start.iter().chain(text.tokens).find(|&&t| t as usize >= expected) {
        return Err(Error::input(format!("token id {token} is out of range: the largest id of the model is {}", expected - 1)));
    }
    if text.len <= text.first() {
        let least = text.first() + 1;
        return Err(Error::input(format!("expected windows of at least {least} tokens, found windows of {} tokens", text.len)));
    }
    let total = text.n_predicted()?;
    let mut seen = try_alloc(total, "the predictions")?;
    for window in text.iter() {
        let slots = (reference.open()?, model.open()?);
        let read = read_window((&mut *reference, slots.0), (&mut *model, slots.1), &window, text.first(), &mut |tokens| {
            seen.extend(tokens);
            progress(seen.len(), total);
        });
        reference.close(slots.0)?;
        model.close(slots.1)?;
        read?;
    }
    Ok(summary(&seen))
}

/// Returns the error for a text without a token to predict.
pub fn too_short(n_tokens: usize) -> Error {
    Error::input(format!(
        "expected a text of at least 2 tokens, because the first token has no probability; found {n_tokens} {}",
        if n_tokens == 1 { "token" } else { "tokens" }
    ))
    .hint("give a longer text")
}

/// The predictions of one token by both models.
struct Predicted {
    /// −log p(token) of the reference.
    reference_nll: f64,
    /// −log p(token) of the model.
    nll: f64,
    kl: f64,
    agrees: bool,
}

type Reader<'a> = (&'a mut Session, Slot);

/// Reads a window with both models. The logits of a step take at most 64 MiB. Calls `each` with the predictions of the tokens from index `first` of
/// the window on.
///
/// # Errors
/// The errors of [`quality`].
fn read_window(reference: Reader<'_>, model: Reader<'_>, window: &[u32], first: usize, each: &mut dyn FnMut(Vec<Predicted>)) -> Result<()> {
    let n_vocab = reference.0.model().facts().n_vocab;
    let (mut p, mut q) = (Vec::new(), Vec::new());
    // The window's last token need not be read, because no token follows it.
    let read = &window[..window.len() - 1];
    let step = reference.0.max_scored();
    for (part, from) in read.chunks(step).zip((0..).step_by(step)) {
        if reference.0.stop.load(Ordering::Relaxed) {
            return Err(Error::interrupted(from, window.len()));
        }
        for ((session, slot), rows) in [(&mut *reference.0, reference.1), (&mut *model.0, model.1)].into_iter().zip([&mut p, &mut q]) {
            rows.clear();
            let mut keep = |_: usize, row: &[f32]| {
                rows.extend_from_slice(row);
                Ok(())
            };
            session.score(slot, part, &mut keep, &mut |_, _| ())?;
        }
        let next = &window[from + 1..];
        let pairs = p.par_chunks_exact(n_vocab).zip(q.par_chunks_exact(n_vocab)).zip(next.par_iter().take(part.len()));
        let skipped = first.saturating_sub(from + 1);
        each(pairs.skip(skipped).map(|((p, q), &next)| compare(p, q, next)).collect::<Result<_>>()?);
    }
    Ok(())
}

fn compare(p: &[f32], q: &[f32], next: u32) -> Result<Predicted> {
    let (reference_nll, nll) = (-logprob(p, next)?, -logprob(q, next)?);
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_sum;
        log_p.exp() * (log_p - (f64::from(q) - q_sum))
    };
    // Rounding may make the sum slightly negative, although a KL divergence never is.
    let kl = p.iter().zip(q).map(term).sum::<f64>();
    if !kl.is_finite() {
        return Err(not_finite(next));
    }
    Ok(Predicted { reference_nll, nll, kl: kl.max(0.0), agrees: likeliest(p) == likeliest(q) })
}

fn summary(seen: &[Predicted]) -> Quality {
    let n = seen.len() as f64;
    let mean = |of: fn(&Predicted) -> f64| seen.iter().map(of).sum::<f64>() / n;
    let mut kls: Vec<f64> = seen.iter().map(|s| s.kl).collect();
    kls.sort_by(f64::total_cmp);
    Quality {
        n: seen.len(),
        reference_perplexity: mean(|s| s.reference_nll).exp(),
        perplexity: mean(|s| s.nll).exp(),
        kl_mean: mean(|s| s.kl),
        kl_p99: kls[(kls.len() * 99).div_ceil(100) - 1],
        kl_max: kls[kls.len() - 1],
        agreement_percent: 100.0 * mean(|s| f64::from(u8::from(s.agrees))),
    }
}

/// Returns the index of the largest logit. If several logits are largest, returns the lowest index.
fn likeliest(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

/// Returns log Σ exp(logits), in f64.
pub(super) fn log_sum(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

/// Returns the natural logarithm of a token's probability: `logits[token]` − log Σ exp(logits), in f64.
///
/// # Errors
/// `Model` if the result is not finite.
///
/// # Panics
/// If `token` is not an index of `logits`.
pub fn logprob(logits: &[f32], token: u32) -> Result<f64> {
    let p = f64::from(logits[token as usize]) - log_sum(logits);
    if p.is_finite() { Ok(p) } else { Err(not_finite(token)) }
}

fn not_finite(token: u32) -> Error {
    Error::model(format!("the logits for token {token} are not finite numbers")).hint("try `dtype=f32`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_probability_is_stable_and_natural() {
        let half = logprob(&[1000.0, 1000.0, -1000.0], 0).unwrap();
        assert!((half + std::f64::consts::LN_2).abs() < 1e-12);
        assert!(logprob(&[f32::NAN, 0.0], 0).is_err() && logprob(&[0.0, f32::NAN], 0).is_err());
    }

    #[test]
    fn divergence_follows_the_formula() {
        let (p, q) = ([1f32, 2.0, 3.0], [2f32, -1.0, 3.0]);
        let softmax = |x: [f32; 3]| x.map(|v| f64::from(v).exp() / x.iter().map(|&v| f64::from(v).exp()).sum::<f64>());
        let expected: f64 = softmax(p).iter().zip(softmax(q)).map(|(p, q)| p * (p / q).ln()).sum();
        let far = compare(&p.map(|v| v + 900.0), &q.map(|v| v - 900.0), 1).unwrap();
        assert!((far.kl - expected).abs() < 1e-9 && expected > 0.1 && far.agrees);
        assert!((far.nll + softmax(q)[1].ln()).abs() < 1e-9);
        assert_eq!(compare(&p, &p, 0).unwrap().kl, 0.0);
        assert!(!compare(&p, &[9.0, 2.0, 3.0], 0).unwrap().agrees);
        assert!(compare(&p, &[f32::NEG_INFINITY, 0.0, 0.0], 2).is_err());
    }

    #[test]
    fn the_99th_percentile_is_reached_by_99_percent() {
        let seen = |n: usize| -> Vec<Predicted> {
            (1..=n).map(|i| Predicted { reference_nll: 1.0, nll: 2.0, kl: i as f64, agrees: i % 4 == 0 }).collect()
        };
        let q = summary(&seen(200));
        assert_eq!((q.n, q.kl_p99, q.kl_max, q.kl_mean, q.agreement_percent), (200, 198.0, 200.0, 100.5, 25.0));
        assert!((q.loss_percent() - 100.0 * (1f64.exp() - 1.0)).abs() < 1e-9);
        assert_eq!((summary(&seen(1)).kl_p99, summary(&seen(2)).kl_p99), (1.0, 2.0));
    }

    #[test]
    fn windows_begin_alike_and_predict_every_other_token_once() {
        let tokens: Vec<u32> = (0..10).collect();
        let of = |start: &[u32], len| {
            let text = Windows { start, tokens: &tokens, len };
            (text.iter().collect::<Vec<_>>(), text.n_predicted().unwrap())
        };
        // The last window would have one token, which is not predicted, so this window is left out.
        assert_eq!(of(&[], 3), (vec![vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8]], 6));
        assert_eq!(of(&[], 100), (vec![tokens.clone()], 9));
        let (windows, n) = of(&[90, 91], 6);
        assert_eq!((windows[0].as_slice(), windows[2].as_slice(), n), (&[90, 91, 0, 1, 2, 3][..], &[90, 91, 8, 9][..], 10));
    }
}
