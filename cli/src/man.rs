//! `man`: writes the manual pages of the program and of every subcommand, in the format roff.

use super::ExitCode;
use super::help::Shows;
use super::output::Output;
use super::target::{ForceArgs, check_folder};
use super::values::OUTPUT;
use super::{Failure, Outcome};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io::{self, Write};
use std::path::PathBuf;
use wingbeat::error::Error;
use wingbeat::low_level::weights::{NewFile, Readers};

const EXAMPLES: &str = "\
Examples:
  wingbeat man | man -l -
  wingbeat man --dir ~/.local/share/man/man1";

/// Print the manual pages of the program and its commands
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write the pages to FOLDER: wingbeat.1, wingbeat-generate.1 and so on [default: print all pages]
    #[arg(long, value_name = "FOLDER", help_heading = OUTPUT)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
}

pub fn run(args: Args) -> Outcome {
    let pages = pages();
    match args.dir {
        None => {
            let mut out = Output::new(true);
            pages.iter().try_for_each(|(_, page)| out.bytes(page))?;
            out.finish()?;
        }
        Some(folder) => {
            let paths: Vec<PathBuf> = pages.iter().map(|(name, _)| folder.join(name)).collect();
            paths.iter().try_for_each(|path| check_folder(path).and_then(|()| args.existing.check(path)))?;
            for (path, (_, page)) in paths.iter().zip(&pages) {
                let new = NewFile::create(path, Readers::Umask)?;
                new.file().write_all(page).map_err(|e| Failure::Error(Error::io(e, path)))?;
                new.finish()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the manual pages as pairs of file name and text: first the program's page, then one page per subcommand.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut program = super::command(Shows::All).disable_help_subcommand(true);
    program.build();
    let verbs = program.get_subcommands().cloned();
    std::iter::once(program.clone()).chain(verbs).map(|command| page(command).expect("a vector takes everything")).collect()
}

fn page(command: Command) -> io::Result<(String, Vec<u8>)> {
    let extra = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_verbs = command.has_subcommands();
    let usage = synopsis(&command);
    let man = Man::new(command).source(format!("wingbeat {}", env!("CARGO_PKG_VERSION"))).manual("wingbeat");
    let mut to = Vec::new();
    man.render_title(&mut to)?;
    man.render_name_section(&mut to)?;
    usage.to_writer(&mut to)?;
    man.render_description_section(&mut to)?;
    man.render_options_section(&mut to)?;
    if has_verbs {
        man.render_subcommands_section(&mut to)?;
    }
    unfilled("NOTES AND EXAMPLES", &extra).to_writer(&mut to)?;
    Ok((man.get_filename(), to))
}

/// Returns the section SYNOPSIS with the usage line of `--help`. clap_mangen's own synopsis would repeat every flag of the section OPTIONS.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    unfilled("SYNOPSIS", usage.trim_start_matches("Usage:").trim())
}

/// Returns a section of a manual page with the given heading and text. roff keeps the text's lines as they are.
fn unfilled(heading: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]).control("nf", []);
    text.lines().for_each(|line| _ = roff.text([roman(line)]));
    roff.control("fi", []);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page_with_its_options_and_examples() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["wingbeat.1", "wingbeat-generate.1", "wingbeat-batch.1"]);
        assert_eq!(pages.len(), super::super::command(Shows::All).get_subcommands().count() + 1);
        for (name, page) in &pages {
            let text = String::from_utf8(page.clone()).unwrap();
            assert!(
                text.contains(".TH wingbeat") && text.contains("Examples:\n") && text.contains("wingbeat\\-") | text.contains("wingbeat "),
                "{name}"
            );
        }
        let generate = String::from_utf8(pages[1].1.clone()).unwrap();
        assert!(generate.contains(".SH SYNOPSIS\n.nf\nwingbeat generate [OPTIONS] [TEXT]\n.fi"), "{}", &generate[..400]);
        assert!(generate.contains("\\-\\-state\\-tokens"), "options that --help hides are in the page");
    }
}
