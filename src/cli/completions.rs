//! `completions`: a script that teaches a shell our flags.

use super::output::Output;
use super::{Cli, Outcome};
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  wingbeat completions bash > ~/.local/share/bash-completion/completions/wingbeat
  wingbeat completions fish > ~/.config/fish/completions/wingbeat.fish";

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "wingbeat", &mut script);
    let mut out = Output::new(true);
    out.bytes(&script)?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
