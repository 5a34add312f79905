//! `generate`: prefills a prompt and generates its continuation.

use super::ExitCode;
use super::endings::Endings;
use super::escape::EscapeArgs;
use super::grammar_options::{GrammarArgs, constraint};
use super::limit::max_tokens;
use super::model_options::ModelArgs;
use super::output::{Output, aside, say};
use super::progress::{Progress, Unit};
use super::prompt::{GivenInput, INPUTS, InputArgs, NewlineArgs, no_input};
use super::sampling_options::SamplingArgs;
use super::speculate_options::SpeculateArgs;
use super::style::Color;
use super::target::ForceArgs;
use super::values::{OUTPUT, within};
use super::{Failure, Outcome, signals, slots};
use crate::report::{ChoiceReport, GenerateReport, ModelReport, TimingsReport, TokenLine, device_of};
use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use wingbeat::chat::fill_prompt;
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::sample::Sampler;
use wingbeat::low_level::session::{
    Finish, Idle, Limits, LoadedState, Model, Prompt, Session, Slot, StateExtras, Text, Timings, TokenEvent, nothing_to_continue,
};

const EXAMPLES: &str = "\
Examples:
  wingbeat generate \"In the beginning\" -n 40
  wingbeat generate -e -p \"User: light\\n\\nAssistant:\" -n -1 --stop \"\\n\\n\"
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
    /// Generate K continuations of the prompt in one batch, at most 1024. The first has the seed of --seed, each further one the next higher seed
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "K", default_value_t = 1, value_parser = within(1..=1024))]
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
    let sampling = args.sampling.sampling(&model)?;
    let follower = args.grammar.follower(&model)?;
    slots::check(&model, &args.model.weights.run.on, n_trials, "--trials")?;
    let draft = args.speculate.load(&model, args.model.weights.options_beside()?)?;
    let mut session = Session::with_idle(&model, n_trials, Idle { guesses: speculation.is_on(), ..Idle::default() })?;
    draft.iter().try_for_each(|draft| session.set_draft(draft))?;
    signals::stop_on_interrupt(&session.stop_flag());
    let (slot, loaded) = args.model.open_slot(&mut session)?;
    let prompt = encode(&session, slot, given)?;

    let ends = !args.sampling.ignore_eos && model.vocab().is_some();
    let limits = Limits { stop_texts, stop_ids: (!ends).then(Vec::new), ..Limits::new(args.max_tokens) };
    let mut sampler = Sampler::new(sampling.clone());
    loaded.begin(&mut sampler, args.sampling.seed());
    let n_before = session.n_tokens(slot)?;
    let began = Instant::now();
    let prefilled = prefill(&mut session, slot, &prompt);
    if let (Err(e), Some(target)) = (&prefilled, &target)
        && e.kind == Kind::Interrupted
    {
        let read = &prompt[..session.n_tokens(slot)? - n_before];
        sampler.read(read);
        let mut continuation = Text::after(slot, sampler.clone(), &limits);
        continuation.begin_after(&loaded.pending, read, model.vocab());
        target.save(&mut |path| save(&args, &loaded, &mut session, read, &continuation, path))?;
        say(format_args!("note: the saved state includes {} of {} tokens of the prompt", read.len(), prompt.len()));
    }
    let prefill_ms = prefilled?;
    sampler.read(&prompt);
    let seed = sampler.settings().seed;
    let mut continuations = vec![Text::after(slot, sampler.clone(), &limits)];
    for i in 1..n_trials {
        continuations.push(Text::after(session.fork(slot)?, sampler.reseeded(seed.wrapping_add(i as u64)), &limits));
    }
    let before: Arc<[u32]> = [loaded.tokens.as_deref().unwrap_or_default(), &prompt].concat().into();
    for continuation in &mut continuations {
        (continuation.spec.speculation, continuation.spec.before) = (speculation, before.clone());
        continuation.spec.constraint = constraint(follower.as_ref());
        continuation.begin_after(&loaded.pending, &prompt, model.vocab());
        continuation.spec.keeps.pending = target.is_some();
    }
    let mut out = Output::new(args.raw);
    let (timings, first_ms, closed) = play(&args, &mut session, &mut continuations, &mut out, began)?;
    if let Some(target) = &target {
        target.save(&mut |path| save(&args, &loaded, &mut session, &prompt, &continuations[0], path))?;
    }
    if let Some(failure) = closed {
        return Err(failure);
    }
    let timings = Timings { prefill_ms, prefill_tokens: prompt.len(), ..timings };
    finish(&args, &model, &continuations, seed, &timings, first_ms, out)
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
        let (Some(prefix), Some(suffix)) = (&self.prefix, &self.suffix) else { return Ok(None) };
        let (prefix, suffix) = (escape.text(prefix, "--prefix")?, escape.text(suffix, "--suffix")?);
        Ok(Some(fill_prompt(&prefix, &suffix)))
    }
}

/// Converts the input to tokens. The result may be empty if a loaded state has logits to continue from.
fn encode(session: &Session, slot: Slot, given: GivenInput) -> Result<Vec<u32>> {
    let prompt = given.tokens(|text| match text {
        "" => Ok(Vec::new()),
        text => session.encode_for(slot, &Prompt::Text(text)),
    })?;
    if prompt.is_empty() && session.logits(slot)?.is_empty() {
        return Err(nothing_to_continue());
    }
    Ok(prompt)
}

/// Prefills the prompt. Returns how many milliseconds this took.
fn prefill(session: &mut Session, slot: Slot, prompt: &[u32]) -> Result<f64> {
    let mut bar = Progress::new("reading", Unit::Tokens);
    let started = Instant::now();
    session.prefill_many(&[(slot, prompt)], &mut |done, total| bar.show(done as u64, total as u64))?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Saves the current state of a continuation's slot to the file `path`.
fn save(args: &Args, loaded: &LoadedState, session: &mut Session, prompt: &[u32], continuation: &Text, path: &Path) -> Result<()> {
    let tokens = args.state_tokens.then(|| all_tokens(loaded, session, continuation.slot, prompt, &continuation.tokens));
    let (sampler, pending) = (continuation.spec.sampler.memory(), continuation.pending());
    let beside = StateExtras { tokens: tokens.as_deref(), sampler: Some(&sampler), pending: &pending, ..StateExtras::default() };
    session.save_with(continuation.slot, path, beside)
}

/// Generates and prints all texts. Returns the timings, the milliseconds from `began` to the first token (`None` without a token), and the error if
/// printing failed. After such an error, the caller can still save the state.
fn play(
    args: &Args,
    session: &mut Session,
    continuations: &mut [Text],
    out: &mut Output,
    began: Instant,
) -> Result<(Timings, Option<f64>, Option<Failure>)> {
    let (is_one, has_vocab) = (continuations.len() == 1, session.model().vocab().is_some());
    let (mut closed, mut first_ms) = (None, None);
    let mut show = |event: TokenEvent<'_>| -> std::result::Result<(), Failure> {
        if args.jsonl && (event.token.is_some() || !event.piece.is_empty()) {
            let trial = (!is_one).then_some(event.text);
            return out.json(&TokenLine { trial, token: event.token, text: has_vocab.then_some(event.piece) });
        }
        if args.json || args.jsonl || !is_one {
            return Ok(());
        }
        match event.token {
            Some(token) if !has_vocab => out.text(&format!("{token} ")),
            _ => out.text(event.piece),
        }
    };
    let timings = session.continue_many(continuations, &mut |event| {
        if event.token.is_some() {
            first_ms.get_or_insert_with(|| began.elapsed().as_secs_f64() * 1e3);
        }
        match show(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                closed = Some(failure);
                ControlFlow::Break(())
            }
        }
    })?;
    Ok((timings, first_ms, closed))
}

/// Returns the ids of all tokens in the slot's text: the tokens of the loaded state, the prompt `prompt` and the generated tokens `made`. If the
/// loaded state has no token ids, prints a note and returns only the ids of `prompt` and `made`.
fn all_tokens(loaded: &LoadedState, session: &Session, slot: Slot, prompt: &[u32], made: &[u32]) -> Vec<u32> {
    let all = [loaded.tokens.as_deref().unwrap_or_default(), prompt, made].concat();
    if session.n_tokens(slot).is_ok_and(|n| n != all.len()) {
        say(format_args!("note: the loaded state has no token ids; the saved state has only the ids of the tokens after the loaded state"));
    }
    all
}

fn finish(
    args: &Args,
    model: &Model,
    continuations: &[Text],
    seed: u64,
    timings: &Timings,
    first_ms: Option<f64>,
    mut out: Output,
) -> Outcome {
    let has_vocab = model.vocab().is_some();
    if args.json || args.jsonl {
        let several = if continuations.len() > 1 { continuations } else { &[] };
        let choice = |s: &Text| ChoiceReport { own_seed: Some(s.spec.sampler.settings().seed), ..ChoiceReport::new(s, has_vocab) };
        out.json(&GenerateReport {
            version: env!("CARGO_PKG_VERSION"),
            model: ModelReport::from(model),
            device: device_of(model.device(), args.model.weights.run.on.backend()?),
            seed,
            prompt_tokens: timings.prefill_tokens,
            first: ChoiceReport::new(&continuations[0], has_vocab),
            choices: several.iter().map(choice).collect(),
            timings: TimingsReport { first_token_ms: first_ms, ..TimingsReport::new(model.load_ms(), timings) },
        })?;
    } else if continuations.len() > 1 {
        for (i, continuation) in continuations.iter().enumerate() {
            out.line(format_args!("--- trial {i}"))?;
            let ids = || continuation.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            if has_vocab {
                out.text(&continuation.text)?
            } else {
                out.text(&ids())?
            }
            out.new_line()?;
        }
    }
    out.end_line()?;
    out.finish()?;
    let endings = Endings::of(continuations.iter().filter_map(|s| Some((s.finish?, s.complete))));
    endings.lines(model.context()).iter().for_each(|line| say(format_args!("note: {line}")));
    let spent = spent(timings, first_ms);
    if stderr().is_terminal() && !args.json && !args.jsonl {
        aside(Color::Auto, spent);
    } else {
        log::info!("{spent}");
    }
    let interrupted = continuations.iter().any(|s| s.finish == Some(Finish::Interrupted));
    Ok(ExitCode::from(if interrupted { Kind::Interrupted.exit_code() } else { 0 }))
}

/// Returns a line with the token counts and rates of prompt and text: `prompt 7 tokens (820.3/s), first token after 0.01 s, text 40 tokens
/// (121.0/s)`.
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
