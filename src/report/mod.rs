//! The JSON shapes that programs rely on: what the program prints, and what a server answers.
//!
//! Plain data for serde, filled from a model, a checkpoint or a device list; knows no flags and prints nothing. A field is
//! added freely; none is renamed or removed without a line in CHANGELOG.md.

mod batch;
mod bench;
mod build;
mod chat;
mod classify;
mod device;
mod error;
mod generate;
mod inspect;
mod quality;
mod score;

pub use batch::{BatchCall, BatchChoice, BatchFailure, BatchLine, BatchReport, TokenLogprobs, Usage};
pub use bench::{BenchExtra, BenchRecord, Samples};
pub use build::BuildReport;
pub use chat::ChatReport;
pub use classify::{ClassReport, ClassifyReport};
pub use device::{DeviceLimits, DeviceReport, Features, device_of, devices};
pub use error::{ErrorBody, ErrorReport};
pub use generate::{ChoiceReport, GenerateReport, ModelReport, TimingsReport, TokenLine};
pub use inspect::{DeviceMemory, Hyper, InspectReport, MemoryReport, TensorReport, inspect};
pub use quality::{QualityReport, VariantReport, WeightsReport};
pub use score::ScoreReport;
