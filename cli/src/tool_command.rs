//! Runs a command for each tool call, without a shell. The output of the command is the result of the call.

use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wingbeat::chat::ToolCall;
use wingbeat::error::{Error, Result};

/// The maximum size of a result, in bytes. Further bytes are dropped.
const MAX_BYTES: usize = 1 << 20;

/// The time between two checks of whether the process has ended.
const PATIENCE: Duration = Duration::from_millis(10);

/// The longest wait for the end of the output after the command has ended, because a background process may keep the output open.
const LAST: Duration = Duration::from_secs(1);

/// A command that runs tools.
#[derive(Debug, Clone)]
pub struct ToolCommand {
    program: String,
    args: Vec<String>,
    /// The maximum time of one call.
    limit: Duration,
}

impl ToolCommand {
    /// Makes a command from a program and its arguments.
    ///
    /// # Errors
    /// `Usage` if there is no program.
    pub fn new(words: &[String], limit: Duration) -> Result<ToolCommand> {
        match words {
            [program, args @ ..] if !program.is_empty() => Ok(ToolCommand { program: program.clone(), args: args.to_vec(), limit }),
            _ => Err(Error::usage("expected a program and its arguments, found nothing").at("--tool-command")),
        }
    }

    /// Runs the command for a call. The process reads `{"name": …, "arguments": …}` from its standard input and writes the result. If the command
    /// fails, the result describes the failure, so that the model can answer. Setting `stop` ends the process.
    pub fn run(&self, call: &ToolCall, arguments: &Value, stop: &AtomicBool) -> String {
        let input = json!({"name": call.name, "arguments": arguments}).to_string() + "\n";
        match self.output(input, stop) {
            Ok(output) => output,
            Err(why) => failure(&why),
        }
    }

    fn output(&self, input: String, stop: &AtomicBool) -> std::result::Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("the tool command {} cannot be started: {e}", self.program))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        // The process may write output before it has read all input, so two threads write and read.
        std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        let output = Arc::new(Mutex::new(Vec::new()));
        let (ended, end) = channel::<()>();
        let to = output.clone();
        std::thread::spawn(move || {
            if let Some(stdout) = stdout {
                read_all(stdout, &to);
            }
            drop(ended);
        });
        let status = self.wait(&mut child, stop)?;
        let _ = end.recv_timeout(LAST);
        let text =
            String::from_utf8_lossy(&output.lock().unwrap_or_else(PoisonError::into_inner)).trim_end_matches(['\r', '\n']).to_string();
        match (status.success(), text.as_str()) {
            (true, _) => Ok(text),
            (false, "") => Err(format!("the tool command failed ({status})")),
            (false, text) => Err(format!("the tool command failed ({status}): {text}")),
        }
    }

    /// Waits until the process ends. Ends the process if the time limit is reached or `stop` is set.
    ///
    /// # Errors
    /// The reason why the process was ended, as text.
    fn wait(&self, child: &mut Child, stop: &AtomicBool) -> std::result::Result<std::process::ExitStatus, String> {
        let until = Instant::now() + self.limit;
        let why = loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if stop.load(Ordering::Relaxed) => break "the tool command was interrupted".to_string(),
                Ok(None) if Instant::now() >= until => {
                    break format!("the tool command did not end within {} seconds", self.limit.as_secs_f64());
                }
                Ok(None) => std::thread::sleep(PATIENCE),
                Err(e) => break format!("the tool command cannot be watched: {e}"),
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        Err(why)
    }
}

/// Reads the output of a process to its end, and appends the first [`MAX_BYTES`] bytes to `to`. The rest is read and dropped, because a process
/// can fail if nobody reads its output.
fn read_all(mut output: impl Read, to: &Mutex<Vec<u8>>) {
    let mut chunk = vec![0; 1 << 16];
    loop {
        match output.read(&mut chunk) {
            Ok(0) => return,
            Ok(n) => {
                let mut bytes = to.lock().unwrap_or_else(PoisonError::into_inner);
                let room = MAX_BYTES - bytes.len();
                bytes.extend_from_slice(&chunk[..n.min(room)]);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Returns the result that the model receives for a failed call: a JSON object with the reason `why`.
pub fn failure(why: &str) -> String {
    json!({ "error": why }).to_string()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn run(words: &[&str], limit_ms: u64, stop: bool) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let command = ToolCommand::new(&words, Duration::from_millis(limit_ms)).unwrap();
        let call = ToolCall { name: "f".into(), arguments: r#"{"a": "$HOME; 'x"}"#.into() };
        command.run(&call, &serde_json::from_str(&call.arguments).unwrap(), &AtomicBool::new(stop))
    }

    #[test]
    fn a_process_gets_json_and_gives_the_result() {
        assert_eq!(run(&["cat"], 20_000, false), r#"{"name":"f","arguments":{"a":"$HOME; 'x"}}"#);
        assert_eq!(run(&["echo", "$HOME;", "a b"], 20_000, false), "$HOME; a b", "no shell expands arguments");
        let background = run(&["sh", "-c", "echo early; sleep 2 &"], 20_000, false);
        assert_eq!(background, "early", "a process in the background may hold the output open");
        // The rest of a long result is dropped, and the process still succeeds.
        let long = run(&["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x && echo end"], 20_000, false);
        assert_eq!((long.len(), long.trim_matches('x')), (MAX_BYTES, ""));
    }

    #[test]
    fn a_failure_is_a_result() {
        let said = run(&["no-such-program-of-wingbeat"], 20_000, false);
        assert!(said.starts_with(r#"{"error":"the tool command no-such-program-of-wingbeat cannot be started: "#), "{said}");
        assert!(run(&["false"], 20_000, false).contains("the tool command failed (exit status: 1)"));
        assert!(run(&["sh", "-c", "echo why; exit 3"], 20_000, false).contains("(exit status: 3): why"));
        assert_eq!(run(&["sleep", "100"], 50, false), r#"{"error":"the tool command did not end within 0.05 seconds"}"#);
        assert_eq!(run(&["sleep", "100"], 20_000, true), r#"{"error":"the tool command was interrupted"}"#);
        assert!(ToolCommand::new(&[], LAST).is_err());
    }
}
