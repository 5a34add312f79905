//! `chat`: a conversation at a terminal or through a pipe. [`Conversation`] keeps the history and generates answers. This module reads
//! commands and keys, and shows answers.

mod command;
mod complete;
mod editor;
mod history;
mod obey;
mod pipe;
mod prompt_file;
mod reading;
mod report;
mod saved;
mod screen;
mod status;

use super::ExitCode;
use super::escape::EscapeArgs;
use super::format_options::FormatArgs;
use super::grammar_options::GrammarArgs;
use super::model_options::ModelArgs;
use super::output::{printable, say, say_error};
use super::sampling_options::SamplingArgs;
use super::speculate_options::SpeculateArgs;
use super::style::Color;
use super::target::{ForceArgs, StateTarget};
use super::tool_command::ToolCommand;
use super::tool_options::ToolArgs;
use super::values::OUTPUT;
use super::{Failure, Outcome, signals};
use editor::{Editor, EditorInput};
use pipe::Pipe;
use prompt_file::PromptFile;
use reading::PrefillBar;
use screen::{OutputMode, Screen};
use std::collections::VecDeque;
use std::io::{IsTerminal, stderr, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wingbeat::chat::{Format, ToolCall};
use wingbeat::conversation::Conversation;
use wingbeat::engine::{Close, Engine};
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::sample::Sampling;

const EXAMPLES: &str = "\
Examples:
  wingbeat chat -m rwkv7-g1-1.5b
  wingbeat chat -m glm-4-9b-chat --system \"Answer in one sentence.\" --temperature 0.5
  wingbeat chat -m model.pth --json-schema answer.json
  wingbeat chat -p \"Why is the sky blue?\"
  wingbeat chat -m rwkv7-g1-1.5b --tools tools.json --tool-command python3 tools.py
  printf 'Hello\\n+\\n' | wingbeat chat -m model.pth --json    # + asks for another answer

The chat format sets the sampling defaults:
  world, raven, instruct  preset chat (from ChatRWKV): temperature 1.2, top-p 0.5,
                          presence and frequency penalty 0.4
  g1-think, g1-fast       the model's generation_config.json, else the preset of that name
  g1                      preset g1: top-p 0.5, top-k 100
  g1 (embedded model)     preset g1-fast, also with thoughts and tools
  template (GLM)          the model's generation_config.json, else preset glm

In the chat, /help lists the commands and /set lists the settings. docs/chat.md explains both.";

/// The heading of options about the conversation in `--help`.
const CHAT: &str = "Chat";

/// Talk to a model
///
/// On a terminal, chat has a line editor and a history of typed messages. If input comes through a pipe, each line is a message or a command. If output goes to a pipe or a file, only the answers go there.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Begin with a prompt file, which has the names of user and bot and the text before the first message: wingbeat's .toml, ChatRWKV's .py, or a built-in file such as English-2. FILE is not a text, unlike `generate --prompt`
    #[arg(long, value_name = "FILE", help_heading = CHAT)]
    prompt: Option<PathBuf>,
    /// Answer this message, and end
    #[arg(short = 'p', long, value_name = "TEXT", help_heading = CHAT)]
    message: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// System message: instructions that the model reads before the first message
    #[arg(long, value_name = "TEXT", help_heading = CHAT)]
    system: Option<String>,
    /// Continue the chat that --save or /save wrote to FILE
    #[arg(help_heading = CHAT, long, value_name = "FILE", conflicts_with_all = ["prompt", "format", "thinking", "system"])]
    load: Option<PathBuf>,
    /// Save the chat to FILE when the chat ends, also after Ctrl-C, SIGTERM or SIGHUP. If FILE exists, --force is required, unless --load names the same FILE
    #[arg(long, value_name = "FILE", help_heading = CHAT)]
    save: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
    /// Print one JSON object per answer
    #[arg(help_heading = OUTPUT, long, visible_alias = "jsonl")]
    json: bool,
    /// When to print colours; auto means on a terminal, unless the environment variable NO_COLOR is set
    #[arg(help_heading = OUTPUT, hide_short_help = true, long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Neither read nor save the history of typed messages
    #[arg(help_heading = CHAT, hide_short_help = true, long)]
    no_history: bool,
    /// Print control characters to a terminal unchanged; by default they are shown as escapes such as \u{1b}
    #[arg(help_heading = OUTPUT, hide_short_help = true, long)]
    raw: bool,
    #[command(flatten)]
    tools: ToolArgs,
    #[command(flatten)]
    escape: EscapeArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    if let Some(outcome) = args.sampling.list_presets() {
        return outcome;
    }
    args.check()?;
    let target = args.save.as_ref().map(|path| args.existing.check_state(path, args.load.as_deref())).transpose()?;
    let reading = PrefillBar::default();
    let conversation = begin(&args, &reading)?;
    let screen = Screen::new(if args.json { OutputMode::Json } else { OutputMode::Text }, args.color, args.raw);
    let source = if let Some(message) = &args.message {
        MessageSource::Once(Some(message.clone()))
    } else if stdin().is_terminal() {
        let history = (!args.no_history).then(history).flatten();
        MessageSource::Terminal(Box::new(Editor::new(history, args.color.suits(&stderr()))?))
    } else {
        MessageSource::Pipe(Pipe::new()?)
    };
    let (close, tool_command) = (args.grammar.close(), args.tools.command()?);
    let calls = Calls { command: tool_command, waiting: VecDeque::new(), results: Vec::new() };
    let mut chat = Chat { conversation, screen, source, reading, target, grammar: None, close, calls, failed: None };
    chat.hold_to(args.grammar.selected()?)?;
    chat.greet();
    if args.load.is_some() {
        chat.show_last_turns();
    }
    let ended = chat.turns();
    // A chat that ends with an error is saved, too, unless the state is lost because the device failed.
    let is_lost = matches!(&ended, Err(Failure::Error(e)) if e.kind == Kind::Device);
    let target = chat.target.as_ref().filter(|_| !is_lost);
    let saved = target.map_or(Ok(()), |target| target.save(&mut |path| chat.conversation.save(path)));
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

/// Loads the model and prefills the text before the first message.
fn begin(args: &Args, reading: &PrefillBar) -> Result<Conversation> {
    let speculation = args.speculate.speculation()?;
    let model = args.model.load()?;
    let tools = args.tools.tools()?;
    let mut format = args.format.selected(&model)?.map_or_else(|| Format::of(&model), Ok)?;
    if !tools.is_empty() {
        format = format.for_tools();
    }
    let (mut settings, mut seed) = (format.settings(), args.sampling.seed());
    if let Some(path) = &args.prompt {
        let file = PromptFile::find(path)?;
        format = format.with_prompt(&file.prompt).map_err(|e| e.at("--prompt"))?;
        file.set(&mut settings).map_err(|e| e.at(path.display()))?;
        seed = seed.or(file.settings.iter().any(|(name, _)| name == "seed").then_some(settings.sampling.seed));
    }
    settings.sampling = args.sampling.over(settings.sampling, &model)?;
    settings.sampling.seed = seed.unwrap_or(settings.sampling.seed);
    let start = args.model.read_state(&model)?;
    let mut options = Conversation::engine_options(&model);
    options.pinned += usize::from(start.is_some());
    options.speculation = speculation;
    options.draft = args.speculate.load(&model, args.model.weights.options_beside()?)?;
    let engine = Engine::start(&model, options)?;
    let stop = Arc::default();
    signals::stop_on_interrupt(&stop);
    let mut conversation = Conversation::stopped_by(stop, &engine, format, settings, Box::new(reading.shown()))?;
    if let Some((state, loaded)) = start {
        conversation.begin_after(state, &loaded.tokens.unwrap_or_default()).map_err(|e| e.at("--state"))?;
    }
    if !tools.is_empty() {
        conversation.set_tools(tools).map_err(|e| e.at("--tools"))?;
    }
    if let Some(text) = &args.system {
        let text = args.escape.text(text, "--system")?;
        conversation.set_system(&text).map_err(|e| e.at("--system"))?;
    }
    if let Some(path) = &args.load {
        conversation.load(path)?;
        args.set_anew(&mut conversation)?;
    }
    reading.end();
    Ok(conversation)
}

impl Args {
    /// Returns an error if a sampling flag is given that `chat` does not support.
    fn check(&self) -> Result<()> {
        let refused = |flag: &str, why: &str, hint: &str| Err(Error::usage(why).at(flag).hint(hint));
        if !self.sampling.stop.is_empty() {
            return refused(
                "--stop",
                "not supported by chat: the chat format determines where an answer ends",
                "choose another chat format with --format",
            );
        }
        if self.sampling.ignore_eos {
            return refused(
                "--ignore-eos",
                "not supported by chat: the chat format determines where an answer ends",
                "leave out --ignore-eos",
            );
        }
        Ok(())
    }

    /// Applies the sampling flags to a loaded chat. Settings without a flag keep their saved values. Without `--seed`, the saved sequence
    /// of random numbers continues.
    fn set_anew(&self, conversation: &mut Conversation) -> Result<()> {
        let kept = conversation.settings().sampling.clone();
        let asked = self.sampling.over(kept.clone(), conversation.model())?;
        let is_asked = |name: &str| name != "preset" && (name != "seed" || self.sampling.seed().is_some());
        for (name, _) in Sampling::names().filter(|(name, _)| is_asked(name)) {
            let value = asked.get(name)?;
            if value != kept.get(name)? {
                conversation.set(name, &value)?;
            }
        }
        Ok(())
    }
}

/// Returns the path of the history file in the user's folder for program state, or `None` if the system has no folder for program state.
fn history() -> Option<PathBuf> {
    dirs::state_dir().or_else(dirs::data_local_dir).map(|folder| folder.join("wingbeat").join("chat_history"))
}

/// The source of the user's messages.
enum MessageSource {
    /// The message of `--message`; `None` after it was read.
    Once(Option<String>),
    Terminal(Box<Editor>),
    Pipe(Pipe),
}

/// The chat's next action after a line of input.
#[derive(PartialEq, Eq)]
enum NextAction {
    Next,
    Leave,
}

struct Chat {
    conversation: Conversation,
    screen: Screen,
    source: MessageSource,
    /// The file of `--save`, to which the chat is saved at the end.
    target: Option<StateTarget>,
    reading: PrefillBar,
    /// The name of the grammar or schema that answers follow. `None` if answers are not constrained.
    grammar: Option<String>,
    /// Determines whether the grammar completes an answer that reaches its length limit.
    close: Close,
    calls: Calls,
    /// The kind of error that determines the exit code: `Interrupted`, or the kind of the first error while messages come from a pipe. An error
    /// at a terminal does not count, because the user has seen it. `None` without such an error.
    failed: Option<Kind>,
}

/// The tool calls of the last answer.
struct Calls {
    /// The command that runs calls. `None` if the user types the results.
    command: Option<ToolCommand>,
    /// Calls without a result.
    waiting: VecDeque<ToolCall>,
    /// The results of the earlier calls, in order.
    results: Vec<String>,
}

impl Chat {
    fn is_terminal(&self) -> bool {
        matches!(self.source, MessageSource::Terminal(_))
    }

    /// Prints the model's name and a hint. Does nothing if messages come through a pipe.
    fn greet(&self) {
        if self.is_terminal() {
            let model = self.conversation.model();
            say(format_args!("{} ({}), format {}", model.name(), model.facts().architecture, self.conversation.format().name()));
            self.screen.aside("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends");
        }
    }

    /// Prints the last turns of a loaded chat. Does nothing if messages come through a pipe.
    fn show_last_turns(&self) {
        if self.is_terminal() {
            status::last_turns(&self.conversation).iter().for_each(|line| self.screen.aside(line));
        }
    }

    /// Reads lines and runs their commands until the input ends or the user leaves.
    fn turns(&mut self) -> std::result::Result<(), Failure> {
        let mut is_leaving = false;
        let stop = self.conversation.stop_flag();
        loop {
            let input = if signals::is_ending() { Ok(EditorInput::Interrupted) } else { self.read() };
            if signals::is_ending() {
                self.failed = Some(Kind::Interrupted);
                return Ok(());
            }
            let input = input?;
            let was_leaving = std::mem::replace(&mut is_leaving, matches!(input, EditorInput::Interrupted));
            let then = match input {
                EditorInput::Line(line) => self.obey(&line).or_else(|failure| self.recover(failure)),
                EditorInput::Wrong(e) => self.recover(e.into()),
                EditorInput::Cleared => Ok(NextAction::Next),
                EditorInput::Interrupted if !self.is_terminal() => Ok(self.stopped()),
                EditorInput::Interrupted if !was_leaving => {
                    self.screen.aside("press Ctrl-C again or Ctrl-D to leave");
                    Ok(NextAction::Next)
                }
                EditorInput::Interrupted | EditorInput::End => Ok(NextAction::Leave),
            };
            if then? == NextAction::Leave {
                return Ok(());
            }
            if self.is_terminal() && !signals::is_ending() {
                // Ctrl-C may have stopped an answer. Reset the flag, so that the next Ctrl-C stops an answer again instead of ending the
                // program.
                stop.store(false, Ordering::Relaxed);
            }
        }
    }

    fn read(&mut self) -> Result<EditorInput> {
        match &mut self.source {
            MessageSource::Once(message) => Ok(message.take().map_or(EditorInput::End, EditorInput::Line)),
            MessageSource::Pipe(pipe) => pipe.read(&self.conversation.stop_flag()),
            MessageSource::Terminal(editor) => {
                let (format, branch) = (self.conversation.format(), self.conversation.branch());
                let sign = match branch {
                    _ if !self.calls.waiting.is_empty() => format!("result of {}: ", self.calls.waiting[0].name),
                    "main" => format!("{}{} ", format.user(), format.interface()),
                    _ => format!("{} ({branch}){} ", format.user(), format.interface()),
                };
                editor.offer(self.conversation.branches(), status::names());
                // A prompt file can put control characters into the user's name. A terminal would execute them.
                editor.read(&printable(&sign))
            }
        }
    }

    /// Reports the error of a line and continues the chat. Returns the error if the chat cannot continue.
    fn recover(&mut self, failure: Failure) -> std::result::Result<NextAction, Failure> {
        match failure {
            Failure::Error(e) if e.kind == Kind::Interrupted => {
                self.screen.stopped(&e)?;
                Ok(self.stopped())
            }
            // Without its device, the chat cannot continue.
            Failure::Error(e) if e.kind != Kind::Device => {
                self.screen.fail(&e)?;
                self.note(e.kind);
                Ok(NextAction::Next)
            }
            failure => Err(failure),
        }
    }

    /// Keeps the kind of the first error for the exit code. Does nothing if messages come from a terminal.
    fn note(&mut self, kind: Kind) {
        if !self.is_terminal() {
            self.failed.get_or_insert(kind);
        }
    }

    /// Returns what the chat does after Ctrl-C. The chat continues if messages come from a terminal. If messages come from a pipe, the chat ends
    /// with the exit code of an interruption.
    fn stopped(&mut self) -> NextAction {
        if self.is_terminal() {
            return NextAction::Next;
        }
        self.failed = Some(Kind::Interrupted);
        NextAction::Leave
    }
}
