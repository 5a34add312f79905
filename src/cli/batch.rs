//! `batch`: many prompts from a file at once, a line of results for each.

mod line;
mod lock;
mod results;
mod run_file;
mod tally;

use super::escape::EscapeArgs;
use super::format_options::FormatArgs;
use super::grammar_options::{Asked, GrammarArgs};
use super::limit::max_tokens;
use super::lines::{self, Held, Lines, Next, Numbered};
use super::model_options::ModelArgs;
use super::output::{Output, say};
use super::progress::{Progress, Unit};
use super::sampling_options::SamplingArgs;
use super::target::check_folder;
use super::values::{OUTPUT, within};
use super::{Failure, Outcome, flags, panics, signals, slots};
use crate::chat::Question;
use crate::engine::{Followers, Follows, Input, Prepared, Preparer, Request};
use crate::error::{Error, Kind, Result, short};
use crate::report::{BatchFailure, BatchLine, BatchReport, Usage};
use crate::sample::Sampler;
use crate::session::{Batcher, Done, Job, JobId, LoadedState, Made, Model, Session, Slot};
use crate::vocab::Vocab;
use results::{Errors, Found, Name, Results};
use run_file::RunFile;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tally::{Tally, summary};

const EXAMPLES: &str = "\
A line of the input is an object: id (a text or a whole number, each once), one of prompt, messages and tokens, and what shall differ
from the flags: max_tokens, stop, ignore_eos, seed, settings of the sampler as its flags are called (top_p, temperature, …), and one of
grammar (a text in GBNF), json_schema, json_object and json_value, with close as --close.
  {\"id\": 1, \"prompt\": \"In the beginning\", \"max_tokens\": 40}
  {\"id\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"light\"}], \"temperature\": 0}
  {\"id\": \"c\", \"prompt\": \"A king: \", \"json_schema\": {\"properties\": {\"name\": {\"type\": \"string\"}}}}
A line of the results is {\"id\",\"text\",\"tokens\",\"finish\",\"seed\",\"usage\"} or {\"id\",\"error\"}, in the order in which texts end.

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
    // A state to begin with has a slot of its own.
    let mut session = Session::new(&model, n_slots + usize::from(args.model.state.is_some()))?;
    let stop = session.stop_flag();
    signals::stop_on_interrupt(&stop);
    let mut base = None;
    if args.model.state.is_some() {
        let (slot, loaded) = args.model.open_slot(&mut session)?;
        base = Some((slot, loaded));
    }
    let mut seed = sampling.seed;
    if let Some((found, path)) = found.as_ref().and_then(|found| Some((found, found.kept()?))) {
        let now = RunFile::of(&args, &model, &sampling, rules.as_ref())?;
        seed = now.settle(path, found.has_results(), args.sampling.seed(), args.force)?;
    }
    let errors = if args.retry_errors { Errors::Retry } else { Errors::Keep };
    let results = found.map_or_else(|| Ok(Results::to_stdout()), |found| found.continued(errors))?;
    let total = lines::count(&args.input);
    let mut run = Run {
        batcher: Batcher::new(session)?,
        tally: Tally::default(),
        results,
        args: &args,
        base,
        preparer: Preparer::new(&model, format),
        defaults: args.defaults(rules),
        model,
        seed,
        seen: HashSet::new(),
        running: HashMap::new(),
    };
    let mut bar = Progress::new("batch", if total.is_some() { Unit::Prompts } else { Unit::EndlessPrompts });
    let started = Instant::now();
    let mut is_open = true;
    let is_stopped = || stop.load(Ordering::Relaxed);
    while !is_stopped() {
        while is_open && run.batcher.n_free() > 0 && !is_stopped() {
            // Texts that are on their way do not wait for a line.
            match lines.next(if run.running.is_empty() { PATIENCE } else { Duration::ZERO })? {
                Next::Line(line) => run.take(line)?,
                Next::Wait => break,
                Next::End => is_open = false,
            }
        }
        if run.running.is_empty() && !is_open {
            break;
        }
        run.step()?;
        bar.show(run.tally.lines() as u64, total.unwrap_or(u64::MAX));
        bar.note(|| format!("{:.0} tokens/s", run.tally.n_drawn as f64 / started.elapsed().as_secs_f64()));
    }
    drop(bar);
    let interrupted = is_open || !run.running.is_empty();
    run.finish(BatchReport { interrupted, slots: n_slots, seconds: started.elapsed().as_secs_f64(), ..BatchReport::default() }, total)
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

/// A text on its way.
struct Running {
    id: Value,
    /// The number of its line.
    number: u64,
    seed: u64,
    prompt_tokens: usize,
    /// The one that it answers, if it answers messages.
    question: Option<Question>,
    /// Long lines wait until this one has ended.
    _held: Held,
}

struct Run<'a> {
    args: &'a Args,
    model: Model,
    batcher: Batcher,
    /// The slot that all texts go on from, and what its file says.
    base: Option<(Slot, LoadedState)>,
    preparer: Preparer,
    /// What the flags say, for lines that do not.
    defaults: Request,
    seed: u64,
    results: Results,
    /// Names of the lines that were read.
    seen: HashSet<u128>,
    running: HashMap<JobId, Running>,
    tally: Tally,
}

impl Run<'_> {
    /// Starts a line, unless it is done; writes an error where it cannot be started.
    fn take(&mut self, line: Numbered) -> std::result::Result<(), Failure> {
        let Numbered { number, bytes, held } = line;
        let place = format!("line {number}");
        let unnamed = Name::Line(number);
        let fields = match &bytes {
            Some(bytes) if bytes.trim_ascii().is_empty() => return Ok(()),
            Some(bytes) => panics::caught(|| line::fields(bytes)),
            None => Err(Error::input(format!("expected a line of at most {} bytes, found more", lines::MAX_BYTES))),
        };
        let (id, fields) = match fields {
            Ok(found) => found,
            Err(e) => return self.fail(unnamed, e.at(place)),
        };
        let (name, key) = (Name::Id(id.clone()), results::key(&id));
        if !self.seen.insert(key) {
            let e = Error::input(format!("expected an id of its own, found {} a second time", short(&id.to_string(), 40)));
            return self.fail(unnamed, e.at(place));
        }
        if let Some(was) = self.results.was(key) {
            self.tally.add(was);
            return Ok(());
        }
        // Readers of grammars, schemas and templates are large programs, and not ours: a panic in one is this line's error.
        match panics::caught(|| self.prepared(&id, &line::request(&fields)?)) {
            Ok((job, question)) => {
                let (seed, prompt_tokens) = (job.sampler.settings().seed, job.prompt.len());
                match self.batcher.add(job) {
                    Ok(job) => {
                        self.running.insert(job, Running { id, number, seed, prompt_tokens, question, _held: held });
                        Ok(())
                    }
                    Err(e) => self.fail(name, e.at(place)),
                }
            }
            Err(e) => self.fail(name, e.at(place)),
        }
    }

    /// What a line asks for, ready to be added.
    fn prepared(&mut self, id: &Value, request: &Request) -> Result<(Job, Option<Question>)> {
        let merged = request.over(&self.defaults);
        let is_further = match &self.base {
            Some((slot, _)) => self.batcher.session().n_tokens(*slot)? > 0,
            None => false,
        };
        let encode = if is_further { Vocab::encode_further } else { Vocab::encode_prompt };
        let Prepared { prompt, mut sampling, limits, constraint, question, .. } = self.preparer.prepare_with(&merged, encode)?;
        if !request.sets("seed") {
            sampling.seed = seed_of(self.seed, id);
        }
        let seed = sampling.seed;
        let mut sampler = Sampler::new(sampling);
        let mut pending = Vec::new();
        let from = self.base.as_ref().map(|(slot, loaded)| {
            pending.clone_from(&loaded.pending);
            // What the text before has used is penalised; the random stream is its own.
            loaded.begin(&mut sampler, Some(seed));
            *slot
        });
        let constraint = constraint.map(|make| make()).transpose()?;
        Ok((Job { from, constraint, pending, ..Job::new(prompt, sampler, limits) }, question))
    }

    /// Goes on with all texts, and writes those that ended.
    fn step(&mut self) -> std::result::Result<(), Failure> {
        let n_drawn = &mut self.tally.n_drawn;
        let ended = self.batcher.step(&mut |_, event| *n_drawn += usize::from(event.token.is_some()));
        for Done { job, made } in ended.map_err(|e| e.hint("what is done is kept"))? {
            let running = self.running.remove(&job).expect("every job was kept when it was added");
            match made {
                Ok(made) => self.write(&running, &made)?,
                Err(e) => self.fail(Name::Id(running.id), e.at(format!("line {}", running.number)))?,
            }
        }
        Ok(())
    }

    fn write(&mut self, running: &Running, made: &Made) -> std::result::Result<(), Failure> {
        let usage = Usage { prompt_tokens: running.prompt_tokens, completion_tokens: made.tokens.len() };
        let written = running.question.as_ref().map(|question| question.answer(&made.text));
        let text = written.as_ref().map_or(&made.text, |(text, _)| text);
        self.results.write(&BatchLine {
            id: &running.id,
            text: self.model.vocab().map(|_| text.as_str()),
            thought: written.as_ref().and_then(|(_, thought)| thought.as_deref()),
            tokens: &made.tokens,
            finish: made.finish.name(),
            complete: made.complete,
            seed: running.seed,
            usage,
        })?;
        self.tally.done += 1;
        self.tally.endings.add(made.finish, made.complete);
        self.tally.usage.prompt_tokens += usage.prompt_tokens;
        self.tally.usage.completion_tokens += usage.completion_tokens;
        Ok(())
    }

    /// Writes an error.
    fn fail(&mut self, name: Name, e: Error) -> std::result::Result<(), Failure> {
        self.tally.failed += 1;
        let (id, line) = match &name {
            Name::Id(id) => (Some(id), None),
            Name::Line(number) => (None, Some(*number)),
        };
        self.results.write(&BatchFailure { id, line, error: flags::report(&e).error })
    }

    /// Says what it all came to.
    fn finish(self, run: BatchReport, total: Option<u64>) -> Outcome {
        let Tally { done, failed, kept, endings, usage, .. } = self.tally;
        let (context_full, incomplete) = (endings.context, endings.incomplete);
        let tokens_per_second = usage.completion_tokens as f64 / run.seconds.max(1e-9);
        let report = BatchReport { done, failed, kept, context_full, incomplete, usage, seed: self.seed, tokens_per_second, ..run };
        if self.args.json {
            let mut out = Output::new(false);
            out.json(&report)?;
            out.finish()?;
        } else {
            say(format_args!("{}", summary(&report, total)));
        }
        if report.interrupted {
            let how = match &self.args.output {
                Some(path) if path.is_file() => "the same command goes on from there",
                _ => "with -o FILE it could go on from there",
            };
            say(format_args!("interrupted: {how}"));
            return Ok(ExitCode::from(Kind::Interrupted.exit_code()));
        }
        Ok(ExitCode::from(if failed > 0 { Kind::Input.exit_code() } else { 0 }))
    }
}

/// The seed of a line that has none of its own: the same in every run with that seed, in any order. 53 bits, as numbers of JSON have.
fn seed_of(seed: u64, id: &Value) -> u64 {
    let digest = Sha256::digest(format!("{seed} {id}"));
    u64::from_le_bytes(digest[..8].try_into().expect("a sha256 has 32 bytes")) >> 11
}

#[cfg(test)]
mod tests {
    use super::{default_slots, seed_of};
    use serde_json::json;

    #[test]
    fn a_seed_is_its_ids_for_ever() {
        assert_eq!(seed_of(1, &json!("a")), 369_185_221_646_774);
        let others = [seed_of(1, &json!(1)), seed_of(1, &json!("1")), seed_of(2, &json!(1)), seed_of(1, &json!("a"))];
        assert!(others.iter().enumerate().all(|(i, a)| others[..i].iter().all(|b| a != b) && *a < 1 << 53));
    }

    #[test]
    fn slots_take_half_of_the_free_memory_at_the_most() {
        let found = [(10, None), (10, Some(1000)), (10, Some(200)), (10, Some(19)), (u64::MAX, Some(u64::MAX))];
        assert_eq!(found.map(|(each, free)| default_slots(each, free)), [16, 16, 10, 1, 1]);
    }
}
