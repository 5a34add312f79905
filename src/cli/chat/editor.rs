//! The line editor of a terminal: keys, history, completion.

use super::complete::Completion;
use crate::cli::style::{SIGN, painted};
use crate::error::{Error, Result};
use rustyline::config::{Behavior, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, ColorMode, ConditionalEventHandler, Config, Editor as Rustyline, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers,
    RepeatCount,
};
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
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
    lines: Rustyline<Completion, FileHistory>,
    history: Option<PathBuf>,
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
        let mut lines = Rustyline::with_config(config).map_err(failed)?;
        lines.set_helper(Some(Completion::default()));
        let was_empty = Arc::new(AtomicBool::new(true));
        lines.bind_sequence(KeyEvent::ctrl('c'), EventHandler::Conditional(Box::new(Watch(was_empty.clone()))));
        lines.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        lines.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::NONE), EventHandler::Conditional(Box::new(Continuation)));
        let history = history.filter(|path| match open_history(&mut lines, path) {
            Ok(()) => true,
            Err(e) => {
                log::warn!("the history is not kept: {}: {e}", path.display());
                false
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
        match self.lines.readline(&(sign, painted(sign, SIGN, self.coloured))) {
            Ok(line) => {
                self.remember(&line);
                Ok(Input::Line(line))
            }
            Err(ReadlineError::Interrupted) if self.was_empty.load(Ordering::Relaxed) => Ok(Input::Interrupted),
            Err(ReadlineError::Interrupted) => Ok(Input::Cleared),
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
        let _ = self.lines.add_history_entry(line);
        if let Some(path) = &self.history
            && let Err(e) = self.lines.append_history(path)
        {
            log::warn!("the history is no longer kept: {}: {e}", path.display());
            self.history = None;
        }
    }
}

/// Reads it; none is there the first time.
fn open_history(lines: &mut Rustyline<Completion, FileHistory>, path: &Path) -> rustyline::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if path.exists() { lines.load_history(path) } else { Ok(()) }
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
