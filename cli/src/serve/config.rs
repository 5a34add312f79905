//! Reads the file that `--config` names: flags in TOML.

use crate::prompt::text_file;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use toml::{Table, Value};
use wingbeat::error::{Error, Result};

/// Inserts the flags in the file that `--config` names directly after the subcommand, so that later flags on the command line have precedence. `args`
/// are the arguments of the process, `command` is the subcommand `serve`.
///
/// # Errors
/// `File` if the file cannot be read. `Usage` if the file is not TOML, if a key is not a flag, or if a value has the wrong type.
pub fn with_file(args: Vec<OsString>, command: &Command) -> Result<Vec<OsString>> {
    let Some((at, _)) = super::super::verb(&args).filter(|(_, verb)| *verb == "serve") else { return Ok(args) };
    let Some(path) = path(&args[at..]) else { return Ok(args) };
    let shown = path.display().to_string();
    let text = text_file(&path).map_err(|e| e.at("--config"))?;
    let table: Table = toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Error::usage(format!("invalid TOML: {}", e.message())).at(format!("{shown}: line {line}")).at("--config")
    })?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        flags.extend(flags_of(key, value, command).map_err(|e| e.at(&shown).at("--config"))?);
    }
    Ok([&args[..=at], &flags, &args[at + 1..]].concat())
}

/// Returns the value of `--config`, or `None` without the flag.
fn path(args: &[OsString]) -> Option<std::path::PathBuf> {
    args.iter().enumerate().find_map(|(i, arg)| match arg.to_str()? {
        "--config" => args.get(i + 1).map(|path| Path::new(path).to_path_buf()),
        text => text.strip_prefix("--config=").map(|path| Path::new(path).to_path_buf()),
    })
}

/// Converts an entry of the file to flags.
fn flags_of(key: &str, value: &Value, command: &Command) -> Result<Vec<OsString>> {
    if let ("models", Value::Table(models)) = (key, value) {
        let flag = |(name, path): (&String, &Value)| match path {
            Value::String(path) => Ok(OsString::from(format!("--model={name}={path}"))),
            _ => Err(Error::usage("expected a path in quotes").at(format!("models.{name}"))),
        };
        return models.iter().map(flag).collect();
    }
    let name = key.replace('_', "-");
    let known = command.get_arguments().find(|arg| arg.get_long() == Some(&name)).filter(|_| name != "config");
    let Some(known) = known else {
        return Err(Error::usage("unknown key")
            .at(key)
            .hint("keys are the flags of `wingbeat serve --help-all` without their hyphens at the beginning"));
    };
    let takes_value = known.get_action().takes_values();
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(n) => Ok(n.to_string()),
        Value::Float(x) => Ok(x.to_string()),
        _ => Err(Error::usage("expected a text, a number or a list of these").at(key)),
    };
    let flag = |value: &Value| Ok(OsString::from(format!("--{name}={}", text(value)?)));
    match (value, takes_value) {
        (Value::Boolean(true), false) => Ok(vec![format!("--{name}").into()]),
        (Value::Boolean(false), false) => Ok(Vec::new()),
        (_, false) => Err(Error::usage("expected true or false").at(key)),
        (Value::Array(values), true) => values.iter().map(flag).collect(),
        (value, true) => Ok(vec![flag(value)?]),
    }
}

/// Returns whether the subcommand is `serve`.
pub fn is_asked(args: &[OsString]) -> bool {
    super::super::verb(args).is_some_and(|(_, verb)| verb == OsStr::new("serve"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;
    use crate::help::Shows;

    fn read(toml: &str, more: &[&str]) -> Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), toml).unwrap();
        let mut args: Vec<OsString> = ["wingbeat", "serve", "--config"].map(OsString::from).to_vec();
        args.push(file.path().into());
        args.extend(more.iter().map(OsString::from));
        let command = command(Shows::All);
        let args = with_file(args, command.find_subcommand("serve").unwrap())?;
        Ok(args.iter().map(|arg| arg.to_string_lossy().into_owned()).filter(|arg| !arg.contains("tmp")).collect())
    }

    #[test]
    fn a_file_becomes_flags_before_those_of_the_command_line() {
        let toml = "port = 9000\ncors = [\"https://a\", \"https://b\"]\nlog_prompts = true\ndeterministic = false\nquant = \"i8\"\n[models]\ng1 = \"a.pth\"";
        let expected = [
            "wingbeat",
            "serve",
            "--port=9000",
            "--cors=https://a",
            "--cors=https://b",
            "--log-prompts",
            "--quant=i8",
            "--model=g1=a.pth",
            "--config",
            "--port",
            "1",
        ];
        assert_eq!(read(toml, &["--port", "1"]).unwrap(), expected);
    }

    #[test]
    fn wrong_entries_are_refused() {
        for (toml, want) in [
            ("port = ", "line 1: invalid TOML"),
            ("porte = 1", "porte: unknown key"),
            ("config = \"x\"", "config: unknown key"),
            ("log-prompts = 1", "log-prompts: expected true or false"),
            ("port = true", "port: expected a text, a number or a list of these"),
            ("[models]\na = 1", "models.a: expected a path in quotes"),
        ] {
            let said = read(toml, &[]).unwrap_err().to_string();
            assert!(said.starts_with("--config: ") && said.contains(want), "{said}");
        }
    }
}
