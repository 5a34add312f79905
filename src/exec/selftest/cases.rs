//! Which cases of a word hold its kernels: all of them, or a few for a quick check. Chosen by rule, so that a new word or format is
//! covered without a line here.

use crate::quant::{FORMATS, Format, PAD, Scaling};
use crate::tape::{StateSpec, Step};
use crate::words::Entry;
use crate::words::testing::Case;

/// How much to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A few cases of every word in every format.
    Quick,
    /// Every case.
    Full,
}

/// Returns the cases of a word to run in a format. With [`Extent::Full`] these are all cases in floats. A format of codes takes a third
/// of the cases that read matrices, so that formats together take them all.
pub fn cases(word: &Entry, format: &'static dyn Format, extent: Extent) -> Vec<Case> {
    match extent {
        Extent::Full => full(word, format),
        Extent::Quick => quick(word, format),
    }
}

fn full(word: &Entry, format: &'static dyn Format) -> Vec<Case> {
    let all = (word.cases)();
    if format.scaling() == Scaling::None {
        return all;
    }
    let coded: Vec<Case> = all.into_iter().filter(|c| !c.tape.matrices.is_empty()).collect();
    let turn = turn(format);
    let wanted = |i: usize, n: usize| i % 3 == turn % 3.min(n);
    let n = coded.len();
    coded.into_iter().enumerate().filter(|(i, _)| wanted(*i, n)).map(|(_, case)| case).collect()
}

/// The first format, which models use by default, takes two cases of each word: an odd size and a middle one. Every other format takes
/// one of the two if it changes the kernel: formats differ in how weights are decoded, and share the rest.
fn quick(word: &Entry, format: &'static dyn Format) -> Vec<Case> {
    let mut all: Vec<Case> = (word.cases)().into_iter().filter(|case| takes(case, format)).collect();
    all.sort_by_key(size);
    if all.iter().any(decodes) {
        all.retain(decodes);
    }
    if all.is_empty() {
        return all;
    }
    let odd = all.iter().position(|c| is_odd(c, PAD)).or_else(|| all.iter().position(|c| is_odd(c, 1))).unwrap_or(0);
    let half = all.len() / 2;
    let middle = if half == odd { (odd + 1).min(all.len() - 1) } else { half };
    let chosen = match turn(format) {
        0 => vec![odd, middle],
        turn if turn % 2 == 1 => vec![middle],
        _ => vec![odd],
    };
    let kept = |(i, case): (usize, Case)| chosen.contains(&i).then(|| Case { steps: quick_steps(case.steps, format), ..case });
    all.into_iter().enumerate().filter_map(kept).collect()
}

/// Every format decodes: the step of the fewest tokens. The first of the floats and the first of the codes also prefill: the step of the
/// most tokens. Drivers compile kernels for prefill for seconds, and between formats only the reading of weights differs. The first
/// format of all also takes the step of the most slots.
fn quick_steps(steps: Vec<Step>, format: &'static dyn Format) -> Vec<Step> {
    let by = |key: &dyn Fn(&Step) -> usize| (0..steps.len()).rev().max_by_key(|&i| key(&steps[i]));
    let fewest = by(&|s| usize::MAX - s.tokens.len());
    let most = leads(format).then(|| by(&|s| s.tokens.len())).flatten();
    let batch = (turn(format) == 0).then(|| by(&|s| s.runs.len())).flatten();
    let chosen = [fewest, batch, most];
    steps.into_iter().enumerate().filter(|(i, _)| chosen.contains(&Some(*i))).map(|(_, step)| step).collect()
}

/// Whether a format is the first of the floats, or the first of the codes.
fn leads(format: &'static dyn Format) -> bool {
    let is_float = |f: &'static dyn Format| f.scaling() == Scaling::None;
    FORMATS.iter().find(|f| is_float(**f) == is_float(format)).is_some_and(|first| *first == format)
}

/// Whether a case has a step of one token.
fn decodes(case: &Case) -> bool {
    case.steps.iter().any(|step| step.tokens.len() == 1)
}

/// Whether a format changes the kernels of a case: those of its matrices; of floats also those of its states and caches.
pub fn takes(case: &Case, format: &'static dyn Format) -> bool {
    let tape = &case.tape;
    let keeps_floats = !tape.caches.is_empty() || tape.states.iter().any(StateSpec::is_matrices);
    turn(format) == 0 || !tape.matrices.is_empty() || (format.scaling() == Scaling::None && keeps_floats)
}

/// A format's place in the list; the first one is the default of models.
fn turn(format: &'static dyn Format) -> usize {
    FORMATS.iter().position(|f| *f == format).unwrap_or(0)
}

/// Numbers that a case computes with.
fn size(case: &Case) -> usize {
    let tape = &case.tape;
    let matrices = tape.matrices.iter().flat_map(|m| &m.parts).map(|p| p.rows * p.k);
    let vars = tape.vars.iter().flat_map(|v| v.columns.iter().copied());
    matrices.chain(vars).chain(tape.states.iter().map(StateSpec::len)).sum()
}

/// Whether a row is longer than `least` and no multiple of a unit: kernels read the remainder in another way.
fn is_odd(case: &Case, least: usize) -> bool {
    let tape = &case.tape;
    let widths = tape.matrices.iter().flat_map(|m| &m.parts).map(|p| p.k);
    let columns = tape.vars.iter().flat_map(|v| v.columns.iter().copied());
    let is_odd = |n: usize| n > least && !n.is_multiple_of(PAD);
    if tape.matrices.is_empty() { columns.into_iter().any(is_odd) } else { widths.into_iter().any(is_odd) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WORDS;

    /// New words and formats are covered by being in their lists.
    #[test]
    fn every_word_has_a_quick_case_in_every_format_that_it_takes() {
        let mut n = 0;
        for (word, format) in WORDS.iter().flat_map(|w| FORMATS.iter().map(move |f| (w, *f))) {
            let quick = cases(word, format, Extent::Quick);
            let is_taken = (word.cases)().iter().any(|case| takes(case, format));
            assert_eq!(quick.is_empty(), !is_taken, "{} as {}", word.name, format.name());
            for case in &quick {
                let tokens: Vec<usize> = case.steps.iter().map(|s| s.tokens.len()).collect();
                let (fewest, most) = (tokens.iter().min().unwrap(), tokens.iter().max().unwrap());
                assert!(*fewest == 1 && (*most >= 33) == leads(format), "{} as {}: steps of {tokens:?} tokens", case.name, format.name());
            }
            n += quick.len();
        }
        let default = WORDS.iter().map(|word| cases(word, FORMATS[0], Extent::Quick));
        for (word, cases) in WORDS.iter().zip(default) {
            assert!(cases.iter().any(|c| is_odd(c, 1)), "{} has no quick case of an odd size", word.name);
            assert!(cases.iter().any(|c| c.steps.iter().any(|s| s.runs.len() > 1)), "{}: no step of several slots", word.name);
        }
        let full: usize = WORDS.iter().flat_map(|w| FORMATS.iter().map(|f| cases(w, *f, Extent::Full).len())).sum();
        assert!(n < full / 2, "{n} of {full} cases are no quick check");
    }
}
