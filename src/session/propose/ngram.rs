//! Guesses that a text repeats an earlier part of its own sequence.

use super::{Proposer, Wish};
use crate::session::speculation::Speculate;
use std::collections::HashMap;

/// The number of last tokens that are compared. At least two must agree.
const LONGEST: usize = 4;
/// The number of earlier places that are compared, the latest first.
const MOST_PLACES: usize = 32;

/// Finds the last tokens of a sequence earlier in the sequence, and guesses the tokens that followed there.
#[derive(Default)]
pub struct Ngram(HashMap<usize, Places>);

/// For each pair of tokens, the places that follow the pair in a sequence.
#[derive(Default)]
struct Places {
    /// The latest place after each pair.
    latest: HashMap<[u32; 2], usize>,
    /// For each place, the next earlier place after the same pair.
    earlier: Vec<Option<usize>>,
}

impl Places {
    /// Adds the places before the end of `tokens` that were not added before.
    fn follow(&mut self, tokens: &[u32]) {
        for place in self.earlier.len()..tokens.len() {
            let pair = place.checked_sub(2).map(|from| [tokens[from], tokens[from + 1]]);
            self.earlier.push(pair.and_then(|pair| self.latest.insert(pair, place)));
        }
    }

    /// Finds the longest earlier occurrence of the last 2 to [`LONGEST`] tokens, and returns the place after it. Among equally long occurrences, the
    /// latest counts. `None` if the last two tokens do not occur earlier.
    fn find(&self, tokens: &[u32]) -> Option<usize> {
        let last = tokens.last_chunk::<2>()?;
        let mut next = self.latest.get(last).copied();
        let mut best: Option<(usize, usize)> = None;
        for _ in 0..MOST_PLACES {
            let Some(place) = next else { break };
            let n = tokens[..place].iter().rev().zip(tokens.iter().rev()).take(LONGEST).take_while(|(a, b)| a == b).count();
            if best.is_none_or(|(longest, _)| n > longest) {
                best = Some((n, place));
            }
            if n == LONGEST {
                break;
            }
            next = self.earlier[place];
        }
        best.map(|(_, place)| place)
    }
}

impl Proposer for Ngram {
    fn kind(&self) -> Option<Speculate> {
        Some(Speculate::Ngram)
    }

    fn expected(&self) -> f64 {
        0.6
    }

    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        for wish in wishes {
            let places = self.0.entry(wish.key()).or_default();
            places.follow(wish.tokens());
            if let Some(at) = places.find(wish.tokens()) {
                let guesses = wish.tokens()[at..].iter().take(wish.most).copied().collect();
                wish.guesses = guesses;
            }
        }
    }

    fn forget(&mut self, key: usize) {
        self.0.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    /// Returns the place that is found after all tokens. The tokens arrive one by one.
    fn found(tokens: &[u32]) -> Option<usize> {
        let mut places = Places::default();
        (0..=tokens.len()).for_each(|n| places.follow(&tokens[..n]));
        let at_once = {
            let mut places = Places::default();
            places.follow(tokens);
            places.find(tokens)
        };
        assert_eq!(places.find(tokens), at_once);
        at_once
    }

    #[test]
    fn the_longest_and_then_the_latest_match_counts() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[1, 2]), None);
        assert_eq!(found(&[1, 2, 3, 4, 5]), None);
        assert_eq!(found(&[7, 7, 7]), Some(2));
        // The pair 1 2 occurs twice; the later one counts.
        assert_eq!(found(&[1, 2, 3, 1, 2, 4, 1, 2]), Some(5));
        // Three tokens match at the first place, two at the second.
        assert_eq!(found(&[9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2]), Some(3));
        // More than the last four tokens are not compared, so the later place counts.
        assert_eq!(found(&[0, 1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 0, 1, 2, 3, 4]), Some(11));
    }
}
