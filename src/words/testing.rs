//! Cases in which a word's kernels must agree with its twin, the reference implementation on the CPU. A case is a small tape, steps to
//! play, and the largest error that is allowed.
//!
//! The release build also contains the cases: `doctor` runs them on a user's adapter. All weights and inputs are computed from names and
//! seeds.

use crate::tape::{Run, Step, Tape, Var};

/// A tape of one word and the steps to play on it.
pub struct Case {
    pub name: String,
    pub tape: Tape,
    pub steps: Vec<Step>,
    /// The largest normalised mean squared error that passes.
    pub bound: f64,
    /// `true` if states start with their initial values, `false` if they start with seeded random values.
    pub from_nothing: bool,
    /// An activation and the fraction of zeros in its first column, or `None` if no input needs zeros.
    pub zeros: Option<(Var, f32)>,
}

/// The number of state pages that the steps of [`steps`] use.
pub const PAGES: usize = 4;
/// The number of blocks in each cache of a case.
pub const BLOCKS: usize = 49;
/// The largest number of tokens of a slot in a case with caches.
pub const CONTEXT: usize = 1024;

impl Case {
    /// Returns a case whose states start with seeded random values and whose inputs have no zeros.
    pub fn new(name: String, tape: Tape, steps: Vec<Step>, bound: f64) -> Case {
        Case { name, tape, steps, bound, from_nothing: false, zeros: None }
    }
}

/// Returns six steps of 1 to 70 tokens. The first four have one to three slots. The last two have one slot: the first requests the logits of the last
/// token, the second the logits of several tokens. In some steps a slot reads one page and writes another page. Token ids are below `vocab`.
pub fn steps(vocab: usize) -> Vec<Step> {
    let run = |first_row, len, page_in, page_out, shift_in, shift_out| Run {
        first_row,
        len,
        page_in,
        page_out,
        shift_in,
        shift_out,
        ..Run::default()
    };
    let tokens = |n: usize| (0..n).map(|i| (i * 7 % vocab) as u32).collect();
    vec![
        Step { tokens: tokens(1), runs: vec![run(0, 1, 1, 1, 2, 3)], outputs: vec![0], ..Step::default() },
        Step { tokens: tokens(3), runs: vec![run(0, 2, 1, 1, 2, 3), run(2, 1, 0, 0, 1, 0)], outputs: vec![2, 0, 1], ..Step::default() },
        Step {
            tokens: tokens(4),
            runs: vec![run(0, 2, 0, 0, 0, 1), run(2, 1, 1, 1, 3, 2), run(3, 1, 2, 3, 5, 6)],
            outputs: vec![1, 3],
            ..Step::default()
        },
        Step {
            tokens: tokens(9),
            runs: vec![run(0, 5, 0, 0, 1, 0), run(5, 1, 1, 3, 3, 6), run(6, 3, 2, 2, 4, 5)],
            outputs: vec![4, 5, 8],
            ..Step::default()
        },
        Step { tokens: tokens(33), runs: vec![run(0, 33, 3, 3, 6, 7)], outputs: vec![32], ..Step::default() },
        Step { tokens: tokens(70), runs: vec![run(0, 70, 3, 3, 7, 6)], outputs: vec![69, 0, 3, 68, 1], ..Step::default() },
    ]
}

/// Returns steps of one slot whose only output is the last token. The numbers of tokens are chosen so that products use each of their kernels.
pub fn batches() -> Vec<Step> {
    let run = |n| Run { first_row: 0, len: n, page_in: 3, page_out: 3, shift_in: 6, shift_out: 7, ..Run::default() };
    let step = |n: u32| Step { tokens: vec![0; n as usize], runs: vec![run(n)], outputs: vec![n - 1], ..Step::default() };
    [2, 7, 13, 16, 17, 33, 65, 129].map(step).into()
}

/// Returns an endless iterator over random numbers in [−1, 1). The generator is splitmix64, so every machine computes the same numbers.
pub fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    })
}

/// Returns the seed of a name: its FNV-1a hash.
pub fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the normalised mean squared error Σ (a − b)² / Σ b², for a in `found` and b in `expected`. The error is infinite if the lengths
/// differ, if the sum of errors is not finite, or if `expected` is all zero and `found` is not.
pub fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    let mut error = 0f64;
    let mut power = 0f64;
    for (&a, &b) in found.iter().zip(expected) {
        if a == b {
            power += f64::from(b) * f64::from(b);
            continue;
        }
        error += (f64::from(a) - f64::from(b)).powi(2);
        power += f64::from(b) * f64::from(b);
    }
    match (found.len() == expected.len(), error == 0.0) {
        (true, true) => 0.0,
        (true, false) if error.is_finite() && power > 0.0 => error / power,
        _ => f64::INFINITY,
    }
}
