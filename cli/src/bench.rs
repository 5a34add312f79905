//! `bench`: measures tokens per second, with llama-bench's names for the tests.

mod plot;
mod predict;
mod print;
mod profile;
mod report;
mod synthetic;

use super::ExitCode;
use super::ceiling::Ceiling;
use super::consent::ConsentArgs;
use super::model_options::{self, RunArgs, quant_values};
use super::output::say;
use super::speculate_options::SpeculateArgs;
use super::target::ForceArgs;
use super::values::{OUTPUT, from, within};
use super::{Failure, Outcome, slots};
use crate::report::BuildReport;
use print::{OutputFormat, Printer};
use report::{BenchExtra, BenchRecord, Samples};
use std::ffi::OsString;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::gpu::AdapterKind;
use wingbeat::low_level::exec::{ChosenDevice, choose, tune};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Idle, LONG_CHUNK, Limits, Model, ModelSource, Options, Session, Slot, Speculation, Text, measure};

const EXAMPLES: &str = "\
Examples:
  wingbeat bench -m model.pth
  wingbeat bench --synthetic rwkv7-1.5b -p 512 -n 128 -b 1,8 -o json
  wingbeat bench -m small.pth -m large.pth --dtype f16,f32
  wingbeat bench -m model.pth -p 256 -n 32 --profile
  wingbeat bench --synthetic rwkv7-0.1b -p 0 -n 0 --write rwkv7-0.1b.safetensors";

/// The heading of the options about tests in `--help`.
const TESTS: &str = "Tests";

/// Measure tokens per second
///
/// The tests have the same names as in llama-bench. pp512 prefills a prompt of 512 tokens. tg128 decodes 128 tokens one by one, always the
/// likeliest token. With -b B, B texts run at once, and the rate counts the tokens of all texts. A test of 0 tokens is skipped.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Checkpoint to measure; repeatable [default: the embedded model, unless --synthetic is given]
    #[arg(help_heading = "Model", short, long, value_name = "PATH")]
    model: Vec<PathBuf>,
    #[command(flatten)]
    consent: ConsentArgs,
    /// Measure a model with random weights that has the sizes of a published model, such as rwkv7-0.1b; repeatable. `wingbeat inspect --published` lists the names
    #[arg(help_heading = "Model", long, value_name = "NAME")]
    synthetic: Vec<String>,
    /// Number type of the weights: auto, f16 or f32; a list such as f16,f32 measures each type [default: auto, unless --quant or --strategy is given]
    #[arg(help_heading = "Model", hide_possible_values = true, hide_short_help = true, long, value_name = "KIND", value_delimiter = ',', value_parser = ["auto", "f16", "f32"])]
    dtype: Vec<String>,
    /// Measure quantised weights, after the number types of --dtype: i8, i4-mixed, … (the same values as for `generate --quant`); repeatable
    #[arg(long, value_name = "KIND", value_parser = quant_values(), hide_possible_values = true, help_heading = "Model")]
    quant: Vec<String>,
    /// Measure a placement of layers on devices, after --dtype and --quant (the same values as for `generate --strategy`); repeatable
    #[arg(help_heading = "Model", hide_short_help = true, long, value_name = "STRING", conflicts_with_all = ["device", "profile"])]
    strategy: Vec<String>,
    /// Measure the prefill of a prompt of N tokens; a list such as 128,512 measures each number
    #[arg(help_heading = TESTS, short = 'p', long, value_name = "N", default_value = "512", value_delimiter = ',', value_parser = from(0))]
    n_prompt: Vec<usize>,
    /// Measure the decoding of N tokens; a list such as 32,128 measures each number
    #[arg(help_heading = TESTS, short = 'n', long, value_name = "N", default_value = "128", value_delimiter = ',', value_parser = from(0))]
    n_gen: Vec<usize>,
    /// Measure a prefill of P tokens and the decoding of G tokens as one test (also -pg); repeatable
    #[arg(help_heading = TESTS, hide_short_help = true, long, value_name = "P,G")]
    pg: Vec<String>,
    /// Prefill N tokens before each test, without timing them; a list repeats the tests with each number
    #[arg(help_heading = TESTS, short = 'd', long, value_name = "N", default_value = "0", value_delimiter = ',', value_parser = from(0))]
    n_depth: Vec<usize>,
    /// Run N texts at once, at most 1023; a list such as 1,8 measures each number
    #[arg(help_heading = TESTS, short = 'b', long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = from(0))]
    n_batch: Vec<usize>,
    /// Repeat each test N times
    #[arg(help_heading = TESTS, short = 'r', long, value_name = "N", default_value_t = 5, value_parser = within(1..=u32::MAX))]
    repetitions: u32,
    /// Format of the results
    #[arg(help_heading = OUTPUT, short, long, value_name = "FORMAT", default_value = "md")]
    output: OutputFormat,
    /// Print a JSON array, the same as -o json
    #[arg(help_heading = OUTPUT, long, conflicts_with = "output")]
    json: bool,
    /// Do not skip the zeros among the inputs of the feed-forward network's second matrix, to measure what skipping saves
    #[arg(help_heading = TESTS, hide_short_help = true, long)]
    no_sparse: bool,
    /// Also show the time of every kernel on stderr, for one decoded token and for one prefill step (--chunk)
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    profile: bool,
    /// Estimate the speed of the --synthetic model on another GPU, without a measurement: 4090, 3090, 3060, h100, h200, 7900xtx, 780m or m3
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "GPU", requires = "synthetic", conflicts_with_all = ["model", "write", "profile", "strategy"])]
    predict: Option<String>,
    /// List the devices and exit, the same as `wingbeat devices`
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    list_devices: bool,
    /// Also draw charts to FILE, as an SVG picture: the decoding speed for each -b, the prefill speed for each -p, and how much of the device's measured peak speed each test reaches
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "FILE", conflicts_with = "predict")]
    plot: Option<PathBuf>,
    /// Save the model of --synthetic to FILE as a safetensors checkpoint, for other programs
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "FILE", requires = "synthetic", conflicts_with = "model")]
    write: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Replaces `-pg`, a flag of llama-bench, by `--pg` in the arguments of `bench`. Clap would read `-pg` as `-p g`.
pub fn long_pg(mut args: Vec<OsString>) -> Vec<OsString> {
    if let Some((i, verb)) = super::verb(&args)
        && verb == "bench"
    {
        args[i..].iter_mut().filter(|a| *a == "-pg").for_each(|a| *a = "--pg".into());
    }
    args
}

/// Returns whether the flags ask for JSON with `-o` or `--output`, in any spelling.
pub fn wants_json(flags: &[&str]) -> bool {
    let is_json = |format: &str| matches!(format, "json" | "jsonl");
    let apart = flags.windows(2).any(|two| matches!(two[0], "-o" | "--output") && is_json(two[1]));
    let joined = |f: &str| ["--output=", "-o=", "-o"].iter().any(|name| f.strip_prefix(name).is_some_and(is_json));
    apart || flags.iter().any(|f| joined(f))
}

/// A measurement. Each slot prefills `n_depth` tokens before the timed part, then prefills `n_prompt` tokens and decodes `n_gen` tokens.
/// `n_batch` slots step together.
#[derive(Debug, Clone, Copy)]
struct Test {
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    n_batch: usize,
}

/// Writes the test's name as llama-bench does: `pp512` (prefill), `tg128` (decode) or `pp512+tg128` (both). If the depth is not 0,
/// ` @ d1024` follows.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.n_prompt, self.n_gen) {
            (p, 0) => write!(f, "pp{p}")?,
            (0, g) => write!(f, "tg{g}")?,
            (p, g) => write!(f, "pp{p}+tg{g}")?,
        }
        if self.n_depth > 0 { write!(f, " @ d{}", self.n_depth) } else { Ok(()) }
    }
}

pub fn run(mut args: Args) -> Outcome {
    if args.json {
        args.output = OutputFormat::Json;
    }
    if args.list_devices {
        return super::devices::show(&args.run.on, matches!(args.output, OutputFormat::Json | OutputFormat::Jsonl));
    }
    let tests = tests(&args)?;
    if let Some(gpu) = &args.predict {
        return predict::show(gpu, &args, &tests);
    }
    if let Some(path) = &args.write {
        let [name] = args.synthetic.as_slice() else {
            let n = args.synthetic.len();
            let text = format!("expected exactly one flag --synthetic, which names the model to save; found {n} flags --synthetic");
            return Err(Error::usage(text).at("--write").into());
        };
        args.existing.check(path)?;
        synthetic::write(name, path)?;
    }
    args.plot.iter().try_for_each(|path| args.existing.check(path))?;
    let mut sources: Vec<_> = args.model.iter().cloned().map(ModelSource::Path).collect();
    sources.extend(args.synthetic.iter().cloned().map(ModelSource::Synthetic));
    if sources.is_empty() {
        sources.push(ModelSource::Embedded);
    }
    let mut printer = Printer::new(args.output);
    // Finished results are printed even if a later test fails or is interrupted.
    printer.print_on_interrupt();
    let mut records = Vec::new();
    let measured = measure_all(&args, &sources, &tests, &mut printer, &mut records);
    let printed = printer.finish(measured.is_ok());
    measured.and(printed)?;
    if let Some(path) = &args.plot {
        plot::write(path, &records)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the model options to measure: one per value of `--dtype`, `--quant` and `--strategy`, or only `options` if none of these flags is given.
fn formats(args: &Args, options: &Options) -> Result<Vec<Options>> {
    let floats = args.dtype.iter().map(|dtype| Ok(Options { dtype: dtype.parse()?, ..options.clone() }));
    let quants = args.quant.iter().map(|quant| Ok(Options { quant: Some(quant.parse()?), ..options.clone() }));
    let strategies = args.strategy.iter().map(|strategy| Ok(Options { strategy: Some(strategy.parse()?), ..options.clone() }));
    let all: Vec<_> = floats.chain(quants).chain(strategies).collect::<Result<_>>()?;
    Ok(if all.is_empty() { vec![options.clone()] } else { all })
}

/// Measures each model, format and test. Prints each record, and appends it to `records`.
fn measure_all(
    args: &Args,
    sources: &[ModelSource],
    tests: &[Test],
    printer: &mut Printer,
    records: &mut Vec<BenchRecord>,
) -> std::result::Result<(), Failure> {
    if tests.is_empty() {
        return Ok(());
    }
    args.run.measure_once()?;
    let ceiling = ceiling(args)?;
    let longest = tests.iter().map(|t| t.n_depth.max(1) + t.n_prompt + t.n_gen).max().unwrap_or(0);
    let mut options = Options { sparse: !args.no_sparse, ..args.run.options(None)? };
    options.context = options.context.or(Some(longest.max(SPARSITY_DEPTH + 1).max(args.run.chunk.map_or(LONG_CHUNK, |n| n as usize))));
    let formats = formats(args, &options)?;
    let by = args.speculate.speculation()?;
    for (source, options) in sources.iter().flat_map(|source| formats.iter().map(move |options| (source, options))) {
        let model = model_options::load(source, options)?;
        let sparsity = sparsity(&model)?;
        let draft = args.speculate.load(&model, Options { sparse: !args.no_sparse, ..args.run.options(None)? })?;
        let speculation = (by, draft.as_ref());
        for &test in tests {
            slots::check(&model, &args.run.on, test.n_batch + 1, "-b")?;
            let record = measure(&model, source, test, args.repetitions, (ceiling, sparsity), speculation)?;
            // Print the record before the progress line: an interrupt between the two must not lose the record.
            printer.record(&record)?;
            say(format_args!("{}: {test}, {} slots: {:.2} tokens/s", model.name(), test.n_batch, record.samples.avg_ts));
            records.push(record);
        }
        if args.profile {
            let chunk = args.n_prompt.iter().copied().max().unwrap_or(0).min(args.run.chunk.map_or(LONG_CHUNK, |n| n as usize));
            for n_tokens in [1, chunk].into_iter().filter(|&n| n > 0) {
                profile::show(&model, n_tokens, ceiling)?;
            }
        }
    }
    Ok(())
}

fn tests(args: &Args) -> Result<Vec<Test>> {
    let mut kinds: Vec<(usize, usize)> = args.n_prompt.iter().map(|&p| (p, 0)).collect();
    kinds.extend(args.n_gen.iter().map(|&g| (0, g)));
    for text in &args.pg {
        let pair = text.split_once(',').and_then(|(p, g)| Some((p.trim().parse().ok()?, g.trim().parse().ok()?)));
        kinds.push(pair.ok_or_else(|| {
            Error::usage(format!("expected P,G: the number of tokens to prefill and the number to decode, such as 512,128; found {text:?}"))
                .at("--pg")
        })?);
    }
    kinds.retain(|&kind| kind != (0, 0));
    let mut tests = Vec::new();
    for &n_depth in &args.n_depth {
        for &n_batch in &args.n_batch {
            if !(1..=1023).contains(&n_batch) {
                return Err(Error::usage(format!("expected 1 to 1023 texts at once, found {n_batch}")).at("--n-batch"));
            }
            tests.extend(kinds.iter().map(|&(n_prompt, n_gen)| Test { n_prompt, n_gen, n_depth, n_batch }));
        }
    }
    Ok(tests)
}

/// Measures the highest rates that matrix products reach on the chosen device. Returns `None` if the device is the CPU or a software
/// adapter.
fn ceiling(args: &Args) -> Result<Option<Ceiling>> {
    let choice = choose(&args.run.on.device()?, args.run.on.backend()?)?;
    match choice.chosen {
        ChosenDevice::Gpu(adapter) if adapter.kind != AdapterKind::Cpu => {
            let device = Arc::new(tune::open(&adapter, args.run.deterministic, args.run.cache().as_deref())?);
            Ceiling::measure(&device).map(Some)
        }
        _ => Ok(None),
    }
}

/// The number of tokens that are prefilled before zeros are counted.
const SPARSITY_DEPTH: usize = 16;

/// Returns the fraction of zeros in the inputs of the ffn's value matrices while one token is decoded. Returns `None` if the model has no
/// word (fused operation) with a sparse input.
fn sparsity(model: &Model) -> Result<Option<f64>> {
    let mut session = Session::new(model, 2)?;
    let slot = session.open()?;
    let tokens = tokens(model, SPARSITY_DEPTH + 1, 1);
    session.prefill(slot, &tokens[..SPARSITY_DEPTH])?;
    measure::ffn_sparsity(&mut session, slot, tokens[SPARSITY_DEPTH])
}

fn measure(
    model: &Model,
    source: &ModelSource,
    test: Test,
    repetitions: u32,
    (ceiling, ffn_sparsity): (Option<Ceiling>, Option<f64>),
    (speculation, draft): (Speculation, Option<&Model>),
) -> Result<BenchRecord> {
    let test_time = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
    let idle = Idle { guesses: speculation.is_on(), ..Idle::default() };
    let mut session = Session::with_idle(model, test.n_batch + 1, idle)?;
    draft.map_or(Ok(()), |draft| session.set_draft(draft))?;
    let base = session.open()?;
    // Prefill at least one token: decoding starts from its logits.
    session.prefill(base, &tokens(model, test.n_depth.max(1), 0))?;
    play(&mut session, base, Test { n_gen: test.n_gen.min(4), ..test }, speculation)?; // warm up: compile pipelines, raise clock rates
    let (mut ns, mut steps, mut guesses) = (Vec::new(), Vec::new(), (0, 0));
    for i in 0..repetitions {
        let (took, step_ms, (drafted, accepted)) = play(&mut session, base, test, speculation)?;
        guesses = (guesses.0 + drafted, guesses.1 + accepted);
        log::debug!("{test:?}, repetition {}: {:.1} ms", i + 1, took as f64 / 1e6);
        ns.push(took);
        steps.extend(step_ms);
    }
    steps.sort_by(f64::total_cmp);
    let percentile = |p: usize| (!steps.is_empty()).then(|| steps[(steps.len() - 1) * p / 100]);
    let samples = Samples::new((test.n_prompt + test.n_gen) * test.n_batch, ns);
    // In one slot, decoding a token reads all weights once, except the weights that sparse products skip. In prefill, each token takes two
    // operations per weight.
    let skipped = model.sparse_bytes() as f64 * ffn_sparsity.unwrap_or(0.0);
    let weights_gb_s = (model.token_bytes() as f64 - skipped) * samples.avg_ts / 1e9;
    // A prompt needs the head for its last token only.
    let head = (model.facts().n_vocab * model.facts().n_embd) as u64;
    let gflop_s = 2.0 * model.token_params().saturating_sub(head) as f64 * samples.avg_ts / 1e9;
    let share = |c: &Ceiling| match test {
        Test { n_prompt: 0, n_batch: 1, .. } => Some(weights_gb_s / c.read_gb_s),
        Test { n_gen: 0, .. } => Some(gflop_s / c.gflop_s),
        _ => None,
    };
    let device = model.device();
    let dispatches_per_token = measure::dispatches_per_token(&mut session)?;
    Ok(BenchRecord {
        build_commit: BuildReport::new().commit.unwrap_or("unknown"),
        model_type: format!("{} {} {}", model.facts().architecture, print::short(model.n_params()), model.dtype()),
        model_filename: match source {
            ModelSource::Path(path) => path.display().to_string(),
            _ => model.name().to_string(),
        },
        model_size: model.weight_bytes(),
        model_n_params: model.n_params(),
        backends: device.backend.clone(),
        gpu_info: device.name.clone(),
        n_prompt: test.n_prompt,
        n_gen: test.n_gen,
        n_depth: test.n_depth,
        n_batch: test.n_batch,
        test_time,
        samples,
        wingbeat: BenchExtra {
            dtype: model.dtype().into(),
            activations: model.activations().name(),
            device: device.name.clone(),
            driver: device.driver.clone(),
            read_gb_s_ceiling: ceiling.map(|c| c.read_gb_s),
            gflop_s_ceiling: ceiling.map(|c| c.gflop_s),
            share_of_ceiling: ceiling.and_then(|c| share(&c)),
            ffn_sparsity,
            dispatches_per_token,
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            drafted: (guesses.0 > 0).then_some(guesses.0),
            accepted: (guesses.0 > 0).then_some(guesses.1),
            build: BuildReport::new(),
        },
    })
}

/// Runs one repetition of a test on forks of the slot `base`. Returns the repetition's time in nanoseconds, each decode step's time in
/// milliseconds, and the numbers of checked and of right guesses. If guesses are right, one step decodes several tokens. The first of these tokens
/// gets the step's time, and the rest get almost none.
fn play(session: &mut Session, base: Slot, test: Test, speculation: Speculation) -> Result<(u64, Vec<f64>, (usize, usize))> {
    let slots = (0..test.n_batch).map(|_| session.fork(base)).collect::<Result<Vec<_>>>()?;
    let model = session.model().clone();
    let prompts: Vec<_> = (0..test.n_batch).map(|i| tokens(&model, test.n_prompt, i + 1)).collect();
    let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(test.n_gen) };
    let continuation = |(i, &slot): (usize, &Slot)| {
        let mut continuation = Text::after(slot, Sampler::new(Sampling::greedy(0)), &limits);
        if speculation.is_on() {
            let before = tokens(&model, test.n_depth.max(1), 0);
            (continuation.spec.speculation, continuation.spec.before) = (speculation, [before.as_slice(), &prompts[i]].concat().into());
        }
        continuation
    };
    let mut continuations: Vec<Text> = slots.iter().enumerate().map(continuation).collect();
    let mut step_ms = Vec::with_capacity(test.n_gen);
    let started = Instant::now();
    let work: Vec<_> = slots.iter().zip(&prompts).map(|(slot, prompt)| (*slot, prompt.as_slice())).collect();
    session.prefill_many(&work, &mut |_, _| ())?;
    let (mut last, mut n_came) = (Instant::now(), 0);
    let timings = session.continue_many(&mut continuations, &mut |event| {
        // One submission to the GPU may sample several tokens. These tokens share the time of the submission equally.
        n_came += usize::from(event.text == 0);
        if n_came == event.n_together {
            let each = last.elapsed().as_secs_f64() * 1e3 / event.n_together as f64;
            step_ms.extend(std::iter::repeat_n(each, event.n_together));
            (last, n_came) = (Instant::now(), 0);
        }
        ControlFlow::Continue(())
    })?;
    // The first token was sampled from the logits of the prompt, without a decode step.
    step_ms.drain(..step_ms.len().min(1));
    let took = started.elapsed().as_nanos() as u64;
    slots.into_iter().try_for_each(|slot| session.close(slot))?;
    Ok((took, step_ms, timings.guesses().unwrap_or_default()))
}

/// Returns `n` token ids spread over the vocabulary. Equal seeds give equal ids.
fn tokens(model: &Model, n: usize, seed: usize) -> Vec<u32> {
    let n_vocab = model.facts().n_vocab as u64;
    (0..n as u64).map(|i| ((i + 1 + 7919 * seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % n_vocab).map(|t| t as u32).collect()
}

#[cfg(test)]
mod tests_of_bench {
    use super::*;

    #[test]
    fn pg_is_one_flag_of_bench_only() {
        let args = |s: &str| s.split(' ').map(Into::into).collect::<Vec<std::ffi::OsString>>();
        assert_eq!(long_pg(args("w bench -pg 1,2")), args("w bench --pg 1,2"));
        assert_eq!(long_pg(args("w -v bench -r 1 -pg 1,2")), args("w -v bench -r 1 --pg 1,2"));
        for other in ["w score -pg", "w generate bench -pg", "w -pg", "w"] {
            assert_eq!(long_pg(args(other)), args(other));
        }
    }

    #[test]
    fn a_token_reads_all_matrices_but_one_row_of_the_table() {
        let report = crate::inspect::inspect(&wingbeat::low_level::session::embedded().unwrap(), false, &Options::default()).unwrap();
        for dtype in ["f16", "f32"] {
            let mut options = wingbeat::low_level::session::Options::default();
            (options.device, options.dtype) = (wingbeat::low_level::exec::DeviceChoice::Cpu, dtype.parse().unwrap());
            let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
            // `inspect` also counts the vectors, which are f32 in every format.
            let matrices_f16 = model.weight_bytes() / if dtype == "f16" { 1 } else { 2 };
            let vectors = report.memory.as_ref().unwrap().weights - matrices_f16;
            assert_eq!(model.token_bytes() + vectors, report.bytes_per_token[dtype], "{dtype}");
        }
    }
}
