//! Expands `~`, `~USER`, `$NAME` and `${NAME}` in folders, with the results of Python's `expanduser` and `expandvars`, which Hugging Face's
//! programs call. Unknown users and variables stay unchanged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the folder with its `~` and variables replaced. A folder that is not UTF-8 stays as it is.
pub fn expanded(folder: &Path, home: Option<&Path>, variable: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let Some(text) = folder.to_str() else { return folder.to_path_buf() };
    let with_home = match text.strip_prefix('~') {
        Some(rest) => {
            let (user, inside) = rest.split_at(rest.find(std::path::is_separator).unwrap_or(rest.len()));
            let home = if user.is_empty() { home.map(Path::to_path_buf) } else { home_of(user) };
            home.and_then(|home| Some(format!("{}{inside}", home.to_str()?.trim_end_matches('/'))))
        }
        None => None,
    };
    with_variables(with_home.as_deref().unwrap_or(text), variable).into()
}

/// Replaces `$NAME` and `${NAME}`.
fn with_variables(text: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        found.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, length) = match rest[1..].strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            Some((name, _)) => (name, name.len() + 3),
            None => {
                let name = &rest[1..1 + rest[1..].find(|c| !is_name(c)).unwrap_or(rest.len() - 1)];
                (name, name.len() + 1)
            }
        };
        match Some(name).filter(|name| !name.is_empty()).and_then(variable).and_then(|value| value.into_string().ok()) {
            Some(value) => found.push_str(&value),
            None => found.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    found + rest
}

#[cfg(unix)]
fn home_of(user: &str) -> Option<PathBuf> {
    nix::unistd::User::from_name(user).ok()?.map(|user| user.dir)
}

#[cfg(not(unix))]
fn home_of(_: &str) -> Option<PathBuf> {
    None
}
