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
//! use wingbeat::session::{Limits, Model, ModelSource, Options, Session};
//!
//! // The tiny model that is part of the crate; `ModelSource::Path` opens a checkpoint.
//! let model = Model::load(&ModelSource::Embedded, &Options::default(), &mut |_done, _total| ())?;
//! let mut session = Session::new(&model, 1)?;
//! let made = session.generate("In the beginning", &Sampling::greedy(0), &Limits::new(8), &mut |piece| {
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
//! | [`sample`], [`vocab`] | from logits to ids, from ids to text |
//! | [`constrain`] | which ids may come next: grammars and JSON schemas |
//! | [`error`] | one error type, grouped by who can act |
//! | [`low_level`] | checkpoints, architectures, words and their kernels, executors, formats: documented, not promised |
//!
//! `docs/library.md` has the types that programs use, on one page. A module imports only from those below it; a test holds that.
//!
//! # Features
//!
//! `cli` (default) is the program and implies `embedded-model`, the tiny trained model with its vocabulary and the World
//! vocabulary. Without both, the crate pulls in no argument parser, no logger and no assets but a few kilobytes of prompts for `chat`.

pub mod chat;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod constrain;
pub mod engine;
pub mod error;
pub mod low_level;
pub mod sample;
#[cfg(all(test, feature = "cli"))]
mod seeds;
pub mod session;
pub mod vocab;

#[cfg(feature = "cli")]
use low_level::report;
use low_level::{arch, exec, quant, tape, template, tensor, weights, words};

/// The Rust blocks of the pages, which `cargo test --doc` compiles.
#[cfg(all(doctest, feature = "cli"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/chat.md")]
    mod chat {}
    #[doc = include_str!("../docs/devices.md")]
    mod devices {}
    #[doc = include_str!("../docs/grammars.md")]
    mod grammars {}
    #[doc = include_str!("../docs/library.md")]
    mod library {}
}
