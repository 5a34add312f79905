//! `batch`: many prompts from a file at once, a line of results for each.

mod line;
mod lock;
mod results;
mod run;
mod run_file;
mod tally;

use super::escape::EscapeArgs;
use super::format_options::FormatArgs;
use super::grammar_options::{Asked, GrammarArgs};
use super::limit::max_tokens;
use super::lines::{self, Lines, Next};
use super::model_options::ModelArgs;
use super::output::{Output, say};
use super::progress::{Progress, Unit};
use super::sampling_options::SamplingArgs;
use super::target::check_folder;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use crate::engine::{Followers, Follows, Input, Request};
use crate::error::{Error, Kind, Result};
use crate::report::BatchReport;
use crate::session::Model;
use results::{Errors, Found, Results};
use run::Run;
use run_file::RunFile;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tally::summary;

const EXAMPLES: &str = "\
A line of the input is an object: id (a text or a whole number, each once), one of prompt, messages and tokens, and what shall differ
from the flags: max_tokens, stop, ignore_eos, seed, settings of the sampler as its flags are called (top_p, temperature, …), and one of
grammar (a text in GBNF), json_schema, json_object and json_value, with close as --close. n asks for several texts, logprobs for
log-probabilities, echo for those of the prompt; messages may have tools, format and thinking (off, fast, on).
  {\"id\": 1, \"prompt\": \"In the beginning\", \"max_tokens\": 40}
  {\"id\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"light\"}], \"temperature\": 0}
  {\"id\": \"c\", \"prompt\": \"A king: \", \"json_schema\": {\"properties\": {\"name\": {\"type\": \"string\"}}}}
A line of the results is {\"id\",\"text\",\"tokens\",\"finish\",\"seed\",\"usage\"} or {\"id\",\"error\"}, in the order in which texts end. With n
above 1 text, tokens, finish and seed are in {\"choices\"}.

Run the same command again to go on where it was interrupted: what is in OUT is not done again, errors only with --retry-errors.
OUT.jsonl.run.json records model, settings and seed. Other settings are refused without --force. OUT.jsonl.lock keeps a second run away.
Exit code 1: some lines have an error, the others are done.

Examples:
  wingbeat batch prompts.jsonl -o texts.jsonl -m model.pth
  wingbeat batch prompts.jsonl -o texts.jsonl --slots 32 --seed 1 --deterministic
  make-prompts | wingbeat batch - | jq -r .text";

/// Slots, where memory has room for them and nobody says otherwise. More gain little: up to so many tokens a step reads the weights once.
const SLOTS: usize = 16;

/// How long to wait for a line before looking around.
const PATIENCE: Duration = Duration::from_millis(100);

/// Continue many prompts from a file
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File of prompts, one JSON object per line; - is standard input
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,
    /// Append results to OUT.jsonl and skip the lines that are done there [default: -, standard output]
    #[arg(short, long, value_name = "OUT.jsonl", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Continue N texts at once [default: 16, fewer if memory is short]
    #[arg(help_heading = OUTPUT, long, value_name = "N", value_parser = within(1..=1023))]
    slots: Option<u32>,
    /// Generate at most N tokens for a line without max_tokens; -1 goes on until the text ends or the context is full
    #[arg(help_heading = OUTPUT, short = 'n', long, alias = "n-predict", value_name = "N", default_value = "128", value_parser = max_tokens, allow_negative_numbers = true)]
    max_tokens: usize,
    #[command(flatten)]
    escape: EscapeArgs,
    /// Repeat the lines whose result is an error
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, requires = "output")]
    retry_errors: bool,
    /// Continue results that were made with another model, quantisation, sampling, format or grammar
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, requires = "output")]
    force: bool,
    /// Print a summary as one JSON object at the end
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    json: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(mut args: Args) -> Outcome {
    if let Some(shown) = args.sampling.list_presets() {
        return shown;
    }
    if args.output.as_deref().is_some_and(lines::is_standard) {
        if args.json || args.retry_errors {
            return Err(Error::usage("expected a file for the results beside --json and --retry-errors").at("--output").into());
        }
        args.output = None;
    }
    args.sampling.stop = args.escape.texts(&args.sampling.stop, "--stop")?;
    let lines = Lines::open(&args.input)?;
    let found = args.output.as_deref().map(|path| find_results(&args, path)).transpose()?;
    let model = args.model.load()?;
    let sampling = args.sampling.sampling(&model)?;
    let format = args.format.asked(&model)?;
    let rules = args.grammar.asked()?;
    // Whoever asks for rules that nothing can follow hears of it at once.
    rules.as_ref().map(|asked| asked.follower(&mut Followers::new(&model), args.grammar.close(), "").map(drop)).transpose()?;
    let n_slots = n_slots(&args, &model)?;
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    let base = args.model.read_state(&model)?;
    let mut seed = sampling.seed;
    if let Some((found, path)) = found.as_ref().and_then(|found| Some((found, found.kept()?))) {
        let now = RunFile::of(&args, &model, &sampling, rules.as_ref())?;
        seed = now.settle(path, found.has_results(), args.sampling.seed(), args.force)?;
    }
    let errors = if args.retry_errors { Errors::Retry } else { Errors::Keep };
    let results = found.map_or_else(|| Ok(Results::to_stdout()), |found| found.continued(errors))?;
    let total = lines::count(&args.input);
    let defaults = args.defaults(rules);
    let mut run = Run::new(&model, n_slots, base, format, defaults, seed, results)?;
    let mut bar = Progress::new("batch", if total.is_some() { Unit::Prompts } else { Unit::EndlessPrompts });
    let started = Instant::now();
    let mut is_open = true;
    let is_stopped = || stop.load(Ordering::Relaxed);
    while !is_stopped() {
        while is_open && run.n_free() > 0 && !is_stopped() {
            // Texts that are on their way do not wait for a line.
            match lines.next(if run.is_idle() { PATIENCE } else { Duration::ZERO })? {
                Next::Line(line) => run.take(line)?,
                Next::Wait => break,
                Next::End => is_open = false,
            }
        }
        if run.is_idle() && !is_open {
            break;
        }
        run.wait(PATIENCE)?;
        bar.show(run.tally.lines() as u64, total.unwrap_or(u64::MAX));
        bar.note(|| format!("{:.0} tokens/s", run.n_drawn() as f64 / started.elapsed().as_secs_f64()));
    }
    drop(bar);
    let interrupted = is_open || !run.is_idle();
    let report = BatchReport { interrupted, slots: n_slots, seconds: started.elapsed().as_secs_f64(), ..BatchReport::default() };
    finish(&args, run.into_report(report), total)
}

/// Checks a line and its settings of the sampler, as far as no model is needed.
#[cfg(fuzzing)]
pub fn check_line(bytes: &[u8]) -> Result<()> {
    const N_VOCAB: usize = 65536;
    let request = line::request(&line::fields(bytes)?.1)?;
    crate::sample::Sampling::rwkv().with_kept(&request.sampling)?.check(N_VOCAB)
}

impl Args {
    /// What a line asks for that says nothing.
    fn defaults(&self, rules: Option<Asked>) -> Request {
        let mut request = Request::new(Input::Tokens(Vec::new())).max_tokens(self.max_tokens);
        request.stop = Some(self.sampling.stop.clone());
        request.ignore_eos = Some(self.sampling.ignore_eos);
        request.follows = rules.map(|asked| Follows::Rules(asked.into_rules()));
        request.close = self.grammar.asked_close();
        request.sampling = self.sampling.asked();
        request
    }
}

fn find_results(args: &Args, path: &Path) -> Result<Found> {
    check_folder(path)?;
    let same = |path: &Path| path.canonicalize().ok();
    if same(path).is_some_and(|out| same(&args.input) == Some(out)) {
        return Err(Error::usage("expected another file for the results than that of the prompts").at("--output"));
    }
    Found::at(path)
}

/// As many as asked for, if there is memory for them; else as many as half of what is free has room for.
fn n_slots(args: &Args, model: &Model) -> Result<usize> {
    let on = &args.model.run.on;
    match args.slots.map(|n| n as usize) {
        None => Ok(default_slots(model.slot_bytes().max(1), slots::free_bytes(model, on)?)),
        Some(asked) => slots::check(model, on, asked, "--slots").map(|()| asked),
    }
}

/// Of so many bytes each, in so many free ones where that is known.
fn default_slots(each: u64, free: Option<u64>) -> usize {
    free.map_or(SLOTS, |free| (free / 2 / each).clamp(1, SLOTS as u64) as usize)
}

/// Says what it all came to.
fn finish(args: &Args, report: BatchReport, total: Option<u64>) -> Outcome {
    if args.json {
        let mut out = Output::new(false);
        out.json(&report)?;
        out.finish()?;
    } else {
        say(format_args!("{}", summary(&report, total)));
    }
    if report.interrupted {
        let how = match &args.output {
            Some(path) if path.is_file() => "the same command goes on from there",
            _ => "with -o FILE it could go on from there",
        };
        say(format_args!("interrupted: {how}"));
        return Ok(ExitCode::from(Kind::Interrupted.exit_code()));
    }
    Ok(ExitCode::from(if report.failed > 0 { Kind::Input.exit_code() } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::default_slots;

    #[test]
    fn slots_take_half_of_the_free_memory_at_the_most() {
        let found = [(10, None), (10, Some(1000)), (10, Some(200)), (10, Some(19)), (u64::MAX, Some(u64::MAX))];
        assert_eq!(found.map(|(each, free)| default_slots(each, free)), [16, 16, 10, 1, 1]);
    }
}
