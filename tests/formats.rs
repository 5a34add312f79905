//! Tests weight formats on a device: every kernel decodes the same bits as the host, and quantised tiny models lose little quality.

use crate::support::{Tiny, adapter, caps, goldens, options, runs_all};
use std::sync::Arc;
use wingbeat::low_level::exec::Executor;
use wingbeat::low_level::exec::Loaded;
use wingbeat::low_level::exec::cpu::CpuModel;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::selftest::{self, Extent};
use wingbeat::low_level::quant::{FORMATS, Format, Scaling};
use wingbeat::low_level::session::{Session, Windows, quality};
use wingbeat::low_level::tape::{Capacity, Caps, Class, MatrixPart, Rows, Run, Step, Tape, Var};
use wingbeat::low_level::words::WORDS;
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::vocab::Vocab;

fn coded() -> impl Iterator<Item = &'static dyn Format> {
    FORMATS.iter().copied().filter(|f| f.scaling() != Scaling::None)
}

/// Sizes that are no multiples of 8 or 64: the padding must not change results.
const ROWS: usize = 71;
/// A width of more than one block of 256 weights, which is no multiple of a block.
const WIDTH: usize = 344;

/// Returns a tape that computes y += W x, and the activations x and y. If `is_sparse` is true, x is declared to be mostly zeros, so a device may
/// store W column-major.
fn product(is_sparse: bool) -> (Tape, Var, Var) {
    let mut tape = Tape::new();
    let x = tape.var("x", Rows::Tokens, &[WIDTH]);
    let y = tape.var("y", Rows::Tokens, &[ROWS]);
    let part = MatrixPart::new("w", ROWS, WIDTH);
    if is_sparse {
        tape.linear_add_sparse(part, x, y)
    } else {
        tape.linear_add(part, x, y)
    }
    (tape, x, y)
}

/// Returns `n` columns of W. The input of each token is 1 in one channel and 0 in all other channels.
fn columns(executor: &mut dyn Executor, tape: &Tape, x: Var, y: Var, n: usize) -> Vec<f32> {
    let (x_stride, y_stride) = (tape.var_spec(x).stride(), tape.var_spec(y).stride());
    let mut inputs = vec![0.0; n * x_stride];
    (0..n).for_each(|t| inputs[t * x_stride + t * 7 % WIDTH] = 1.0);
    executor.write_var(x, &inputs).unwrap();
    executor.write_var(y, &vec![0.0; n * y_stride]).unwrap();
    let run = Run { first_row: 0, len: n as u32, shift_out: 1, ..Run::default() };
    let step = Step { tokens: vec![0; n], runs: vec![run], ..Step::default() };
    executor.run(&step, &mut Vec::new()).unwrap();
    let rows = executor.read_var(y, n).unwrap();
    rows.chunks_exact(y_stride).flat_map(|row| &row[..ROWS]).copied().collect()
}

/// Panics if numbers differ. Numbers of formats without offsets must be equal to the bit.
fn assert_decoded(found: &[f32], expected: &[f32], format: &dyn Format, what: &str) {
    let allowed = if format.scaling() == Scaling::Affine { 2e-6 } else { 0.0 };
    let wrong = found.iter().zip(expected).position(|(a, b)| (a - b).abs() > allowed);
    assert!(found.len() == expected.len() && wrong.is_none(), "{} {what}: number {wrong:?}", format.name());
    assert!(found.iter().any(|x| *x != 0.0), "{} {what}: all numbers are zero", format.name());
}

#[test]
fn every_kernel_decodes_what_the_host_decodes() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for class in [Class::Groups, Class::Lanes] {
        for batch_invariant in [false, true] {
            let device = Arc::new(base.with_caps(Caps { batch_invariant, ..caps(base.caps.clone(), class) }));
            // Block types of GGUF have no column-major form, so their kernels read a sparse input like any other input.
            let inputs = |f: &'static dyn Format| {
                [false, true].into_iter().filter(move |is_sparse| !is_sparse || f.block() == 64).map(move |s| (f, s))
            };
            // Invariant kernels decode with the same functions as the other kernels, so they are not tested with block types of GGUF.
            for (format, is_sparse) in coded().flat_map(inputs).filter(|(f, _)| !batch_invariant || f.file_blocks().is_none()) {
                let (mut tape, x, y) = product(is_sparse);
                tape.store_as(format);
                let (tape, source) = (Arc::new(tape), Synthetic { seed: 3 });
                let load = |device| GpuModel::load(device, tape.clone(), &source, &mut |_, _| ()).unwrap();
                let mut gpu = load(device.clone()).executor(Capacity::pages(1)).unwrap();
                let mut cpu = CpuModel::load(tape.clone(), &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(1)).unwrap();
                // Different numbers of tokens use different kernels: for one token, for a few tokens, and tiled kernels.
                for n in [1, 5, 40] {
                    let found = columns(gpu.as_mut(), &tape, x, y, n);
                    let expected = columns(cpu.as_mut(), &tape, x, y, n);
                    assert_decoded(&found, &expected, format, &format!("{class:?} sparse={is_sparse} {n}"));
                }
            }
        }
    }
}

#[test]
fn an_embedding_decodes_the_same_rows_as_the_host() {
    let Some(adapter) = adapter() else { return };
    let device = Arc::new(Device::open(&adapter, false).unwrap());
    for format in coded() {
        let mut tape = Tape::new();
        let table = tape.table(MatrixPart::new("e", ROWS, WIDTH));
        let x = tape.embed(table, None);
        tape.store_as(format);
        let (tape, source) = (Arc::new(tape), Synthetic { seed: 3 });
        let step = Step {
            tokens: (0..ROWS as u32).collect(),
            runs: vec![Run { len: ROWS as u32, shift_out: 1, ..Run::default() }],
            ..Step::default()
        };
        let rows = |loaded: Arc<dyn Loaded>| {
            let mut executor = loaded.executor(Capacity::pages(1)).unwrap();
            executor.run(&step, &mut Vec::new()).unwrap();
            executor.read_var(x, ROWS).unwrap()
        };
        let found = rows(GpuModel::load(device.clone(), tape.clone(), &source, &mut |_, _| ()).unwrap());
        let expected = rows(CpuModel::load(tape.clone(), &source, &mut |_, _| ()).unwrap());
        let width = tape.var_spec(x).stride();
        let real = |rows: &[f32]| rows.chunks_exact(width).flat_map(|row| row[..WIDTH].to_vec()).collect::<Vec<f32>>();
        assert_decoded(&real(&found), &real(&expected), format, "table");
    }
}

/// Tests every word (a fused operation of a layer) that reads matrices, in the quantised formats, with one set of capabilities. To save time, a set
/// tests every third pair of word and format, and every eighth pair with a block type of GGUF. The next set tests other pairs. With WINGBEAT_TEST_ALL,
/// a set tests every pair.
fn check_words(set: usize, caps_of: impl Fn(&Caps) -> Caps) {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    let device = Arc::new(base.with_caps(caps_of(&base.caps)));
    let n_formats = coded().count();
    let pairs = WORDS.iter().flat_map(|word| coded().map(move |format| (word, format))).enumerate();
    let is_turn = |n: usize, format: &dyn Format| {
        let share = if format.file_blocks().is_some() { 8 } else { 3 };
        runs_all() || (n / n_formats + n + set).is_multiple_of(share)
    };
    let mut wrong = Vec::new();
    for (_, (word, format)) in pairs.filter(|(n, (_, format))| is_turn(*n, *format)) {
        let cases = selftest::cases(word, format, Extent::Full);
        let Some(n) = std::num::NonZero::new(cases.len()) else { continue };
        let outcome = selftest::run(cases.into_iter().nth(set % n).expect("below n"), format, &device).unwrap();
        if !outcome.is_right() {
            wrong.push(format!("{}: {:.2e}", outcome.case, outcome.error));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn quantised_words_agree_with_their_twins() {
    check_words(0, |base| Caps { cooperative: None, ..caps(base.clone(), Class::Groups) });
}

#[test]
fn quantised_words_agree_with_their_twins_for_any_batch() {
    check_words(1, |base| Caps { batch_invariant: true, ..caps(base.clone(), Class::Groups) });
}

/// Bindings of 4 KiB split the matrices.
#[test]
fn quantised_words_agree_with_their_twins_in_pieces() {
    check_words(2, |base| Caps { max_binding: 4096, cooperative: None, ..caps(base.clone(), Class::Groups) });
}

#[test]
fn quantised_words_agree_with_their_twins_on_software_adapters() {
    check_words(3, |base| caps(base.clone(), Class::Lanes));
}

/// The Book of Ruth in the King James Version, which is in the public domain.
const RUTH: &str = include_str!("ruth.txt");

/// Returns by how many percent quantisation raises the perplexity, and the number of bits per weight.
fn cost(model: &Tiny, quant: &str) -> (f64, f64) {
    let plain = options("cpu");
    let mut coded = plain.clone();
    coded.quant = Some(quant.parse().unwrap());
    let (reference, coded) = (model.load(&plain), model.load(&coded));
    let tokens = Vocab::tiny().encode(RUTH.as_bytes()).unwrap();
    let windows = Windows { start: &[], tokens: &tokens, len: 2048 };
    let (mut a, mut b) = (Session::new(&reference, 1).unwrap(), Session::new(&coded, 1).unwrap());
    let q = quality(&mut a, &mut b, &windows, &mut |_, _| ()).unwrap();
    (100.0 * (q.perplexity / q.reference_perplexity - 1.0), coded.bits_per_weight())
}

#[test]
fn tiny_models_lose_little() {
    // The tiny GLM has too little training for a meaningful perplexity.
    for model in goldens().filter(|t| t.name != "glm4") {
        let (loss, bits) = cost(model, "i8");
        assert!(loss <= 0.1 && bits < 8.3, "{}: i8 loses {loss} % at {bits} bits", model.name);
        // On a longer text, the loss is at most 3 % (docs/quantisation.md). On Ruth alone, the loss is slightly higher.
        let (loss, bits) = cost(model, "i4-mixed");
        assert!(loss <= 3.2 && bits <= 5.5, "{}: i4-mixed loses {loss} % at {bits} bits", model.name);
    }
}
