//! `batch`: continues many prompts from a file at once and writes one line of results per prompt.

mod line;
mod made_with;
mod report;
mod run;

use super::ExitCode;
use super::escape::EscapeArgs;
use super::format_options::FormatArgs;
use super::grammar_options::{GrammarArgs, NamedRules};
use super::limit::max_tokens;
use super::lines::{self, LineReader, NextLine};
use super::model_options::ModelArgs;
use super::output::{Output, say};
use super::progress::{Progress, Unit};
use super::requests::{BASE, start_engine};
use super::resume::{Errors, FoundResults, Results};
use super::sampling_options::SamplingArgs;
use super::speculate_options::SpeculateArgs;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use line::Form;
use report::BatchReport;
use run::BatchRun;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wingbeat::engine::{EngineOptions, Follows, Input, Request};
use wingbeat::error::{Error, Kind};
use wingbeat::low_level::front_end::Followers;

const EXAMPLES: &str = "\
Each line of the input is an object with these fields:
  id                          a unique string or whole number
  prompt, messages or tokens  the input: a text, a conversation or token ids; exactly one field
  tools                       for messages: an array of tools, as in OpenAI's API
  tool_choice                 for messages: auto, none, required or the name of a tool
  format, thinking, add_bos   for messages: override --format, --thinking and --add-bos
  max_tokens, stop, seed, …   override the flags; also ignore_eos and sampling settings (top_p, …)
  grammar, json_schema, …     override the flags; also json_object, json_value and close
  n                           number of texts to generate for this line, 1 to 128
  logprobs                    0 to 20: return log-probabilities of each token and of this many likeliest tokens
  echo                        if true, the returned text begins with the prompt
Lines of OpenAI's batch files, with custom_id and body, are read, too. If the first line is not JSON and the file's name does not end in .jsonl or .json, each line is a prompt, and its number is its id.
Three input lines:
  {\"id\": 1, \"prompt\": \"Once upon a time\", \"max_tokens\": 40}
  {\"id\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 7 plus 6?\"}], \"temperature\": 0}
  {\"id\": \"c\", \"prompt\": \"A cat: \", \"json_schema\": {\"properties\": {\"name\": {\"type\": \"string\"}}}}
Each line of the results has the fields id, text, tokens, finish, seed and usage, or id and error. Results come in the order in which texts end.
If n is above 1, the array `choices` has text, tokens, finish and seed of each text.

Run the same command again to continue after an interruption: lines that have a result or an error are skipped. --retry-errors runs the lines with an error again.
wingbeat writes two more files. OUT.jsonl.run.json records model, settings and seed: a run with a different model or different settings needs --force. OUT.jsonl.lock prevents two runs from writing OUT.jsonl at the same time.
Exit code 1 means that some lines have an error. All other lines have a result.

Examples:
  wingbeat batch prompts.jsonl -o texts.jsonl -m model.pth
  wingbeat batch prompts.jsonl -o texts.jsonl --slots 32 --seed 1 --deterministic
  make-prompts | wingbeat batch - | jq -r .text";

/// The longest wait for an input line or for an event. The main loop waits for lines and for events in turn, so a long wait for a line would delay
/// the events.
const PATIENCE: Duration = Duration::from_millis(100);

/// Continue many prompts from a file
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File of prompts, one JSON object per line; - is standard input
    #[arg(value_name = "IN.jsonl")]
    input: PathBuf,
    /// Append results to OUT.jsonl, and skip input lines that already have a result there [default: -, which is standard output]
    #[arg(short, long, value_name = "OUT.jsonl", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Generate N texts at once, at most 1023 [default: 16, or fewer if memory is short]
    #[arg(help_heading = OUTPUT, long, value_name = "N", value_parser = within(1..=1023))]
    slots: Option<u32>,
    /// Generate at most N tokens for each line that has no field max_tokens; -1 generates until the text ends or the context is full
    #[arg(help_heading = OUTPUT, short = 'n', long, alias = "n-predict", value_name = "N", default_value = "128", value_parser = max_tokens, allow_negative_numbers = true)]
    max_tokens: usize,
    #[command(flatten)]
    escape: EscapeArgs,
    /// Repeat the lines whose result in OUT.jsonl is an error; requires --output
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, requires = "output")]
    retry_errors: bool,
    /// Continue OUT.jsonl even if the model, quantisation, sampling, chat format or grammar has changed since the last run; requires --output
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, requires = "output")]
    force: bool,
    /// Print a summary of the run as one JSON object at the end; requires --output
    #[arg(help_heading = OUTPUT, long, requires = "output")]
    json: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(mut args: Args) -> Outcome {
    if let Some(shown) = args.sampling.list_presets() {
        return shown;
    }
    if args.output.as_deref().is_some_and(lines::is_standard) {
        if args.json || args.retry_errors {
            return Err(Error::usage("--json and --retry-errors need a file for the results, found standard output")
                .at("--output")
                .hint("name a file: -o OUT.jsonl")
                .into());
        }
        args.output = None;
    }
    args.sampling.stop = args.escape.texts(&args.sampling.stop, "--stop")?;
    let lines = LineReader::open(&args.input)?;
    let found = args.output.as_deref().map(|path| FoundResults::at(path, &args.input)).transpose()?;
    let speculation = args.speculate.speculation()?;
    let model = args.model.load()?;
    let mut sampling = args.sampling.sampling(&model)?;
    let format = args.format.selected(&model)?;
    let rules = args.grammar.selected()?;
    // Report a grammar that no text can follow once, before the first line is read. Otherwise every line would fail with this error.
    rules.as_ref().map(|asked| asked.follower(&mut Followers::new(&model), args.grammar.close(), "").map(drop)).transpose()?;
    let draft = args.speculate.load(&model, args.model.weights.options_beside()?)?;
    let n_slots = slots::fitting(&model, &args.model.weights.run.on, args.slots.map(|n| n as usize))?;
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    let base = args.model.read_state(&model)?;
    if let Some((found, path)) = found.as_ref().and_then(|found| Some((found, found.kept()?))) {
        let now = made_with::run_file(&args, &model, &sampling, rules.as_ref())?;
        sampling.seed = now.settle(path, found.has_results(), args.sampling.seed(), args.force)?;
    }
    let errors = if args.retry_errors { Errors::Retry } else { Errors::Keep };
    let results = found.map_or_else(|| Ok(Results::to_stdout()), |found| found.continued(errors))?;
    let total = lines::count(&args.input);
    let mut defaults = args.defaults(rules);
    defaults.state = base.is_some().then(|| BASE.into());
    let options = EngineOptions { slots: n_slots, format, speculation, draft, ..EngineOptions::default() };
    let engine = start_engine(&model, options, base)?;
    let is_json = args.input.extension().is_some_and(|extension| ["jsonl", "ndjson", "json"].iter().any(|known| extension == *known));
    let mut run = BatchRun::new(engine, n_slots, defaults, sampling.seed, results, is_json.then_some(Form::Objects));
    let mut bar = Progress::new("batch", if total.is_some() { Unit::Prompts } else { Unit::EndlessPrompts });
    let started = Instant::now();
    let mut is_open = true;
    let is_stopped = || stop.load(Ordering::Relaxed);
    while !is_stopped() {
        while is_open && run.n_free() > 0 && !is_stopped() {
            // While texts are being generated, do not wait for a line: the wait would delay their events.
            match lines.next(if run.is_idle() { PATIENCE } else { Duration::ZERO })? {
                NextLine::Line(line) => run.take(line)?,
                NextLine::Wait => break,
                NextLine::End => is_open = false,
            }
        }
        if run.is_idle() && !is_open {
            break;
        }
        run.wait(PATIENCE)?;
        bar.show(run.n_lines() as u64, total.unwrap_or(u64::MAX));
        bar.note(|| format!("{:.0} tokens/s", run.n_drawn() as f64 / started.elapsed().as_secs_f64()));
    }
    drop(bar);
    let interrupted = is_open || !run.is_idle();
    if let Some(e) = run.first_error.take() {
        say(format_args!("first error: {e}"));
    }
    finish(&args, run.into_report(interrupted, started.elapsed()), total)
}

/// Parses an input line and returns its request without the id.
#[cfg(any(all(test, target_os = "linux"), fuzzing))]
pub fn request_of(line: &[u8]) -> wingbeat::error::Result<Request> {
    line::Form::Objects.read(line, 1)?.1.request()
}

impl Args {
    /// Returns a request with the settings from the flags. The fields of an input line override these settings.
    fn defaults(&self, rules: Option<NamedRules>) -> Request {
        let mut request = Request::new(Input::Tokens(Vec::new())).max_tokens(self.max_tokens);
        request.stop = Some(self.sampling.stop.clone());
        request.ignore_eos = Some(self.sampling.ignore_eos);
        request.follows = rules.map(|asked| Follows::Rules(asked.rules));
        request.close = self.grammar.asked_close();
        request.sampling = self.sampling.selected();
        request
    }
}

/// Prints the summary of the run, and returns the exit code.
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
            Some(path) if path.is_file() => "run the same command again to continue",
            _ => "with -o FILE a later run can continue",
        };
        say(format_args!("interrupted: {how}"));
        return Ok(ExitCode::from(Kind::Interrupted.exit_code()));
    }
    Ok(ExitCode::from(if report.failed > 0 { Kind::Input.exit_code() } else { 0 }))
}

/// Returns the report as a sentence. `total` is the number of non-blank input lines, or `None` if unknown.
fn summary(r: &BatchReport, total: Option<u64>) -> String {
    let counted = |n: usize, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
    let of_total = total.map_or_else(String::new, |n| format!(" of {n}"));
    let kept = counted(r.kept, "done before");
    let failed = counted(r.failed, "failed");
    let full = counted(r.context_full, "ended because the context was full");
    let incomplete = counted(r.incomplete, "cut before their grammar or schema was complete");
    let (read, generated, seconds) = (r.usage.prompt_tokens, r.usage.completion_tokens, r.seconds);
    format!(
        "{}{of_total} prompts done{kept}{failed}{full}{incomplete}: {read} tokens prefilled and {generated} generated in {seconds:.1} s, \
         {:.1} per second; seed {}",
        r.done, r.tokens_per_second, r.seed
    )
}
