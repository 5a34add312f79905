//! The options of a model and its engine, as names and texts.

use std::path::{Path, PathBuf};
use wingbeat::{CacheOptions, EngineOptions, Error, Format, Model, ModelSource, Options, Pooling, Result, Speculation, Task};
use wingbeat_cli::MAX_THREADS;

/// The arguments with which `Model` was called: options of the library and of this binding, by name.
pub struct LoadOptions {
    named: Vec<(String, String)>,
}

/// Options of the engine and of this binding. All other options belong to the model.
const OF_ENGINE: [&str; 20] = [
    "slots",
    "queue",
    "max_tokens",
    "format",
    "prefix_cache",
    "cache_folder",
    "states_folder",
    "pooling",
    "task",
    "normalise",
    "reranker",
    "speculate",
    "draft",
    "draft_device",
    "draft_quant",
    "draft_tokens",
    "kernel_cache",
    "threads",
    "lora",
    "lora_alpha",
];

impl LoadOptions {
    pub fn new(named: Vec<(String, String)>) -> LoadOptions {
        LoadOptions { named }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn read<T: std::str::FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>> {
        let wrong = |value| Error::usage(format!("expected {expected}, found {value}")).field(name);
        self.get(name).map(|value| value.parse().map_err(|_| wrong(value))).transpose()
    }

    /// Returns the options with which the model is loaded.
    pub fn model(&self) -> Result<Options> {
        let mut options = Options::new();
        for other in ["device", "dtype"] {
            if self.get("strategy").is_some() && self.get(other).is_some() {
                return Err(Error::usage("a strategy says the device and the number type of each layer").field(other).hint("leave it out"));
            }
        }
        options.cache = self.folder();
        for (name, value) in self.named.iter().filter(|(name, _)| !OF_ENGINE.contains(&name.as_str())) {
            if !Options::NAMES.contains(&name.as_str()) {
                let known = Options::NAMES.into_iter().chain(OF_ENGINE).collect::<Vec<_>>().join(", ");
                return Err(Error::usage("unknown option").field(name).hint(format!("options: {known}")));
            }
            options.set(name, value)?;
        }
        options.lora = match (self.get("lora"), self.read("lora_alpha", "a number")?) {
            (Some(path), alpha) => Some((path.into(), alpha)),
            (None, None) => None,
            (None, Some(_)) => return Err(Error::usage("expected an adapter, found none").field("lora")),
        };
        Ok(options)
    }

    /// Returns how many threads compute on the host. All models of a process share them, so the first model decides.
    pub fn threads(&self) -> Result<Option<u32>> {
        let expected = format!("a whole number from 1 to {MAX_THREADS}");
        match self.read("threads", &expected)? {
            Some(n) if !(1..=MAX_THREADS).contains(&n) => Err(Error::usage(format!("expected {expected}, found {n}")).field("threads")),
            n => Ok(n),
        }
    }

    /// Returns the folder for compiled kernels and measurements of GPUs.
    fn folder(&self) -> Option<PathBuf> {
        match self.get("kernel_cache") {
            Some("false") => None,
            Some(folder) if folder != "true" => Some(folder.into()),
            _ => wingbeat_cli::cache_folder(),
        }
    }

    /// Returns the options with which the draft model is loaded. `beside` are the options of the model.
    fn draft(&self, beside: &Options) -> Result<Options> {
        let mut options = beside.clone();
        if let Some(device) = self.get("draft_device") {
            options.device = device.parse().map_err(|e: Error| e.field("draft_device"))?;
        }
        options.quant = self.get("draft_quant").map(str::parse).transpose().map_err(|e: Error| e.field("draft_quant"))?;
        Ok(options)
    }

    /// Returns the options of the engine. `load` loads a further model, such as the draft model, with the options `beside`. Options such as
    /// `draft_device` override some of them.
    pub fn engine(&self, model: &Model, beside: &Options, load: impl Fn(&ModelSource, &Options) -> Result<Model>) -> Result<EngineOptions> {
        let count = |name| self.read::<usize>(name, "a whole number");
        let mut options = EngineOptions::new();
        options.slots = count("slots")?.unwrap_or(options.slots);
        options.queue = count("queue")?.unwrap_or(options.queue);
        options.max_tokens = count("max_tokens")?.unwrap_or(options.max_tokens);
        if let Some(format) = self.get("format") {
            options = options.format(Format::named(format, model).map_err(|e| e.field("format"))?);
        }
        if self.read("prefix_cache", "true or false")? == Some(false) {
            options = options.cache(CacheOptions::off());
        }
        options.cache.folder = self.get("cache_folder").map(PathBuf::from).or(options.cache.folder);
        options.states.folder = self.get("states_folder").map(PathBuf::from);
        options.embed.pooling = match self.get("pooling") {
            None => options.embed.pooling,
            Some("last") => Some(Pooling::Last),
            Some("mean") => Some(Pooling::Mean),
            Some(other) => return Err(Error::usage(format!("expected last or mean, found {other}")).field("pooling")),
        };
        if let Some(task) = self.get("task") {
            let known = Task::ALL.into_iter().find(|known| known.name() == task);
            let expected = || Task::ALL.map(Task::name).join(", ");
            options.embed.task = Some(known.ok_or_else(|| Error::usage(format!("expected {}, found {task}", expected())).field("task"))?);
        }
        options.embed.normalise = self.read("normalise", "true or false")?.unwrap_or(options.embed.normalise);
        let named = |name| self.get(name).map(|path| ModelSource::Path(Path::new(path).into()));
        options.reranker = named("reranker").map(|source| load(&source, beside)).transpose()?;
        options.draft = named("draft").map(|source| load(&source, &self.draft(beside)?)).transpose()?;
        let by = self.get("speculate").map(str::parse).transpose()?;
        options.speculation = Speculation::chosen(by, count("draft_tokens")?, options.draft.is_some())?;
        Ok(options)
    }
}
