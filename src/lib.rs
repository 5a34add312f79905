//! RWKV and GLM-4 inference on any GPU, through WebGPU: every step of a layer is a WGSL compute shader, scheduled from Rust.
//!
//! A model is a short list of *words* recorded on a *tape*; an *executor* plays the tape on a GPU or on the CPU. Each word has
//! its kernels and a twin on the host, so every model has a reference and every kernel a judge.
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> wingbeat::error::Result<()> {
//! use std::ops::ControlFlow;
//! use wingbeat::sample::Sampling;
//! use wingbeat::session::{Model, ModelSource, Options, Request, Session};
//!
//! // The tiny model that is part of the crate; `ModelSource::Path` opens a checkpoint.
//! let model = Model::load(&ModelSource::Embedded, &Options::default(), &mut |_done, _total| ())?;
//! let mut session = Session::new(&model, 1)?;
//! let made = session.generate("In the beginning", &Sampling::greedy(0), &Request::new(8), &mut |piece| {
//!     print!("{piece}");
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(made.tokens.len(), 8);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! # Where things are
//!
//! | Module | What |
//! |---|---|
//! | [`session`] | models on devices, slots, prompts in chunks, decoding, forks, state files: begin here |
//! | [`engine`] | requests in, events out: many generations at once over one model |
//! | [`chat`] | conversations with a model: formats, settings, turns, branches |
//! | [`template`] | messages and tools, and the templates that make a prompt of them |
//! | [`sample`], [`vocab`] | from logits to ids, from ids to text |
//! | [`constrain`] | which ids may come next: grammars and JSON schemas |
//! | [`weights`] | checkpoints as named tensors, and writing them |
//! | [`arch`] | architectures: from names and shapes to a tape |
//! | [`words`], [`tape`] | fused steps with kernels and twins; the program they are recorded on |
//! | [`exec`] | executors: `gpu` on wgpu, `cpu` on the twins |
//! | [`quant`], [`tensor`] | weight formats; plain tensors over bytes |
//! | [`error`] | one error type, grouped by who can act |
//!
//! A module imports only from those below it; a test holds that. Only `exec::gpu` names wgpu.
//!
//! # Features
//!
//! `cli` (default) is the program and implies `embedded-model`, the tiny trained model with its vocabulary and the World
//! vocabulary. Without both, the crate pulls in no argument parser, no logger and no assets but a few kilobytes of prompts for `chat`.

pub mod arch;
pub mod chat;
#[cfg(feature = "cli")]
pub mod cli;
pub mod constrain;
pub mod engine;
pub mod error;
pub mod exec;
pub mod quant;
#[cfg(not(target_arch = "wasm32"))]
pub mod report;
pub mod sample;
#[cfg(all(test, feature = "cli"))]
mod seeds;
pub mod session;
pub mod tape;
pub mod template;
pub mod tensor;
pub mod vocab;
pub mod weights;
pub mod words;
