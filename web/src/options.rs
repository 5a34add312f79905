//! Options of a model and its engine, as JSON.

use serde::Deserialize;
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::{self, Backend};
use wingbeat::low_level::tape::{Caps, Class};
use wingbeat::{CacheOptions, DeviceChoice, EngineOptions, Error, Format, Model, Options, Result, Speculate, Speculation};

/// The options of `load`. A missing field has its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadOptions {
    /// `auto`, `gpu`, `gpu:N` or `cpu`.
    pub device: Option<String>,
    /// The kernels: `groups` (for GPUs) or `lanes` (for software). Chosen for the GPU if missing.
    class: Option<String>,
    quant: Option<String>,
    dtype: Option<String>,
    state_dtype: Option<String>,
    cache_dtype: Option<String>,
    activations: Option<String>,
    context: Option<usize>,
    chunk: Option<usize>,
    deterministic: bool,
    /// How many texts run at once.
    slots: Option<usize>,
    max_tokens: Option<usize>,
    /// The chat format. The model's own if missing.
    format: Option<String>,
    /// False turns the prefix cache off.
    prefix_cache: Option<bool>,
    /// The method that guesses the next tokens: `off`, `auto`, `ngram` or `forced`.
    speculate: Option<String>,
    /// The number of guesses per step.
    draft_tokens: Option<usize>,
}

impl LoadOptions {
    pub fn read(json: &str) -> Result<LoadOptions> {
        serde_json::from_str(json).map_err(|e| Error::usage(format!("expected the options of a model: {e}")))
    }

    /// Returns the options with which the model is loaded.
    pub async fn model(&self) -> Result<Options> {
        let mut options = Options::new().deterministic(self.deterministic);
        let number = |n: Option<usize>| n.map(|n| n.to_string());
        let named = [
            ("device", self.device.clone()),
            ("quant", self.quant.clone().filter(|quant| !quant.is_empty())),
            ("dtype", self.dtype.clone()),
            ("state_dtype", self.state_dtype.clone()),
            ("cache_dtype", self.cache_dtype.clone()),
            ("activations", self.activations.clone()),
            ("context", number(self.context)),
            ("chunk", number(self.chunk)),
        ];
        for (name, value) in named {
            value.map_or(Ok(()), |value| options.set(name, &value))?;
        }
        if let Some(class) = &self.class {
            if options.device == DeviceChoice::Cpu {
                return Err(Error::usage("the CPU has no classes of kernels").field("class").hint("leave `class` out"));
            }
            options.gpu = Some(Arc::new(open_gpu(Some(class), self.deterministic).await?));
        }
        Ok(options)
    }

    /// Returns the options of the engine.
    pub fn engine(&self, model: &Model) -> Result<EngineOptions> {
        let mut options = EngineOptions::new().slots(self.slots.unwrap_or(2));
        if let Some(n) = self.max_tokens {
            options = options.max_tokens(n);
        }
        if let Some(format) = &self.format {
            options = options.format(Format::named(format, model).map_err(|e| e.field("format"))?);
        }
        if self.prefix_cache == Some(false) {
            options = options.cache(CacheOptions::off());
        }
        let by = self.speculate.as_deref().map_or(Ok(Speculate::Off), str::parse)?;
        if by == Speculate::Draft {
            return Err(Error::usage("a page loads no draft model").field("speculate").hint("choose auto, ngram or forced"));
        }
        Ok(options.speculation(Speculation { by, n_guesses: self.draft_tokens }))
    }
}

/// Opens the first GPU. `class` selects the kernels: `groups` or `lanes`. `None` selects the kernels that suit the GPU.
///
/// # Errors
/// `Usage` if `class` is unknown; `Device` if no GPU is found or the GPU cannot be opened.
pub async fn open_gpu(class: Option<&str>, deterministic: bool) -> Result<gpu::Device> {
    let class = match class {
        None => None,
        Some("groups") => Some(Class::Groups),
        Some("lanes") => Some(Class::Lanes),
        Some(other) => return Err(Error::usage(format!("expected groups or lanes, found {other:?}")).field("class")),
    };
    let found = gpu::adapters_async(Backend::Auto).await;
    let adapter = found.first().ok_or_else(|| Error::device("no GPU was found").hint("use the device `cpu`"))?;
    let opened = gpu::Device::open_async(adapter, deterministic).await?;
    Ok(match class {
        None => opened,
        Some(class) => opened.with_caps(Caps { class, cooperative: None, ..opened.caps.clone() }),
    })
}
