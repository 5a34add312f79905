//! Runs the program at a pseudo-terminal: a test sends keys and reads the screen.

use pty_process::blocking::{Command, Pty, open};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const ROWS: u16 = 50;
const COLUMNS: u16 = 160;
const PATIENCE: Duration = Duration::from_secs(120);

/// The escape sequence that turns bracketed paste on. The line editor sends this sequence when it begins to wait for a line.
const READY: &str = "\x1b[?2004h";

/// Keys that are not characters.
pub const ENTER: &str = "\r";
pub const UP: &str = "\x1b[A";
pub const TAB: &str = "\t";
pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const ALT_ENTER: &str = "\x1b\r";

pub struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    output: Receiver<Vec<u8>>,
    /// The complete output so far.
    seen: Vec<u8>,
    /// The number of output bytes up to the end of the text that the last call of `wait` found.
    mark: usize,
}

/// Options for starting the program.
#[derive(Default)]
pub struct Setting<'a> {
    pub env: &'a [(&'a str, &'a str)],
    /// The program's standard output. `None` means the terminal.
    pub stdout: Option<Stdio>,
}

impl Terminal {
    /// Starts `wingbeat ARGS` on the CPU. `home` is the user's home folder.
    pub fn start<S: AsRef<OsStr>>(args: &[S], home: &Path, setting: Setting<'_>) -> Terminal {
        let (pty, pts) = open().unwrap();
        pty.resize(pty_process::Size::new(ROWS, COLUMNS)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"))
            .args(args)
            .current_dir(home)
            .envs([("HOME", home), ("XDG_STATE_HOME", home), ("XDG_DATA_HOME", home)])
            .envs([("WINGBEAT_DEVICE", "cpu"), ("TERM", "xterm-256color"), ("LANG", "C.UTF-8")])
            .env_remove("RUST_LOG")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR")
            .envs(setting.env.iter().copied());
        if let Some(stdout) = setting.stdout {
            command = command.stdout(stdout);
        }
        let child = command.spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let (send, output) = channel();
        let reader = pty.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails after the program has ended.
            while let Ok(n @ 1..) = (&*reader).read(&mut bytes) {
                if send.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { pty, child, output, seen: Vec::new(), mark: 0 }
    }

    /// Starts `wingbeat ARGS` and waits until the program asks for the first line.
    pub fn ready<S: AsRef<OsStr>>(args: &[S], home: &Path, setting: Setting<'_>) -> Terminal {
        let mut terminal = Terminal::start(args, home, setting);
        terminal.wait(READY);
        terminal
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn keys(&mut self, keys: &str) {
        self.bytes(keys.as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        (&*self.pty).write_all(bytes).unwrap();
    }

    /// Waits until `text` appears in the output after the last wait. Returns the output before `text`, with escape sequences.
    pub fn wait(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let new = &self.seen[self.mark..];
            if let Some(at) = new.windows(text.len()).position(|w| w == text.as_bytes()) {
                let before = String::from_utf8_lossy(&new[..at]).into_owned();
                self.mark += at + text.len();
                return before;
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(e) => panic!("{e} before {text:?}; the output was {:?}", String::from_utf8_lossy(&self.seen[self.mark..])),
            }
        }
    }

    /// Sends keys that end a line. Returns the output until the program asks for the next line, with escape sequences.
    pub fn raw(&mut self, keys: &str) -> String {
        self.keys(keys);
        self.wait(READY)
    }

    /// Types a line. Returns the output until the program asks for the next line, without escape sequences and without the typed line.
    pub fn say(&mut self, line: &str) -> String {
        let raw = self.raw(&format!("{line}{ENTER}"));
        shown(raw.split_once("\x1b[?2004l").map_or(raw.as_str(), |(_, answer)| answer))
    }

    /// Returns the screen as it was at the end of the text that the last `wait` found.
    pub fn screen(&self) -> vt100::Parser {
        let size = |n| NonZeroU16::new(n).unwrap();
        let mut parser = vt100::Parser::new(size(ROWS), size(COLUMNS), 0);
        parser.process(&self.seen[..self.mark]);
        parser
    }

    /// Waits until the program ends. Returns the complete output, with escape sequences.
    pub fn until_end(&mut self) -> String {
        self.child.wait().unwrap();
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_secs(1)) {
            self.seen.extend(bytes);
        }
        String::from_utf8_lossy(&self.seen).replace("\r\n", "\n")
    }

    /// Waits until the program ends. Returns the exit code and the text after the last wait.
    pub fn end(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_secs(1)) {
            self.seen.extend(bytes);
        }
        (status.code().unwrap_or_else(|| panic!("ended by a signal: {status}")), shown(&String::from_utf8_lossy(&self.seen[self.mark..])))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the text on a large screen after the output `raw`.
pub fn shown(raw: &str) -> String {
    let size = |n| NonZeroU16::new(n).unwrap();
    let mut parser = vt100::Parser::new(size(400), size(500), 0);
    parser.process(raw.as_bytes());
    parser.screen().contents().trim().to_string()
}
