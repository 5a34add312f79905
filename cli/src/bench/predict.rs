//! `bench --predict`: estimates the speed on a GPU that this machine need not have.

mod report;

use super::{Args, OutputFormat, Test, formats};
use crate::ExitCode;
use crate::Outcome;
use crate::output::{Output, say};
use report::{PredictReport, PredictedStep};
use wingbeat::error::Result;
use wingbeat::low_level::arch::synthetic;
use wingbeat::low_level::exec::predict::{Gpu, StepLoad, find, step};
use wingbeat::low_level::exec::{FloatChoice, assign_formats};
use wingbeat::low_level::quant::Float;
use wingbeat::low_level::session::{CHUNK, LONG_CHUNK, Options};
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::words::synthetic::{MODEL_SEED, Synthetic};

/// Prints the estimated tokens per second of each synthetic model and format in each test. JSON also has the time of each word (fused operation) in
/// a step.
pub fn show(gpu: &str, args: &Args, tests: &[Test]) -> Outcome {
    let gpu = find(gpu).map_err(|e| e.at("--predict"))?;
    let mut reports = Vec::new();
    for name in &args.synthetic {
        for options in formats(args, &args.run.options(None)?)? {
            reports.push(predict(gpu, name, &options, tests)?);
        }
    }
    let mut out = Output::new(false);
    match args.output {
        OutputFormat::Json => out.json(&reports)?,
        OutputFormat::Jsonl => reports.iter().try_for_each(|report| out.json(report))?,
        _ => {
            say(format_args!("{}: estimates, nothing was measured", gpu.title));
            out.line(format_args!("{:<16}{:<10}{:<16}{:>6}{:>12}", "model", "format", "test", "slots", "tokens/s"))?;
            for (report, step) in reports.iter().flat_map(|report| report.steps.iter().map(move |step| (report, step))) {
                let (model, format, test) = (&report.model, &report.format, &step.test);
                out.line(format_args!("{model:<16}{format:<10}{test:<16}{:>6}{:>12.0}", step.n_batch, step.tokens_per_second))?;
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn predict(gpu: &Gpu, name: &str, options: &Options, tests: &[Test]) -> Result<PredictReport> {
    let mut tape = Tape::new();
    synthetic::named(name)?.record(&mut tape);
    let plan = options.quant.clone().unwrap_or_default();
    assign_formats(&mut tape.matrices, &Synthetic { seed: MODEL_SEED }, FloatChoice::Exactly(Float::F16), &plan)?;
    tape.activations = options.activations;
    tape.keep_rounded();
    tape.cache_format = options.cache_dtype.format();
    // The error is ignored: a model without matrix states keeps f32.
    let _ = tape.store_states(options.state_dtype.format());
    let steps = tests
        .iter()
        .map(|test| predicted(&tape, gpu, *test, options.chunk.unwrap_or(if gpu.is_integrated { CHUNK } else { LONG_CHUNK })))
        .collect();
    Ok(PredictReport { is_estimate: true, gpu: gpu.title, model: name.into(), format: tape.formats().join("+"), steps })
}

/// Estimates the speed of a test. Computes the time of one prefill step in the middle of the prompt and of one decode step in the middle of
/// the generated tokens. Multiplies each time by the number of such steps.
fn predicted(tape: &Tape, gpu: &Gpu, test: Test, chunk: usize) -> PredictedStep {
    let Test { n_prompt, n_gen, n_depth, n_batch } = test;
    let (mut seconds, mut words) = (0.0, Vec::new());
    let mut add = |times: usize, n_tokens: usize, depth: usize| {
        words = step(tape, gpu, StepLoad { n_slots: n_batch, n_tokens, depth });
        seconds += times as f64 * words.iter().map(|word| word.ms * 1e-3).sum::<f64>();
    };
    // The slots share a chunk: in each step, every slot prefills an equal part of the chunk.
    let per_slot = (chunk / n_batch).clamp(1, n_prompt.max(1));
    if n_prompt > 0 {
        add(n_prompt.div_ceil(per_slot), per_slot, n_depth + n_prompt / 2);
    }
    if n_gen > 0 {
        add(n_gen, 1, n_depth + n_prompt + n_gen / 2);
    }
    let tokens_per_second = ((n_prompt + n_gen) * n_batch) as f64 / seconds;
    PredictedStep { test: test.to_string(), n_batch, tokens_per_second, words }
}
