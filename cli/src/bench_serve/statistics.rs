//! Statistics of the answers that a number of clients received.

use serde::Serialize;
use std::time::Duration;

/// The times and sizes of one complete answer. All times count from the moment when the request was sent.
#[derive(Debug, Clone, Copy)]
pub struct AnswerTimes {
    /// The time until the first token.
    pub first: Duration,
    /// The time until the last token.
    pub last: Duration,
    /// The longest time between two chunks with text.
    pub longest_gap: Duration,
    /// The number of tokens of the answer.
    pub tokens: usize,
    /// The number of tokens of the prompt, or `None` if the server does not report the number.
    pub prompt_tokens: Option<usize>,
}

impl AnswerTimes {
    /// Returns the mean time between two tokens. Returns `None` if the answer has fewer than two tokens.
    fn between(&self) -> Option<Duration> {
        let n = u32::try_from(self.tokens.checked_sub(1)?).ok().filter(|n| *n > 0)?;
        Some(self.last.saturating_sub(self.first) / n)
    }
}

/// A median and a 95th percentile in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub p50: f64,
    pub p95: f64,
}

impl Spread {
    /// Returns the percentiles of `times` by the nearest-rank method. Returns `None` if `times` is empty.
    fn new(times: impl Iterator<Item = Duration>) -> Option<Spread> {
        let mut ms: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let rank = |p: usize| ms.get((ms.len() * p).div_ceil(100).saturating_sub(1)).copied();
        Some(Spread { p50: rank(50)?, p95: rank(95)? })
    }
}

/// The results for one number of clients.
#[derive(Debug, Clone, Serialize)]
pub struct Level {
    /// The number of clients that sent requests at the same time.
    pub clients: usize,
    /// The number of requests, failed requests included.
    pub requests: usize,
    /// The number of requests that failed.
    pub failures: usize,
    /// The error of the first request that failed, or `None` if no request failed.
    pub first_failure: Option<String>,
    /// The time from the first request to the end of the last answer.
    pub seconds: f64,
    /// The number of tokens of all prompts, or `None` if the server does not report the numbers.
    pub prompt_tokens: Option<usize>,
    /// The number of tokens of all answers.
    pub completion_tokens: usize,
    /// The time to the first token.
    pub first_token_ms: Option<Spread>,
    /// The time between two tokens: percentiles over one mean per answer. Single times are unknown, because one chunk may hold several tokens.
    pub between_tokens_ms: Option<Spread>,
    /// The longest time between two chunks of an answer.
    pub longest_gap_ms: Option<Spread>,
    /// The tokens of all answers per second.
    pub tokens_per_second: f64,
    /// `tokens_per_second` divided by the same number with one client. `None` if one client was not measured.
    pub ratio_to_one_client: Option<f64>,
}

impl Level {
    /// Summarises complete `answers` and the errors of failed requests. `one_client` is the number of tokens per second with one client,
    /// or `None` if that number is unknown.
    pub fn new(clients: usize, answers: &[AnswerTimes], failures: &[String], took: Duration, one_client: Option<f64>) -> Level {
        let completion_tokens = answers.iter().map(|answer| answer.tokens).sum();
        let tokens_per_second = completion_tokens as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE);
        let one_client = if clients == 1 { Some(tokens_per_second) } else { one_client };
        Level {
            clients,
            requests: answers.len() + failures.len(),
            failures: failures.len(),
            first_failure: failures.first().cloned(),
            seconds: took.as_secs_f64(),
            prompt_tokens: answers.iter().map(|answer| answer.prompt_tokens).sum(),
            completion_tokens,
            first_token_ms: Spread::new(answers.iter().map(|answer| answer.first)),
            between_tokens_ms: Spread::new(answers.iter().filter_map(AnswerTimes::between)),
            longest_gap_ms: Spread::new(answers.iter().filter(|answer| answer.tokens > 1).map(|answer| answer.longest_gap)),
            tokens_per_second,
            ratio_to_one_client: one_client.filter(|one| *one > 0.0).map(|one| tokens_per_second / one),
        }
    }

    /// The first two lines of the table.
    pub const HEAD: [&str; 2] = [
        "| clients | requests | failed | first token ms, p50 | p95 | between tokens ms, p50 | p95 | tokens/s | ratio |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ];

    /// Returns the line of the table. Unknown values are shown as `-`.
    pub fn row(&self) -> String {
        let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_string(), |value| format!("{value:.digits$}"));
        let pair = |spread: Option<Spread>, digits| {
            format!("{} | {}", number(spread.map(|spread| spread.p50), digits), number(spread.map(|spread| spread.p95), digits))
        };
        format!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            self.clients,
            self.requests,
            self.failures,
            pair(self.first_token_ms, 1),
            pair(self.between_tokens_ms, 2),
            number(Some(self.tokens_per_second), 1),
            number(self.ratio_to_one_client, 2),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(first: u64, last: u64, tokens: usize) -> AnswerTimes {
        let ms = Duration::from_millis;
        AnswerTimes { first: ms(first), last: ms(last), longest_gap: ms(9), tokens, prompt_tokens: Some(8) }
    }

    #[test]
    fn percentiles_have_the_nearest_rank() {
        let of = |all: &[u64]| Spread::new(all.iter().map(|ms| Duration::from_millis(*ms)));
        let spread = |p50: f64, p95: f64| Some(Spread { p50, p95 });
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), spread(7.0, 7.0));
        assert_eq!(of(&[4, 1, 3, 2]), spread(2.0, 4.0));
        assert_eq!(of(&(1..=100).rev().collect::<Vec<_>>()), spread(50.0, 95.0));
    }

    #[test]
    fn a_level_counts_answers_and_failures() {
        let answers = [answer(10, 110, 11), answer(30, 70, 5)];
        let level = Level::new(2, &answers, &["full".into(), "cut".into()], Duration::from_secs(2), Some(4.0));
        assert_eq!((level.requests, level.failures, level.first_failure.as_deref()), (4, 2, Some("full")));
        assert_eq!((level.prompt_tokens, level.completion_tokens, level.tokens_per_second), (Some(16), 16, 8.0));
        assert_eq!(level.first_token_ms, Some(Spread { p50: 10.0, p95: 30.0 }));
        assert_eq!(level.between_tokens_ms, Some(Spread { p50: 10.0, p95: 10.0 }));
        assert_eq!(level.ratio_to_one_client, Some(2.0));
        assert_eq!(level.row(), "| 2 | 4 | 2 | 10.0 | 30.0 | 10.00 | 10.00 | 8.0 | 2.00 |");
    }

    #[test]
    fn unknown_values_are_missing() {
        let one_token = AnswerTimes { prompt_tokens: None, ..answer(10, 10, 1) };
        let level = Level::new(4, &[one_token], &[], Duration::from_secs(1), None);
        assert_eq!((level.prompt_tokens, level.between_tokens_ms, level.longest_gap_ms), (None, None, None));
        assert_eq!(level.row(), "| 4 | 1 | 0 | 10.0 | 10.0 | - | - | 1.0 | - |");
        let none = Level::new(1, &[], &["x".into()], Duration::from_secs(1), None);
        assert_eq!(none.row(), "| 1 | 1 | 1 | - | - | - | - | 0.0 | - |");
        assert_eq!(Level::HEAD.map(|line| line.matches('|').count()), [10, 10]);
    }
}
