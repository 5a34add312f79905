//! `serve`: an HTTP server with OpenAI's API.

pub mod config;
mod files;

use super::ExitCode;
use super::consent::ConsentArgs;
use super::model_options::{WeightArgs, resolved};
use super::output::say;
use super::prompt::text_file;
use super::speculate_options::SpeculateArgs;
use super::values::within;
use super::{Outcome, format_options::FormatArgs, memory, published, signals, slots};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, StateOptions};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{EMBEDDED, ModelSource, Output as Results, Snapshot, Speculation};
use wingbeat::low_level::weights::EXTENSIONS;
use wingbeat_server::{Keys, LogFormat, ServeOptions, ServedModel, ServedTask};

/// The environment variable with API keys, separated by commas.
const KEYS: &str = "WINGBEAT_API_KEYS";

const EXAMPLES: &str = "\
Open http://127.0.0.1:8080 in a browser to chat. docs/api.md describes the API.

API keys come from --key-file (one key per line, as KEY or NAME KEY; the log shows NAME) and from the environment variable WINGBEAT_API_KEYS (separated by commas).
If the server has keys, requests need the header Authorization: Bearer KEY. Callers with different keys cannot see each other's states.
Ctrl-C and SIGTERM end the server: new requests are refused, and running requests have --grace seconds. Then their texts are cut and their states are saved.

Examples:
  wingbeat serve                                            serves the embedded model
  wingbeat serve -m g1=rwkv7-g1-1.5b --states ./states      keeps states in a folder
  wingbeat serve --host 0.0.0.0 --key-file keys.txt         accepts other machines
  wingbeat serve --config serve.toml
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]}'";

/// Serve models over HTTP, with OpenAI's API and a chat page
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct Args {
    /// Model to serve, with the name that requests use [default name: the file's name without its extension; default model: the embedded model]. Repeat the flag for several models
    #[arg(short, long, value_name = "[NAME=]PATH", help_heading = "Model")]
    model: Vec<String>,
    #[command(flatten)]
    consent: ConsentArgs,
    /// Model for /v1/embeddings. Without this flag, the vectors come from the models of --model
    #[arg(long, value_name = "[NAME=]PATH", help_heading = "Model")]
    embed: Option<String>,
    /// Checkpoint of the reranker that was trained with the model of --embed, for /v1/rerank
    #[arg(long, value_name = "PATH", requires = "embed", help_heading = "Model")]
    reranker: Option<PathBuf>,
    /// Tuned initial state, offered as a further model with this name [default name: the file's name without its extension]. The state belongs to the first model of --model. Repeat the flag for several states
    #[arg(long, value_name = "[NAME=]PATH", help_heading = "Model")]
    state: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
    /// Address that accepts connections. An address that other machines can reach needs API keys
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = SERVER)]
    host: String,
    /// TCP port; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value = "8080", value_parser = port, help_heading = SERVER)]
    port: u16,
    /// File with API keys
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    key_file: Option<PathBuf>,
    /// Read flags from a TOML file with lines such as `port = 9000`; its table `models` has lines NAME = "PATH". Flags of the command line have precedence
    #[arg(long, value_name = "FILE.toml", help_heading = SERVER)]
    config: Option<PathBuf>,
    /// Web page that may use the server, such as `https://example.org`; * allows all pages. Repeat the flag for several pages
    #[arg(long, value_name = "ORIGIN", help_heading = SERVER)]
    cors: Vec<String>,
    /// Further name of this machine that requests may use, such as gpu.example.org; * allows all names. Repeat the flag for several names
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    allow_host: Vec<String>,
    /// After Ctrl-C or SIGTERM, wait at most N seconds for running requests
    #[arg(long, value_name = "N", default_value = "30", value_parser = within(0..=86400), help_heading = SERVER, hide_short_help = true)]
    grace: u32,
    /// Refuse requests whose body has more than this many bytes
    #[arg(long, value_name = "BYTES", default_value = "16777216", help_heading = SERVER, hide_short_help = true)]
    max_body: usize,
    /// Bytes of memory for bodies, waiting requests and uploads; one API key of several may use half of it
    #[arg(long, value_name = "BYTES", default_value = "536870912", value_parser = clap::value_parser!(u64).range(1 << 20..), help_heading = SERVER, hide_short_help = true)]
    request_memory: u64,
    /// Refuse requests whose header or body takes more than N seconds to arrive
    #[arg(long, value_name = "N", default_value = "30", value_parser = within(1..=3600), help_heading = SERVER, hide_short_help = true)]
    read_timeout: u32,
    /// Form of the log on stderr: text or json
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = ["text", "json"], hide_possible_values = true, help_heading = SERVER, hide_short_help = true)]
    log: String,
    /// Write the bodies of requests to the log, prompts included
    #[arg(long, help_heading = SERVER, hide_short_help = true)]
    log_prompts: bool,
    /// Answer N requests at once, per model [default: 16, fewer if memory is short]
    #[arg(long, value_name = "N", value_parser = within(1..=1022), help_heading = LIMITS)]
    slots: Option<u32>,
    /// Let at most N requests wait for a slot; further requests get the status 429
    #[arg(long, value_name = "N", default_value = "256", value_parser = within(1..=100000), help_heading = LIMITS, hide_short_help = true)]
    queue: u32,
    /// Let at most N requests of one API key wait [default: half of --queue if the server has several keys, else all of --queue]
    #[arg(long, value_name = "N", value_parser = within(1..=100000), help_heading = LIMITS, hide_short_help = true)]
    queue_per_key: Option<u32>,
    /// Let the grammar or schema of one text take at most N seconds of computing
    #[arg(long, value_name = "N", default_value = "60", value_parser = within(1..=u32::MAX), help_heading = LIMITS, hide_short_help = true)]
    rules_time: u32,
    /// Generate at most N tokens for a request that sets no limit
    #[arg(short = 'n', long, value_name = "N", default_value = "4096", value_parser = within(1..=u32::MAX), help_heading = LIMITS, hide_short_help = true)]
    max_tokens: u32,
    /// End every answer after N tokens, whatever the request asks for
    #[arg(long, value_name = "N", default_value = "131072", value_parser = within(1..=u32::MAX), help_heading = LIMITS, hide_short_help = true)]
    max_answer: u32,
    /// Bytes of host memory for texts that give up their slots while other API keys wait; 0 lets every text keep its slot
    #[arg(long, value_name = "BYTES", default_value = "1073741824", help_heading = LIMITS, hide_short_help = true)]
    swap: u64,
    /// Bytes of host memory for the prefix cache, which keeps states of earlier prompts; 0 turns the cache off
    #[arg(long, value_name = "BYTES", default_value = "1073741824", help_heading = LIMITS, hide_short_help = true)]
    cache: u64,
    /// Folder for entries of the prefix cache that have no room in memory. A later server with the same model continues from them, so a conversation is not prefilled again after a restart. The files contain the prompts' tokens
    #[arg(long, value_name = "FOLDER", help_heading = LIMITS, hide_short_help = true)]
    cache_folder: Option<PathBuf>,
    /// Storage of saved states: a folder, or a URL such as s3://bucket/prefix [default: memory, until the server ends]
    #[arg(long, value_name = "URL", help_heading = LIMITS)]
    states: Option<String>,
    /// Store at most this many bytes of states per API key and model; 0 sets no limit, for a storage of --states [default: 4294967296 with --states, else 1073741824]
    #[arg(long, value_name = "BYTES", help_heading = LIMITS, hide_short_help = true)]
    state_quota: Option<u64>,
    /// Bytes of host memory per model for saved states and sessions that were used last; others are read from the storage
    #[arg(long, value_name = "BYTES", default_value = "1073741824", help_heading = LIMITS, hide_short_help = true)]
    state_memory: u64,
    /// Load each model on its first use, and unload it after N seconds without a request [default: all models load at the start and stay]
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX), help_heading = SERVER)]
    keep_alive: Option<u32>,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    weights: WeightArgs,
}

const SERVER: &str = "Server";
const LIMITS: &str = "Limits";

pub fn run(args: Args) -> Outcome {
    memory::return_large_blocks();
    let options = options(&args)?;
    let mut models: Vec<(String, ModelSource, ServedTask)> = Vec::new();
    models.extend(self::models(&args)?.into_iter().map(|(name, source)| (name, source, ServedTask::Text)));
    let embed = args.embed.as_deref().map(named);
    models.extend(embed.map(|(name, path)| (name, ModelSource::Path(path), ServedTask::Embedding)));
    let states = states(&args, &models)?;
    let options = ServeOptions { tuned: states.iter().map(|(name, _)| name.clone()).collect(), ..options };
    // A wrong path is reported before the server accepts requests.
    for (name, source, _) in &mut models {
        *source = resolved(source).map_err(|e| as_given(e, argument(&args, name).as_deref()))?;
    }
    args.reranker.iter().chain(&args.speculate.draft).try_for_each(|path| published::resolved(path).map(drop))?;
    args.speculate.speculation()?;
    let (args, n_keys) = (Arc::new(args), options.keys.len());
    let mut states = Some(states);
    let models = models.into_iter().map(|(name, source, task)| {
        let args = args.clone();
        // The states belong to the first model that generates text.
        let states = if task == ServedTask::Text { states.take() } else { None }.unwrap_or_default();
        let argument = argument(&args, &name);
        let load = move || load_engine(&args, &source, task, n_keys, &states).map_err(|e| as_given(e, argument.as_deref()));
        ServedModel { name, task, load: Box::new(load) }
    });
    signals::stop_on_interrupt(&options.stop);
    wingbeat_server::run(options, models.collect(), &mut |address| say(format_args!("listening on http://{address}")))?;
    Ok(ExitCode::SUCCESS)
}

fn port(text: &str) -> std::result::Result<u16, String> {
    text.trim().parse().map_err(|_| "expected a whole number from 0 to 65535".into())
}

fn options(args: &Args) -> Result<ServeOptions> {
    if args.state_quota == Some(0) && args.states.is_none() {
        let e = Error::usage("without a limit, states would fill the memory").field("state_quota");
        return Err(e.hint("choose a storage with --states, or a limit"));
    }
    Ok(ServeOptions {
        host: args.host.clone(),
        port: args.port,
        keys: keys(args.key_file.as_deref())?,
        origins: args.cors.clone(),
        hosts: args.allow_host.clone(),
        grace: Duration::from_secs(args.grace.into()),
        max_body: args.max_body,
        request_memory: usize::try_from(args.request_memory).unwrap_or(usize::MAX),
        read_timeout: Duration::from_secs(args.read_timeout.into()),
        states: args.states.clone(),
        state_quota: match args.state_quota {
            Some(0) => None,
            given => given.or(Some(if args.states.is_some() { 4 << 30 } else { 1 << 30 })),
        },
        log: if args.log == "json" { LogFormat::Json } else { LogFormat::Text },
        log_prompts: args.log_prompts,
        keep_alive: args.keep_alive.map(|n| Duration::from_secs(n.into())),
        max_connections: files::connections(ServeOptions::default().max_connections),
        ..ServeOptions::default()
    })
}

/// Reads the API keys of the file and of the environment.
fn keys(file: Option<&Path>) -> Result<Keys> {
    let mut keys = Keys::default();
    if let Some(path) = file {
        let text = text_file(path).map_err(|e| e.at("--key-file"))?;
        keys = Keys::read(&text).map_err(|e| e.at(path.display()).at("--key-file"))?;
        if keys.is_empty() {
            return Err(Error::file("expected at least one key, found none").at(path.display()).at("--key-file"));
        }
    }
    let listed = std::env::var(KEYS).unwrap_or_default();
    for (i, key) in listed.split(',').map(str::trim).filter(|key| !key.is_empty()).enumerate() {
        keys.add(&format!("env-{}", i + 1), key).map_err(|e| e.at(KEYS))?;
    }
    Ok(keys)
}

/// Returns the name and the source of each model of `--model`. Without `--model` and `--embed`, returns the embedded model.
fn models(args: &Args) -> Result<Vec<(String, ModelSource)>> {
    let mut models: Vec<(String, ModelSource)> = Vec::new();
    for text in &args.model {
        let (name, path) = named(text);
        if models.iter().any(|(known, _)| *known == name) || args.embed.as_ref().is_some_and(|embed| self::named(embed).0 == name) {
            let e = Error::usage(format!("two models have the name {name:?}")).at("--model");
            return Err(e.hint("give the models different names: -m NAME=PATH"));
        }
        models.push((name, ModelSource::Path(path)));
    }
    if models.is_empty() && args.embed.is_none() {
        models.push((EMBEDDED.into(), ModelSource::Embedded));
    }
    Ok(models)
}

/// Returns the argument `NAME=PATH` of the model `name`, or `None` if the user gave only a path.
fn argument(args: &Args, name: &str) -> Option<String> {
    args.model.iter().chain(&args.embed).find(|text| named(text).0 == name && named(text).1 != Path::new(text)).cloned()
}

/// Adds the model's argument, as the user typed it, to an error of loading the model. The error itself has only the path.
fn as_given(mut e: Error, argument: Option<&str>) -> Error {
    let Some(text) = argument else { return e };
    if Path::new(text).exists() {
        e.hint = Some(format!("for a file whose name has an equals sign, write ./{text}"));
    }
    e.at(text)
}

/// Returns the names and paths of the tuned initial states.
fn states(args: &Args, models: &[(String, ModelSource, ServedTask)]) -> Result<Vec<(String, PathBuf)>> {
    let mut states: Vec<(String, PathBuf)> = Vec::new();
    for text in &args.state {
        let (name, path) = named(text);
        if models.iter().any(|(known, ..)| *known == name) || states.iter().any(|(known, _)| *known == name) {
            let e = Error::usage(format!("two models have the name {name:?}")).at("--state");
            return Err(e.hint("give the state another name: --state NAME=PATH"));
        }
        if !path.exists() {
            return Err(Error::file("no such file").at(path.display()).at("--state"));
        }
        states.push((name, path));
    }
    if !states.is_empty() && !models.iter().any(|(.., task)| *task == ServedTask::Text) {
        return Err(Error::usage("a tuned state needs a model that generates text").at("--state").hint("name the model with -m"));
    }
    Ok(states)
}

/// Splits `NAME=PATH`. If `text` is only a path, the name is the file's name without its extension.
fn named(text: &str) -> (String, PathBuf) {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains(['/', '\\']));
    let path = PathBuf::from(named.map_or(text, |(_, path)| path));
    // The dot in the name of a published model, such as `rwkv7-g1-1.5b`, does not begin an extension.
    let is_file = path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end.eq_ignore_ascii_case(known)));
    let last = || if is_file { path.file_stem() } else { path.file_name() };
    let stem = || last().map_or_else(|| text.to_string(), |stem| stem.to_string_lossy().into_owned());
    (named.map_or_else(stem, |(name, _)| name.into()), path)
}

fn load_engine(args: &Args, source: &ModelSource, task: ServedTask, n_keys: usize, states: &[(String, PathBuf)]) -> Result<Engine> {
    let is_for_text = task == ServedTask::Text;
    // The adapter of `--lora` applies only to models that generate text.
    let model = match (is_for_text, source) {
        (false, ModelSource::Path(path)) if args.weights.lora.is_some() => args.weights.load_for_vectors(path)?,
        _ => args.weights.load(source, if is_for_text { Results::Logits } else { Results::Hidden })?,
    };
    if is_for_text {
        model.check_speaks()?;
    }
    let reranker = args.reranker.as_deref().filter(|_| !is_for_text).map(|path| args.weights.load_beside(path)).transpose()?;
    let initial = |(name, path): &(String, PathBuf)| {
        let (snapshot, _) = Snapshot::load(&model, path, false).map_err(|e| e.at("--state"))?;
        Ok((name.clone(), Arc::new(snapshot)))
    };
    let initial = states.iter().map(initial).collect::<Result<Vec<_>>>()?;
    let draft = if is_for_text { args.speculate.load(&model, args.weights.options_beside()?)? } else { None };
    let slots = slots::fitting(&model, &args.weights.run.on, args.slots.map(|n| n as usize))?;
    let default = CacheOptions::default();
    let cache = match args.cache {
        // A prefix cache would gain little, because requests rarely repeat a document.
        _ if !is_for_text => CacheOptions::off(),
        0 => CacheOptions::off(),
        host_bytes => CacheOptions { host_bytes, folder: args.cache_folder.clone(), ..default },
    };
    let format = if is_for_text { args.format.selected(&model)? } else { None };
    // The engine may forget states, because the server's storage has them. The engine gets room for the states of all slots, so that states in
    // use do not displace each other.
    let bytes = args.state_memory.max((slots as u64 + 2) * model.slot_bytes());
    let states = StateOptions { bytes, forgets: true, ..StateOptions::default() };
    let options = EngineOptions {
        slots,
        queue: args.queue as usize,
        queue_per_namespace: Some(queue_per_key(args.queue, args.queue_per_key, n_keys)),
        rules_time: Some(Duration::from_secs(args.rules_time.into())),
        cache,
        states,
        max_tokens: args.max_tokens as usize,
        max_answer: args.max_answer as usize,
        swap_bytes: args.swap,
        format,
        reranker,
        initial,
        speculation: if is_for_text { args.speculate.speculation()? } else { Speculation::off() },
        draft,
        ..EngineOptions::default()
    };
    Engine::start(&model, options)
}

/// Returns how many requests of one key may wait. `asked` is the value of `--queue-per-key`. By default, the only key may fill the queue, and so
/// may all callers without keys together, because the server cannot distinguish them.
fn queue_per_key(queue: u32, asked: Option<u32>, n_keys: usize) -> usize {
    let default = if n_keys > 1 { queue.div_ceil(2) } else { queue };
    asked.unwrap_or(default) as usize
}

#[cfg(test)]
mod tests {
    use super::{named, queue_per_key};

    #[test]
    fn one_of_several_keys_has_half_of_the_queue() {
        let found = [0, 1, 2, 9].map(|n_keys| queue_per_key(255, None, n_keys));
        assert_eq!((found, queue_per_key(1, None, 2), queue_per_key(8, Some(3), 1)), ([255, 255, 128, 128], 1, 3));
    }

    #[test]
    fn a_model_has_a_name() {
        let split = |text: &str| named(text).0 + " " + &named(text).1.display().to_string();
        assert_eq!(split("g1=a/b.pth"), "g1 a/b.pth");
        assert_eq!(split("a/b.pth"), "b a/b.pth");
        assert_eq!(split("./x=y/b.pth"), "b ./x=y/b.pth");
    }
}
