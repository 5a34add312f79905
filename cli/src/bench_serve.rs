//! `bench-serve`: measures the speed of a server that answers many clients at the same time.

mod client;
mod events;
mod load;
mod requests;
mod statistics;

use super::ExitCode;
use super::output::{Output, say};
use super::progress::{Progress, Unit};
use super::prompt::text_file;
use super::values::{OUTPUT, within};
use super::{Failure, Outcome, signals};
use client::{Health, Server};
use load::{Amount, ServerLoad};
use requests::{Prompts, Requests};
use serde::Serialize;
use serde_json::Value;
use statistics::Level;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wingbeat::error::{Error, Kind, Result};

/// The environment variable with an API key.
const KEY: &str = "WINGBEAT_API_KEY";
/// The time that a server may take to load its model.
const LOADING: Duration = Duration::from_secs(60);
/// The time between two checks of the stop flag, and between two checks of whether the server is ready.
const TICK: Duration = Duration::from_millis(50);
/// The token limit of the unmeasured requests before each measurement.
const WARM_UP: usize = 4;

const EXAMPLES: &str = "\
Examples:
  wingbeat bench-serve
  wingbeat bench-serve http://10.0.0.7:8080 --clients 1,16 --seconds 30
  wingbeat bench-serve --prompt-tokens 1024 -n 16 --json
  wingbeat bench-serve http://127.0.0.1:8000 --plain  measures llama-server or vLLM";

/// The heading of the options about requests in `--help`.
const LOAD: &str = "Load";
const SERVER: &str = "Server";

/// Measure a server with many clients
///
/// Prints a table with one line per number of clients. The clients of a line run at the same time. Each client sends requests for
/// streamed completions to /v1/completions, one after the other. Before these requests, each client sends a short request that is not
/// measured. The time to the first token contains the wait in the server's queue and the prefill. The time between tokens is computed as
/// one mean per answer; the table shows the median and the 95th percentile of these means. Tokens per second count the tokens of all
/// answers.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Server to measure; http only
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Model to measure, by its name in /v1/models [default: the first model for texts]
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    model: Option<String>,
    /// File with an API key, in the format of `wingbeat serve --key-file`; the first key is used [default: the environment variable WINGBEAT_API_KEY]
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    key_file: Option<PathBuf>,
    /// Use only fields of OpenAI's API, for other servers: prompts are texts, and the model may end an answer before --max-tokens
    #[arg(long, help_heading = SERVER)]
    plain: bool,
    /// Measure with N clients at the same time; a list measures each number, in ascending order
    #[arg(short, long, value_name = "N", default_value = "1,2,4,8,16,32,64", value_delimiter = ',', value_parser = within(1..=4096), help_heading = LOAD)]
    clients: Vec<u32>,
    /// Send N requests per client
    #[arg(short, long, value_name = "N", default_value = "4", value_parser = within(1..=1_000_000), help_heading = LOAD)]
    requests: u32,
    /// Send requests for S seconds instead; requests that began are completed
    #[arg(short, long, value_name = "S", value_parser = within(1..=86400), conflicts_with = "requests", help_heading = LOAD)]
    seconds: Option<u32>,
    /// Tokens of each prompt; with --plain, words of each prompt
    #[arg(short, long, value_name = "N", default_value = "128", value_parser = within(1..=1_000_000), help_heading = LOAD)]
    prompt_tokens: u32,
    /// Tokens of each answer; with --plain, at most N tokens
    #[arg(short = 'n', long, value_name = "N", default_value = "64", value_parser = within(1..=1_000_000), help_heading = LOAD)]
    max_tokens: u32,
    /// Seed of the prompts: the same seed gives the same prompts
    #[arg(long, value_name = "N", default_value = "0", value_parser = seed, help_heading = LOAD)]
    seed: u64,
    /// Print one JSON object
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

fn seed(text: &str) -> std::result::Result<u64, String> {
    text.trim().parse().map_err(|_| "expected a whole number from 0 to 2^64 - 1".into())
}

/// The object of `--json`.
#[derive(Serialize)]
struct LoadReport {
    url: String,
    /// The entry of the model in `/v1/models`, or null if the server lists no models.
    model: Value,
    plain: bool,
    prompt_tokens: u32,
    max_tokens: u32,
    seed: u64,
    levels: Vec<Level>,
}

pub fn run(args: Args) -> Outcome {
    let server = Server::new(&args.url, key(args.key_file.as_deref())?.as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_interrupt(&stop);
    // Use one thread, so that the other cores stay free for a server on the same machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::memory(format!("the clients could not be started: {e}")).caused_by(e))?;
    let mut report = LoadReport {
        url: server.at(""),
        model: Value::Null,
        plain: args.plain,
        prompt_tokens: args.prompt_tokens,
        max_tokens: args.max_tokens,
        seed: args.seed,
        levels: Vec::new(),
    };
    let mut out = Output::new(false);
    let measured = runtime.block_on(async {
        tokio::select! {
            measured = measure(&args, server, &mut report, &mut out) => measured.map(|()| true),
            () = stopped(&stop) => Ok(false),
        }
    });
    // The look-up of a host name may still run, and must not delay the end.
    runtime.shutdown_background();
    if args.json && (matches!(measured, Ok(true)) || !report.levels.is_empty()) {
        out.json(&report)?;
    }
    out.finish()?;
    Ok(if measured? { ExitCode::SUCCESS } else { ExitCode::from(Kind::Interrupted.exit_code()) })
}

/// Returns when `stop` is set.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        tokio::time::sleep(TICK).await;
    }
}

/// Reads the first key of the file, or of the environment variable if no file is given. Returns `None` without a key.
fn key(file: Option<&Path>) -> Result<Option<String>> {
    let Some(path) = file else {
        return Ok(std::env::var(KEY).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()));
    };
    let text = text_file(path).map_err(|e| e.at("--key-file"))?;
    match first_key(&text) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Error::file("expected an API key, found none").at(path.display()).at("--key-file")),
    }
}

/// Returns the key of the first line that is not empty and not a comment. A line is `KEY` or `NAME KEY`.
fn first_key(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?.split_whitespace().next_back()
}

/// Measures the server with each number of clients. Prints each line of the table, and appends each level, the results of one number, to `report`.
async fn measure(args: &Args, server: Server, report: &mut LoadReport, out: &mut Output) -> std::result::Result<(), Failure> {
    wait_until_ready(&server).await?;
    let requests = prepare(args, &server, report).await?;
    describe(args, report);
    let load = Arc::new(ServerLoad::new(server, requests));
    let (max_tokens, warm_up) = (args.max_tokens as usize, WARM_UP.min(args.max_tokens as usize));
    // The first request shows whether the server accepts requests at all. Its error ends the program.
    load.send(warm_up).await?;
    let amount = args.seconds.map_or(Amount::Requests(args.requests as usize), |s| Amount::Time(Duration::from_secs(s.into())));
    let mut all: Vec<usize> = args.clients.iter().map(|n| *n as usize).collect();
    all.sort_unstable();
    all.dedup();
    let mut one_client = None;
    for (i, clients) in all.into_iter().enumerate() {
        load.run(clients, Amount::Requests(1), warm_up, &mut |_| ()).await;
        let mut bar = Progress::new("measuring", if args.seconds.is_some() { Unit::Seconds } else { Unit::Requests });
        let run = load.run(clients, amount, max_tokens, &mut |run| show(&mut bar, clients, amount, run)).await;
        drop(bar);
        let level = Level::new(clients, &run.answers, &run.failures, run.took, one_client);
        if clients == 1 {
            one_client = Some(level.tokens_per_second);
        }
        if !args.json {
            if i == 0 {
                Level::HEAD.iter().try_for_each(|line| out.line(line))?;
            }
            out.line(level.row())?;
        }
        let (failed, sent) = (level.failures, level.requests);
        report.levels.push(level);
        if let Some(first) = run.failures.first() {
            let text = format!("{}: {failed} of {sent} requests failed: {first}", named(clients));
            if run.answers.is_empty() {
                return Err(Error::input(text).at(load.server.at("")).into());
            }
            say(format_args!("warning: {text}"));
        }
    }
    Ok(())
}

/// Returns a number of clients in words: `1 client`, `2 clients`.
fn named(clients: usize) -> String {
    format!("{clients} {}", if clients == 1 { "client" } else { "clients" })
}

/// Waits until the server has loaded its model, but at most 60 s.
async fn wait_until_ready(server: &Server) -> Result<()> {
    let started = Instant::now();
    let mut has_said = false;
    while server.health().await? == Health::Loading {
        if started.elapsed() > LOADING {
            let e = Error::input(format!("the server still loads its model after {} s", LOADING.as_secs()));
            return Err(e.at(server.at("/health")).hint("start bench-serve again when the server is ready"));
        }
        if !std::mem::replace(&mut has_said, true) {
            say(format_args!("the server loads its model; waiting at most {} s", LOADING.as_secs()));
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

/// Chooses the model to measure, and stores its entry of `/v1/models` in `report`. Returns the generator of requests for this model.
async fn prepare(args: &Args, server: &Server, report: &mut LoadReport) -> Result<Requests> {
    let listed = server.models().await?;
    let at = |e: Error| e.at(server.at("/v1/models"));
    if let Some(entry) = choose(listed.as_deref().unwrap_or_default(), args.model.as_deref()).map_err(at)? {
        report.model = entry.clone();
    }
    let prompts = match report.model["vocabulary"].as_u64().and_then(|n| u32::try_from(n).ok()) {
        _ if args.plain => Prompts::Texts,
        Some(n_vocab) if n_vocab > 0 => Prompts::Tokens { n_vocab },
        _ => {
            let e = Error::input("the server does not report the size of the model's vocabulary, which token prompts need");
            return Err(at(e.hint("use --plain for servers other than `wingbeat serve`")));
        }
    };
    let model = report.model["id"].as_str().or(args.model.as_deref()).map(str::to_owned);
    Ok(Requests { model, prompts, prompt_tokens: args.prompt_tokens as usize, seed: args.seed })
}

/// Returns the model `asked`, or the first model that generates text. Returns `None` if the server lists no models.
fn choose<'a>(listed: &'a [Value], asked: Option<&str>) -> Result<Option<&'a Value>> {
    let generates = |model: &&Value| model["task"].as_str().is_none_or(|task| task == "text");
    let found = listed.iter().filter(generates).find(|model| asked.is_none_or(|name| model["id"] == name));
    match (found, asked) {
        (None, Some(name)) if !listed.is_empty() => {
            let names: Vec<&str> = listed.iter().filter(generates).filter_map(|model| model["id"].as_str()).collect();
            Err(Error::usage(format!("unknown model {name:?}")).hint(format!("models of this server: {}", names.join(", "))))
        }
        (None, None) if !listed.is_empty() => Err(Error::input("the server has no model that generates text")),
        (found, _) => Ok(found),
    }
}

/// Prints a line on stderr that describes the measurement: the model, and the lengths of prompts and answers.
fn describe(args: &Args, report: &LoadReport) {
    let fact = |name: &str| report.model[name].as_str().map(|text| format!(", {text}")).unwrap_or_default();
    let slots = report.model["slots"].as_u64().map(|n| format!(", {n} slots")).unwrap_or_default();
    let name = report.model["id"].as_str().or(args.model.as_deref()).unwrap_or("a model without a name");
    let (unit, most) = if args.plain { ("words", "at most ") } else { ("tokens", "") };
    say(format_args!(
        "{name}{}{}{slots}: prompts of {} {unit}, answers of {most}{} tokens",
        fact("dtype"),
        fact("device"),
        args.prompt_tokens,
        args.max_tokens
    ));
}

/// Shows the progress of the measurement with one number of clients.
fn show(bar: &mut Progress, clients: usize, amount: Amount, run: &load::LoadResults) {
    let done = run.answers.len() + run.failures.len();
    match amount {
        Amount::Requests(n) => bar.show(done as u64, (n * clients) as u64),
        Amount::Time(time) => bar.show(run.took.as_secs().min(time.as_secs()), time.as_secs()),
    }
    bar.note(|| {
        let tokens: usize = run.answers.iter().map(|answer| answer.tokens).sum();
        format!("{}, {:.1} tokens/s", named(clients), tokens as f64 / run.took.as_secs_f64().max(f64::MIN_POSITIVE))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_key_of_a_file_is_used() {
        assert_eq!(first_key("# keys\n\nbob 12345678\nanna abcdefgh\n"), Some("12345678"));
        assert_eq!(first_key("12345678"), Some("12345678"));
        assert_eq!(first_key("# none\n"), None);
    }

    #[test]
    fn a_model_that_generates_text_is_chosen() {
        let listed = [json!({"id": "vectors", "task": "embedding"}), json!({"id": "a", "task": "text"}), json!({"id": "b"})];
        let id = |asked| choose(&listed, asked).unwrap().unwrap()["id"].as_str().unwrap().to_owned();
        assert_eq!([id(None), id(Some("b"))], ["a", "b"]);
        assert!(choose(&listed, Some("c")).unwrap_err().to_string().ends_with("(models of this server: a, b)"));
        assert!(choose(&listed[..1], None).is_err() && choose(&listed, Some("vectors")).is_err());
        assert!(choose(&[], Some("x")).unwrap().is_none());
    }
}
