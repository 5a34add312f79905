//! RWKV and GLM-4 inference on any GPU, through WebGPU. The layers of a model run as WGSL compute shaders. Rust decides which shaders run,
//! and in which order.
//!
//! A model is recorded as a *tape*: a short list of *words* (fused operations). An *executor* runs the tape on a GPU or on the CPU. Every
//! word has kernels for GPUs and a *twin*, its reference implementation on the CPU, with which tests compare the kernels.
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> wingbeat::Result<()> {
//! use wingbeat::{DeviceChoice, Engine, EngineOptions, Event, ModelSource, Options, Request};
//!
//! // `Model::open("model.pth")` opens a checkpoint with default options: the first GPU, or the CPU if no GPU is found.
//! let model = Options::new().device(DeviceChoice::Cpu).open(ModelSource::Embedded)?;
//! let engine = Engine::start(&model, EngineOptions::default())?;
//! let request = Request::text("Once upon a time").max_tokens(8).set("temperature", 0);
//! for event in engine.submit(request)? {
//!     if let Event::Text { text, .. } = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! Four names make a program: a [`Model`] is loaded once, an [`Engine`] runs the model, a [`Request`] says what to generate, and [`Event`]s bring the
//! text. A [`Generation`] yields the events of one request, and a [`Completion`] is the whole text.
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | [`engine`] | requests and events: many generations at once on one model |
//! | [`conversation`] | conversations: turns, branches, undo, files |
//! | [`chat`] | chat formats and their settings |
//! | [`vocab`] | text to token ids and back |
//! | [`constrain`] | grammars and JSON schemas for the output |
//! | [`error`] | the error type, with a kind for each cause |
//! | [`low_level`] | sessions and samplers, checkpoints, words and kernels, executors, formats: documented, but names may change in any version |
//!
//! `docs/library.md` shows the types that programs use, on one page. Modules form layers. A module imports only from lower layers, which a test
//! checks.
//!
//! # Common calls
//!
//! | To | Call | Example |
//! |---|---|---|
//! | load a model | [`Model::open`], [`Options::open`] | above |
//! | generate a text, whole or as it comes | [`Engine::run`], [`Engine::submit`] | above |
//! | compute vectors of texts | [`Request::vectors`] | `examples/embedding.rs` |
//! | hold a conversation | [`Conversation::say`] | [`Conversation`] |
//! | choose how tokens are sampled | [`Request::sampling`], [`Sampling::set`] | [`Sampling`] |
//! | follow a grammar or a JSON schema | [`engine::Rules`] | [`constrain`] |
//! | load quantised weights | [`Options::quant`] | below |
//! | tokenize and detokenize | [`vocab::Vocab::encode`], [`vocab::Vocab::decode`] | [`vocab::Vocab`] |
//! | compute logits and log-probabilities | [`low_level::session::Session::prefill`], [`low_level::session::Session::score`] | below |
//! | save and restore a state | [`low_level::session::Session::save`], [`low_level::session::Session::load`] | below |
//! | control every step of a batch | [`low_level::session::Batcher`] | [`low_level::session::Batcher`] |
//!
//! Load weights quantised to 8 bits on the CPU:
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> wingbeat::error::Result<()> {
//! use wingbeat::{DeviceChoice, ModelSource, Options};
//!
//! let model = Options::new().device(DeviceChoice::Cpu).quant("i8".parse()?).open(ModelSource::Embedded)?;
//! assert!(model.bits_per_weight() < 16.0);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! Compute the logits after a prompt, and the log-probability of each token of a text:
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> wingbeat::error::Result<()> {
//! # use wingbeat::{DeviceChoice, ModelSource, Options};
//! # let model = Options::new().device(DeviceChoice::Cpu).open(ModelSource::Embedded)?;
//! use wingbeat::low_level::session::Session;
//!
//! let mut session = Session::new(&model, 1)?;
//! let tokens = session.encode(&"Once upon a time there was".into())?;
//! let slot = session.open()?;
//! let logits = session.prefill(slot, &tokens[..1])?; // [V]
//! let log_sum = |logits: &[f32]| logits.iter().map(|x| x.exp()).sum::<f32>().ln();
//! let mut sum = logits[tokens[1] as usize] - log_sum(logits);
//!
//! // `score` calls back with the logits after each token.
//! let mut each = |t: usize, logits: &[f32]| {
//!     if let Some(&next) = tokens.get(t + 2) {
//!         sum += logits[next as usize] - log_sum(logits);
//!     }
//!     Ok(())
//! };
//! session.score(slot, &tokens[1..], &mut each, &mut |_done, _total| ())?;
//! assert!(sum < 0.0);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! Save the state after a prompt, and continue from it in another session without prefilling the prompt again:
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> wingbeat::error::Result<()> {
//! # use wingbeat::{DeviceChoice, ModelSource, Options};
//! # let model = Options::new().device(DeviceChoice::Cpu).open(ModelSource::Embedded)?;
//! use wingbeat::low_level::session::Session;
//!
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let path = folder.path().join("prompt.state");
//! let mut session = Session::new(&model, 1)?;
//! let tokens = session.encode(&"Once upon a time".into())?;
//! let slot = session.open()?;
//! session.prefill(slot, &tokens)?;
//! session.save(slot, &path, None, None)?;
//!
//! let mut other = Session::new(&model, 1)?;
//! let (restored, _) = other.load(&path, false)?;
//! assert_eq!(other.n_tokens(restored)?, tokens.len());
//! assert_eq!(other.logits(restored)?, session.logits(slot)?);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! # Features
//!
//! * `embedded-model` (default) adds the model of the small world with its vocabulary, the vocabulary of the tests' tiny models, and the World
//!   vocabulary.
//! * `grammar` (default) adds grammars and JSON schemas.
//!
//! The program `wingbeat` is the crate `wingbeat-cli`, and its HTTP server the crate `wingbeat-server`.

#![deny(missing_docs)]

mod calls;
pub mod chat;
pub mod constrain;
pub mod conversation;
pub mod engine;
pub mod error;
pub mod files;
pub mod low_level;
#[cfg(test)]
mod seeds;
pub mod vocab;

// Programs name these modules as `low_level::…`.
#[doc(hidden)]
pub mod arch;
#[doc(hidden)]
pub mod assets;
#[doc(hidden)]
pub mod exec;
#[doc(hidden)]
pub mod quant;
#[doc(hidden)]
pub mod sample;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod tape;
#[doc(hidden)]
pub mod template;
#[doc(hidden)]
pub mod tensor;
#[doc(hidden)]
pub mod weights;
#[doc(hidden)]
pub mod words;

pub use arch::{Facts, Task};
pub use chat::{Format, Message, Role, Tool, ToolCall};
pub use conversation::Conversation;
pub use engine::{CacheOptions, Completion, Engine, EngineOptions, Event, Generation, Input, Request, StateOptions, ToolChoice, Usage};
pub use error::{Error, Result};
pub use exec::gpu::{Backend, Device as GpuDevice};
pub use exec::strategy::StrategyChoice;
pub use exec::{DeviceChoice, FloatChoice, QuantPlan};
pub use quant::{Activations, Float};
pub use sample::{Order, Sampling};
pub use session::{
    EmbedOptions, ExpertsOn, Finish, Logprobs, Model, ModelSource, Options, Output, PartOn, Pooling, Processor, Snapshot, Speculate,
    Speculation, StateOrientation, Timings,
};
pub use weights::Calibration;

/// Pages of the documentation, included so that the documentation tests compile their Rust code.
#[cfg(all(doctest, feature = "embedded-model", feature = "grammar"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/library.md")]
    mod library {}
}
