//! Tests how the program presents itself at a terminal.

use crate::terminal::{CTRL_D, Setting, Terminal};
use std::path::Path;

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[1m\x1b[31m";

/// Returns the complete output at a terminal until the program ends, with escape sequences.
fn raw(args: &[&str], home: &Path, env: &[(&str, &str)]) -> String {
    let mut terminal = Terminal::start(args, home, Setting { env, ..Setting::default() });
    terminal.until_end()
}

#[test]
fn a_text_ends_with_what_it_took() {
    let home = tempfile::tempdir().unwrap();
    let args = ["generate", "light", "-n", "5", "--temp", "0", "--ignore-eos"];
    let said = raw(&args, home.path(), &[]);
    let line = said.lines().find(|l| l.contains("first token after")).unwrap_or_else(|| panic!("{said:?}"));
    assert!(line.starts_with(&format!("{DIM}prompt ")) && line.contains(" tokens (") && line.contains("text 5 tokens ("), "{line:?}");
    let plain = raw(&args, home.path(), &[("NO_COLOR", "1")]);
    assert!(plain.contains("\nprompt ") && !plain.contains('\u{1b}'), "{plain:?}");
    assert!(!raw(&[&args[..], &["--json"]].concat(), home.path(), &[]).contains("first token after"));
}

#[test]
fn an_error_is_red_and_its_hint_has_a_line() {
    let home = tempfile::tempdir().unwrap();
    let args = ["generate", "-m", "nowhere.pth", "x"];
    let said = raw(&args, home.path(), &[]);
    assert!(said.contains(&format!("{RED}error:\x1b[0m nowhere.pth: ")) && said.contains("\x1b[32mhint:\x1b[0m "), "{said:?}");
    for plain in [raw(&args, home.path(), &[("NO_COLOR", "1")]), raw(&args, home.path(), &[("CLICOLOR", "0")])] {
        assert!(plain.contains("error: nowhere.pth: ") && plain.contains("\n  hint: ") && !plain.contains('\u{1b}'), "{plain:?}");
    }
}

#[test]
fn a_chat_is_cleared_tried_again_and_shown_when_it_is_loaded() {
    let home = tempfile::tempdir().unwrap();
    let start = |args: &[&str]| Terminal::ready(&[&["chat", "--temp", "0"], args].concat(), home.path(), Setting::default());
    let mut terminal = start(&[]);
    assert!(terminal.say("/?").contains("/clear") && terminal.say("/set top_p").starts_with("top_p is "));
    assert!(terminal.say("/set nothing").contains("error: "));
    let light = terminal.say("light");
    let answer = light.lines().next().unwrap().to_string();
    assert!(terminal.say("/retry").starts_with(&answer));
    terminal.say("water");
    assert_eq!(terminal.say("/clear"), "the chat was restarted");
    assert!(terminal.say("/stats").starts_with("turns: 0"));
    assert!(terminal.say("light").starts_with(&answer));
    terminal.say("/save chat.st");
    terminal.keys(CTRL_D);
    assert_eq!(terminal.end().0, 0);

    let mut terminal = start(&["--load", "chat.st"]);
    let shown = terminal.screen().screen().contents();
    assert!(shown.contains(&format!("\nUser: light\n{answer}")), "{shown}");
    assert!(terminal.say("/load chat.st").contains(&format!("User: light\n{answer}")));
    terminal.keys(CTRL_D);
    assert_eq!(terminal.end().0, 0);
}
