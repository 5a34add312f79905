//! Adds help in two lengths to a command: `--help` shows the basic options of a subcommand, `--help-all` shows all options.
//!
//! An option is basic unless its declaration has `hide_short_help = true`.

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// The flag that shows all options.
const ALL: &str = "--help-all";

/// The heading of the flags about help in `--help`.
pub const HEADING: &str = "Help";

/// The options that a help text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    Basics,
    All,
}

impl Shows {
    /// Returns `All` if the arguments contain `--help-all` before `--`, else `Basics`.
    pub fn parse(args: &[OsString]) -> Shows {
        let flags = || args.iter().skip(1).take_while(|a| *a != "--");
        if flags().any(|a| a == ALL) { Shows::All } else { Shows::Basics }
    }
}

/// Rewrites the arguments `wingbeat help VERB` as `wingbeat VERB --help`. Returns other arguments unchanged.
pub fn spelled_out(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.len() == 3 && args[1] == "help" && !args[2].as_encoded_bytes().starts_with(b"-") {
        args[1] = args.pop().expect("three arguments were counted");
        args.push("--help".into());
    }
    args
}

/// Adds the flags `--help` and `--help-all` to `command` and to its subcommands. `shows` determines which options the help texts show.
pub fn dressed(command: Command, shows: Shows) -> Command {
    let n_hidden = command.get_arguments().filter(|a| a.is_hide_short_help_set()).count();
    let basics = if n_hidden > 0 { "Show the basic options" } else { "Show help" };
    let mut command = command.mut_subcommands(|verb| dressed(verb, shows)).disable_help_flag(true).args([
        Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help(basics).help_heading(HEADING),
        Arg::new("help-all").long("help-all").action(ArgAction::HelpShort).help("Show all options").help_heading(HEADING),
    ]);
    if shows == Shows::All {
        let about = command.get_long_about().cloned();
        command = command.mut_args(|arg| arg.hide_short_help(false));
        return about.into_iter().fold(command, |command, about| command.about(about));
    }
    if n_hidden > 0 {
        let more = format!("{ALL} shows {n_hidden} more options");
        let examples = command.get_after_help().map(|text| format!("{text}\n\n"));
        command = command.after_help(examples.unwrap_or_default() + &more);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn help_verb_is_rewritten_as_verb_help() {
        assert_eq!(spelled_out(args("w help score")), args("w score --help"));
        for same in ["w help", "w help --help", "w score help", "w help score x"] {
            assert_eq!(spelled_out(args(same)), args(same));
        }
        assert_eq!([Shows::parse(&args("w score --help-all")), Shows::parse(&args("w score -- --help-all"))], [Shows::All, Shows::Basics]);
    }
}
