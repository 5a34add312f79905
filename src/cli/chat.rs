//! `chat`: a conversation, at a terminal or through a pipe. What is said and answered is [`Talk`]'s; here are keys, colours and files.

mod complete;
mod editor;
mod history;
mod pipe;
mod reading;
mod screen;
mod slash;
mod status;

use super::escape::EscapeArgs;
use super::format_options::FormatArgs;
use super::grammar_options::{Asked, GrammarArgs};
use super::model_options::ModelArgs;
use super::output::{printable, say, say_error};
use super::sampling_options::SamplingArgs;
use super::style::Color;
use super::target::{Existing, StateTarget};
use super::values::OUTPUT;
use super::{Failure, Outcome, signals};
use crate::chat::{Format, PromptFile, Talk, Told};
use crate::engine::Close;
use crate::error::{Error, Kind, Result};
use crate::report::{ChatReport, TimingsReport};
use crate::sample::Sampling;
use crate::session::{Finish, Session};
use editor::{Editor, Input};
use pipe::Pipe;
use reading::Reading;
use screen::{As, Screen};
use slash::Slash;
use std::io::{IsTerminal, stderr, stdin};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

const EXAMPLES: &str = "\
Examples:
  wingbeat chat -m rwkv7-g1-1.5b.pth
  wingbeat chat -m glm-4-9b-chat --system \"Answer in one sentence.\" --temperature 0.5
  wingbeat chat -m model.pth --json-schema answer.json
  printf 'Hello\\n+\\n' | wingbeat chat -m model.pth --json

Defaults of sampling belong to the format:
  world, raven, instruct  preset chat: temperature 1.2, top-p 0.5, penalties 0.4 (ChatRWKV's)
  tiny                    preset chat with temperature 0.8
  g1, g1-think, g1-fast   preset g1: top-p 0.5, top-k 100
  template (GLM)          the model's generation_config.json, else preset glm

/help in the chat lists its commands, /set its settings; docs/chat.md explains them.";

/// Where options about the conversation are listed in help.
const CHAT: &str = "Chat";

/// Talk to a model
///
/// On a terminal, chat has a line editor and a history. Through a pipe, each line is a message, and standard output gets only the answers.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Start with a prompt file: wingbeat's (.toml), ChatRWKV's (.py), or a built-in one such as English-2
    #[arg(long, value_name = "FILE", help_heading = CHAT)]
    prompt: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// System message: what the model reads before the first message
    #[arg(long, value_name = "TEXT", help_heading = CHAT)]
    system: Option<String>,
    /// Continue a saved chat
    #[arg(help_heading = CHAT, long, value_name = "FILE", conflicts_with_all = ["prompt", "format", "system"])]
    load: Option<PathBuf>,
    /// Save the chat when it ends, also after Ctrl-C, SIGTERM or SIGHUP; the file of --load is continued
    #[arg(long, value_name = "FILE", help_heading = CHAT)]
    save: Option<PathBuf>,
    #[command(flatten)]
    existing: Existing,
    /// Print one JSON object per answer
    #[arg(help_heading = OUTPUT, long, visible_alias = "jsonl")]
    json: bool,
    /// Use colours on a terminal; NO_COLOR turns `auto` off
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Neither read nor save the history of typed messages
    #[arg(help_heading = CHAT, hide_short_help = true, long)]
    no_history: bool,
    /// Print control characters on a terminal as they are
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    raw: bool,
    #[command(flatten)]
    escape: EscapeArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    if let Some(outcome) = args.sampling.list_presets() {
        return outcome;
    }
    args.check()?;
    let target = args.save.as_ref().map(|path| args.existing.check_state(path, args.load.as_deref())).transpose()?;
    let reading = Reading::default();
    let talk = begin(&args, &reading)?;
    let screen = Screen::new(if args.json { As::Json } else { As::Text }, args.color, args.raw);
    let source = if stdin().is_terminal() {
        let history = (!args.no_history).then(history).flatten();
        Source::Terminal(Box::new(Editor::new(history, args.color.suits(&stderr()))?))
    } else {
        Source::Pipe(Pipe::new()?)
    };
    let mut chat = Chat { talk, screen, source, reading, target, grammar: None, close: args.grammar.close(), failed: None };
    chat.hold_to(args.grammar.asked()?)?;
    chat.greet();
    if args.load.is_some() {
        chat.show_last_turns();
    }
    let ended = chat.turns();
    // whoever has read enough of it, or cannot go on now, may still want to go on with it later; without its device there is nothing to keep
    let is_lost = matches!(&ended, Err(Failure::Error(e)) if e.kind == Kind::Device);
    let target = chat.target.as_ref().filter(|_| !is_lost);
    let saved = target.map_or(Ok(()), |target| target.save(&mut |path| chat.talk.save(path)));
    match (ended, saved) {
        (Err(Failure::Error(e)), Err(unsaved)) => {
            say_error(args.color, &unsaved);
            return Err(e.into());
        }
        (_, Err(unsaved)) => return Err(unsaved.into()),
        (ended, Ok(())) => ended?,
    }
    chat.screen.finish()?;
    Ok(ExitCode::from(chat.failed.map_or(0, Kind::exit_code)))
}

/// Opens the model and reads what comes before the first message.
fn begin(args: &Args, reading: &Reading) -> Result<Talk> {
    let model = args.model.load()?;
    let mut format = args.format.asked(&model)?.map_or_else(|| Format::of(&model), Ok)?;
    let (mut settings, mut seed) = (format.settings(), args.sampling.seed());
    if let Some(path) = &args.prompt {
        let file = PromptFile::find(path)?;
        format = format.with_prompt(&file).map_err(|e| e.at("--prompt"))?;
        file.set(&mut settings).map_err(|e| e.at(path.display()))?;
        seed = seed.or(file.settings.iter().any(|(name, _)| name == "seed").then_some(settings.sampling.seed));
    }
    settings.sampling = args.sampling.over(settings.sampling, &model)?;
    settings.sampling.seed = seed.unwrap_or(settings.sampling.seed);
    let mut session = Session::new(&model, Talk::slots(&model) + usize::from(args.model.state.is_some()))?;
    let start = args.model.state.is_some().then(|| args.model.open_slot(&mut session)).transpose()?;
    signals::stop_on_interrupt(&session.stop_flag());
    let mut talk = Talk::new(session, format, settings, &mut reading.shown())?;
    talk.set_progress(Box::new(reading.shown()));
    if let Some((slot, loaded)) = start {
        talk.begin_behind(slot, &loaded.tokens.unwrap_or_default()).map_err(|e| e.at("--state"))?;
    }
    if let Some(text) = &args.system {
        let text = args.escape.text(text, "--system")?;
        talk.system(&text).map_err(|e| e.at("--system"))?;
    }
    if let Some(path) = &args.load {
        talk.load(path)?;
        args.set_anew(&mut talk)?;
    }
    reading.end();
    Ok(talk)
}

impl Args {
    /// What other verbs take, and a conversation cannot.
    fn check(&self) -> Result<()> {
        let refused = |flag: &str, why: &str, hint: &str| Err(Error::usage(why).at(flag).hint(hint));
        if !self.sampling.stop.is_empty() {
            return refused("--stop", "an answer ends where its format says", "choose another with --format");
        }
        if self.sampling.ignore_eos {
            return refused("--ignore-eos", "an answer ends where its format says", "/set CHAT_LEN_MAX says how long it may be");
        }
        Ok(())
    }

    /// A chat that was kept has settings of its own. Those that are asked for now win over them; without a seed the random stream goes on.
    fn set_anew(&self, talk: &mut Talk) -> Result<()> {
        let kept = talk.settings().sampling.clone();
        let asked = self.sampling.over(kept.clone(), talk.model())?;
        let is_asked = |name: &str| name != "preset" && (name != "seed" || self.sampling.seed().is_some());
        for (name, _) in Sampling::names().filter(|(name, _)| is_asked(name)) {
            let value = asked.get(name)?;
            if value != kept.get(name)? {
                talk.set(name, &value)?;
            }
        }
        Ok(())
    }
}

/// Where what was typed is kept: with the things of this user that no other machine needs.
fn history() -> Option<PathBuf> {
    dirs::state_dir().or_else(dirs::data_local_dir).map(|folder| folder.join("wingbeat").join("chat_history"))
}

/// Where messages come from.
enum Source {
    Terminal(Box<Editor>),
    Pipe(Pipe),
}

/// What follows a line.
#[derive(PartialEq, Eq)]
enum Then {
    Next,
    Leave,
}

struct Chat {
    talk: Talk,
    screen: Screen,
    source: Source,
    /// Where to save the chat at its end.
    target: Option<StateTarget>,
    reading: Reading,
    /// What answers follow, if anything.
    grammar: Option<String>,
    /// Whether an answer that runs out of tokens is closed.
    close: Close,
    /// Through a pipe: what first went wrong. Somebody at a terminal has seen it.
    failed: Option<Kind>,
}

impl Chat {
    fn is_terminal(&self) -> bool {
        matches!(self.source, Source::Terminal(_))
    }

    /// Only who looks is greeted.
    fn greet(&self) {
        if self.is_terminal() {
            let model = self.talk.model();
            say(format_args!("{} ({}), format {}", model.name(), model.facts().architecture, self.talk.format().name()));
            self.screen.aside("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends");
        }
    }

    /// Shows how a chat that was loaded ended, to whoever looks.
    fn show_last_turns(&self) {
        if self.is_terminal() {
            status::last_turns(&self.talk).iter().for_each(|line| self.screen.aside(line));
        }
    }

    /// Until there is no more to say.
    fn turns(&mut self) -> std::result::Result<(), Failure> {
        let mut is_leaving = false;
        let stop = self.talk.stop_flag();
        loop {
            let input = if signals::is_ending() { Ok(Input::Interrupted) } else { self.read() };
            if signals::is_ending() {
                self.failed = Some(Kind::Interrupted);
                return Ok(());
            }
            let input = input?;
            let was_leaving = std::mem::replace(&mut is_leaving, matches!(input, Input::Interrupted));
            let then = match input {
                Input::Line(line) => self.obey(&line).or_else(|failure| self.recover(failure)),
                Input::Wrong(e) => self.recover(e.into()),
                Input::Cleared => Ok(Then::Next),
                Input::Interrupted if !self.is_terminal() => Ok(self.stopped()),
                Input::Interrupted if !was_leaving => {
                    self.screen.aside("once more, or Ctrl-D, to leave");
                    Ok(Then::Next)
                }
                Input::Interrupted | Input::End => Ok(Then::Leave),
            };
            if then? == Then::Leave {
                return Ok(());
            }
            if self.is_terminal() && !signals::is_ending() {
                // a second Ctrl-C ends the program only while something does not stop at the first
                stop.store(false, Ordering::Relaxed);
            }
        }
    }

    fn read(&mut self) -> Result<Input> {
        match &mut self.source {
            Source::Pipe(pipe) => pipe.read(&self.talk.stop_flag()),
            Source::Terminal(editor) => {
                let (format, branch) = (self.talk.format(), self.talk.branch());
                let sign = match branch {
                    "main" => format!("{}{} ", format.user(), format.interface()),
                    _ => format!("{} ({branch}){} ", format.user(), format.interface()),
                };
                editor.offer(self.talk.branches(), status::names());
                // a prompt file may call the user anything
                editor.read(&printable(&sign))
            }
        }
    }

    /// Says what went wrong with a line, and goes on with the next where that can be.
    fn recover(&mut self, failure: Failure) -> std::result::Result<Then, Failure> {
        match failure {
            Failure::Error(e) if e.kind == Kind::Interrupted => {
                self.screen.stopped(&e)?;
                Ok(self.stopped())
            }
            // without its device no answer can come any more
            Failure::Error(e) if e.kind != Kind::Device => {
                self.screen.fail(&e)?;
                self.note(e.kind);
                Ok(Then::Next)
            }
            failure => Err(failure),
        }
    }

    fn note(&mut self, kind: Kind) {
        if !self.is_terminal() {
            self.failed.get_or_insert(kind);
        }
    }

    /// After Ctrl-C: somebody at a terminal goes on, a script ends.
    fn stopped(&mut self) -> Then {
        if self.is_terminal() {
            return Then::Next;
        }
        self.failed = Some(Kind::Interrupted);
        Then::Leave
    }

    fn obey(&mut self, line: &str) -> std::result::Result<Then, Failure> {
        if line.trim().is_empty() {
            return Ok(Then::Next);
        }
        match slash::parse(line)? {
            Some(command) => self.command(command, line),
            None => self.answer(line, line),
        }
    }

    /// Says `line` to the conversation; `typed` is what the user wrote for it.
    fn answer(&mut self, line: &str, typed: &str) -> std::result::Result<Then, Failure> {
        let who = Talk::is_reply(line).then(|| format!("{}{}", self.talk.format().bot(), self.talk.format().interface()));
        self.screen.begin(who);
        let told = self.talk.say(line, &mut |piece| {
            self.reading.end();
            self.screen.piece(piece)
        });
        self.reading.end();
        match told? {
            Told::Answer(answer) => {
                let talk = &self.talk;
                let thought = answer.thought.trim();
                let report = ChatReport {
                    prompt: typed,
                    branch: talk.branch(),
                    seed: talk.settings().sampling.seed,
                    prompt_tokens: answer.n_prompt,
                    tokens: &answer.tokens,
                    text: &answer.text,
                    thought: (!thought.is_empty()).then_some(thought),
                    finish: answer.finish.name(),
                    complete: answer.complete,
                    timings: TimingsReport::new(talk.model().load_ms(), &answer.timings),
                };
                self.screen.end(&answer, report)?;
                for (name, ids) in talk.transcripts() {
                    log::trace!("read {name}: {ids:?}");
                }
                if !answer.is_kept {
                    self.screen.aside("there is no answer: the message is taken back, and + says it again");
                }
                if answer.finish == Finish::Interrupted {
                    return Ok(self.stopped());
                }
            }
            Told::Message(text) => self.screen.tell(&text),
            Told::Wrong(text) => {
                self.screen.wrong(text)?;
                self.note(Kind::Input);
            }
            Told::Nothing => self.screen.aside("there is nothing yet to do that with"),
        }
        Ok(Then::Next)
    }

    /// Answers follow that grammar from now on; none lifts it.
    fn hold_to(&mut self, asked: Option<Asked>) -> Result<()> {
        match &asked {
            Some(asked) => self.talk.set_grammar(Some(&self.close.on(asked.grammar()?))).map_err(|e| e.at(&asked.name))?,
            None => self.talk.set_grammar(None)?,
        }
        self.grammar = asked.map(|asked| asked.name);
        Ok(())
    }

    fn held_to(&self) -> String {
        self.grammar.as_ref().map_or("answers follow no grammar".into(), |name| format!("answers follow {name}"))
    }

    fn command(&mut self, command: Slash, typed: &str) -> std::result::Result<Then, Failure> {
        match command {
            Slash::Help => self.screen.tell(&slash::help()),
            Slash::Save(path) => {
                self.talk.save(&path)?;
                self.target.iter_mut().for_each(|target| target.wrote(&path));
                self.screen.aside(format_args!("saved to {}", path.display()));
            }
            Slash::Load(path) => {
                let loaded = self.talk.load(&path);
                self.reading.end();
                loaded?;
                self.screen.aside(status::place(&self.talk));
                self.show_last_turns();
            }
            Slash::Fork(name) => {
                self.talk.fork(&name)?;
                self.screen.aside(status::place(&self.talk));
            }
            Slash::Switch(Some(name)) => {
                self.talk.switch(&name)?;
                self.screen.aside(status::place(&self.talk));
            }
            Slash::Switch(None) => self.screen.tell(&status::branches(&self.talk)),
            Slash::Forget(name) => {
                self.talk.remove(&name)?;
                self.screen.tell(&status::branches(&self.talk));
            }
            Slash::Undo => {
                self.talk.undo()?;
                self.screen.aside(status::place(&self.talk));
            }
            Slash::Stats => self.screen.tell(&status::stats(&self.talk.stats())),
            Slash::Clear => {
                self.talk.say("+reset", &mut |_| ControlFlow::Continue(()))?;
                self.screen.aside("the chat begins again");
            }
            Slash::Retry(settings) => return self.answer(format!("+ {settings}").trim_end(), typed),
            Slash::Set(Some((name, None))) => self.screen.tell(&format!("{name} is {}", self.talk.settings().get(&name)?)),
            Slash::Set(Some((name, Some(value)))) => {
                self.talk.set(&name, &value)?;
                self.screen.aside(status::changed(&name, &value, self.talk.settings()));
            }
            Slash::Set(None) => self.screen.tell(&status::settings(self.talk.settings())),
            Slash::System(text) => {
                let begun = self.talk.system(&text.replace("\\n", "\n"));
                self.reading.end();
                begun?;
                self.screen.aside("the chat begins again");
            }
            Slash::Grammar(Some(name)) => {
                let asked = if name == "none" { None } else { Some(Asked::named(&name)?) };
                self.hold_to(asked)?;
                self.screen.aside(self.held_to());
            }
            Slash::History => self.screen.tell(String::from_utf8_lossy(&self.talk.text()).trim()),
            Slash::Grammar(None) => self.screen.tell(&self.held_to()),
            Slash::Exit => return Ok(Then::Leave),
        }
        Ok(Then::Next)
    }
}
