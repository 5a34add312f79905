//! `generate`: prefills a prompt and generates its continuation.

mod report;

use super::ExitCode;
use super::endings::Endings;
use super::escape::EscapeArgs;
use super::grammar_options::GrammarArgs;
use super::limit::max_tokens;
use super::model_options::ModelArgs;
use super::output::{Output, aside, say};
use super::progress::{Progress, Unit};
use super::prompt::{GivenInput, INPUTS, InputArgs, NewlineArgs, no_input};
use super::requests::{BASE, Events, start_engine};
use super::sampling_options::SamplingArgs;
use super::speculate_options::SpeculateArgs;
use super::style::Color;
use super::target::ForceArgs;
use super::values::{OUTPUT, within};
use super::{Failure, Outcome, signals, slots};
use crate::report::{ModelReport, TimingsReport, device_of};
use report::{ChoiceReport, GenerateReport, TokenLine};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::Instant;
use wingbeat::chat::fill_prompt;
use wingbeat::engine::{Completion, EngineOptions, Event, Follows, Request};
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::session::{Finish, LoadedState, Model, StateExtras, Timings, nothing_to_continue};

const EXAMPLES: &str = "\
Examples:
  wingbeat generate \"Once upon a time\" -n 40
  wingbeat generate -e -p \"User: What is 7 plus 6?\\n\\nAssistant:\" -n -1 --stop \"\\n\\n\"
  wingbeat generate -m model.pth -f prompt.txt --temperature 0 --json
  wingbeat generate -m model.pth \"Long introduction\" -n 0 --save-state intro.st
  wingbeat generate -m rwkv7-g1-1.5b --prefix \"fn add(a: u32, \" --suffix \" { a + b }\"
  wingbeat generate \"A cat as JSON: \" --json-schema cat.json -n 200
  echo \"and then\" | wingbeat generate -m model.pth --state intro.st --trials 4";

/// Continue a text
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    newline: NewlineArgs,
    #[command(flatten)]
    middle: MiddleArgs,
    /// Generate at most N tokens; 0 only prefills (reads) the prompt, -1 generates until the text ends or the context is full
    #[arg(help_heading = OUTPUT, short = 'n', long, alias = "n-predict", value_name = "N", default_value = "128", value_parser = max_tokens, allow_negative_numbers = true)]
    max_tokens: usize,
    /// Generate K continuations of the prompt in one batch, at most 1023. The first has the seed of --seed, each further one the next higher seed
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "K", default_value_t = 1, value_parser = within(1..=1023))]
    trials: u32,
    /// At the end, also after Ctrl-C, SIGTERM or SIGHUP, save the model's state (all that the model remembers of prompt and continuation) to FILE. A later run can continue from FILE with --state
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "FILE")]
    save_state: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
    /// With --save-state: also store the token ids of prompt and continuation in the file, for other programs
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, requires = "save_state")]
    state_tokens: bool,
    /// Print one JSON object at the end, in place of the text
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    /// Print one JSON object per token, and at the end the same object as --json
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, conflicts_with = "json")]
    jsonl: bool,
    /// Print control characters to a terminal unchanged; by default they are shown as escapes such as \u{1b}
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    raw: bool,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    if let Some(outcome) = args.sampling.list_presets() {
        return outcome;
    }
    let n_trials = args.trials as usize;
    if n_trials > 1 && args.save_state.is_some() {
        return Err(Error::usage("--save-state saves one state, but --trials makes one state per continuation")
            .hint("leave out one of the two flags")
            .into());
    }
    let target = args.save_state.as_ref().map(|path| args.existing.check_state(path, None)).transpose()?;
    let given = match args.middle.prompt(&args.input.text.escape)? {
        Some(text) => GivenInput::Text(text),
        None => args.input.read(args.newline.last())?,
    };
    let stop_texts = args.input.text.escape.texts(&args.sampling.stop, "--stop")?;
    if matches!(given, GivenInput::Nothing) && args.model.state.is_none() {
        return Err(no_input(INPUTS).into());
    }
    let speculation = args.speculate.speculation()?;
    let model = args.model.load()?;
    args.sampling.sampling(&model)?;
    let rules = args.grammar.selected()?;
    slots::check(&model, &args.model.weights.run.on, n_trials, "--trials")?;
    let draft = args.speculate.load(&model, args.model.weights.options_beside()?)?;
    let base = args.model.read_state(&model)?;
    let (n_before, tokens_before) = base.as_ref().map_or((0, None), |(state, loaded)| (state.n_tokens(), loaded.tokens.clone()));
    let has_logits = base.as_ref().is_some_and(|(state, _)| state.has_logits());
    let prompt = encode(&model, n_before, has_logits, given, &args.input)?;
    let options = EngineOptions { slots: n_trials, speculation, draft, ..EngineOptions::default() };
    let mut request = Request::tokens(prompt.clone()).max_tokens(args.max_tokens);
    request.stop = Some(stop_texts);
    request.ignore_eos = Some(args.sampling.ignore_eos);
    (request.follows, request.close) = (rules.as_ref().map(|asked| Follows::Rules(asked.rules.clone())), args.grammar.asked_close());
    (request.sampling, request.n) = (args.sampling.selected(), n_trials);
    request.state = base.is_some().then(|| BASE.into());
    request.save_state = target.is_some().then(|| SAVED.into());
    request.return_tokens = true;
    let engine = start_engine(&model, options, base)?;
    let stop = signals::stop_flag();
    // The user gave a text or ids and does not know the request's field `tokens`, so the error must not name this field.
    let unnamed = |mut e: Error| {
        e.field = e.field.filter(|field| &**field != "tokens");
        e
    };
    let named = |e: Error| rules.iter().fold(unnamed(e), |e, asked| asked.in_error(e));
    let mut played = Played::new(args.raw);
    let mut events = Events::submit(&engine, request, &stop).map_err(named)?;
    played.play(&args, &model, &mut events)?;
    let (n_read, interrupted) = (events.n_read(), played.is_cut_in_prompt(events.n_read(), prompt.len()));
    drop(events);
    if let Some(target) = target.filter(|_| !interrupted || n_read > 0) {
        let first = played.done.first();
        first.and_then(|done| done.state.clone()).transpose()?;
        let said = first.map_or(&[][..], |done| &done.tokens);
        let ids = || all_tokens(tokens_before.as_deref(), n_before, &prompt[..if interrupted { n_read } else { prompt.len() }], said);
        let tokens = args.state_tokens.then(ids);
        target.save(&mut |path| {
            engine.with_state("", SAVED, |state, loaded| {
                let LoadedState { sampler, pending, .. } = loaded;
                let beside = StateExtras { tokens: tokens.as_deref(), sampler: sampler.as_ref(), pending, ..StateExtras::default() };
                state.save(&model, path, beside)
            })?
        })?;
        if interrupted {
            say(format_args!("note: the saved state includes {n_read} of {} tokens of the prompt", prompt.len()));
        }
    }
    if let Some(failure) = played.closed {
        return Err(failure);
    }
    if interrupted {
        return Err(Error::interrupted(n_read, prompt.len()).into());
    }
    finish(&args, &model, played)
}

/// The flags for the text before and the text after the text to generate.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
struct MiddleArgs {
    /// Text before a gap that the model fills; --suffix is the text after the gap. Only for RWKV-7 G1 models
    #[arg(hide_short_help = true, long, value_name = "TEXT", requires = "suffix", allow_hyphen_values = true, conflicts_with_all = ["text", "prompt", "file", "tokens"])]
    prefix: Option<String>,
    /// Text after the gap; requires --prefix
    #[arg(hide_short_help = true, long, value_name = "TEXT", requires = "prefix", allow_hyphen_values = true)]
    suffix: Option<String>,
}

impl MiddleArgs {
    /// Returns the prompt with which RWKV-7 G1 generates the text between `--prefix` and `--suffix`. Returns `None` without these flags. The
    /// prompt has the suffix first, so that the model continues the prefix.
    fn prompt(&self, escape: &EscapeArgs) -> Result<Option<String>> {
        let Some(suffix) = &self.suffix else { return Ok(None) };
        // Beside a text, which `--prefix` excludes, clap does not ask for `--prefix`.
        let Some(prefix) = &self.prefix else {
            let e = Error::usage("this flag needs the flag --prefix, which is missing").at("--suffix");
            return Err(e.hint("the text before the gap is the value of --prefix"));
        };
        let (prefix, suffix) = (escape.text(prefix, "--prefix")?, escape.text(suffix, "--suffix")?);
        Ok(Some(fill_prompt(&prefix, &suffix)))
    }
}

/// The name under which the engine keeps the state of `--save-state` until it is written to its file.
const SAVED: &str = "saved";

/// Converts the input to tokens. `n_before` is the number of tokens of the loaded state. The result may be empty if this state has logits to continue
/// from.
fn encode(model: &Model, n_before: usize, has_logits: bool, given: GivenInput, input: &InputArgs) -> Result<Vec<u32>> {
    if let GivenInput::Tokens(ids) = &given {
        model.check_ids(ids).map_err(|e| e.at("--tokens"))?;
    }
    let prompt = given.tokens(|text| if text.is_empty() { Ok(Vec::new()) } else { model.encode_after(n_before, text) })?;
    if prompt.is_empty() && !has_logits {
        return Err(input.file().into_iter().fold(nothing_to_continue(), |e, path| e.at(path.display())));
    }
    Ok(prompt)
}

/// The texts of a run, as far as they have arrived.
struct Played {
    out: Output,
    done: Vec<Completion>,
    /// The time at which the request was submitted.
    began: Instant,
    /// The milliseconds from the submission of the request to the first token. `None` if no token was generated.
    first_ms: Option<f64>,
    /// The error if printing failed. The state can still be saved.
    closed: Option<Failure>,
}

impl Played {
    /// Creates the record of a request's texts. Call this directly before the request is submitted: the time to the first token counts from here.
    fn new(raw: bool) -> Played {
        Played { out: Output::new(raw), done: Vec::new(), began: Instant::now(), first_ms: None, closed: None }
    }

    /// Prints the texts as they arrive, until all have ended.
    ///
    /// # Errors
    /// The error with which the request failed.
    fn play(&mut self, args: &Args, model: &Model, events: &mut Events) -> Result<()> {
        let has_vocab = model.vocab().is_some();
        let mut bar = Some(Progress::new("reading", Unit::Tokens));
        while let Some(event) = events.next() {
            let shown = match event? {
                Event::Progress { processed_tokens, prompt_tokens, .. } => {
                    bar.iter_mut().for_each(|bar| bar.show(processed_tokens as u64, prompt_tokens as u64));
                    Ok(())
                }
                Event::Text { index, text, token } => {
                    bar = None;
                    if token.is_some() {
                        self.first_ms.get_or_insert_with(|| self.began.elapsed().as_secs_f64() * 1e3);
                    }
                    self.show(args, has_vocab, index, token, &text)
                }
                Event::Done(done) => {
                    self.done.push(*done);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(failure) = shown
                && self.closed.is_none()
            {
                self.closed = Some(failure);
                events.stop();
            }
        }
        self.done.sort_by_key(|done| done.index);
        Ok(())
    }

    /// Prints a piece of a text, with the token that completes it.
    fn show(&mut self, args: &Args, has_vocab: bool, index: usize, token: Option<u32>, text: &str) -> std::result::Result<(), Failure> {
        let is_one = args.trials == 1;
        if args.jsonl {
            return self.out.json(&TokenLine { trial: (!is_one).then_some(index), token, text: has_vocab.then_some(text) });
        }
        match token {
            _ if args.json || !is_one => Ok(()),
            Some(token) if !has_vocab => self.out.text(&format!("{token} ")),
            _ => self.out.text(text),
        }
    }

    /// Returns whether a signal ended the request before its prompt of `n` tokens was read.
    fn is_cut_in_prompt(&self, n_read: usize, n: usize) -> bool {
        n_read < n && self.first_ms.is_none() && self.done.iter().any(|done| done.finish == Finish::Interrupted)
    }
}

/// Returns the token ids for a saved state: the ids `before` of the loaded state, the prompt `prompt` and the generated tokens `made`. Prints a
/// note if `before` is `None` or incomplete, although the loaded state has read `n_before` tokens.
fn all_tokens(before: Option<&[u32]>, n_before: usize, prompt: &[u32], made: &[u32]) -> Vec<u32> {
    let before = before.unwrap_or_default();
    if before.len() != n_before {
        say(format_args!("note: the loaded state has no token ids; the saved state has only the ids of the tokens after the loaded state"));
    }
    [before, prompt, made].concat()
}

/// Prints the report or the texts of several trials, then notes about how the texts ended. Returns the exit code.
fn finish(args: &Args, model: &Model, played: Played) -> Outcome {
    let Played { mut out, done, first_ms, .. } = played;
    let has_vocab = model.vocab().is_some();
    let timings = total(&done);
    if args.json || args.jsonl {
        let several = if done.len() > 1 { &done[..] } else { &[] };
        let choice = |done: &Completion| ChoiceReport { own_seed: Some(done.seed), ..ChoiceReport::new(done, has_vocab) };
        out.json(&GenerateReport {
            version: env!("CARGO_PKG_VERSION"),
            model: ModelReport::from(model),
            device: device_of(model.device(), args.model.weights.run.on.backend()?),
            seed: done[0].seed,
            prompt_tokens: timings.prefill_tokens,
            first: ChoiceReport::new(&done[0], has_vocab),
            choices: several.iter().map(choice).collect(),
            timings: TimingsReport { first_token_ms: first_ms, ..TimingsReport::new(model.load_ms(), &timings) },
        })?;
    } else if done.len() > 1 {
        for (i, text) in done.iter().enumerate() {
            out.line(format_args!("--- trial {i}"))?;
            if has_vocab {
                out.text(&text.text)?
            } else {
                out.text(&text.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?
            }
            out.new_line()?;
        }
    }
    out.end_line()?;
    out.finish()?;
    let endings = Endings::of(done.iter().map(|done| (done.finish, done.complete)));
    endings.lines(model.context()).iter().for_each(|line| say(format_args!("note: {line}")));
    let spent = spent(&timings, first_ms);
    if stderr().is_terminal() && !args.json && !args.jsonl {
        aside(Color::Auto, spent);
    } else {
        log::info!("{spent}");
    }
    let interrupted = done.iter().any(|done| done.finish == Finish::Interrupted);
    Ok(ExitCode::from(if interrupted { Kind::Interrupted.exit_code() } else { 0 }))
}

/// Returns the timings of all texts together: they shared the prefill, and decoding took as long as the longest text.
fn total(done: &[Completion]) -> Timings {
    let each = done.iter().map(|done| done.timings);
    each.reduce(|sum, one| Timings {
        decode_ms: sum.decode_ms.max(one.decode_ms),
        decode_tokens: sum.decode_tokens + one.decode_tokens,
        drafted_tokens: sum.drafted_tokens + one.drafted_tokens,
        accepted_tokens: sum.accepted_tokens + one.accepted_tokens,
        ..sum
    })
    .unwrap_or_default()
}

/// Returns a line with the token counts and rates: `prompt 7 tokens (820.3/s), first token after 0.01 s, text 40 tokens (121.0/s)`.
fn spent(timings: &Timings, first_ms: Option<f64>) -> String {
    let (read, made) = (timings.prefill_tokens, timings.decode_tokens);
    let mut parts = Vec::new();
    if read > 0 {
        parts.push(format!("prompt {read} tokens ({:.1}/s)", timings.prefill_tokens_per_second()));
    }
    parts.extend(first_ms.map(|ms| format!("first token after {:.2} s", ms / 1e3)));
    if made > 0 {
        parts.push(format!("text {made} tokens ({:.1}/s)", timings.decode_tokens_per_second()));
    }
    if timings.drafted_tokens > 0 {
        parts.push(format!("{} of {} guesses right", timings.accepted_tokens, timings.drafted_tokens));
    }
    parts.join(", ")
}
