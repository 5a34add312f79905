//! Returns all help texts. An option that several subcommands share is printed in full with the first subcommand, and only by name with the other
//! subcommands.

use crate::command;
use crate::help::Shows;
use clap::{Arg, Command};
use std::collections::HashSet;

/// The number of columns to which help texts are wrapped.
const WIDTH: usize = 100;

/// Returns the help texts of the program and of its subcommands, each with a title.
pub fn all() -> Vec<(String, String)> {
    let mut program = command(Shows::All).term_width(WIDTH);
    program.build();
    let mut seen = HashSet::new();
    let mut texts = vec![text(program.clone(), &mut seen)];
    let verbs = program.get_subcommands().filter(|verb| verb.get_name() != "help");
    texts.extend(verbs.map(|verb| text(verb.clone(), &mut seen)));
    let basics = command(Shows::Basics);
    texts.extend(basics.get_subcommands().map(basic_options));
    texts
}

/// Returns a title, and the text of `--help-all` without the options that an earlier text has. `seen` has the options of earlier texts.
fn text(command: Command, seen: &mut HashSet<String>) -> (String, String) {
    let shared: Vec<String> =
        command.get_arguments().filter(|arg| !seen.insert(rendered(arg))).map(|arg| arg.get_id().to_string()).collect();
    let name = command.get_display_name().unwrap_or(command.get_name()).replacen('-', " ", 1);
    let shorter = command.mut_args(|arg| if shared.contains(&arg.get_id().to_string()) { arg.hide(true) } else { arg });
    let mut text = shorter.term_width(WIDTH).render_help().to_string();
    if !shared.is_empty() {
        text = format!("{text}\nAs above: {}", shared.join(", "));
    }
    (format!("{name} --help-all"), text)
}

fn rendered(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    format!("{arg} {help} {:?} {:?}", arg.get_default_values(), arg.get_help_heading())
}

/// Returns a title, and the names of the options that `--help` of a subcommand shows.
fn basic_options(verb: &Command) -> (String, String) {
    let shown = verb.get_arguments().filter(|arg| !arg.is_hide_short_help_set() && !arg.is_hide_set());
    (format!("wingbeat {} --help shows", verb.get_name()), shown.map(|arg| arg.get_id().to_string()).collect::<Vec<_>>().join(", "))
}
