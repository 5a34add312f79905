//! The program `wingbeat`: one file per subcommand.
//!
//! Results go to stdout, everything else to stderr. A new subcommand needs a file in this folder, a variant of `Verb` and a line in
//! `run_verb`.

mod batch;
mod bench;
#[cfg(feature = "serve")]
mod bench_serve;
mod calibrate;
mod ceiling;
mod chat;
mod classify;
mod completions;
mod consent;
mod convert;
mod detokenize;
mod devices;
mod doctor;
mod embed;
mod endings;
mod environment;
mod escape;
mod exit_code;
mod failure;
#[cfg(feature = "download")]
mod fetch;
mod flags;
mod foreign;
mod format_options;
mod generate;
mod grammar_options;
mod help;
#[cfg(feature = "download")]
mod hub;
mod imatrix;
mod inspect;
mod limit;
mod lines;
#[cfg(feature = "download")]
mod list;
mod man;
mod memory;
mod model_options;
mod output;
mod panics;
mod progress;
mod prompt;
mod published;
#[cfg(feature = "download")]
mod pull;
mod quality;
mod report;
mod requests;
mod rerank;
mod resume;
#[cfg(feature = "download")]
mod rm;
mod sampling_options;
mod score;
#[cfg(feature = "serve")]
mod serve;
mod signals;
mod slots;
mod speculate_options;
mod speed;
mod style;
mod target;
mod texts;
mod threads;
mod tokenize;
mod tool_command;
mod tool_options;
mod values;
mod variables;
mod version;
mod word_wrap;
// Errors about files contain the operating system's wording, so this test runs only on Linux.
#[cfg(all(test, target_os = "linux"))]
mod wording;

pub use exit_code::ExitCode;
pub use memory::Allocator;
pub use model_options::cache_folder;
#[cfg(feature = "download")]
pub use published::located;
pub use threads::{MOST as MAX_THREADS, start as start_threads};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use help::Shows;
pub use inspect::inspect;
use output::say;
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;
use wingbeat::error::Error;

/// Runs RWKV and GLM-4 language models on any GPU, or on the CPU
#[derive(Parser)]
#[command(name = "wingbeat", version = version::short(), long_version = version::long(), arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Log debug messages to stderr; -vv also logs trace messages. The environment variable RUST_LOG overrides this flag
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = help::HEADING)]
    verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  wingbeat generate \"Once upon a time\"                    continue a text with the embedded model
  wingbeat generate -m rwkv7-1.5b.pth \"Once upon a time\"  continue a text with the model in a file
  wingbeat chat -m rwkv7-g1-1.5b                          download a published model, and talk to it
  wingbeat doctor                                         check this machine's GPU and drivers

Exit codes: 0 success, 1 wrong input or file, 2 wrong usage, 3 device error, 4 not enough memory, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP)";

#[derive(Subcommand)]
enum Verb {
    Generate(generate::Args),
    Batch(batch::Args),
    Chat(chat::Args),
    #[command(visible_alias = "perplexity")]
    Score(score::Args),
    Classify(classify::Args),
    Embed(embed::Args),
    Rerank(rerank::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    #[command(visible_alias = "show")]
    Inspect(inspect::Args),
    Convert(convert::Args),
    Devices(devices::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    #[cfg(feature = "serve")]
    BenchServe(bench_serve::Args),
    Quality(quality::Args),
    Imatrix(imatrix::Args),
    #[cfg(feature = "download")]
    Pull(pull::Args),
    #[cfg(feature = "download")]
    List(list::Args),
    #[cfg(feature = "download")]
    Rm(rm::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// The reason why a subcommand ends before its work is done.
enum Failure {
    Error(Error),
    /// The reader of standard output has closed the pipe. This is not an error.
    ClosedPipe,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Error(e)
    }
}

/// The result of a subcommand: the exit code, or why it ended early.
type Outcome = Result<ExitCode, Failure>;

/// The arguments of the program, as the user typed them.
static TYPED: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the program with `typed`: its name and its arguments. Must be called at most once per process, because a static variable keeps the arguments of
/// the first call.
pub fn run(typed: Vec<OsString>) -> ExitCode {
    quiet_device_select();
    panics::report();
    memory::end_when_exhausted();
    let args: Vec<OsString> = help::spelled_out(bench::long_pg(TYPED.get_or_init(|| typed).clone()));
    // Clap reports wrong flags before it has parsed the subcommand's own `--json`. These errors must be JSON, too, so look for the flag
    // here.
    let json = wants_json(&args);
    memory::speak_json(json);
    memory::explain_crashes();
    #[cfg(feature = "serve")]
    let args = match serve::config::is_asked(&args).then(|| command(Shows::All)) {
        None => args,
        Some(command) => match serve::config::with_file(args.clone(), command.find_subcommand("serve").unwrap_or(&command)) {
            Ok(args) => args,
            Err(e) => return failure::report(e, &args, json),
        },
    };
    let parsed = command(Shows::parse(&args))
        .try_get_matches_from(&args)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, threads_of(&matches), has_consent(&matches))));
    let (cli, threads, has_consent) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => return failure::report_usage(&e, &args, json),
    };
    if has_consent {
        consent::give();
    }
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

/// Returns the program's clap command. `shows` determines which options its help texts show.
fn command(shows: Shows) -> Command {
    let command = Cli::command().mut_subcommand("chat", |chat| chat.mut_args(sampling_options::for_chat));
    help::dressed(command, shows)
}

/// Returns the value of `--threads`: `Some(None)` if the flag is not given, `None` if the subcommand has no such flag.
fn threads_of(matches: &ArgMatches) -> Option<Option<u32>> {
    let (_, verb) = matches.subcommand()?;
    verb.try_get_one::<u32>("threads").ok().map(|n| n.copied())
}

/// Returns whether `--yes` is given to a subcommand that has this flag.
fn has_consent(matches: &ArgMatches) -> bool {
    matches.subcommand().is_some_and(|(_, verb)| matches!(verb.try_get_one::<bool>("yes"), Ok(Some(true))))
}

fn run_verb(verb: Verb) -> Outcome {
    match verb {
        Verb::Generate(args) => generate::run(args),
        Verb::Batch(args) => batch::run(args),
        Verb::Chat(args) => chat::run(args),
        Verb::Score(args) => score::run(args),
        Verb::Classify(args) => classify::run(args),
        Verb::Embed(args) => embed::run(args),
        Verb::Rerank(args) => rerank::run(args),
        Verb::Tokenize(args) => tokenize::run(args),
        Verb::Detokenize(args) => detokenize::run(args),
        Verb::Inspect(args) => inspect::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::Devices(args) => devices::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Bench(args) => bench::run(args),
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(args),
        #[cfg(feature = "serve")]
        Verb::BenchServe(args) => bench_serve::run(args),
        Verb::Quality(args) => quality::run(args),
        Verb::Imatrix(args) => imatrix::run(args),
        #[cfg(feature = "download")]
        Verb::Pull(args) => pull::run(args),
        #[cfg(feature = "download")]
        Verb::List(args) => list::run(args),
        #[cfg(feature = "download")]
        Verb::Rm(args) => rm::run(args),
        Verb::Completions(args) => completions::run(args),
        Verb::Man(args) => man::run(args),
    }
}

/// Entry points for the fuzz targets in `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Parses an input line of `batch` and checks what can be checked without a model.
    ///
    /// # Errors
    /// `Input` or `Usage` if a field is wrong. The error names the field.
    pub fn batch_line(bytes: &[u8]) -> wingbeat::error::Result<()> {
        const N_VOCAB: usize = 65536;
        let request = super::batch::request_of(bytes)?;
        wingbeat::low_level::sample::Sampling::rwkv().with_kept(&request.sampling)?.check(N_VOCAB)
    }
}

/// Returns the subcommand, which is the first argument that is not a flag, with its index. Flags before the subcommand take no values.
fn verb(args: &[OsString]) -> Option<(usize, &OsStr)> {
    let is_flag = |a: &OsStr| a.as_encoded_bytes().starts_with(b"-");
    args.iter().map(OsString::as_os_str).enumerate().skip(1).find(|(_, a)| !is_flag(a))
}

/// Returns whether the arguments ask for JSON. Errors are then JSON objects, too.
fn wants_json(args: &[OsString]) -> bool {
    let flags: Vec<_> = args.iter().skip(1).take_while(|a| *a != "--").filter_map(|a| a.to_str()).collect();
    let is_bench = verb(args).is_some_and(|(_, verb)| verb == "bench");
    flags.iter().any(|f| matches!(*f, "--json" | "--jsonl")) || is_bench && bench::wants_json(&flags)
}

/// Disables Mesa's Vulkan layer that reorders devices. It prints to stderr whenever Vulkan starts, and wingbeat orders devices itself.
fn quiet_device_select() {
    if cfg!(target_os = "linux") && std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: this is the first statement of the program, so no other thread can read the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// Starts the log on stderr. Only wingbeat's own messages are shown, unless RUST_LOG or `-v` asks for more.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => "off,wingbeat=warn",
        1 => "off,wingbeat=debug",
        _ => "warn,wingbeat=trace",
    };
    let env = env_logger::Env::default().default_filter_or(level);
    let mut builder = env_logger::Builder::from_env(env);
    // Warnings are for users, so they look like any other message. The other records show their level and origin.
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
