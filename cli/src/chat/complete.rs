//! Completes commands, branches, settings and paths with Tab. Also turns a backslash before Enter into a newline.

use super::command::{ALIASES, COMMANDS, PLUS, Takes};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::path::{MAIN_SEPARATOR, Path, is_separator};

#[derive(Default)]
pub struct Completion {
    pub branches: Vec<String>,
    pub settings: Vec<String>,
}

impl Completion {
    /// Returns the byte offset in `line` at which the replaced text begins, and the possible replacements. Tab replaces a command, a part of its
    /// argument, or a backslash at the end of the line.
    fn offers(&self, line: &str) -> (usize, Vec<Pair>) {
        if let Some(rest) = line.strip_suffix('\\') {
            return (rest.len(), vec![Pair { display: String::new(), replacement: "\n".into() }]);
        }
        let Some((command, _)) = line.split_once(' ') else {
            let whole = commands().map(|(name, takes)| if takes == Takes::Nothing { name.to_string() } else { format!("{name} ") });
            return (0, if line.is_empty() { Vec::new() } else { beginning_with(line, whole) });
        };
        let start = line.len() - line[command.len()..].trim_start().len();
        let word = &line[start..];
        match commands().find(|(name, _)| *name == command).map(|(_, takes)| takes) {
            Some(Takes::File) => files(start, word),
            Some(Takes::Branch) => (start, beginning_with(word, self.branches.iter().cloned())),
            Some(Takes::Setting) => (start, beginning_with(word, self.settings.iter().map(|s| format!("{s} ")))),
            Some(Takes::Text | Takes::Nothing) | None => (start, Vec::new()),
        }
    }
}

/// Returns the names of all commands, each with the kind of its argument.
fn commands() -> impl Iterator<Item = (&'static str, Takes)> {
    let aliases = ALIASES.iter().map(|(alias, _)| (*alias, Takes::Nothing));
    COMMANDS.iter().map(|c| (c.name, c.takes)).chain(aliases).chain(PLUS.iter().map(|p| (p.name, p.takes)))
}

fn beginning_with(word: &str, names: impl Iterator<Item = String>) -> Vec<Pair> {
    names.filter(|n| n.starts_with(word)).map(|n| Pair { display: n.trim_end().to_string(), replacement: n }).collect()
}

/// Completes the path `word`, which starts at byte `start` and fills the rest of the line, so spaces need no escape. Returns the byte at which
/// the path's last part starts, and the names that can replace this part.
fn files(start: usize, word: &str) -> (usize, Vec<Pair>) {
    let at = word.rfind(is_separator).map_or(0, |i| i + 1);
    let (folder, name) = word.split_at(at);
    let folder = if folder.is_empty() { Path::new(".") } else { Path::new(folder) };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(mut found) = entry.file_name().into_string() else { continue };
        let is_hidden = found.starts_with('.') && !name.starts_with('.');
        // Names with control characters are left out, because a terminal would execute the control characters.
        if is_hidden || found.contains(char::is_control) {
            continue;
        }
        // `is_dir` follows links, so a link to a folder gets a separator, too.
        if entry.path().is_dir() {
            found.push(MAIN_SEPARATOR);
        }
        names.push(found);
    }
    names.sort();
    (start + at, beginning_with(name, names.into_iter()))
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(self.offers(&line[..pos]))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> (usize, Vec<String>) {
        let completion = Completion { branches: vec!["main".into(), "map".into()], settings: vec!["temperature".into(), "top_p".into()] };
        let (start, pairs) = completion.offers(line);
        (start, pairs.into_iter().map(|p| p.replacement).collect())
    }

    #[test]
    fn commands_names_and_files() {
        assert_eq!(offered("/sa"), (0, vec!["/save ".to_string()]));
        assert_eq!(offered("/und"), (0, vec!["/undo".to_string()]));
        assert_eq!(
            (offered("/cl"), offered("/re"), offered("/by")),
            ((0, vec!["/clear".into()]), (0, vec!["/retry".into()]), (0, vec!["/bye".into()]))
        );
        assert_eq!(offered("+re"), (0, vec!["+reset".to_string()]));
        assert_eq!(offered("/switch ma"), (8, vec!["main".to_string(), "map".to_string()]));
        assert_eq!(offered("/set te"), (5, vec!["temperature ".to_string()]));
        assert_eq!(offered("one\\"), (3, vec!["\n".to_string()]));
        assert!(offered("").1.is_empty() && offered("what /sa").1.is_empty());

        let folder = tempfile::tempdir().unwrap();
        for name in ["my chat.json", "my notes", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("more")).unwrap();
        let typed = |name: &str| format!("/load {}{MAIN_SEPARATOR}{name}", folder.path().display());
        let (start, found) = offered(&typed("m"));
        assert_eq!(found, [&format!("more{MAIN_SEPARATOR}"), "my chat.json", "my notes"]);
        assert_eq!(start, typed("").len());
        assert_eq!(offered(&typed("my c")).1, ["my chat.json"]);
        assert_eq!(offered(&typed(".h")).1, [".hidden"]);
        assert!(offered("/load /no/such/folder/x").1.is_empty());
    }
}
