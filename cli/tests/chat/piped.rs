//! Tests `chat` through a pipe: one message per line on stdin, and only answers on stdout.

use super::{asked, encoded};
use crate::cli::{code, feed, json, refused, run, sibling, stderr, stdout, words};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use wingbeat::vocab::Vocab;

fn chat(args: &str, input: &str) -> Output {
    feed(&words(&format!("chat {args}")), input.as_bytes())
}

fn objects(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn tokens(object: &Value) -> Vec<u32> {
    object["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Returns an answer's tokens as text, including blanks at its ends.
fn text(object: &Value) -> String {
    String::from_utf8(Vocab::small_world().decode(&tokens(object))).unwrap()
}

#[test]
fn answers_go_to_stdout_and_all_else_to_stderr() {
    let output = chat("--seed 1", "light\n+reset\n");
    let text = stdout(&output);
    assert!(text.len() > 10 && text.ends_with('\n') && !text.starts_with(' '), "{text:?}");
    assert!(!text.contains('\x1b') && !text.contains("User: ") && !text.contains("Assistant: "), "{text:?}");
    assert!(stderr(&output).contains("Chat reset."), "{}", stderr(&output));
    assert!(!stderr(&output).contains('\x1b') && !stderr(&output).contains("/help lists"), "{}", stderr(&output));
    for same in ["light", "light\r\n", "\u{feff}light\n", "\n  light \n\n"] {
        assert_eq!(stdout(&chat("--seed 1", same)), text, "{same:?}");
    }
    assert_eq!(stdout(&chat("", "")), "");
}

#[test]
fn a_typed_line_is_the_result_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tools = file("tools.json", r#"[{"type": "function", "function": {"name": "f"}}]"#);
    // The grammar makes every answer a call.
    let call = file("call.gbnf", r#"root ::= "{\"name\": \"f\", \"arguments\": {\"a\": 1}}""#);
    let output =
        chat(&format!("--json --format g1-tools --thinking fast --tools {tools} --grammar {call}"), "hi\n/think\n7\n/undo\nhello\n");
    let answers = objects(&output);
    assert_eq!(answers.iter().map(|a| a["prompt"].as_str().unwrap()).collect::<Vec<_>>(), ["hi", "7", "hello"], "{}", stderr(&output));
    for answer in &answers {
        let called = serde_json::json!([{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]);
        assert_eq!((&answer["tool_calls"], answer["text"].as_str()), (&called, Some("")), "{answer}");
    }
    assert!(stderr(&output).contains("calls f {\"a\": 1}") && stderr(&output).contains("thinking is fast"), "{}", stderr(&output));
    assert!(answers[1]["prompt_tokens"].as_u64() < answers[0]["prompt_tokens"].as_u64(), "a kept state is continued");
    // A chat format without tools accepts `--tools`, too.
    assert!(chat(&format!("--tools {tools}"), "").status.success());
    refused(&chat(&format!("--tools {call}"), ""), 1, "expected an array of tools");
}

/// The results of a tool command go back to the model, also if the command fails.
#[cfg(unix)]
#[test]
fn a_command_gives_the_results_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tools = file("tools.json", r#"[{"type": "function", "function": {"name": "f"}}]"#);
    let call = file("call.gbnf", r#"root ::= "{\"name\": \"f\", \"arguments\": {\"a\": \"$HOME\"}}""#);
    // Each process counts the processes before it. The first process prints the line that it reads.
    let script = r#"
        n=$(($(cat "$1" 2>/dev/null || echo 0) + 1)); echo $n > "$1"
        case $n in
        1) read -r line; printf '%s' "$line"; read -r more || echo " and the input ends" ;;
        2) echo oops; exit 3 ;;
        3) exec sleep 100 ;;
        4) printf 'caf\351\n' ;;
        5) ;;
        *) echo "result $n" ;;
        esac"#;
    let (script, count) = (file("tool.sh", script), folder.path().join("count").display().to_string());
    let flags = format!("--json --format g1-tools-short --thinking fast --tools {tools} --grammar {call} --tool-timeout 3");
    let output = chat(&format!("{flags} --tool-command sh {script} {count} ;"), "hi\n/history\n");
    let (answers, said) = (objects(&output), stderr(&output));
    // Every answer calls the tool, so the chat stops after 32 rounds.
    assert_eq!((answers.len(), said.contains("32 answers in a row called tools"), code(&output)), (33, true, 0), "{said}");
    assert!(answers.iter().all(|a| a["prompt"] == "hi" && a["tool_calls"][0]["function"]["name"] == "f"), "{said}");
    let (aside, history) = said.split_once("the chat waits for a message").unwrap();
    let results = [
        r#"{"name":"f","arguments":{"a":"$HOME"}} and the input ends"#,
        r#"{"error":"the tool command failed (exit status: 3): oops"}"#,
        r#"{"error":"the tool command did not end within 3 seconds"}"#,
        "caf\u{fffd}",
        "",
        "result 6",
    ];
    assert!(aside.contains(&results.map(|result| format!("result {result}\n")).join("calls f {\"a\": \"$HOME\"}\n")), "{aside}");
    let mut rest = history;
    for result in results {
        let found = format!("Function output: {result}");
        rest = rest.split_once(&found).unwrap_or_else(|| panic!("no {found:?} in {rest:?}")).1;
    }
}

#[test]
fn an_answer_is_an_object_with_json() {
    let output = chat("--seed 1 --json --temp 3", "light\n+\nbread and\\n\\nwine\n/history\n");
    let said = stdout(&output);
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.iter().map(|a| a["prompt"].as_str().unwrap()).collect::<Vec<_>>(), ["light", "+", "bread and\\n\\nwine"]);
    for answer in &answers {
        assert_eq!((answer["branch"].as_str(), answer["seed"].as_u64()), (Some("main"), Some(1)), "{answer}");
        assert!(answer["text"].as_str().is_some_and(|text| text.len() > 10 && text.trim() == text), "{answer}");
        assert!(answer["thought"].is_null() && answer["finish"] == "eos", "{answer}");
        assert_eq!(answer["timings"]["decode_tokens_per_second"].as_f64().map(|x| x > 0.0), Some(true));
    }
    assert_ne!(answers[0]["tokens"], answers[1]["tokens"]);
    let asked_first = encoded(&[&asked("light")]).len() as u64;
    assert_eq!((answers[0]["prompt_tokens"].as_u64(), answers[1]["prompt_tokens"].as_u64()), (Some(asked_first), Some(0)));
    // The second answer replaces the first answer.
    let read = [asked("light"), text(&answers[1]), asked("bread and\nwine"), text(&answers[2])].concat();
    assert!(stderr(&output).contains(read.trim()), "{}", stderr(&output));
}

#[test]
fn a_command_that_cannot_be_done_is_a_wrong_line() {
    let output = chat("--seed 1 --json", "+prompt nothing.toml\n+gen\n+reset\n");
    let said = objects(&output);
    assert_eq!((code(&output), said.len()), (1, 2), "{said:?}");
    let messages: Vec<&str> = said.iter().map(|o| o["error"]["message"].as_str().unwrap()).collect();
    assert!(messages[0].starts_with("Path error. ") && messages[1] == "Error: +gen needs TEXT", "{messages:?}");
}

#[test]
fn a_wrong_line_is_reported_and_the_next_line_is_answered() {
    let output = chat("--seed 1", "/hlep\nlight\n/switch nowhere\n");
    assert_eq!(stderr(&output).matches("error: ").count(), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("/help?") && stderr(&output).contains("nowhere"), "{}", stderr(&output));
    assert_eq!((code(&output), String::from_utf8(output.stdout).unwrap()), (1, stdout(&chat("--seed 1", "light\n"))));

    let output = chat("--seed 1 --json", "/hlep\nlight\n");
    let said = objects(&output);
    assert_eq!((said[0]["error"]["kind"].as_str(), said[1]["prompt"].as_str()), (Some("input"), Some("light")));

    let output = feed(&["chat", "--seed", "1"], b"caf\xe9\nlight\n");
    assert!(
        stderr(&output).contains("standard input, line 1: expected UTF-8 text, found the invalid byte 0xe9 at byte 3"),
        "{}",
        stderr(&output)
    );
    assert_eq!((code(&output), output.stdout.is_empty()), (1, false));
}

#[test]
fn flags_that_chat_does_not_support_are_refused() {
    refused(&run(&words("chat --stop x")), 2, "--stop");
    refused(&run(&words("chat --ignore-eos")), 2, "--ignore-eos");
    refused(&run(&words("chat --state /no/such/state")), 1, "/no/such/state");
    refused(&run(&words("chat --format nothing")), 2, "--format");
    refused(&run(&words("chat --prompt /no/such/prompt.toml")), 1, "/no/such/prompt.toml");
    refused(&run(&words("chat --load /no/such/chat")), 1, "/no/such/chat");
    refused(&run(&words("chat --load x --system y")), 2, "cannot be used with");
    refused(&run(&words("chat --color sometimes")), 2, "--color");
}

/// ChatRWKV's commands for free generation and the verb `generate` prefill the same prompts.
#[test]
fn free_generation_continues_like_generate() {
    // Uses a test model whose texts are long enough to be continued twice.
    let model = sibling("rwkv7");
    let model = ["-m", &model, "--vocab", "tiny"];
    let generated =
        |prompt: &str, n: &str| tokens(&json(&run(&[&["generate", prompt, "-n", n, "--temp", "0", "--json"][..], &model].concat())));
    let instruction = "\nBelow is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
                       # Instruction:\nTell of light.\n\n# Response:\n";
    for (line, prompt) in [
        ("+gen  In the beginning ", "\nIn the beginning"),
        ("+i Tell of light.", instruction),
        ("+qq What is light?", "\nQ: What is light?\nA:"),
    ] {
        let said = chat(&format!("--temp 0 --json {}", model.join(" ")), &format!("/set FREE_GEN_LEN 16\n{line}\n++\n+++\n"));
        let said: Vec<Vec<u32>> = objects(&said).iter().map(tokens).collect();
        let whole = generated(prompt, "64");
        assert!(said[0].len() >= 16 && whole.starts_with(&said[0]), "{line}: {said:?} {whole:?}");
        assert_eq!(said[0], said[1], "{line}");
        assert!(whole.starts_with(&[said[1].as_slice(), &said[2]].concat()), "{line}: {said:?} {whole:?}");
    }
}

#[test]
fn reasoning_is_no_part_of_an_answer() {
    let args = "--format g1-think --seed 1";
    let input = "/set CHAT_LEN_MAX 12\nlight\n";
    assert_eq!(stdout(&chat(args, input)), "\n");
    let said = objects(&chat(&format!("{args} --json"), input));
    assert_eq!((said[0]["text"].as_str(), said[0]["finish"].as_str()), (Some(""), Some("length")));
    assert!(said[0]["thought"].as_str().is_some_and(|thought| !thought.is_empty()), "{}", said[0]);
}

#[test]
fn a_saved_chat_continues_in_a_new_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my chat.st");
    let file = file.to_str().unwrap();
    let whole = objects(&chat("--seed 3 --json", "light\nwater\n"));
    let kept = feed(&["chat", "--seed", "3", "--json", "--save", file], b"light\n");
    assert_eq!(objects(&kept)[0]["tokens"], whole[0]["tokens"]);
    let gone_on = feed(&["chat", "--json", "--load", file], b"water\n");
    assert_eq!(objects(&gone_on)[0]["tokens"], whole[1]["tokens"]);
    // A chat that began from a state can only be loaded together with this state. Other chats cannot be loaded together with a state.
    let state = folder.path().join("s.st");
    let state = state.to_str().unwrap();
    stdout(&run(&["generate", "In the", "-n", "0", "--save-state", state]));
    refused(&feed(&["chat", "--load", file, "--state", state], b""), 1, "leave out --state");
    let behind = folder.path().join("behind.st");
    let behind = behind.to_str().unwrap();
    stdout(&feed(&["chat", "--state", state, "--save", behind], b"light\n"));
    refused(&feed(&["chat", "--load", behind], b""), 1, "pass the same state as --state");
    stdout(&feed(&["chat", "--load", behind, "--state", state], b"light\n"));
    // Files that are not saved chats are not overwritten.
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "mine").unwrap();
    refused(&feed(&["chat", "--save", notes.to_str().unwrap()], b"light\n"), 1, "notes.txt: the file exists and is not a state file");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
    refused(&feed(&["chat", "--save", "/no/such/folder/x"], b""), 1, "/no/such/folder/x: ");
    // Flags override saved settings.
    let greedy = feed(&["chat", "--json", "--load", file, "--temp", "0"], b"water\n+\n");
    let greedy = objects(&greedy);
    assert_eq!((greedy[0]["tokens"].clone(), greedy[0]["seed"].as_u64()), (greedy[1]["tokens"].clone(), Some(3)));
}

#[test]
fn a_chat_begins_after_a_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let state = state.to_str().unwrap();
    let before = "User: day\n\nAssistant: The night is far spent, the day is at hand.\n\n";
    stdout(&run(&["generate", before, "-n", "0", "--save-state", state, "--state-tokens"]));
    let output = feed(&["chat", "--state", state, "--temp", "0", "--json"], b"light\n/history\n/set FREE_GEN_LEN 8\n+gen Once upon\n");
    let said: Vec<Vec<u32>> = stdout(&output).lines().map(|line| tokens(&serde_json::from_str(line).unwrap())).collect();
    let answer = String::from_utf8(Vocab::small_world().decode(&said[0])).unwrap();
    let read = [before, &asked("light"), &answer].concat();
    assert!(stderr(&output).contains(read.trim()), "{}", stderr(&output));
    let whole = tokens(&json(&run(&["generate", "\nOnce upon", "--state", state, "-n", "32", "--temp", "0", "--json"])));
    assert!(said[1].len() >= 8 && whole.starts_with(&said[1]), "{said:?} {whole:?}");
}

#[test]
fn a_prompt_file_may_bring_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, "user = 'User'\nbot = 'Assistant'\ninit_prompt = ''\n[settings]\nseed = 9\n").unwrap();
    let seed = |more: &str| objects(&chat(&format!("--prompt {} --json {more}", file.display()), "light\n"))[0]["seed"].as_u64();
    assert_eq!((seed(""), seed("--seed 4")), (Some(9), Some(4)));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_a_chat_quietly() {
    let script =
        format!("yes light | {} chat --device cpu | head -n 1 >/dev/null; exit ${{PIPESTATUS[1]}}", env!("CARGO_BIN_EXE_wingbeat"));
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((code(&output), stderr(&output).contains("error")), (0, false), "{}", stderr(&output));
}

#[test]
fn answers_follow_a_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("yes.gbnf"), "root ::= \"yes\" | \"no\"\n").unwrap();
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"], "additionalProperties": false}"#;
    std::fs::write(at("name.json"), schema).unwrap();
    std::fs::write(at("wrong.gbnf"), "root ::= \"yes\n").unwrap();
    let (yes, name, wrong) = (at("yes.gbnf"), at("name.json"), at("wrong.gbnf"));
    let input = format!("light\n/grammar {name}\nlight\n/grammar {wrong}\n+\n/grammar\n/grammar none\nlight\n");
    let output = chat(&format!("--seed 1 --json --grammar {yes}"), &input);
    let answers = objects(&output);
    let text = |i: usize| answers[i]["text"].as_str().unwrap_or_else(|| panic!("{answers:?}"));
    assert!(["yes", "no"].contains(&text(0)), "{answers:?}");
    let parsed = |i: usize| serde_json::from_str::<Value>(text(i)).is_ok_and(|value| value["name"].is_string());
    assert!(parsed(1), "{answers:?}");
    assert!(answers[2]["error"]["where"].as_str().is_some_and(|at| at.contains("wrong.gbnf: line 1")), "{answers:?}");
    assert!(parsed(3) && !parsed(4), "a wrong grammar changes nothing, `none` removes the grammar: {answers:?}");
    assert!(stderr(&output).contains(&format!("answers follow {name}")), "{}", stderr(&output));
    assert_eq!(code(&output), 1);
    refused(&chat(&format!("--grammar {wrong}"), "light\n"), 1, "wrong.gbnf: line 1");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_between_two_lines_ends_a_chat() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["chat", "--seed", "1", "--json", "--device", "cpu"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    writeln!(input, "light").unwrap();
    lines.next().unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    // The chat ends without writing another line.
    assert_eq!(lines.count(), 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
}
