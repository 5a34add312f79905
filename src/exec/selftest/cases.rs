//! Chooses the cases that test a word's kernels: all, or a few for a quick check. The choice follows rules, so a new word or format is
//! covered without a change here.

use crate::quant::{FORMATS, Format, PAD, Scaling};
use crate::tape::{StateSpec, Step};
use crate::words::WordEntry;
use crate::words::testing::Case;

/// The extent of a check: how many cases it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A few cases of every word, in every format that changes the word's kernels.
    Quick,
    /// All cases of every word in each float format. A quantised format of our own takes a third of the cases that read matrices. A block type of
    /// GGUF takes fewer of these cases, because block types differ only in how they are decoded.
    Full,
}

/// Returns the cases of a word to run in a format. With [`Extent::Full`], a float format takes all cases. A quantised format takes a share of the cases
/// that read matrices. Our own quantised formats together take all these cases, and the block types of GGUF together take all of them, too.
pub fn cases(word: &WordEntry, format: &'static dyn Format, extent: Extent) -> Vec<Case> {
    match extent {
        Extent::Full => full(word, format),
        Extent::Quick => quick(word, format),
    }
}

fn full(word: &WordEntry, format: &'static dyn Format) -> Vec<Case> {
    let all = (word.cases)();
    if format.scaling() == Scaling::None {
        return all;
    }
    let coded: Vec<Case> = all.into_iter().filter(|c| !c.tape.matrices.is_empty()).collect();
    let index = format_index(format);
    let share = if format.file_blocks().is_some() { FORMATS.iter().filter(|f| f.file_blocks().is_some()).count() } else { 3 };
    let wanted = |i: usize, n: usize| i % share.min(n) == index % share.min(n);
    let n = coded.len();
    coded.into_iter().enumerate().filter(|(i, _)| wanted(*i, n)).map(|(_, case)| case).collect()
}

/// Returns the quick cases. The first format, the default of models, takes two cases of each word: an odd size (not a multiple of 8) and a middle
/// size. Every other format takes one of these cases, if the format changes the word's kernels. One case is enough, because formats differ only in
/// how weights are decoded.
fn quick(word: &WordEntry, format: &'static dyn Format) -> Vec<Case> {
    let mut all: Vec<Case> = (word.cases)().into_iter().filter(|case| takes_quickly(case, format)).collect();
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
    let chosen = match format_index(format) {
        0 => vec![odd, middle],
        index if index % 2 == 1 => vec![middle],
        _ => vec![odd],
    };
    let kept = |(i, case): (usize, Case)| chosen.contains(&i).then(|| Case { steps: quick_steps(&case, format), ..case });
    all.into_iter().enumerate().filter_map(kept).collect()
}

/// Returns the steps of a case for a quick check. Every format takes the step with the fewest tokens. A case that prefills also takes the step with
/// the most tokens. The first format also takes a step of several slots. For a word with a matrix, this is the step of several slots with the most
/// tokens. On a software adapter, this step runs the same kernels as prefill, so that no further kernels are compiled. For other words, this is the
/// step with the most slots.
fn quick_steps(case: &Case, format: &'static dyn Format) -> Vec<Step> {
    let steps = &case.steps;
    let by = |key: &dyn Fn(&Step) -> (usize, usize)| (0..steps.len()).rev().max_by_key(|&i| key(&steps[i]));
    let is_product = !case.tape.matrices.is_empty();
    let fewest = by(&|s| (usize::MAX - s.tokens.len(), 0));
    let most = prefills(case, format).then(|| by(&|s| (s.tokens.len(), 0))).flatten();
    let large = |s: &Step| if is_product { (usize::from(s.runs.len() > 1), s.tokens.len()) } else { (s.runs.len(), 0) };
    let batch = (format_index(format) == 0).then(|| by(&large)).flatten();
    let take = |(i, step): (usize, &Step)| match Some(i) {
        // With logits for every token, the output head also uses the kernels of prefill.
        i if i == batch && is_product => Some(Step { outputs: (0..step.tokens.len() as u32).collect(), ..step.clone() }),
        i if [fewest, batch, most].contains(&i) => Some(step.clone()),
        _ => None,
    };
    steps.iter().enumerate().filter_map(take).collect()
}

/// Returns whether the quick check runs the prefill step of a case in a format. Drivers take seconds to compile the kernels of prefill, and formats
/// differ only in how weights are read. So only the first float format and the first quantised format run this step. Cases of quantised matrices with
/// a sparse input never run it. Their scales are stored in another order, and the step of one token checks that order.
fn prefills(case: &Case, format: &'static dyn Format) -> bool {
    leads(format) && (format.scaling() == Scaling::None || case.zeros.is_none())
}

/// Returns whether the quick check runs a case in a format. The scales of quantised matrices with a sparse input are stored in another
/// order. One quantised format is enough to check that order.
fn takes_quickly(case: &Case, format: &'static dyn Format) -> bool {
    takes(case, format) && (format.scaling() == Scaling::None || case.zeros.is_none() || leads(format))
}

/// Returns whether a format is the first float format or the first quantised format.
fn leads(format: &'static dyn Format) -> bool {
    let is_float = |f: &'static dyn Format| f.scaling() == Scaling::None;
    FORMATS.iter().find(|f| is_float(**f) == is_float(format)).is_some_and(|first| *first == format)
}

/// Returns whether a case has a step of one token.
fn decodes(case: &Case) -> bool {
    case.steps.iter().any(|step| step.tokens.len() == 1)
}

/// Returns whether a case runs in a format. The first format takes every case. Another format takes a case if the format changes the case's kernels.
/// Every format changes kernels that read weight matrices. A float format also changes kernels that read caches, or states with one matrix per head.
pub fn takes(case: &Case, format: &'static dyn Format) -> bool {
    let tape = &case.tape;
    let keeps_floats = !tape.caches.is_empty() || tape.states.iter().any(StateSpec::is_matrices);
    format_index(format) == 0 || !tape.matrices.is_empty() || (format.scaling() == Scaling::None && keeps_floats)
}

/// Returns a format's index in [`FORMATS`]. The first format is the default of models.
fn format_index(format: &'static dyn Format) -> usize {
    FORMATS.iter().position(|f| *f == format).unwrap_or(0)
}

/// Returns the size of a case: the number of elements in its matrices, in one row of each variable and in one page of each state.
fn size(case: &Case) -> usize {
    let tape = &case.tape;
    let matrices = tape.matrices.iter().flat_map(|m| &m.parts).map(|p| p.rows * p.k);
    let vars = tape.vars.iter().flat_map(|v| v.columns.iter().copied());
    matrices.chain(vars).chain(tape.states.iter().map(StateSpec::len)).sum()
}

/// Returns whether some row has more than `least` elements and a length that is not a multiple of 8. Kernels treat the last elements of
/// such a row separately.
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

    /// Walks the lists of words and formats, so that the test covers new words and formats.
    #[test]
    fn every_word_has_a_quick_case_in_every_format_that_it_takes() {
        let mut n = 0;
        for (word, format) in WORDS.iter().flat_map(|w| FORMATS.iter().map(move |f| (w, *f))) {
            let quick = cases(word, format, Extent::Quick);
            let is_taken = (word.cases)().iter().any(|case| takes_quickly(case, format));
            assert_eq!(quick.is_empty(), !is_taken, "{} as {}", word.name, format.name());
            for case in &quick {
                let tokens: Vec<usize> = case.steps.iter().map(|s| s.tokens.len()).collect();
                let (fewest, most) = (tokens.iter().min().unwrap(), tokens.iter().max().unwrap());
                let (name, prefills) = (&case.name, prefills(case, format));
                assert!(*fewest == 1 && (*most >= 33) == prefills, "{name} as {}: steps of {tokens:?} tokens", format.name());
                let many = |s: &&Step| s.tokens.len().min(s.outputs.len()) > 8;
                let by_prefill = case.steps.iter().filter(|s| s.runs.len() > 1).all(|s| many(&s));
                assert!(
                    by_prefill || case.tape.matrices.is_empty(),
                    "{name} as {}: a step of several slots takes kernels of its own",
                    format.name()
                );
            }
            n += quick.len();
        }
        let default = WORDS.iter().map(|word| cases(word, FORMATS[0], Extent::Quick));
        for (word, cases) in WORDS.iter().zip(default) {
            // Some words need whole units of 8 elements, so they have no case of an odd size.
            let has_odd = (word.cases)().iter().any(|c| is_odd(c, 1));
            assert!(!has_odd || cases.iter().any(|c| is_odd(c, 1)), "{} has no quick case of an odd size", word.name);
            assert!(cases.iter().any(|c| c.steps.iter().any(|s| s.runs.len() > 1)), "{}: no step of several slots", word.name);
        }
        let full: usize = WORDS.iter().flat_map(|w| FORMATS.iter().map(|f| cases(w, *f, Extent::Full).len())).sum();
        assert!(n < full / 2, "{n} of {full} cases are no quick check");
    }
}
