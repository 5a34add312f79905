//! Tests `wingbeat serve` as a program: flags, the config file, signals, the log.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wingbeat");

/// A running program and the lines of its stderr.
struct Program {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    url: String,
}

impl Program {
    fn start(args: &[&str], variables: &[(&str, &str)]) -> Program {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--device", "cpu", "--port", "0"]).args(args).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_string();
        let program = Program { child, lines, url };
        while ureq::get(format!("{}/health", program.url)).call().is_err() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        program
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal and returns the exit code and the rest of stderr.
    #[cfg(unix)]
    fn end(mut self, signal: nix::sys::signal::Signal) -> (Option<i32>, String) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
#[test]
fn sigterm_completes_streams_and_keeps_states() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    let config = folder.path().join("serve.toml");
    std::fs::write(&config, format!("grace = 0\nlog = \"json\"\nslots = 2\nstates = {:?}\n", states.display().to_string())).unwrap();
    let program = Program::start(&["--config", config.to_str().unwrap()], &[("WINGBEAT_API_KEYS", "key-of-ada")]);
    let body = json!({"prompt": "In the secret beginning", "max_tokens": -1, "ignore_eos": true, "stream": true, "session_id": "s"});
    let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
    let response =
        agent.post(format!("{}/v1/completions", program.url)).header("authorization", "Bearer key-of-ada").send_json(&body).unwrap();
    let mut lines = BufReader::new(response.into_body().into_reader()).lines();
    lines.next().unwrap().unwrap();
    let url = program.url.clone();
    let (code, log) = program.end(nix::sys::signal::Signal::SIGTERM);
    let rest: Vec<String> = lines.map_while(Result::ok).filter(|line| line.starts_with("data: ")).collect();
    assert_eq!((code, rest.last().map(String::as_str)), (Some(0), Some("data: [DONE]")), "{url} {log}");
    assert!(rest[rest.len() - 2].contains("\"finish_reason\":\"length\""));
    // The log has one JSON object per line, and contains neither the API key nor the prompt.
    let records: Vec<Value> = log.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        records.iter().any(|record| record["route"] == "/v1/completions" && record["status"] == 200 && record["key"] == "env-1"),
        "{log}"
    );
    assert!(!log.contains("secret") && !log.contains("key-of-ada"), "{log}");
    // Another program continues from the state.
    let program = Program::start(&["--states", states.to_str().unwrap()], &[("WINGBEAT_API_KEYS", "key-of-ada")]);
    let body = json!({"prompt": "", "max_tokens": 3, "ignore_eos": true, "state": "s"});
    let mut answer =
        agent.post(format!("{}/v1/completions", program.url)).header("authorization", "Bearer key-of-ada").send_json(&body).unwrap();
    assert_eq!(answer.body_mut().read_json::<Value>().unwrap()["usage"]["completion_tokens"], 3);
    assert_eq!(program.end(nix::sys::signal::Signal::SIGKILL).0, None);
}

#[test]
fn a_server_keeps_states_without_a_temporary_folder() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let program = Program::start(&[], &[("TMPDIR", missing.to_str().unwrap())]);
    let agent = ureq::Agent::new_with_defaults();
    let states = format!("{}/v1/states", program.url);
    agent.post(&states).send_json(json!({"action": "save", "name": "x", "prompt": "In"})).unwrap();
    let file = agent.get(format!("{states}/x/content")).call().unwrap().body_mut().read_to_vec().unwrap();
    assert_eq!(agent.put(format!("{states}/y/content")).send(&file[..]).unwrap().status().as_u16(), 201);
    assert!(!missing.exists());
}

#[test]
fn wrong_flags_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    std::fs::write(&config, "porte = 1").unwrap();
    let config = config.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, code, want) in [
        (vec!["--host", "0.0.0.0"], 2, "API keys"),
        (vec!["--port", &port], 2, "in use"),
        (vec!["--config", config], 2, "porte: unknown key"),
        (vec!["--key-file", config], 1, "expected a key, or a name and a key"),
        (vec!["-m", "a=x.pth", "-m", "a=y.pth"], 2, "two models have the name"),
        (vec!["-m", "a=x.pth"], 1, "a=x.pth: x.pth: no such file"),
        (vec!["--states", "nonsense://x"], 2, "--states"),
        (vec!["--state-quota", "0"], 2, "states would fill the memory"),
    ] {
        let output = Command::new(PROGRAM).args(["serve", "--device", "cpu", "--port", "0"]).args(&args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(want), "{args:?}: {said}");
    }
}

/// Sends JSON and returns the answer's JSON.
fn post(program: &Program, path: &str, body: &Value) -> Value {
    ureq::post(format!("{}{path}", program.url)).send_json(body).unwrap().body_mut().read_json().unwrap()
}

fn get(program: &Program, path: &str) -> Value {
    ureq::get(format!("{}{path}", program.url)).call().unwrap().body_mut().read_json().unwrap()
}

#[test]
fn a_tuned_state_is_a_model_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let tuned = folder.path().join("poet.safetensors");
    crate::cli::files::made(&tuned, &(0..6).map(|i| (format!("blocks.{i}.att.time_state"), vec![2, 64, 64], 40.0)).collect::<Vec<_>>());
    let program = Program::start(&["--state", tuned.to_str().unwrap()], &[]);
    let names = get(&program, "/v1/models")["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(names, ["small-world", "poet"]);
    let ask = |model: &str, more: Value| {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Tell me a story about a fox."}], "max_tokens": 8, "temperature": 0});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        post(&program, "/v1/chat/completions", &body)
    };
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    let (plain, poet) = (ask("small-world", json!({})), ask("poet", json!({})));
    assert_ne!(text(&plain), text(&poet));
    assert_eq!(poet["model"], "poet");
    // Neither the prefix cache nor a session gives one model the states of the other model.
    assert_eq!((text(&ask("small-world", json!({}))), text(&ask("poet", json!({})))), (text(&plain), text(&poet)));
    for model in ["poet", "small-world", "poet"] {
        let answer = ask(model, json!({"session_id": "s"}));
        assert_eq!(text(&answer), text(if model == "poet" { &poet } else { &plain }), "{answer}");
    }
    // The state file gives the same text on the command line.
    let prompt = post(&program, "/apply-template", &json!({"messages": [{"role": "user", "content": "Tell me a story about a fox."}]}));
    let args = [
        "generate",
        "--device",
        "cpu",
        "--state",
        tuned.to_str().unwrap(),
        "--temperature",
        "0",
        "-n",
        "8",
        prompt["prompt"].as_str().unwrap(),
    ];
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), text(&poet).as_str().unwrap().trim());
    assert_eq!(get(&program, "/slots").as_array().unwrap().len(), 1, "both models share one engine");
    program.kill();
}

#[test]
fn idle_models_leave_memory_and_come_back() {
    let program = Program::start(&["--keep-alive", "1"], &[]);
    let status = || get(&program, "/v1/models")["data"][0]["status"].clone();
    assert_eq!(status(), "unloaded");
    let ask = || {
        post(
            &program,
            "/v1/chat/completions",
            &json!({"messages": [{"role": "user", "content": "light"}], "max_tokens": 4, "temperature": 0}),
        )["choices"]
            .clone()
    };
    let first = ask();
    assert_eq!((status(), get(&program, "/health")["status"].clone()), (json!("ready"), json!("ok")));
    let began = std::time::Instant::now();
    while status() != "unloaded" {
        assert!(began.elapsed().as_secs() < 60, "the model stayed");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(ask()[0]["message"], first[0]["message"]);
    // Every endpoint loads the model, and several requests load it once.
    while status() != "unloaded" {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let all: Vec<Value> = std::thread::scope(|scope| {
        let asked = (0..4).map(|_| scope.spawn(|| post(&program, "/tokenize", &json!({"content": "light"})))).collect::<Vec<_>>();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(all.iter().all(|one| one["tokens"] == all[0]["tokens"]) && status() == "ready");
    program.kill();
}

#[cfg(unix)]
#[test]
fn a_restarted_server_continues_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let (states, cache) = (folder.path().join("states"), folder.path().join("cache"));
    let start = || Program::start(&["--states", states.to_str().unwrap(), "--cache-folder", cache.to_str().unwrap()], &[]);
    let long = "Tell me a story about a fox. ".repeat(40);
    let ask = |program: &Program, seed: u64| {
        let messages = json!([{"role": "user", "content": long}]);
        post(program, "/v1/chat/completions", &json!({"messages": messages, "session_id": "s", "max_tokens": 6, "seed": seed}))
    };
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let program = start();
    assert_eq!(cached(&ask(&program, 1)), 0);
    assert_eq!(program.end(nix::sys::signal::Signal::SIGTERM).0, Some(0));
    // Another answer to the same message begins at the state before the first answer.
    let program = start();
    let again = ask(&program, 2);
    assert!(cached(&again) * 10 > again["usage"]["prompt_tokens"].as_u64().unwrap() * 9, "{again}");
    // A damaged session file is logged, and the conversation is prefilled again.
    let file =
        walk(&states).into_iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("s."))).unwrap();
    program.end(nix::sys::signal::Signal::SIGTERM);
    std::fs::write(&file, b"damaged").unwrap();
    std::fs::remove_dir_all(&cache).unwrap();
    let program = start();
    let answer = ask(&program, 2);
    assert_eq!(answer["choices"][0]["message"], again["choices"][0]["message"], "{answer}");
    assert!(answer["state"]["name"] == "s" && std::fs::metadata(&file).unwrap().len() > 7, "{answer}");
    let log = program.end(nix::sys::signal::Signal::SIGTERM).1;
    assert!(log.contains("the state \"s\" cannot be read, so the conversation is prefilled again"), "{log}");
}

/// Returns all files in a folder and its folders.
#[cfg(unix)]
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// A soft limit on open files, which a system sets for all programs, does not bound the connections of a server.
#[cfg(unix)]
#[test]
fn idle_connections_do_not_fill_the_table_of_files() {
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -Sn 64 && exec \"$0\" serve --device cpu --port 0", PROGRAM])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).unwrap();
    let address = url.strip_prefix("http://").unwrap();
    let idle: Vec<std::net::TcpStream> = (0..120).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(std::time::Duration::from_secs(20))).http_status_as_error(false).build().into();
    assert!([200, 503].contains(&agent.get(format!("{url}/health")).call().unwrap().status().as_u16()));
    drop(idle);
    child.kill().unwrap();
    child.wait().unwrap();
}
