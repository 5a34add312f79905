//! Log-probabilities of tokens, computed from the model's unchanged logits.

use super::quality::log_sum;
use std::cmp::Ordering;

/// The log-probabilities of a token and of the most likely tokens at its position. Log-probabilities are natural logarithms of softmax(logits),
/// before temperature, penalties, biases and constraints.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Id of the token.
    pub token: u32,
    /// The token's log-probability.
    pub logprob: f32,
    /// The ids with the highest log-probabilities, and these log-probabilities, in descending order. Equal log-probabilities are in the order
    /// of ids.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Computes the log-probabilities of `token` and of the `n` most likely tokens, from logits `[vocab]`.
    pub(super) fn of(logits: &[f32], token: u32, n: usize) -> Logprobs {
        let sum = log_sum(logits);
        let logprob = |x: f32| (f64::from(x) - sum) as f32;
        let likelier = |a: &u32, b: &u32| -> Ordering { logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)) };
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let n = n.min(ids.len());
        if n > 0 && n < ids.len() {
            ids.select_nth_unstable_by(n - 1, likelier);
        }
        ids.truncate(n);
        ids.sort_unstable_by(likelier);
        let top = ids.into_iter().map(|id| (id, logprob(logits[id as usize]))).collect();
        Logprobs { token, logprob: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&x| logprob(x)), top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one() {
        let logits = [1.0f32, 3.0, 3.0, -2.0, 0.5];
        let found = Logprobs::of(&logits, 0, 3);
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 0]);
        let all = Logprobs::of(&logits, 3, 99);
        let sum: f64 = all.top.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6 && all.top.len() == 5, "{sum}");
        let direct = |id: usize| (f64::from(logits[id]).exp() / logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>()).ln();
        assert!((f64::from(found.logprob) - direct(0)).abs() < 1e-6 && (f64::from(all.logprob) - direct(3)).abs() < 1e-6);
        assert!(Logprobs::of(&logits, 1, 0).top.is_empty());
    }
}
