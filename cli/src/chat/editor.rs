//! The line editor at a terminal: keys, history of messages, completion with Tab.

use super::complete::Completion;
use super::history::History;
use crate::signals::EditorWait;
use crate::style::{SIGN, painted};
use rustyline::config::{Behavior, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{
    Cmd, ColorMode, ConditionalEventHandler, Config, Editor as Rustyline, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers,
    RepeatCount,
};
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wingbeat::error::{Error, Result};

/// The maximum number of messages in the history.
const MAX_HISTORY: usize = 1000;

/// The result of reading a message.
#[derive(Debug)]
pub enum EditorInput {
    /// A message of one or more lines.
    Line(String),
    /// A message that is not valid text. The next message can be read.
    Wrong(Error),
    /// Ctrl-C on a line with text. The editor has cleared the line.
    Cleared,
    /// Ctrl-C on an empty line, or a signal that asks the program to end.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// A line editor that reads messages at a terminal.
pub struct Editor {
    lines: Rustyline<Completion, MemHistory>,
    history: Option<History>,
    was_empty: Arc<AtomicBool>,
    coloured: bool,
}

impl Editor {
    /// Creates an editor. `history` is the path of the history file. Without a path, or if the file cannot be used, the history is not
    /// saved.
    ///
    /// # Errors
    /// `Input` if the terminal cannot be used.
    pub fn new(history: Option<PathBuf>, coloured: bool) -> Result<Editor> {
        // If standard output is a file or a pipe, show the prompt at the terminal itself.
        let behavior = if std::io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(MAX_HISTORY)
            .and_then(|c| c.history_ignore_dups(true))
            .map_err(failed)?
            .completion_type(CompletionType::List)
            .color_mode(if coloured { ColorMode::Forced } else { ColorMode::Disabled })
            .behavior(behavior)
            .build();
        let mut lines = Rustyline::with_history(config.clone(), MemHistory::with_config(&config)).map_err(failed)?;
        lines.set_helper(Some(Completion::default()));
        let was_empty = Arc::new(AtomicBool::new(true));
        lines.bind_sequence(KeyEvent::ctrl('c'), EventHandler::Conditional(Box::new(Watch(was_empty.clone()))));
        lines.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        lines.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::NONE), EventHandler::Conditional(Box::new(Continuation)));
        let history = history.and_then(|path| match History::open(path, MAX_HISTORY) {
            Ok((history, messages)) => {
                messages.iter().for_each(|message| _ = lines.add_history_entry(message));
                Some(history)
            }
            Err(e) => {
                log::warn!("the history is not saved: {e}");
                None
            }
        });
        Ok(Editor { lines, history, was_empty, coloured })
    }

    /// Sets the names that Tab completes.
    pub fn offer(&mut self, branches: Vec<String>, settings: Vec<String>) {
        if let Some(completion) = self.lines.helper_mut() {
            (completion.branches, completion.settings) = (branches, settings);
        }
    }

    /// Shows `sign` as the prompt and reads a message.
    ///
    /// # Errors
    /// `Input` if the terminal cannot be used.
    pub fn read(&mut self, sign: &str) -> Result<EditorInput> {
        let _waiting = EditorWait::begin();
        match self.lines.readline(&(sign, painted(sign, SIGN, self.coloured))) {
            Ok(line) => {
                self.remember(&line);
                Ok(EditorInput::Line(line))
            }
            Err(ReadlineError::Interrupted) if self.was_empty.load(Ordering::Relaxed) => Ok(EditorInput::Interrupted),
            Err(ReadlineError::Interrupted) => Ok(EditorInput::Cleared),
            // A signal from another process, or the signal that this program sends to itself after SIGTERM or SIGHUP.
            Err(ReadlineError::Signal(_)) => Ok(EditorInput::Interrupted),
            Err(ReadlineError::Eof) => Ok(EditorInput::End),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                Ok(EditorInput::Wrong(Error::input("expected UTF-8 text").at("the terminal")))
            }
            // The terminal was closed.
            Err(_) if !std::io::stdin().is_terminal() => Ok(EditorInput::End),
            Err(e) => Err(failed(e)),
        }
    }

    /// Adds a message to the history, and at once to its file, because a signal can end the program.
    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let is_new = self.lines.add_history_entry(line).unwrap_or(false);
        if let Some(history) = self.history.as_ref().filter(|_| is_new)
            && let Err(e) = history.append(line)
        {
            log::warn!("the history is no longer saved: {e}");
            self.history = None;
        }
    }
}

fn failed(e: ReadlineError) -> Error {
    Error::input(e.to_string()).at("the terminal")
}

/// Stores whether the line is empty when Ctrl-C is pressed. On an empty line, Ctrl-C asks to leave the chat.
struct Watch(Arc<AtomicBool>);

impl ConditionalEventHandler for Watch {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(context.line().is_empty(), Ordering::Relaxed);
        None
    }
}

/// Turns a backslash before Enter into a newline. For this, it runs the editor's completion command (Tab), because no other command both replaces
/// text and moves the cursor after the new text. A pasted backslash stays, because pasting presses no key.
struct Continuation;

impl ConditionalEventHandler for Continuation {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let continues = context.pos() == context.line().len() && context.line().ends_with('\\');
        continues.then_some(Cmd::Complete)
    }
}
