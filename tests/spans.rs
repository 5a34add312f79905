//! Tests the recurrence of RWKV-5, 6 and 7 in spans of 16 tokens, which prefill on GPUs uses. Compares spans with the twins (reference
//! implementations on the CPU) and with official logits, and tests which steps use spans.

use crate::support::{adapter, caps, goldens, nmse, options, read, unwatched};
use std::ops::Range;
use std::sync::Arc;
use wingbeat::low_level::exec::cpu::CpuModel;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::{Executor, Loaded, selftest};
use wingbeat::low_level::quant::find;
use wingbeat::low_level::session::Options;
use wingbeat::low_level::tape::{Capacity, Caps, Class, Lowering, MatrixPart, Rows, Run, Step, Tape, Var, vector};
use wingbeat::low_level::words::synthetic::Synthetic;
use wingbeat::low_level::words::testing::{Case, numbers};
use wingbeat::low_level::words::{Decay, Expansion, HeadNorm, IN_SPANS, SPAN, WORDS, Wkv6, Wkv7};

/// Returns the first adapter's device with kernels for GPUs, with or without spans. Steps have no time limit.
fn device(spans: bool) -> Option<Arc<Device>> {
    let base = Device::open(&adapter()?, false).unwrap();
    let own = Caps { spans, cooperative: None, ..caps(base.caps.clone(), Class::Groups) };
    Some(unwatched(&base, own))
}

/// Returns a step whose runs have these lengths. Run i reads page i. The last run writes the page after its own page.
fn step(lengths: &[u32]) -> Step {
    let mut first_row = 0;
    let run = |(i, &len): (usize, &u32)| {
        let page_in = i as u32;
        let page_out = page_in + u32::from(i + 1 == lengths.len());
        let run = Run { first_row, len, page_in, page_out, shift_in: 2 * page_in, shift_out: 2 * page_out + 1, ..Run::default() };
        first_row += len;
        run
    };
    let runs: Vec<Run> = lengths.iter().enumerate().map(run).collect();
    let n: u32 = lengths.iter().sum();
    Step { tokens: vec![0; n as usize], runs, outputs: vec![n - 1], ..Step::default() }
}

/// Returns a tape of RWKV-5 whose constant decays are 0, nearly 0, and up to 1. Also returns its input and its output.
fn extreme_decays() -> (Tape, Var, Var) {
    let (heads, head_size) = (2, 64);
    let width = heads * head_size;
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[width; 4]);
    let decay = |x: f32| match x {
        x if x < -0.7 => 0.0,
        x if x < -0.4 => 1e-38,
        x if x < 0.0 => 1e-5,
        x if x < 0.5 => 1.0,
        x => 0.99 + 0.01 * x,
    };
    let vectors = tape.vectors(width, vec![vector("u"), vector("g_x"), vector("b_x"), vector("w").map(decay)]);
    let state = tape.state("wkv".into(), &[heads, head_size, head_size], false);
    let y = tape.wkv6(proj, Wkv6 { head_size, eps: 64e-5, vectors, decay: Decay::Constant, gate: Some(3), state });
    (tape, proj, y)
}

/// Returns a tape of the first layer of an RWKV-7, its input and its output.
fn first_layer() -> (Tape, Var, Var) {
    let (heads, head_size, rank) = (2, 40, 8);
    let width = heads * head_size;
    let mut tape = Tape::new();
    let proj = tape.var("proj", Rows::Tokens, &[width, width, width, rank, rank, rank]);
    let matrix = |name: &str| MatrixPart::in_out(name.to_string(), width, rank);
    let spec = Wkv7 {
        head_size,
        decay: Expansion { matrix: matrix("w2"), bias: vector("w0") },
        rate: Expansion { matrix: matrix("a2"), bias: vector("a0") },
        gate: Some(matrix("g2")),
        residual: None,
        k_k: vector("k_k"),
        k_a: vector("k_a"),
        r_k: vector("r_k"),
        ln_x: Some(HeadNorm { parts: ["g_x", "b_x"].map(vector), eps: 64e-5 }),
        state: tape.state("wkv".into(), &[heads, head_size, head_size], false),
    };
    let (y, _) = tape.wkv7(proj, spec);
    (tape, proj, y)
}

/// Returns the cases of the words in [`IN_SPANS`] whose heads have at most 64 channels, and a case of extreme decays. The first layer of RWKV-7 has
/// the same kernels as the other layers, so its cases are left out.
fn cases() -> Vec<Case> {
    let of_words = WORDS.iter().filter(|w| IN_SPANS.contains(&w.name)).flat_map(|w| (w.cases)());
    let of_words = of_words.filter(|case| !case.name.contains("first=true") && !case.name.contains("x128"));
    of_words.chain([Case::new("wkv6/extreme decays".into(), extreme_decays().0, vec![], 1e-9)]).collect()
}

/// Returns whether a step within these bounds is computed in spans.
fn has_spans(tape: &Tape, caps: &Caps, tokens: usize, runs: usize, outputs: usize) -> bool {
    let cx = Lowering { tape, caps, tokens, runs, outputs, capacity: tokens, context: 1 };
    tape.words[0].lower(&cx).iter().any(|d| d.shader == "rwkv/wkv_chain")
}

#[test]
fn runs_of_every_length_equal_their_twins() {
    let (Some(spans), Some(tokens)) = (device(true), device(false)) else { return };
    // Each length from 1 to 40 once, and a third run so that the step has 65 tokens.
    let steps: Vec<Step> = (1..=20).map(|n| step(&[n, n + 20, 45 - 2 * n])).collect();
    let mut wrong = Vec::new();
    for (i, Case { name, tape, .. }) in cases().into_iter().enumerate() {
        assert!(has_spans(&tape, &spans.caps, 128, 4, 1) && !has_spans(&tape, &tokens.caps, 128, 4, 1), "{name}");
        let error = |device: &Arc<Device>| {
            let case = Case { steps: steps.clone(), ..cases().remove(i) };
            selftest::run(case, find("f32").unwrap(), device).unwrap().error
        };
        let found = error(&spans);
        eprintln!("{name}: {found:.1e} in spans, {:.1e} token by token", error(&tokens));
        if found > 1e-11 {
            wrong.push(format!("{name}: {found:.1e}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The reference runs the twins with a state in f32, one span after another, and rounds the state to f16 after each span.
#[test]
fn a_state_in_f16_is_rounded_once_per_span() {
    const LEN: usize = 75;
    let Some(device) = device(true) else { return };
    let source = Synthetic { seed: 7 };
    for (name, of) in [("RWKV-5", extreme_decays as fn() -> (Tape, Var, Var)), ("RWKV-7", first_layer)] {
        let stored_as = |format: &str| {
            let (mut tape, proj, y) = of();
            tape.store_states(find(format).unwrap()).unwrap();
            (Arc::new(tape), proj, y)
        };
        let (tape, proj, y) = stored_as("f16");
        let (wkv, stride) = (tape.find_state("wkv").unwrap(), tape.var_spec(proj).stride());
        let input: Vec<f32> = numbers(3).take(LEN * stride).collect();
        let play = |executor: &mut dyn Executor, rows: Range<usize>, step: Step| {
            // Written twice, because the first write may enlarge the buffers and lose its numbers.
            for _ in 0..2 {
                executor.write_var(proj, &input[rows.start * stride..rows.end * stride]).unwrap();
            }
            executor.run(&step, &mut Vec::new()).unwrap();
            executor.read_var(y, rows.len()).unwrap()
        };
        let mut gpu = GpuModel::load(device.clone(), tape, &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(2)).unwrap();
        let found = play(gpu.as_mut(), 0..LEN, step(&[LEN as u32]));
        let state = gpu.read_state(wkv, 1).unwrap();

        let mut twin = CpuModel::load(stored_as("f32").0, &source, &mut |_, _| ()).unwrap().executor(Capacity::pages(2)).unwrap();
        let (mut expected, mut expected_state) = (Vec::new(), Vec::new());
        for first in (0..LEN).step_by(SPAN) {
            let rows = first..LEN.min(first + SPAN);
            let n = rows.len() as u32;
            expected.extend(play(twin.as_mut(), rows, step(&[n])));
            expected_state = twin.read_state(wkv, 1).unwrap().iter().map(|x| half::f16::from_f32(*x).to_f32()).collect();
            twin.write_state(wkv, 0, &expected_state).unwrap();
        }
        let (error, of_state) = (nmse(&found, &expected), nmse(&state, &expected_state));
        eprintln!("{name}: {error:.1e}, state {of_state:.1e}");
        assert!(error < 1e-8 && of_state < 1e-8, "{name}: {error:.2e}, state {of_state:.2e}");
    }
}

#[test]
fn prompts_have_the_official_logits() {
    for tiny in goldens().filter(|t| ["rwkv5", "rwkv6", "rwkv7"].contains(&t.name)) {
        let golden = tiny.golden();
        for state in ["f32", "f16"] {
            let of = |spans: bool, chunk: usize, tokens: &[u32]| {
                let mut options: Options = options("gpu");
                options.gpu = Some(device(spans)?);
                options.state_dtype = state.parse().unwrap();
                options.chunk = Some(chunk);
                Some(read(&tiny.load(&options), tokens))
            };
            let (Some(found), Some(plain)) = (of(true, 256, &golden.tokens), of(false, 256, &golden.tokens)) else { return };
            let last = &golden.logits[golden.logits.len() - found.len()..];
            let (error, before, between) = (nmse(&found, last), nmse(&plain, last), nmse(&found, &plain));
            let n = golden.tokens.len();
            eprintln!("{} as {state}, {n} tokens: {error:.1e} in spans, {before:.1e} token by token, {between:.1e} between", tiny.name);
            assert!(between > 0.0, "{}: nothing was computed in spans", tiny.name);
            assert!(error <= 1e-7 && between <= 1e-8, "{} as {state}: {error:.2e}, {between:.2e} between", tiny.name);
            // The prompt is cut after a multiple of 16 tokens, so the spans are the same.
            let tokens = golden.prompt(160, 0);
            assert!(of(true, 80, &tokens) == of(true, 256, &tokens), "{} as {state}, steps of 80 tokens", tiny.name);
        }
    }
}

#[test]
fn only_long_runs_of_prompts_have_spans() {
    let tape = cases().remove(4).tape;
    let caps = Caps::plain(Class::Groups, 1 << 30);
    assert!(has_spans(&tape, &caps, 128, 1, 1) && has_spans(&tape, &caps, 256, 16, 16));
    assert!(!has_spans(&tape, &caps, 64, 1, 1) && !has_spans(&tape, &caps, 256, 32, 32), "short runs");
    assert!(!has_spans(&tape, &caps, 256, 1, 256), "logits of all tokens");
    assert!(!has_spans(&tape, &Caps { batch_invariant: true, ..caps.clone() }, 256, 1, 1));
    assert!(!has_spans(&tape, &Caps { spans: false, ..caps.clone() }, 256, 1, 1));
    assert!(!has_spans(&tape, &Caps::plain(Class::Lanes, 1 << 30), 256, 1, 1));
}
