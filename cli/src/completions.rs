//! `completions`: prints a script with which a shell completes the flags.

use super::ExitCode;
use super::Outcome;
use super::help::Shows;
use super::output::Output;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  wingbeat completions bash > ~/.local/share/bash-completion/completions/wingbeat
  wingbeat completions zsh > ~/.zfunc/_wingbeat
  wingbeat completions fish > ~/.config/fish/completions/wingbeat.fish

Make the folder first (mkdir -p). bash needs the package bash-completion. For zsh, add these lines to ~/.zshrc:
  fpath=(~/.zfunc $fpath)
  autoload -U compinit && compinit";

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shell that reads the script
    shell: Shell,
}

pub fn run(args: Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(Shows::All), "wingbeat", &mut script);
    let mut out = Output::new(true);
    out.bytes(with_files(args.shell, &String::from_utf8_lossy(&script)).as_bytes())?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the script with paths added to the completion of `--vocab`, whose value is a name or a path. bash completes paths by itself.
fn with_files(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Zsh => script.replace(":PATH:(world small-world tiny)", ":PATH:{compadd -- world small-world tiny; _files}"),
        Shell::Fish => {
            let line = |line: &str| if line.contains(" -l vocab ") { line.replacen(" -r -f -a ", " -r -F -a ", 1) } else { line.into() };
            script.lines().map(|l| line(l) + "\n").collect()
        }
        _ => script.into(),
    }
}
