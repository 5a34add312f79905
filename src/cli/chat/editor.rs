//! The line editor of a terminal: keys, history, completion.

use super::complete::Completion;
use super::history::History;
use crate::cli::signals::Waiting;
use crate::cli::style::{SIGN, painted};
use crate::error::{Error, Result};
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

/// Messages that the history keeps.
const MAX_HISTORY: usize = 1000;

/// What came of asking for a line.
#[derive(Debug)]
pub enum Input {
    /// A message; it may have several lines.
    Line(String),
    /// None that can be read; the one after it may be.
    Wrong(Error),
    /// Ctrl-C on a line with something on it, which is gone.
    Cleared,
    /// Ctrl-C on an empty line.
    Interrupted,
    /// Ctrl-D, or there is no more.
    End,
}

/// A terminal with somebody at it.
pub struct Editor {
    lines: Rustyline<Completion, MemHistory>,
    history: Option<History>,
    was_empty: Arc<AtomicBool>,
    coloured: bool,
}

impl Editor {
    /// `history`: the file to keep it in, if any. One that cannot be read or written is said, and done without.
    pub fn new(history: Option<PathBuf>, coloured: bool) -> Result<Editor> {
        // Answers may go to a file while somebody types: then the prompt goes to the terminal itself.
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

    /// What Tab offers beside commands and files.
    pub fn offer(&mut self, branches: Vec<String>, settings: Vec<String>) {
        if let Some(completion) = self.lines.helper_mut() {
            (completion.branches, completion.settings) = (branches, settings);
        }
    }

    /// Asks for a message.
    ///
    /// # Errors
    /// `Input` where the terminal does not work.
    pub fn read(&mut self, sign: &str) -> Result<Input> {
        let _waiting = Waiting::begin();
        match self.lines.readline(&(sign, painted(sign, SIGN, self.coloured))) {
            Ok(line) => {
                self.remember(&line);
                Ok(Input::Line(line))
            }
            Err(ReadlineError::Interrupted) if self.was_empty.load(Ordering::Relaxed) => Ok(Input::Interrupted),
            Err(ReadlineError::Interrupted) => Ok(Input::Cleared),
            // Sent by another process, or by ourselves because the program is told to end.
            Err(ReadlineError::Signal(_)) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                Ok(Input::Wrong(Error::input("expected text in UTF-8").at("the terminal")))
            }
            // the terminal is gone
            Err(_) if !std::io::stdin().is_terminal() => Ok(Input::End),
            Err(e) => Err(failed(e)),
        }
    }

    /// Kept at once, so that it is there whatever ends the program.
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

/// Sees whether there was something on the line when Ctrl-C came.
struct Watch(Arc<AtomicBool>);

impl ConditionalEventHandler for Watch {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(context.line().is_empty(), Ordering::Relaxed);
        None
    }
}

/// Enter after a backslash goes on in a new line, in place of the backslash. It is a completion, because no command of the editor replaces text
/// and leaves the cursor behind it; and done at once, so that text which was pasted keeps its own backslashes.
struct Continuation;

impl ConditionalEventHandler for Continuation {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let goes_on = context.pos() == context.line().len() && context.line().ends_with('\\');
        goes_on.then_some(Cmd::Complete)
    }
}
