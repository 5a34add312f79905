//! Compares the kernels of every word (a fused operation of a layer) with the word's twin, the reference implementation on the CPU. The weights are
//! floats. `tests/formats.rs` tests other formats. Both kernel families are tested, with and without bounds checks.

use crate::support::{adapter, caps, nmse, runs_all};
use std::ops::Range;
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::selftest::{self, Extent};
use wingbeat::low_level::exec::{Executor, Loaded};
use wingbeat::low_level::quant::{Activations, FORMATS, find, floats};
use wingbeat::low_level::tape::{Capacity, Caps, Class, DenseFrom, Lowering, MatrixPart, Rows, Run, Step, Tape, Tile, Tuning, Var, vector};
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::low_level::words::testing::numbers;
use wingbeat::low_level::words::{Activation, IN_SPANS, LAYER_NORM_EPS, Norm, Projection, WORDS, WordEntry};

/// Compares the kernels of all words with their twins, for every `share`th pair of a case and a float format. With a share of 2, each case has one of
/// the two formats. To save time, kernels that differ from others in one respect have fewer pairs. With WINGBEAT_TEST_ALL, every pair is compared.
fn all_words(share: usize, caps: impl Fn(Caps) -> Caps, trusted: bool) {
    words(WORDS, share, caps, trusted);
}

/// Compares the kernels of some words with their twins. If `trusted` is true, shaders run without bounds checks.
fn words<'a>(words: impl IntoIterator<Item = &'a WordEntry>, share: usize, caps: impl Fn(Caps) -> Caps, trusted: bool) {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let mut device = base.with_caps(caps(base.caps.clone()));
    device.trusted = trusted;
    let device = Arc::new(device);
    let mut wrong = Vec::new();
    for word in words {
        assert!(!(word.cases)().is_empty(), "{} has no cases", word.name);
        for (n, format) in floats().enumerate() {
            let takes = |i: usize| runs_all() || (i + n).is_multiple_of(share);
            for (_, case) in (word.cases)().into_iter().enumerate().filter(|(i, _)| takes(*i)) {
                let outcome = selftest::run(case, format, &device).unwrap();
                if !outcome.is_right() {
                    wrong.push(format!("{}: {:.2e}", outcome.case, outcome.error));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lanes_equal_their_twins() {
    all_words(2, |c| caps(c, Class::Lanes), true);
}

#[test]
fn groups_equal_their_twins() {
    all_words(2, |c| Caps { cooperative: None, ..caps(c, Class::Groups) }, true);
}

#[test]
fn cooperative_matrices_equal_their_twins() {
    match adapter() {
        Some(a) if a.cooperative.is_some() => all_words(2, |c| Caps { cooperative: a.cooperative, ..caps(c, Class::Groups) }, true),
        _ => eprintln!("SKIPPED: the adapter has no cooperative matrices"),
    }
}

#[test]
fn groups_without_subgroups_equal_their_twins() {
    all_words(3, |c| Caps { subgroups: false, ..caps(c, Class::Groups) }, true);
}

#[test]
fn batch_invariant_kernels_equal_their_twins() {
    all_words(3, |c| Caps { batch_invariant: true, ..caps(c, Class::Groups) }, true);
}

#[test]
fn checked_shaders_equal_their_twins() {
    all_words(4, |c| caps(c, Class::Lanes), false);
}

#[test]
fn split_matrices_equal_their_twins() {
    all_words(4, |c| Caps { max_binding: 4096, ..caps(c, Class::Groups) }, true);
    all_words(4, |c| Caps { max_binding: 4096, ..caps(c, Class::Lanes) }, true);
}

/// The results of a token have the same bits alone and in a batch of up to 16 tokens. One dispatch computes such a batch and reads the weights once.
/// Under batch invariance, the results have the same bits in a batch of any size.
#[test]
fn a_token_rounds_the_same_in_every_batch() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for (batch_invariant, sizes) in [(false, vec![2, 3, 4, 8, 16]), (true, vec![2, 3, 4, 8, 11, 16, 37])] {
        let own = Caps { batch_invariant, ..caps(base.caps.clone(), Class::Groups) };
        let device = Arc::new(base.with_caps(own));
        for (rows, batch_tokens) in [(4, 2), (8, 4), (16, 16), (16, 8)] {
            let tuning = Tuning { rows, batch_rows: rows, batch_tokens, ..Tuning::default() };
            let device = Arc::new(device.with_caps(Caps { tuning, ..device.caps.clone() }));
            let mut tape = Tape::new();
            let (y, x) = (tape.var("y", Rows::Tokens, &[K]), tape.var("x", Rows::Tokens, &[ROWS]));
            tape.linear_add(MatrixPart::new("w", ROWS, K), y, x);
            let mut executor = executor(&device, tape);
            let alone: Vec<f32> = (0..37).flat_map(|t| product(executor.as_mut(), y, x, t..t + 1)).collect();
            assert!(alone.chunks_exact(stride(ROWS)).all(|row| row[..ROWS].iter().all(|v| v.is_finite() && *v != 0.0)));
            for &n in &sizes {
                assert_eq!(product(executor.as_mut(), y, x, 0..n), alone[..n * stride(ROWS)], "{n} tokens");
            }
        }
    }
}

/// A tile determines how a product is divided among workgroups, and never the order in which numbers are added.
#[test]
fn tiles_change_no_bit() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for n in [19, 40, 70] {
        let of = |tuning: Tuning| {
            let own = Caps { tuning, cooperative: None, ..caps(base.caps.clone(), Class::Groups) };
            let mut tape = Tape::new();
            let (y, x) = (tape.var("y", Rows::Tokens, &[K]), tape.var("x", Rows::Tokens, &[ROWS]));
            tape.linear_add(MatrixPart::new("w", ROWS, K), y, x);
            product(executor(&Arc::new(base.with_caps(own)), tape).as_mut(), y, x, 0..n)
        };
        let results: Vec<_> = Tuning::default().candidates(n).into_iter().map(of).collect();
        assert!(results.len() > 2 && results.iter().all(|r| *r == results[0]), "{n} tokens");

        let rounded = |tile: Tile| {
            let tuning = Tuning::default().with_rounded(n, Some(tile));
            let own = Caps { tuning, cooperative: None, ..caps(base.caps.clone(), Class::Groups) };
            let mut tape = Tape::new();
            let (y, x) = (tape.var("y", Rows::Tokens, &[K]), tape.var("x", Rows::Tokens, &[ROWS]));
            tape.linear_add(MatrixPart::new("w", ROWS, K), y, x);
            tape.store_as(find("q4_k").unwrap());
            tape.activations = Activations::I8;
            tape.keep_rounded();
            product(executor(&Arc::new(base.with_caps(own)), tape).as_mut(), y, x, 0..n)
        };
        let rounded: Vec<_> = Tuning::default().rounded_candidates(n).into_iter().map(rounded).collect();
        assert!(rounded.iter().all(|r| *r == rounded[0]) && rounded[0] != results[0], "{n} tokens, rounded");
    }
}

/// A workgroup that normalises the inputs of several tokens computes the same bits as for each token alone.
#[test]
fn a_token_is_normalised_the_same_in_every_batch() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let device = Arc::new(base.with_caps(caps(base.caps.clone(), Class::Groups)));
    let (tape, x, y) = normalised_product();
    let mut executor = executor(&device, tape);
    let alone: Vec<f32> = (0..4).flat_map(|t| product(executor.as_mut(), x, y, t..t + 1)).collect();
    for n in [2, 3, 4] {
        assert_eq!(product(executor.as_mut(), x, y, 0..n), alone[..n * stride(ROWS)], "{n} tokens");
    }
}

/// A tuning of a product that computes its input determines when weights are loaded and how rows are divided, and changes no bit.
#[test]
fn tuning_changes_no_bit_of_a_product_that_computes_its_input() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for &format in FORMATS {
        let of = |tuning: Tuning| {
            let device = Arc::new(base.with_caps(Caps { tuning, ..caps(base.caps.clone(), Class::Groups) }));
            let (mut tape, x, y) = normalised_product();
            tape.store_as(format);
            product(executor(&device, tape).as_mut(), x, y, 0..1)
        };
        let first = Tuning::default();
        // Every pipeline takes a second, so only one format has all numbers of rows.
        let is_tested = |t: &Tuning| t.rows == first.rows && (t.input_rows == first.input_rows || format.name() == "f16");
        let results: Vec<_> = first.candidates(1).into_iter().filter(is_tested).map(of).collect();
        assert!(results.len() > 1 && results[0].iter().any(|v| *v != 0.0), "{}", format.name());
        assert!(results.iter().all(|r| *r == results[0]), "{}", format.name());
    }
}

/// Returns a tape with a product of a norm and a token shift, the product's argument, and its result.
fn normalised_product() -> (Tape, Var, Var) {
    let mut tape = Tape::new();
    let x = tape.var("x", Rows::Tokens, &[K]);
    let vectors = tape.vectors(K, ["g", "b", "mix"].map(vector).into());
    let shift = tape.state("shift".into(), &[K], true);
    let projection = Projection { part: MatrixPart::new("w", ROWS, K), mix: 0, activation: Activation::None, bias: None };
    let norm = Norm::layer(vectors, LAYER_NORM_EPS);
    let y = tape.norm_shift_linear("y", x, norm, vec![projection], shift);
    (tape, x, y)
}

const ROWS: usize = 69;
const K: usize = 600;

/// Returns the number of floats from one row of an activation to the next, for rows of width `n`.
fn stride(n: usize) -> usize {
    n.next_multiple_of(64)
}

fn executor(device: &Arc<Device>, tape: Tape) -> Box<dyn Executor> {
    let source = Synthetic { seed: 7 };
    GpuModel::load(device.clone(), Arc::new(tape), &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(128)).unwrap()
}

/// Runs a step with one slot per index in `rows`. Each input row holds pseudo-random numbers whose seed is the index. Returns the output.
fn product(executor: &mut dyn Executor, input: Var, output: Var, rows: Range<usize>) -> Vec<f32> {
    let n = rows.len();
    let values: Vec<f32> = rows.flat_map(|t| numbers(t as u64).take(K).chain(std::iter::repeat_n(0.0, stride(K) - K))).collect();
    let run = |i: u32| Run { first_row: i, len: 1, page_in: i, page_out: i, shift_in: 2 * i, shift_out: 2 * i + 1, ..Run::default() };
    let step = Step { tokens: vec![0; n], runs: (0..n as u32).map(run).collect(), outputs: vec![], ..Step::default() };
    // Writes twice, because the first write may reallocate the buffers and lose earlier writes.
    for _ in 0..2 {
        executor.write_var(output, &vec![0.0; n * stride(ROWS)]).unwrap();
        executor.write_var(input, &values).unwrap();
    }
    executor.run(&step, &mut Vec::new()).unwrap();
    executor.read_var(output, n).unwrap()
}

#[test]
fn dense_products_of_mostly_zeros_equal_their_twins() {
    let sparse = WORDS.iter().filter(|w| w.name == "linear_add_sparse");
    words(sparse, 1, |c| Caps { sparse: false, ..caps(c, Class::Groups) }, true);
}

/// For each format, tuning chooses the number of tokens from which a product of mostly zeros is computed as a dense product. Every choice must give
/// right results in every step.
#[test]
fn products_of_mostly_zeros_are_right_for_every_choice() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let word = WORDS.iter().find(|w| w.name == "linear_add_sparse").unwrap();
    for (format, first) in ["f16", "i8", "i4"].into_iter().flat_map(|format| DenseFrom::CANDIDATES.map(|n| (find(format).unwrap(), n))) {
        let tuning = Tuning { dense_from: DenseFrom { f16: first, i8: first, i4: first }, ..Tuning::default() };
        let device = Arc::new(base.with_caps(Caps { cooperative: None, tuning, ..caps(base.caps.clone(), Class::Groups) }));
        for mut case in (word.cases)().into_iter().filter(|case| case.name.ends_with("65x1000/0.85")) {
            case.tape.store_as(format);
            for tokens in [1, 2, 4, 8, 16] {
                let cx = Lowering { tape: &case.tape, caps: &device.caps, tokens, runs: 1, outputs: 1, capacity: tokens, context: 1 };
                let is_sparse = case.tape.words[0].lower(&cx)[0].shader == "linear/sparse";
                assert_eq!(is_sparse, tokens < first, "{tokens} tokens, dense from {first}");
            }
            let outcome = selftest::run(case, format, &device).unwrap();
            assert!(outcome.is_right(), "{}, dense from {first}: {:.2e}", outcome.case, outcome.error);
        }
    }
}

/// On GPUs with few registers, a lane loads fewer units of quantised low-rank matrices ahead.
#[test]
fn low_rank_matrices_are_right_with_few_registers() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let few = Caps { tuning: Tuning::unmeasured("metal", ""), cooperative: None, ..caps(base.caps.clone(), Class::Groups) };
    let device = Arc::new(base.with_caps(few));
    let recurrences = WORDS.iter().filter(|w| IN_SPANS.contains(&w.name));
    for (word, (format, expected)) in recurrences.flat_map(|word| [("f16", 4), ("i8", 1)].map(|f| (word, f))) {
        let mut units = Vec::new();
        for mut case in selftest::cases(word, find(format).unwrap(), Extent::Quick) {
            case.tape.store_as(find(format).unwrap());
            let cx = Lowering { tape: &case.tape, caps: &device.caps, tokens: 1, runs: 1, outputs: 1, capacity: 1, context: 1 };
            let dispatches = case.tape.words.iter().flat_map(|w| w.lower(&cx)).filter(|d| d.shader == "rwkv/head");
            units.extend(dispatches.flat_map(|d| d.constants).filter(|(name, _)| *name == "AHEAD").map(|(_, n)| n));
            let outcome = selftest::run(case, find(format).unwrap(), &device).unwrap();
            assert!(outcome.is_right(), "{}: {:.2e}", outcome.case, outcome.error);
        }
        assert!(!units.is_empty() && units.iter().all(|&n| n == expected), "{} {format}: {units:?}", word.name);
    }
}

#[test]
fn the_error_measure_objects_to_wrong_numbers() {
    let right = [1.0, -2.0, 3.0, 0.5];
    assert_eq!(nmse(&right, &right), 0.0);
    for wrong in [[1.0, -2.0, 3.0, 0.6], [1.0, -2.0, 3.0, f32::NAN], [0.0; 4], [-1.0, 2.0, -3.0, -0.5], [1.0, -2.0, f32::INFINITY, 0.5]] {
        assert!(nmse(&wrong, &right) > 1e-4, "{wrong:?}");
    }
    assert_eq!(nmse(&right[..3], &right), f64::INFINITY);
    assert_eq!(nmse(&[1e-30], &[0.0]), f64::INFINITY);
}
