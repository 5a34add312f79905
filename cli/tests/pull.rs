//! Tests the program with a server that plays Hugging Face's hub: `pull`, `list`, `rm`, and `-m` with an address.

mod cache;

use crate::cli::{code, json, refused, stderr, stdout};
use crate::terminal::{ENTER, Setting, Terminal};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const MODEL: &str = "hf:me/models/tiny.safetensors";
/// The number of bytes after which a slow answer stops.
const STOP: usize = 1 << 20;

/// A hub with the embedded model as its only file.
struct Hub {
    address: String,
    /// The first line and the range of each request.
    requests: Arc<Mutex<Vec<String>>>,
    /// The number of answers that stop in the middle and keep the connection open.
    n_slow: Arc<AtomicUsize>,
}

impl Hub {
    fn start() -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let content =
            std::fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("assets/models/small-world.safetensors")).unwrap();
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let hub = Hub { address, requests: Arc::default(), n_slow: Arc::default() };
        let (requests, n_slow) = (hub.requests.clone(), hub.n_slow.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, n_slow, content, hash) = (requests.clone(), n_slow.clone(), content.clone(), hash.clone());
                std::thread::spawn(move || answer(stream, &requests, &n_slow, &content, &hash));
            }
        });
        hub
    }

    fn n_requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn spawn(&self, args: &[&str], home: &Path, env: &[(&str, &str)]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
        command.args(args).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu").env("HF_ENDPOINT", &self.address).env("HF_HOME", home);
        command.env_remove("HF_HUB_CACHE").env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN").envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, args: &[&str], home: &Path) -> Output {
        self.run_with(args, home, &[])
    }

    /// Runs the program, and fails after half a minute.
    fn run_with(&self, args: &[&str], home: &Path, env: &[(&str, &str)]) -> Output {
        let child = self.spawn(args, home, env);
        let (id, (sender, ended)) = (child.id(), std::sync::mpsc::channel());
        std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
        ended.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            panic!("{args:?} hangs");
        })
    }
}

fn answer(stream: TcpStream, requests: &Mutex<Vec<String>>, n_slow: &AtomicUsize, content: &[u8], hash: &str) {
    let lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect::<Vec<_>>();
    let Some(first) = lines.first().cloned() else { return };
    let range = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    requests.lock().unwrap().push(format!("{first} {range:?}"));
    let mut out = &stream;
    let mut send = |head: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {head}\r\nx-repo-commit: {COMMIT}\r\nconnection: close\r\n\r\n");
        let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(body));
    };
    if first.starts_with("GET /api/models/me/models/revision/main ") {
        let body = format!(r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": "README.md"}}, {{"rfilename": "tiny.safetensors"}}]}}"#);
        return send(&format!("200 OK\r\ncontent-length: {}", body.len()), body.as_bytes());
    }
    if !first.contains(&format!(" /me/models/resolve/{COMMIT}/tiny.safetensors ")) {
        return send("404 Not Found\r\ncontent-length: 0", b"");
    }
    let (start, n) = (range.unwrap_or(0), content.len());
    let status = if range.is_some() { format!("206 Partial\r\ncontent-range: bytes {start}-{}/{n}", n - 1) } else { "200 OK".into() };
    let head = format!("{status}\r\nx-linked-etag: \"{hash}\"\r\nx-linked-size: {n}\r\ncontent-length: {}", n - start);
    if first.starts_with("HEAD") {
        return send(&head, b"");
    }
    let is_slow = n_slow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
    send(&head, if is_slow { &content[start..start + STOP] } else { &content[start..] });
    if is_slow {
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn a_killed_pull_goes_on_and_the_model_runs_without_a_network() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    hub.n_slow.store(1, Ordering::SeqCst);
    let mut killed = hub.spawn(&["pull", MODEL], home.path(), &[]);
    let blobs = home.path().join("hub/models--me--models/blobs");
    let length = || std::fs::read_dir(&blobs).into_iter().flatten().flatten().map(|entry| entry.metadata().unwrap().len()).sum::<u64>();
    while length() < STOP as u64 {
        assert!(killed.try_wait().unwrap().is_none(), "the download ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let pulled = hub.run(&["pull", "hf:me/models"], home.path());
    let path = stdout(&pulled);
    assert!(path.trim_end().ends_with(&format!("snapshots/{COMMIT}/tiny.safetensors")), "{path}");
    assert!(stderr(&pulled).contains("are missing"), "{}", stderr(&pulled));
    assert!(hub.requests.lock().unwrap().last().unwrap().ends_with(&format!("Some({STOP})")), "{:?}", hub.requests);
    let n = hub.n_requests();
    for model in [MODEL, "hf:me/models"] {
        let text = hub.run(&["generate", "light", "-n", "3", "-m", model, "--vocab", "small-world"], home.path());
        assert!(!stdout(&text).is_empty());
    }
    let listed = json(&hub.run(&["list", "--json"], home.path()));
    assert_eq!((listed[0]["name"].as_str(), listed[0]["path"].as_str()), (Some(MODEL), Some(path.trim_end())));
    assert!(stdout(&hub.run(&["list"], home.path())).starts_with(MODEL));
    refused(&hub.run(&["rm", MODEL], home.path()), 2, "no terminal to ask");
    assert!(stderr(&hub.run(&["rm", "--yes", MODEL], home.path())).contains("are free"));
    assert_eq!(json(&hub.run(&["list", "--json"], home.path())).as_array().unwrap().len(), 0);
    refused(&hub.run(&["rm", "--yes", MODEL], home.path()), 1, "no such model in");
    assert_eq!(hub.n_requests(), n, "a model in the cache needs no network");
}

#[test]
fn nothing_is_downloaded_without_consent() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let args = ["generate", "light", "-n", "3", "--vocab", "small-world", "-m", MODEL];
    refused(&hub.run(&args, home.path()), 1, "wingbeat pull hf:me/models/tiny.safetensors; or add --yes");
    assert_eq!(hub.n_requests(), 0);
    let offline = hub.spawn(&["pull", MODEL], home.path(), &[("HF_HUB_OFFLINE", "1")]).wait_with_output().unwrap();
    refused(&offline, 1, "HF_HUB_OFFLINE forbids connections");
    refused(&hub.run(&["pull", "hf:me/models/none.pth"], home.path()), 1, "the repository has tiny.safetensors");
    let (folder, cache) = (home.path().to_str().unwrap(), home.path().join("hub"));
    let env = [("HF_ENDPOINT", hub.address.as_str()), ("HF_HOME", folder)];
    let mut terminal = Terminal::start(&args, home.path(), Setting { env: &env, ..Setting::default() });
    terminal.wait("is not on this disk: download 3.");
    terminal.wait("[Y/n] ");
    terminal.keys(&format!("n{ENTER}"));
    let (code_of_no, said) = terminal.end();
    assert!(code_of_no == 130 && said.contains("not downloaded") && !cache.exists(), "{said}");
    let mut terminal = Terminal::start(&args, home.path(), Setting { env: &env, ..Setting::default() });
    terminal.wait("[Y/n] ");
    terminal.keys(ENTER);
    assert_eq!(terminal.end().0, 0);
    let other = tempfile::tempdir().unwrap();
    assert_eq!(code(&hub.run(&[&args[..], &["--yes"]].concat(), other.path())), 0);
}
