//! Maps the library's names of options and items to flags and commands.
//!
//! An error of the library names a field, such as `device`. The error's hint names options between backticks. This module replaces these names by the
//! flag, the environment variable or the command that a user types.

use super::variables::DEVICE;
use crate::report::ErrorReport;
use std::ffi::OsString;
use wingbeat::error::{Error, renamed};
use wingbeat::low_level::sample::Setting;

/// Pairs of an option's name in the library and its flag. Sampling settings are not in this table: their flags have the same names.
const OPTIONS: &[(&str, &str)] = &[
    ("activations", "--activations"),
    ("any_weights", "--state-any"),
    ("backend", "--backend"),
    ("calibrate", "--calibrate"),
    ("chunk", "--chunk"),
    ("context", "--context"),
    ("device", "--device"),
    ("draft", "--draft"),
    ("draft_device", "--draft-device"),
    ("draft_quant", "--draft-quant"),
    ("draft_tokens", "--draft-tokens"),
    ("dtype", "--dtype"),
    #[cfg(feature = "serve")]
    ("host", "--host"),
    #[cfg(feature = "serve")]
    ("key_file", "--key-file"),
    ("layout", "--layout"),
    ("lora", "--lora"),
    ("lora_alpha", "--lora-alpha"),
    ("model", "-m"),
    ("pooling", "--pooling"),
    #[cfg(feature = "serve")]
    ("port", "--port"),
    ("profile", "--profile"),
    ("quant", "--quant"),
    ("rope_theta", "--rope-theta"),
    ("speculate", "--speculate"),
    ("state", "--state"),
    ("state_dtype", "--state-dtype"),
    ("state_of", "--state-of"),
    #[cfg(feature = "serve")]
    ("state_quota", "--state-quota"),
    #[cfg(feature = "serve")]
    ("states", "--states"),
    ("strategy", "--strategy"),
    ("synthetic", "--synthetic"),
    ("task", "--task"),
    ("vocab", "--vocab"),
];

/// Pairs of an item of the library, such as a function, and the command or flag with the same effect.
const COMMANDS: &[(&str, &str)] = &[
    ("Checkpoint::names", "`wingbeat inspect --tensors`"),
    ("Conversation::save", "chat --save"),
    ("Conversion::lora", "`wingbeat convert --lora`"),
    ("Session::save", "generate --save-state"),
    ("chat::load", "chat --load"),
];

/// Returns the flag of a library option, or `None` if the option has no flag.
fn flag(option: &str) -> Option<String> {
    let of_setting = || Setting::all().iter().find(|setting| setting.name == option.replace('_', "-")).map(|s| format!("--{}", s.name));
    OPTIONS.iter().find(|(name, _)| *name == option).map(|(_, flag)| (*flag).to_owned()).or_else(of_setting)
}

/// Returns the flag or command that a user types for an option, an option with a value, or an item of the library. Returns `None` for other
/// names.
fn name(name: &str, value: Option<&str>) -> Option<String> {
    let command = COMMANDS.iter().find(|(item, _)| *item == name).map(|(_, command)| (*command).to_owned());
    let name = command.or_else(|| flag(name))?;
    Some(value.map_or_else(|| name.clone(), |value| format!("{name} {value}")))
}

/// Returns a text of the library, such as a note on a model, with option names between backticks replaced by flags.
pub fn in_text(text: &str) -> String {
    renamed(text, &name)
}

/// Returns the error with option names in its hint replaced by flags.
pub fn in_hint(e: Error) -> Error {
    e.with_names(&name)
}

/// Returns the JSON of an error. Option names in its hint are replaced by flags.
pub fn report(e: &Error) -> ErrorReport {
    ErrorReport::from(&in_hint(e.clone()))
}

/// Returns the error with the option's name in `Error::field` replaced by the flag or the environment variable that set the option. `args`
/// are the arguments of the process.
pub fn in_field(mut e: Error, args: &[OsString]) -> Error {
    let is_given =
        |flag: &str| args.iter().filter_map(|a| a.to_str()).any(|a| a == flag || a.strip_prefix(flag).is_some_and(|a| a.starts_with('=')));
    let flag = match e.field_name() {
        Some("device") if is_given("--device") => Some("--device".into()),
        Some("device") if is_given("--strategy") => Some("--strategy".into()),
        Some("device") if std::env::var_os(DEVICE).is_some() => Some(DEVICE.into()),
        Some(option) => flag(option),
        None => None,
    };
    if let (Some(flag), Some(field), Some(option)) = (flag, e.field.as_deref(), e.field_name()) {
        e.field = Some(format!("{flag}{}", &field[option.len()..]).into());
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_flag_of_the_table_is_one_of_the_program() {
        let program = Cli::command();
        let flags = |of: &clap::Command| -> Vec<String> {
            of.get_arguments()
                .flat_map(|arg| {
                    let long = arg.get_long().map(|name| format!("--{name}"));
                    long.into_iter().chain(arg.get_short().map(|name| format!("-{name}")))
                })
                .collect()
        };
        let known: Vec<String> = program.get_subcommands().flat_map(flags).collect();
        for (_, text) in OPTIONS.iter().chain(COMMANDS) {
            let flag = text.trim_matches('`').rsplit(' ').next().unwrap();
            assert!(known.iter().any(|known| known == flag), "{flag}");
        }
    }

    #[test]
    fn options_become_flags() {
        let hint = |text: &str| in_hint(Error::usage("x").hint(text)).hint.unwrap();
        assert_eq!(hint("use `device=cpu`, a smaller `top_p` or `chunk`"), "use --device cpu, a smaller --top-p or --chunk");
        assert_eq!(
            hint("`strategy=\"gpu fp16i8\"` would fit; `Conversion::lora`"),
            "--strategy \"gpu fp16i8\" would fit; `wingbeat convert --lora`"
        );
        assert_eq!(hint("run `wingbeat doctor`"), "run `wingbeat doctor`");
    }

    #[test]
    fn a_field_is_named_as_the_user_named_it() {
        let of = |field: &str, line: &str| {
            in_field(Error::usage("x").field(field), &line.split(' ').map(Into::into).collect::<Vec<_>>()).to_string()
        };
        assert_eq!(of("device", "w generate --device=x"), "--device: x");
        assert_eq!(of("device", "w generate --strategy x"), "--strategy: x");
        assert_eq!(of("backend", "w generate"), "--backend: x");
        assert_eq!(of("strategy, column 5", "w generate"), "--strategy, column 5: x");
        assert_eq!(of("top_p", "w generate"), "--top-p: x");
        assert_eq!(of("messages[2].content", "w generate"), "messages[2].content: x");
    }
}
