//! Tests `chat` at a terminal, with typed messages.

use super::{asked, encoded};
use crate::terminal::{ALT_ENTER, CTRL_C, CTRL_D, ENTER, Setting, TAB, Terminal, UP, shown};
use std::fs::File;
use tempfile::TempDir;
use wingbeat::vocab::Vocab;

/// Escape sequences for dim text and for cyan text.
const DIM: &str = "\x1b[2m";
const CYAN: &str = "\x1b[36m";

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn chat(args: &[&str], home: &TempDir) -> Terminal {
    Terminal::ready(&[&["chat"], args].concat(), home.path(), Setting::default())
}

/// Starts a chat that always takes the most likely token.
fn greedy(home: &TempDir) -> Terminal {
    chat(&["--temp", "0", "--seed", "1"], home)
}

/// Types a line and waits for the answer. Returns the transcript: the text that the model has read.
fn transcript_after(terminal: &mut Terminal, line: &str) -> String {
    terminal.raw(&format!("{line}{ENTER}"));
    terminal.say("/history")
}

/// Types a line. Returns the answer without the line that reports tokens and speed.
fn answer(terminal: &mut Terminal, line: &str) -> String {
    let said = terminal.say(line);
    said.rsplit_once('\n').unwrap_or_else(|| panic!("no answer in {said:?}")).0.to_string()
}

/// Ends the chat with Ctrl-D, and checks that the exit code is 0.
fn leave(mut terminal: Terminal) {
    terminal.keys(CTRL_D);
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn every_message_is_read_as_the_format_has_it() {
    let home = home();
    let mut terminal = greedy(&home);
    let first = transcript_after(&mut terminal, "light");
    let begin = asked("light");
    assert!(first.starts_with(&begin) && first.len() > begin.len() + 5, "{first:?}");
    // `+` generates another answer from the same state. With greedy sampling this is the same answer.
    assert_eq!(transcript_after(&mut terminal, "+"), first);
    let other = transcript_after(&mut terminal, "+ -temp=5 -top_p=1");
    assert!(other.starts_with(&begin) && other != first);
    assert_eq!(transcript_after(&mut terminal, "+"), first);
    let second = transcript_after(&mut terminal, "water\\n\\nand fire");
    assert!(second.starts_with(&format!("{first}\n\n{}", asked("water\nand fire"))), "{second:?}");

    assert!(terminal.say("/undo").contains("1 turn"));
    assert_eq!(transcript_after(&mut terminal, "water\\nand fire"), second);

    assert_eq!(terminal.say("+reset"), "Chat reset.");
    assert_eq!(transcript_after(&mut terminal, "light"), first);

    // Free generation does not change the conversation.
    terminal.say("/set FREE_GEN_LEN 8");
    let mut texts = Vec::new();
    for line in ["+gen  In the beginning ", "+i Tell\\n\\nof light.", "+qq What is a fox?", "+qa Tell me a story about a fox."] {
        let text = answer(&mut terminal, line);
        assert!(text.len() > 5 && !texts.contains(&text), "{line}: {text:?}");
        assert_eq!(answer(&mut terminal, "++"), text, "{line}: the same most probable text, from the same state");
        assert_ne!(answer(&mut terminal, "+++"), text, "{line}");
        assert_eq!(terminal.say("/history"), first, "{line}");
        texts.push(text);
    }
    assert_eq!(transcript_after(&mut terminal, "+"), first);
    leave(terminal);
}

#[test]
fn branches_are_independent() {
    let home = home();
    let mut terminal = greedy(&home);
    let first = transcript_after(&mut terminal, "light");
    assert!(terminal.say("/fork other").starts_with("branch other, 1 turn"));
    let other = transcript_after(&mut terminal, "bread");
    assert!(other.starts_with(&first) && terminal.screen().screen().contents().contains("User (other): "));
    assert!(terminal.say("/switch main").starts_with("branch main, 1 turn"));
    let water = transcript_after(&mut terminal, "water");
    assert!(water.starts_with(&format!("{first}\n\n{}", asked("water"))), "{water:?}");
    assert_eq!(terminal.say("/switch"), "* main\n  other");
    terminal.say("/switch other");
    assert_eq!(transcript_after(&mut terminal, "+"), other);
    assert!(terminal.say("/fork main").contains("error: a branch"));
    terminal.say("/switch main");
    assert_eq!(terminal.say("/forget other"), "* main");
    leave(terminal);
}

#[test]
fn a_prompt_file_and_a_system_message_restart_the_chat() {
    let home = home();
    let prompt = "user = \"Bob\"\nbot = \"Alice\"\ninit_prompt = \"Bob: hi\\n\\nAlice: hello\"\n";
    std::fs::write(home.path().join("my prompt.toml"), prompt).unwrap();
    let mut terminal = greedy(&home);
    assert_eq!(terminal.say("+prompt my prompt.toml"), "Prompt set up.");
    let read = transcript_after(&mut terminal, "light");
    assert!(read.starts_with("Bob: hi\n\nAlice: hello\n\nBob: light\n\nAlice: "), "{read:?}");
    let screen = terminal.screen();
    assert!(screen.screen().contents().contains("\nBob: light\nAlice: "), "{}", screen.screen().contents());
    assert!(terminal.say("+prompt nothing.toml").starts_with("Path error."));
    terminal.say("/system Be brief.");
    let read = transcript_after(&mut terminal, "light");
    let system = "System: Be brief.\n\nBob: hi\n\nAlice: hello\n\n";
    assert!(read.starts_with(&format!("{system}Bob: light\n\nAlice:")), "{read:?}");
    // Loads a prompt file of ChatRWKV, which is in Python. The system message stays.
    let python = "interface = ':'\nuser = 'Ann'\nbot = 'Ben'\ninit_prompt = f'''\n{user}{interface} hi\n\n{bot}{interface} hello\n'''\n";
    std::fs::write(home.path().join("theirs.py"), python).unwrap();
    assert_eq!(terminal.say("+prompt theirs.py"), "Prompt set up.");
    let read = transcript_after(&mut terminal, "light");
    let system = "System: Be brief.\n\nAnn: hi\n\nBen: hello\n\n";
    assert!(read.starts_with(&format!("{system}Ann: light\n\nBen:")), "{read:?}");
    terminal.say("/system");
    let read = transcript_after(&mut terminal, "light");
    assert!(read.starts_with("Ann: hi\n\nBen: hello\n\nAnn: light\n\nBen:"), "{read:?}");
    leave(terminal);
}

#[test]
fn a_chat_is_saved_and_loaded() {
    let home = home();
    let mut terminal = greedy(&home);
    let first = transcript_after(&mut terminal, "light");
    assert_eq!(terminal.say("/save my chat.st"), "saved to my chat.st");
    let second = transcript_after(&mut terminal, "water");
    leave(terminal);
    let mut terminal = greedy(&home);
    assert!(terminal.say("/load my chat.st").contains("branch main, 1 turn"));
    assert_eq!(transcript_after(&mut terminal, "water"), second);
    assert!(second.starts_with(&first));
    assert!(terminal.say("/load nothing.st").contains("error: nothing.st"));
    assert!(terminal.say("/save /no/such/folder/x").contains("error: "));
    assert_eq!(transcript_after(&mut terminal, "+"), second);
    leave(terminal);
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_the_conversation() {
    let home = home();
    let vocab = Vocab::small_world();
    // An answer ends only after a newline or at token 0, so an answer without them never ends.
    let newlines: Vec<String> = (0..2048).filter(|&id| id == 0 || vocab.token(id).contains(&b'\n')).map(|id| id.to_string()).collect();
    let mut terminal = chat(&["--seed", "1", "--ban", &newlines.join(",")], &home);
    terminal.say("/set CHAT_LEN_MAX 10000000");
    terminal.keys(&format!("salt{ENTER}"));
    let before = terminal.wait("Assistant: ");
    assert!(!before.contains("error"), "{before}");
    terminal.wait(" ");
    terminal.keys(CTRL_C);
    let stopped = terminal.raw("");
    assert!(stopped.contains(", stopped"), "{stopped}");
    // The chat continues after the interrupted answer.
    terminal.say("/set ban 1");
    let next = transcript_after(&mut terminal, "water");
    assert!(next.starts_with(&asked("salt")));
    let answer = next.split(&asked("salt")).nth(1).unwrap().split("\n\nUser: water").next().unwrap();
    assert!(answer.len() > 5 && !answer.contains('\n'), "{next}");
    assert!(terminal.say("/stats").starts_with("turns: 2"));
    leave(terminal);
}

#[test]
fn ctrl_c_clears_the_line_and_leaves_at_the_second_time() {
    let home = home();
    let mut terminal = chat(&[], &home);
    terminal.raw(&format!("not this{CTRL_C}"));
    assert!(shown(&terminal.raw(CTRL_C)).contains("press Ctrl-C again or Ctrl-D to leave"));
    // A line between two presses of Ctrl-C restarts the count of presses.
    assert!(terminal.say("/stats").contains("turns: 0"));
    assert!(shown(&terminal.raw(CTRL_C)).contains("press Ctrl-C again"));
    terminal.keys(CTRL_C);
    assert_eq!(terminal.end().0, 0);
    let mut terminal = chat(&[], &home);
    terminal.keys(&format!("/exit{ENTER}"));
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn earlier_messages_come_back_with_the_arrow_up() {
    let home = home();
    let mut terminal = chat(&["--seed", "1"], &home);
    let light = terminal.say("light");
    assert!(terminal.raw(&format!("{UP}{ENTER}")).contains("light"));
    terminal.say("/stats");
    leave(terminal);
    let mut terminal = chat(&["--seed", "1"], &home);
    let again = terminal.raw(&format!("{UP}{UP}{ENTER}"));
    assert!(again.contains("light") && shown(&again).contains(light.lines().next().unwrap()), "{again}");
    leave(terminal);

    // With `--no-history` the program writes no file.
    let other = self::home();
    let mut terminal = chat(&["--no-history"], &other);
    terminal.say("/stats");
    leave(terminal);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn a_message_may_have_several_lines() {
    let home = home();
    let mut terminal = greedy(&home);
    let begin = asked("light\nand water");
    let pasted = "\x1b[200~light\r\nand water\x1b[201~";
    for keys in [format!("light{ALT_ENTER}and water"), format!("light\\{ENTER}and water"), pasted.into()] {
        terminal.say("+reset");
        let read = transcript_after(&mut terminal, &keys);
        assert!(read.starts_with(&begin), "{keys:?}: {read:?}");
    }
    // A pasted backslash does not continue the line and stays in the message.
    terminal.say("+reset");
    let read = transcript_after(&mut terminal, "\x1b[200~light \\\nand water\x1b[201~");
    assert!(read.starts_with(&asked("light \\\nand water")), "{read:?}");
    // Several lines that are typed at once are several messages.
    let both = terminal.raw(&format!("/stats{ENTER}/switch{ENTER}"));
    assert!(shown(&both).contains("turns: 1"), "{both}");
    assert!(shown(&terminal.raw("")).contains("* main"));
    leave(terminal);
}

#[test]
fn tab_completes_commands_and_files() {
    let home = home();
    std::fs::write(home.path().join("verses and more.st"), "").unwrap();
    let mut terminal = chat(&[], &home);
    let said = terminal.say(&format!("/lo{TAB}ver{TAB}"));
    assert!(said.contains("error: verses and more.st: "), "{said}");
    assert_eq!(terminal.say(&format!("/set tem{TAB}0.5")), "temperature is 0.5");
    terminal.say("/fork branching");
    assert!(terminal.say(&format!("/sw{TAB}bra{TAB}")).starts_with("branch branching"));
    leave(terminal);
}

#[test]
fn commands_say_what_they_did() {
    let home = home();
    let mut terminal = chat(&["--seed", "5"], &home);
    let help = terminal.say("/help");
    for line in ["/save FILE", "/set [NAME [X]]", "+prompt FILE", "+++", "-temp=X -top_p=X", "Ctrl-C"] {
        assert!(help.contains(&format!("\n  {line} ")), "{line}: {help}");
    }
    assert_eq!(terminal.say("/set temperature 0.25"), "temperature is 0.25");
    let settings = terminal.say("/set");
    for line in ["temperature 0.25", "seed 5", "CHAT_LEN_SHORT 40", "FREE_GEN_LEN 256"] {
        let (name, value) = line.split_once(' ').unwrap();
        assert!(settings.lines().any(|l| l.starts_with(name) && l.ends_with(&format!(" {value}"))), "{line}: {settings}");
    }
    assert!(terminal.say("/set top_p 2").contains("error: top_p: expected a number from 0 to 1, found 2"));
    assert!(terminal.say("/set nonsense 2").contains("error: "));
    assert!(terminal.say("/undo").contains("error: the conversation has no turn to take back"));
    assert_eq!(terminal.say("+"), "there is nothing to repeat or continue yet");
    assert_eq!(terminal.say("++"), "there is nothing to repeat or continue yet");
    assert!(terminal.say("+gen").contains("+gen needs TEXT"));
    assert!(terminal.say("/Stats").starts_with("turns: 0"));
    assert_eq!(terminal.say("   "), "");
    leave(terminal);
}

#[test]
fn answers_follow_a_grammar() {
    let home = home();
    std::fs::write(home.path().join("yes no.gbnf"), "root ::= \"yes\" | \"no\"\n").unwrap();
    let mut terminal = greedy(&home);
    assert_eq!(terminal.say("/grammar"), "answers follow no grammar");
    assert_eq!(terminal.say("/grammar yes no.gbnf"), "answers follow yes no.gbnf");
    let read = transcript_after(&mut terminal, "light");
    assert!([" yes", " no"].map(|end| asked("light") + end).contains(&read), "{read:?}");
    assert!(terminal.say("/grammar none.gbnf").contains("error: none.gbnf"));
    assert_eq!(terminal.say("/grammar none"), "answers follow no grammar");
    assert!(transcript_after(&mut terminal, "+").len() > read.len() + 3);
    leave(terminal);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let home = home();
    let reasoning = ["chat", "--format", "g1-think", "--seed", "1"];
    let session = |args: &[&str], env: &[(&str, &str)], stdout: Option<File>| {
        let args = [reasoning.as_slice(), args].concat();
        let mut terminal = Terminal::start(&args, home.path(), Setting { env, stdout: stdout.map(Into::into) });
        let greeting = terminal.raw("");
        terminal.say("/set CHAT_LEN_MAX 8");
        let said = terminal.raw(&format!("light{ENTER}"));
        leave(terminal);
        greeting + &said
    };
    let coloured = session(&[], &[], None);
    assert!(coloured.contains(CYAN) && coloured.contains("format g1-think"), "{coloured}");
    // These are dim: the thought, the line that reports tokens and speed, and the note that the message has no answer.
    assert!(coloured.split("Assistant: ").nth(1).unwrap().contains(DIM), "{coloured}");
    assert!(coloured.contains(&format!("{DIM}8 tokens, ")) && coloured.contains(&format!("{DIM}there is no answer: ")), "{coloured}");
    for (args, env) in [(vec![], [("NO_COLOR", "1")]), (vec!["--color", "never"], [("X", "")])] {
        let plain = session(&args, &env, None);
        assert!(!plain.contains(CYAN) && !plain.contains(DIM), "{plain}");
    }
    assert!(session(&["--color", "always"], &[("NO_COLOR", "1")], None).contains(CYAN));

    // The answers go to a file while the user types at the terminal.
    let file = home.path().join("answers.jsonl");
    session(&["--json"], &[], Some(File::create(&file).unwrap()));
    let answers = std::fs::read_to_string(&file).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answers).unwrap();
    assert_eq!((answer["prompt"].as_str(), answers.contains('\x1b')), (Some("light"), false));
}

#[test]
fn invalid_utf8_does_not_end_the_chat() {
    let home = home();
    let mut terminal = greedy(&home);
    let read = transcript_after(&mut terminal, "light");
    terminal.bytes(b"caf\xe9");
    terminal.bytes(b"\xe9");
    terminal.wait("expected UTF-8 text");
    terminal.raw("");
    let history = terminal.say("/history");
    assert!(history.contains("User: light") && history.contains("Assistant: A light is"), "{history}");
    assert!(transcript_after(&mut terminal, "water").starts_with(&read));
    leave(terminal);
}

#[test]
fn control_characters_of_a_model_do_not_reach_the_terminal() {
    let home = home();
    let escape = encoded(&["\x1b"])[0];
    let bias = format!("{escape}=1000");
    let mut terminal = chat(&["--logit-bias", &bias], &home);
    terminal.say("/set FREE_GEN_LEN 3");
    let said = terminal.say("+gen x");
    assert!(said.starts_with("\\u{1b}\\u{1b}"), "{said}");
    leave(terminal);
    let mut terminal = chat(&["--logit-bias", &bias, "--raw"], &home);
    terminal.say("/set FREE_GEN_LEN 3");
    assert!(terminal.raw(&format!("+gen x{ENTER}")).contains("\x1b\x1b"));
    leave(terminal);
}

#[test]
fn wide_characters_take_two_columns() {
    let home = home();
    let mut terminal = chat(&[], &home);
    terminal.keys("光とlight");
    terminal.keys(&"\x1b[D".repeat(6));
    terminal.keys("水");
    terminal.raw(CTRL_C);
    let screen = terminal.screen();
    assert!(screen.screen().contents().contains("User: 光水とlight"), "{}", screen.screen().contents());
    leave(terminal);
}

#[test]
fn ctrl_c_ends_a_tool_command() {
    let home = home();
    std::fs::write(home.path().join("tools.json"), r#"[{"type": "function", "function": {"name": "f"}}]"#).unwrap();
    std::fs::write(home.path().join("call.gbnf"), r#"root ::= "{\"name\": \"f\", \"arguments\": {\"a\": 1}}""#).unwrap();
    // The script ignores Ctrl-C, which the terminal sends to all its processes. So only wingbeat can end the script.
    std::fs::write(home.path().join("tool.sh"), "trap '' INT; echo ready >&2; exec sleep 100\n").unwrap();
    let tools = ["--format", "g1-tools-short", "--thinking", "fast", "--tools", "tools.json", "--grammar", "call.gbnf"];
    let mut terminal = chat(&[&tools[..], &["--tool-command", "sh", "tool.sh", ";"]].concat(), &home);
    terminal.keys(&format!("hi{ENTER}"));
    let called = terminal.wait("ready");
    assert!(called.contains(r#"calls f {"a": 1}"#), "{called}");
    let stopped = shown(&terminal.raw(CTRL_C));
    assert!(stopped.contains(r#"result {"error":"the tool command was interrupted"}"#), "{stopped}");
    // The chat asks for a message, not for the result of the call.
    terminal.keys(&format!("ho{ENTER}"));
    terminal.wait("ready");
    terminal.raw(CTRL_C);
    assert!(terminal.say("/stats").contains("turns: 2"));
    leave(terminal);
}
