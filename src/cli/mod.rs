//! The command line: a file a verb, over `session`; flags, text and exit codes as `--help` says.
//!
//! Text goes to stdout, everything else to stderr. A verb is added with a file here and two lines below.

mod batch;
mod bench;
mod ceiling;
mod chat;
mod classify;
mod completions;
mod convert;
mod detokenize;
mod devices;
mod doctor;
mod endings;
mod environment;
mod escape;
mod failure;
mod flags;
mod format_options;
mod generate;
mod grammar_options;
mod help;
mod inspect;
mod limit;
mod lines;
mod memory;
mod model_options;
mod output;
mod panics;
mod progress;
mod prompt;
mod published;
mod quality;
mod resume;
mod sampling_options;
mod score;
mod signals;
mod slots;
mod style;
mod target;
mod threads;
mod tokenize;
mod values;
mod variables;
mod version;

pub use memory::Allocator;

use crate::error::Error;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use help::Shows;
use output::say;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Runs RWKV and GLM-4 language models on any GPU, or on the CPU
#[derive(Parser)]
#[command(name = "wingbeat", version = version::short(), long_version = version::long(), arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Log more to stderr; twice: even more (RUST_LOG=wingbeat=debug does the same)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = help::HEADING)]
    verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  wingbeat generate \"In the beginning\"                    a few words by the model that is built in
  wingbeat generate -m rwkv7-1.5b.pth \"Once upon a time\"  the same by another
  wingbeat chat -m rwkv7-g1-1.5b.pth                      talk to it
  wingbeat doctor                                         is this machine's GPU fit for it?

Exit codes: 0 done, 1 input or file, 2 usage, 3 device, 4 memory, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP)";

#[derive(Subcommand)]
enum Verb {
    Generate(generate::Args),
    Batch(batch::Args),
    Chat(chat::Args),
    #[command(visible_alias = "perplexity")]
    Score(score::Args),
    Classify(classify::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    #[command(visible_alias = "show")]
    Inspect(inspect::Args),
    Convert(convert::Args),
    Devices(devices::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    Quality(quality::Args),
    Completions(completions::Args),
}

/// How a verb ends early.
enum Failure {
    Error(Error),
    /// Whoever read our text has had enough of it: no fault of anybody.
    ClosedPipe,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Error(e)
    }
}

/// What a verb comes to.
type Outcome = Result<ExitCode, Failure>;

/// Runs the program with the process's arguments.
pub fn run() -> ExitCode {
    quiet_device_select();
    panics::report();
    let args: Vec<OsString> = help::spelled_out(bench::long_pg(std::env::args_os().collect()));
    // Clap has not run yet when it refuses a flag, and a verb's own --json is then unknown.
    let json = wants_json(&args);
    memory::speak_json(json);
    memory::explain_crashes();
    let parsed = command(Shows::asked(&args))
        .try_get_matches_from(&args)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, threads_of(&matches))));
    let (cli, threads) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => return failure::report_usage(&e, json),
    };
    start_log(cli.verbose);
    signals::listen();
    signals::catch_cut_files();
    let checked = environment::check().and_then(|()| threads.map_or(Ok(()), threads::start));
    let outcome = checked.map_err(Failure::from).and_then(|()| run_verb(cli.verb));
    match outcome {
        Ok(code) => code,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Error(e)) => failure::report(e, &args, json),
    }
}

/// The command line, with help of that length.
fn command(shows: Shows) -> Command {
    let command = Cli::command().mut_subcommand("chat", |chat| chat.mut_args(sampling_options::without_default));
    help::dressed(command, shows)
}

/// `--threads` of a verb that computes; `None` if the verb does not compute.
fn threads_of(matches: &ArgMatches) -> Option<Option<u32>> {
    let (_, verb) = matches.subcommand()?;
    verb.try_get_one::<u32>("threads").ok().map(|n| n.copied())
}

fn run_verb(verb: Verb) -> Outcome {
    match verb {
        Verb::Generate(args) => generate::run(args),
        Verb::Batch(args) => batch::run(args),
        Verb::Chat(args) => chat::run(args),
        Verb::Score(args) => score::run(args),
        Verb::Classify(args) => classify::run(args),
        Verb::Tokenize(args) => tokenize::run(args),
        Verb::Detokenize(args) => detokenize::run(args),
        Verb::Inspect(args) => inspect::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::Devices(args) => devices::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Quality(args) => quality::run(args),
        Verb::Completions(args) => completions::run(args),
    }
}

/// Doors for the targets in `fuzz/`, which only the fuzzer's build has.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a line of the input of `batch`, as far as no model is needed.
    ///
    /// # Errors
    /// `Input` and `Usage`, at the field.
    pub fn batch_line(bytes: &[u8]) -> crate::error::Result<()> {
        super::batch::check_line(bytes)
    }
}

/// The first argument that is no flag: none of the program's own takes a value.
fn verb(args: &[OsString]) -> Option<(usize, &OsStr)> {
    let is_flag = |a: &OsStr| a.as_encoded_bytes().starts_with(b"-");
    args.iter().map(OsString::as_os_str).enumerate().skip(1).find(|(_, a)| !is_flag(a))
}

/// Whether programs read our text, so that an error is an object, too.
fn wants_json(args: &[OsString]) -> bool {
    let flags: Vec<_> = args.iter().skip(1).take_while(|a| *a != "--").filter_map(|a| a.to_str()).collect();
    let is_bench = verb(args).is_some_and(|(_, verb)| verb == "bench");
    flags.iter().any(|f| matches!(*f, "--json" | "--jsonl")) || is_bench && bench::wants_json(&flags)
}

/// Mesa's layer that reorders devices prints to stdout's neighbour whenever Vulkan starts; we order devices ourselves.
fn quiet_device_select() {
    if cfg!(target_os = "linux") && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: the first statement of the program; there is no other thread that could read the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// The libraries below log what is our business to explain, so only our own messages show unless RUST_LOG asks for more.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => "off,wingbeat=warn",
        1 => "off,wingbeat=debug",
        _ => "warn,wingbeat=trace",
    };
    let env = env_logger::Env::default().default_filter_or(level);
    let mut builder = env_logger::Builder::from_env(env);
    // Warnings are for users, and look like our other messages; all else is for whoever asked for a log.
    builder.format(|_, record| {
        match record.level() {
            log::Level::Error | log::Level::Warn => say(format_args!("warning: {}", record.args())),
            level => say(format_args!("[{level} {}] {}", record.target(), record.args())),
        }
        Ok(())
    });
    let _ = builder.try_init();
}

#[cfg(test)]
mod tests {
    use super::wants_json;

    #[test]
    fn errors_are_objects_where_results_are() {
        let wants = |line: &str| wants_json(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        for line in ["w generate --json x", "w -v generate --jsonl", "w bench -o json", "w -v bench -ojsonl", "w bench --output=json"] {
            assert!(wants(line), "{line}");
        }
        for line in ["w generate -- --json", "w generate x", "w bench -o csv", "w bench -o", "w convert -o json"] {
            assert!(!wants(line), "{line}");
        }
    }
}
