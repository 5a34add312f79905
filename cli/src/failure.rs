//! Reports the error with which the program ends. Prints a line on stderr and, if a flag asks for JSON, an object on stdout. Determines the
//! exit code.

use super::ExitCode;
use super::output::{Output, say, say_error};
use super::style::Color;
use super::{Cli, flags, foreign, prompt};
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::ErrorKind;
use wingbeat::error::{Error, Kind};

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

/// Prints clap's answer: an error of the flags, the help or the version. Returns the exit code. `args` are the arguments of the process. With
/// `json`, also prints an error as an object on stdout.
pub fn report_usage(e: &clap::Error, args: &[OsString], json: bool) -> ExitCode {
    let is_misread = e.kind() == ClapKind::DisplayHelp && foreign::read_as_help(args).is_some();
    let is_error = e.use_stderr() || is_misread;
    let is_help = !is_error || e.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_error && json {
        let _ = Output::new(true).json(&flags::report(&usage(e, args)));
    }
    if !is_help {
        say_error(Color::Auto, &usage(e, args));
        for line in format!("\n{}For more information, try '--help'.", synopsis(e)).lines() {
            say(format_args!("{line}"));
        }
    } else if let Err(e) = e.print()
        && e.kind() != ErrorKind::BrokenPipe
    {
        say(format_args!("error: {}", Error::io(e, "standard output".as_ref())));
        return ExitCode::from(Kind::File.exit_code());
    }
    ExitCode::from(if is_error { Kind::Usage.exit_code() } else { 0 })
}

/// Returns the line `Usage: …` of clap's error, followed by an empty line. Returns an empty text if the error has no such line.
fn synopsis(e: &clap::Error) -> String {
    let text = e.to_string();
    text.split("\n\n").find(|part| part.starts_with("Usage:")).map(|usage| format!("{usage}\n\n")).unwrap_or_default()
}

/// Converts clap's error to an error of wingbeat. The wrong argument becomes the place of the error. `given` are the arguments of the
/// process.
pub fn usage(e: &clap::Error, given: &[OsString]) -> Error {
    let flag = |arg: &str| match flag(arg) {
        "--prompt" => prompt::flag(given).to_owned(),
        flag => flag.to_owned(),
    };
    let all = |kind: ContextKind| match e.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    };
    let (args, similar) = (all(ContextKind::InvalidArg), all(ContextKind::SuggestedArg));
    let arg = args.first().map_or("", String::as_str);
    let value = all(ContextKind::InvalidValue).concat();
    // Clap reads `-ngl` as the flag `-n` with the wrong value `gl`, and `-hf` as `-h`. Neither answer names the flag that the user typed.
    let is_misread = match e.kind() {
        ClapKind::DisplayHelp => foreign::read_as_help(given).is_some(),
        kind => matches!(kind, ClapKind::UnknownArgument | ClapKind::InvalidValue | ClapKind::ValueValidation),
    };
    if let Some((flag, hint)) = foreign::flag(given).filter(|_| is_misread) {
        return Error::usage("unknown flag").at(flag).hint(hint);
    }
    let is_empty = given.iter().any(|word| word.is_empty());
    let found = match e.kind() {
        ClapKind::InvalidSubcommand => {
            let name = all(ContextKind::InvalidSubcommand).concat();
            let similar = all(ContextKind::SuggestedSubcommand);
            let all = "`wingbeat --help` lists the commands";
            let hint = if similar.is_empty() { all.into() } else { format!("similar commands: {}; {all}", similar.join(", ")) };
            return Error::usage("unknown command").at(name).hint(hint);
        }
        ClapKind::UnknownArgument if arg.starts_with("--") => {
            let all = "--help-all lists all flags";
            let hint = similar.first().map_or_else(|| all.into(), |flag| format!("a similar flag is {flag}; {all}"));
            Error::usage("unknown flag").hint(hint)
        }
        ClapKind::UnknownArgument if arg.parse::<f64>().is_ok() && arg.starts_with('-') => {
            let before = given.iter().position(|word| *word == *arg).and_then(|at| given.get(at.checked_sub(1)?)?.to_str());
            match before.filter(|word| word.starts_with('-')) {
                Some(flag) => return Error::usage(format!("expected no negative number, found {arg:?}")).at(flag),
                None => Error::usage("wingbeat does not accept a negative number"),
            }
        }
        ClapKind::UnknownArgument if arg.starts_with('-') => Error::usage("unknown flag").hint("--help-all lists all flags"),
        ClapKind::UnknownArgument => Error::usage("one argument too many")
            .hint("leave out this argument, or put quotes around a text or path that contains spaces; --help shows all arguments"),
        ClapKind::InvalidValue if value.is_empty() && is_empty => Error::usage("expected at least one character, found an empty text"),
        ClapKind::InvalidValue if value.is_empty() => Error::usage(format!("the value is missing: write {arg}")),
        ClapKind::InvalidValue => {
            let known = all(ContextKind::ValidValue);
            let e = Error::usage(format!("expected one of {}, found {value:?}", known.join(", ")));
            all(ContextKind::SuggestedValue).first().map_or(e.clone(), |similar| e.hint(format!("a similar value is {similar}")))
        }
        ClapKind::ValueValidation => {
            let why = std::error::Error::source(e).map(ToString::to_string).unwrap_or_default();
            let why = if why.contains("float literal") { "expected a number".into() } else { why };
            let is_whole = why.contains("found ") || why.starts_with("unknown");
            let (why, hint) = why.split_once("; hint: ").map_or((why.as_str(), None), |(why, hint)| (why, Some(hint.to_owned())));
            let e = Error::usage(if is_whole { why.into() } else { format!("{why}, found {value:?}") });
            hint.map_or(e.clone(), |hint| e.hint(hint))
        }
        ClapKind::ArgumentConflict => match all(ContextKind::PriorArg) {
            others if others.is_empty() || others[0] == arg => Error::usage("the flag is given twice").hint("give the flag once"),
            others => {
                let others: Vec<String> = others.iter().map(|other| flag(other)).collect();
                let argument = if arg.starts_with('-') { "" } else { "this argument " };
                Error::usage(format!("{argument}cannot be used with {}", others.join(" or "))).hint("use only one of them")
            }
        },
        ClapKind::MissingRequiredArgument => {
            let all = args.iter().map(|arg| described(arg)).collect::<Vec<_>>().join("; ");
            // A flag can need another flag. An argument without a name is needed by the command itself.
            let need = args.iter().filter(|arg| arg.starts_with('-')).find_map(|arg| Some((needing(arg, given)?, flag(arg))));
            let what = match (args.len(), need) {
                (1, Some((needing, missing))) => {
                    return Error::usage(format!("this flag needs the flag {missing}, which is missing"))
                        .at(needing)
                        .hint(format!("add {}, or leave out {needing}", args[0]));
                }
                (1, None) => "the argument is missing".into(),
                (_, Some((needing, missing))) => format!("these arguments are missing; {missing} is needed by {needing}"),
                (_, None) => "these arguments are missing".into(),
            };
            Error::usage(what).hint(all)
        }
        _ => {
            let text = e.to_string();
            let message = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            Error::usage(message.strip_prefix("error: ").unwrap_or(&message))
        }
    };
    found.at(args.iter().map(|arg| flag(arg)).collect::<Vec<_>>().join(", "))
}

/// Returns the flag in `given` that requires the flag `missing`, or `None` if no flag does. Clap's error names only `missing`, so this function
/// parses the command with one flag at a time.
fn needing<'a>(missing: &str, given: &'a [OsString]) -> Option<&'a str> {
    let is_flag = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.starts_with('-'));
    let command = given.iter().skip(1).position(|arg| !is_flag(arg))? + 2;
    let found = (command..given.len()).filter(|&i| is_flag(&given[i])).find(|&i| {
        // The argument after the flag may be the flag's value.
        let line = given[..command].iter().chain(given[i..].iter().take(2));
        Cli::try_parse_from(line).is_err_and(|e| match e.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(all)) => e.kind() == ClapKind::MissingRequiredArgument && all.iter().any(|arg| arg == missing),
            _ => false,
        })
    })?;
    given[found].to_str()?.split('=').next()
}

/// Returns an argument with its help and its possible values: `<SHELL>: Shell that reads the script (bash, zsh)`.
fn described(arg: &str) -> String {
    let mut program = Cli::command();
    program.build();
    let Some(known) = program.get_subcommands().flat_map(clap::Command::get_arguments).find(|known| bare(&known.to_string()) == bare(arg))
    else {
        return arg.into();
    };
    let help =
        known.get_help().map(|help| format!(": {}", help.to_string().split(" [default").next().unwrap_or_default())).unwrap_or_default();
    let values: Vec<String> = known.get_possible_values().iter().map(|value| value.get_name().into()).collect();
    let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
    format!("{arg}{help}{values}")
}

/// Returns the name of a positional argument without its brackets. The brackets show whether the argument is optional.
fn bare(arg: &str) -> &str {
    if arg.starts_with('-') { arg } else { arg.trim_matches(['<', '>', '[', ']', '.']) }
}

/// Returns the name of a flag without its value: `--top-p` for `--top-p <X>`. A positional argument is returned unchanged.
fn flag(arg: &str) -> &str {
    arg.split_once(' ').map_or(arg, |(flag, _)| flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_flags_name_the_flag() {
        for (line, place, message, hint) in [
            ("w generate --dtype f17", "--dtype", "expected one of auto, f16, f32, found \"f17\"", Some("similar value is f16")),
            ("w generate --tempp 3", "--tempp", "unknown flag", Some("a similar flag is --temp;")),
            ("w chat -hf owner/repo", "-hf", "unknown flag", Some("-m hf:OWNER/REPO[/FILE]")),
            ("w serve --hf-repo owner/repo", "--hf-repo", "unknown flag", Some("-m hf:OWNER/REPO[/FILE]")),
            ("w serve --api-key x", "--api-key", "unknown flag", Some("WINGBEAT_API_KEYS")),
            ("w serve --metrics", "--metrics", "unknown flag", Some("GET /metrics")),
            ("w generate x -ngl 99", "-ngl", "unknown flag", Some("--device gpu")),
            ("w chat -sys x", "-sys", "unknown flag", Some("--system")),
            ("w generate x --quant Q4_K_M", "--quant", "unknown weight format \"Q4_K_M\"", Some("wingbeat's nearest format is q4_k")),
            ("w quality x --quant int8", "--quant", "unknown weight format \"int8\"", Some("formats of 8 bits are i8 and q8_0")),
            ("w generate --bogus", "--bogus", "unknown flag", Some("--help-all")),
            ("w generate x --top-p 7", "--top-p", "expected a number from 0 to 1, found 7", None),
            ("w generate x -t some", "--threads", "expected a whole number from 1 to 4096, found \"some\"", None),
            ("w generate x -n", "--max-tokens", "the value is missing: write --max-tokens <N>", None),
            ("w generate x y", "y", "one argument too many", Some("quotes")),
            ("w generate x --json --jsonl", "--json", "cannot be used with --jsonl", Some("only one")),
            ("w generate x -n 1 -n 2", "--max-tokens", "the flag is given twice", Some("once")),
            ("w bench -p -1", "-p", "expected no negative number, found \"-1\"", None),
            ("w generat", "generat", "unknown command", Some("generate")),
            ("w xyzzy", "xyzzy", "unknown command", Some("`wingbeat --help`")),
            ("w batch --json", "--output, <IN.jsonl>", "missing; --output is needed by --json", Some("<IN.jsonl>: File of prompts")),
            (
                "w batch in --slots 2 --retry-errors",
                "--retry-errors",
                "needs the flag --output, which",
                Some("add --output <OUT.jsonl>, or leave out --retry-errors"),
            ),
            ("w -v convert a b --dtype f16 --lora-alpha=8", "--lora-alpha", "this flag needs the flag --lora", Some("add --lora <PATH>")),
            ("w score --text a --tokens 1", "--text", "cannot be used with --tokens", Some("only one")),
            ("w generate x --quant i9", "--quant", "unknown weight format \"i9\"", Some("similar formats: i8, i4")),
            ("w completions", "<SHELL>", "the argument is missing", Some("bash, elvish, fish, powershell, zsh")),
            ("w completions foo", "<SHELL>", "expected one of bash, elvish", None),
            ("w convert a b --lora c --lora-alpha x", "--lora-alpha", "expected a number, found \"x\"", None),
        ] {
            let e = usage(&Cli::try_parse_from(line.split(' ')).err().unwrap(), &line.split(' ').map(Into::into).collect::<Vec<_>>());
            assert_eq!(e.place.as_deref(), Some(place), "{line}: {e:?}");
            assert!(e.message.contains(message), "{line}: {e:?}");
            assert_eq!(hint.is_some(), e.hint.is_some(), "{line}: {e:?}");
            assert!(hint.is_none_or(|hint| e.hint.as_ref().unwrap().contains(hint)), "{line}: {e:?}");
        }
    }
}
