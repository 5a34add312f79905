//! Runs the servers that pages start with `wingbeat serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The address of a server on the pages.
const SHOWN: &str = "127.0.0.1:8080";
/// The longest time until a server listens, and until its models are loaded.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server in the background. Dropping the server ends it.
pub struct Server {
    child: Child,
    address: String,
}

/// Returns whether a command is a server that runs until the next server of the page, or until the end of the page.
pub fn is_server(command: &str) -> bool {
    command.starts_with("wingbeat serve")
}

impl Server {
    /// Starts a server on the CPU, with a free port, and waits until all models are loaded.
    ///
    /// # Errors
    /// The text that the server wrote, if it ended or is not ready in time.
    pub fn start(command: &str, folder: &Path) -> Result<Server, String> {
        // A later flag has precedence over an earlier flag.
        let mut bash = super::bash(&format!("exec {} --port 0 --device cpu", command.split(" #").next().unwrap_or(command)), folder);
        let mut child = bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines(child.stderr.take().unwrap());
        let mut server = Server { child, address: String::new() };
        let (end, mut log) = (Instant::now() + PATIENCE, String::new());
        while Instant::now() < end {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    server.address = line.strip_prefix("listening on http://").unwrap_or_default().into();
                    log += &(line + "\n");
                }
                Err(_) => return Err(log),
            }
            if !server.address.is_empty() {
                break;
            }
        }
        while Instant::now() < end {
            if server.is_ready() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(log)
    }

    fn is_ready(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.address)?;
            write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Returns a command or an output of a page with this server's address instead of the address on the page.
    pub fn at_address(&self, text: &str) -> String {
        text.replace(SHOWN, &self.address)
    }
}

/// Reads lines on a thread, so that the server never waits for a reader.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // After the start, nobody reads the lines.
            let _ = sender.send(line);
        }
    });
    lines
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
