//! Prints how much time of a step each kind of word (fused operation) takes.

use crate::ceiling::Ceiling;
use crate::output::say;
use wingbeat::error::Result;
use wingbeat::low_level::exec::WordTime;
use wingbeat::low_level::session::{Model, Session, measure};

/// The number of profiled steps. For each word (fused operation), the table shows the shortest time among these steps.
const REPEATS: usize = 5;

/// A row of the table: the sums over all calls of one word (fused operation) in a step.
struct ProfileRow {
    word: &'static str,
    calls: usize,
    dispatches: usize,
    seconds: f64,
    weight_bytes: u64,
}

/// Prints a table to stderr for a step of `n_tokens` tokens, with one row per word (fused operation). The last column is the word's rate
/// divided by the device's highest rate, `ceiling`. Both rates are in GB/s if `n_tokens` is 1, else in GFLOP/s.
pub fn show(model: &Model, n_tokens: usize, ceiling: Option<Ceiling>) -> Result<()> {
    let mut session = Session::new(model, 1)?;
    let mut best: Vec<WordTime> = measure::profile(&mut session, n_tokens)?;
    for _ in 1..REPEATS {
        let again = measure::profile(&mut session, n_tokens)?;
        best.iter_mut().zip(again).for_each(|(best, again)| best.seconds = best.seconds.min(again.seconds));
    }
    let lines = by_word(&best);
    let total: f64 = lines.iter().map(|l| l.seconds).sum();
    say(format_args!("{}: a step of {n_tokens} tokens, {:.3} ms of work", model.name(), total * 1e3));
    say(format_args!(
        "{:<22}{:>6}{:>12}{:>11}{:>8}{:>9}{:>11}{:>9}",
        "word", "calls", "dispatches", "ms", "%", "GB/s", "GFLOP/s", "ceiling"
    ));
    for l in &lines {
        let gb_s = l.weight_bytes as f64 / l.seconds.max(1e-12) / 1e9;
        // In f16, a weight takes two bytes, and counts as two operations per token. So GFLOP/s is GB/s times the number of tokens. Other
        // formats use the same rule, so their GFLOP/s count one operation per token for each byte of the weights.
        let gflop_s = gb_s * n_tokens as f64;
        let share = |c: Ceiling| if n_tokens == 1 { gb_s / c.read_gb_s } else { gflop_s / c.gflop_s };
        let share = ceiling.map_or_else(|| "-".to_string(), |c| format!("{:.0} %", 100.0 * share(c)));
        let (ms, percent) = (l.seconds * 1e3, 100.0 * l.seconds / total.max(1e-12));
        say(format_args!("{:<22}{:>6}{:>12}{ms:>11.3}{percent:>8.1}{gb_s:>9.1}{gflop_s:>11.1}{share:>9}", l.word, l.calls, l.dispatches));
    }
    Ok(())
}

/// Returns the sums of `times` per word (fused operation), in the order in which the words are first called.
fn by_word(times: &[WordTime]) -> Vec<ProfileRow> {
    let mut lines: Vec<ProfileRow> = Vec::new();
    for t in times {
        let i = lines.iter().position(|l| l.word == t.word).unwrap_or_else(|| {
            lines.push(ProfileRow { word: t.word, calls: 0, dispatches: 0, seconds: 0.0, weight_bytes: 0 });
            lines.len() - 1
        });
        let line = &mut lines[i];
        line.calls += 1;
        line.dispatches += t.dispatches;
        line.seconds += t.seconds;
        line.weight_bytes += t.weight_bytes;
    }
    lines
}
