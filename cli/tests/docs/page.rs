//! Reads a page of documentation: the commands in its console blocks, and the output that the page shows.

/// A comment above a block that is not run. The rest of the comment says why.
const SKIP: &str = "<!-- test-docs: skip: ";
/// A comment above a block whose commands are run, but whose output is not compared.
const ANY_OUTPUT: &str = "<!-- test-docs: output depends on the machine -->";
/// A comment above a block that is the content of a file. The page's commands read this file.
const FILE: &str = "<!-- test-docs: file: ";

/// A command in a block of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// The number of the command's line in the page, counted from 1.
    pub line: usize,
    pub text: String,
    /// The output that the page shows below the command. `None` if the output is not compared.
    pub shown: Option<Vec<String>>,
}

/// Returns the commands of all `console`, `sh` and `bash` blocks without a [`SKIP`] comment.
///
/// In a `console` block, a command follows `$ `, and the command's output follows in the next lines. The output is not compared if the block has an
/// [`ANY_OUTPUT`] comment. In `sh` and `bash` blocks, every line is a command. A backslash at the end of a line continues the command in the next
/// line.
pub fn commands(page: &str) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let (mut block, mut above, mut is_compared, mut is_continued) = (None, "", false, false);
    for (i, line) in page.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            block = match block {
                Some(_) => None,
                None => Some(if above.starts_with(SKIP) { "skipped" } else { language }),
            };
            is_compared = language == "console" && above != ANY_OUTPUT;
            is_continued = false;
            above = line;
            continue;
        }
        let is_console = block == Some("console");
        if let Some("console" | "sh" | "bash") = block {
            let command = if is_console { line.strip_prefix("$ ") } else { Some(line).filter(|line| !line.trim().is_empty()) };
            if is_continued {
                let last = found.last_mut().expect("a line goes on from one before it");
                last.text.push('\n');
                last.text.push_str(line);
            } else if let Some(text) = command {
                found.push(Command { line: i + 1, text: text.into(), shown: is_compared.then(Vec::new) });
            } else if is_compared && let Some(shown) = found.last_mut().and_then(|last| last.shown.as_mut()) {
                shown.push(line.into());
            }
            is_continued = (is_continued || command.is_some()) && line.ends_with('\\');
        }
        if !line.trim().is_empty() {
            above = line;
        }
    }
    found
}

/// Returns the name and the content of each file that the page shows in a block with a [`FILE`] comment.
pub fn files(page: &str) -> Vec<(&str, &str)> {
    let file = |block| {
        let (name, rest): (&str, &str) = str::split_once(block, " -->\n```")?;
        let (_language, rest) = rest.split_once('\n')?;
        Some((name, rest.split("```").next()?))
    };
    page.split(FILE).skip(1).filter_map(file).collect()
}

/// Returns whether the output `found` agrees with the lines on the page. A line `…` on the page matches any number of lines, and `…` within a
/// line matches any text.
pub fn matches(shown: &[String], found: &[&str]) -> bool {
    match (shown, found) {
        ([], rest) => rest.iter().all(|line| line.trim().is_empty()),
        ([first, more @ ..], _) if first == "…" => (0..=found.len()).any(|n| matches(more, &found[n..])),
        ([first, more @ ..], [line, rest @ ..]) => line_matches(first, line) && matches(more, rest),
        ([first, more @ ..], []) => first.is_empty() && matches(more, &[]),
    }
}

fn line_matches(shown: &str, found: &str) -> bool {
    let mut pieces = shown.trim_end().split('…');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = found.trim_end().strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn commands_and_their_output_are_found() {
    let page = "\
text
```sh
a # comment
b \\
  c
```
```console
$ d
one

two
$ e
```
<!-- test-docs: skip: no network -->
```sh
never
```
<!-- test-docs: output depends on the machine -->
```console
$ f
x
```
```rust
no
```
";
    let shown = |lines: &[&str]| Some(lines.iter().map(|line| line.to_string()).collect());
    let command = |line, text: &str, shown| Command { line, text: text.into(), shown };
    let expected = [
        command(3, "a # comment", None),
        command(4, "b \\\n  c", None),
        command(8, "d", shown(&["one", "", "two"])),
        command(12, "e", shown(&[])),
        command(20, "f", None),
    ];
    assert_eq!(commands(page), expected);
}

#[test]
fn files_are_found() {
    let page = "a\n<!-- test-docs: file: x.json -->\n```json\n{}\n[]\n```\nb\n```sh\nc\n```\n";
    assert_eq!(files(page), [("x.json", "{}\n[]\n")]);
}

#[test]
fn only_an_ellipsis_may_differ() {
    let is = |shown: &str, found: &str| matches(&shown.lines().map(String::from).collect::<Vec<_>>(), &found.lines().collect::<Vec<_>>());
    for (shown, found) in [
        ("a\nb", "a\nb\n"),
        ("a … c", "a b c"),
        ("… ms, …", "3 ms, 4"),
        ("…\nend", "a\nb\nend"),
        ("a\n…", "a"),
        ("a\n…\nb\n…", "a\nx\nb\ny"),
        ("a\n", "a\n\n"),
    ] {
        assert!(is(shown, found), "{shown:?} {found:?}");
    }
    for (shown, found) in [("a", "b"), ("a", "a\nb"), ("a\nb", "a"), ("a … c", "a b d"), ("…\nend", "a\nb"), ("a", "a b"), ("…b…b", "ab")]
    {
        assert!(!is(shown, found), "{shown:?} {found:?}");
    }
}
