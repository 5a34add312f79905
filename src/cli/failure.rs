//! Reports the error with which the program ends. Prints a line on stderr and, if a flag asks for JSON, an object on stdout. Determines the
//! exit code.

use super::flags;
use super::output::{Output, say, say_error};
use super::style::Color;
use crate::error::{Error, Kind};
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Prints an error on stderr and returns its exit code. `args` are the arguments of the process. With `json`, also prints the error as an
/// object on stdout.
pub fn report(e: Error, args: &[OsString], json: bool) -> ExitCode {
    let e = flags::in_field(e, args);
    if json {
        let _ = Output::new(true).json(&flags::report(&e));
    }
    say_error(Color::Auto, &e);
    ExitCode::from(e.kind.exit_code())
}

/// Prints the text that clap returned: the help, the version, or an error in the arguments. Returns the exit code.
pub fn report_usage(e: &clap::Error, json: bool) -> ExitCode {
    if e.use_stderr() && json {
        let _ = Output::new(true).json(&flags::report(&usage(e)));
    }
    if let Err(e) = e.print()
        && e.kind() != ErrorKind::BrokenPipe
    {
        say(format_args!("error: {}", Error::io(e, "standard output".as_ref())));
        return ExitCode::from(Kind::File.exit_code());
    }
    ExitCode::from(if e.use_stderr() { Kind::Usage.exit_code() } else { 0 })
}

/// Converts an error of clap. The wrong flag or subcommand becomes the error's place. A tip in clap's text becomes the hint.
fn usage(e: &clap::Error) -> Error {
    let text = e.to_string();
    let mut paragraphs = text.split("\n\n").map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = paragraphs.next().unwrap_or_default();
    let mut found = Error::usage(message.strip_prefix("error: ").unwrap_or(&message));
    let place = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| match e.get(kind)? {
        ContextValue::String(arg) => Some(flag(arg).to_string()),
        ContextValue::Strings(args) => Some(args.iter().map(|arg| flag(arg)).collect::<Vec<_>>().join(", ")),
        _ => None,
    });
    if let Some(place) = place {
        found = found.at(place);
    }
    match paragraphs.find_map(|p| p.strip_prefix("tip: ").map(str::to_owned)) {
        Some(tip) => found.hint(tip),
        None => found,
    }
}

/// Returns the name of a flag without its value: `--top-p` for `--top-p <X>`. A positional argument is returned unchanged.
fn flag(arg: &str) -> &str {
    arg.split_once(' ').map_or(arg, |(flag, _)| flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn errors_of_flags_name_the_flag() {
        for (line, place, message, hint) in [
            ("w generate --dtype f17", "--dtype", "possible values: auto, f16, f32", Some("'f16'")),
            ("w generate --tempp 3", "--tempp", "unexpected argument '--tempp'", Some("'--temp'")),
            ("w generate x --top-p 7", "--top-p", "from 0 to 1, found 7", None),
            ("w generate x -n", "--max-tokens", "a value is required", None),
            ("w generat", "generat", "unrecognized subcommand", Some("'generate'")),
            ("w batch --json", "--output, <IN.jsonl>", "were not provided: --output <OUT.jsonl> <IN.jsonl>", None),
            ("w completions foo", "<SHELL>", "possible values: bash", None),
        ] {
            let e = usage(&Cli::try_parse_from(line.split(' ')).err().unwrap());
            assert_eq!(e.place.as_deref(), Some(place), "{line}: {e:?}");
            assert!(e.message.contains(message) && !e.message.contains("error:"), "{line}: {e:?}");
            assert_eq!(hint.is_some(), e.hint.is_some(), "{line}: {e:?}");
            assert!(hint.is_none_or(|hint| e.hint.as_ref().unwrap().contains(hint)), "{line}: {e:?}");
        }
    }
}
