//! The JSON that wingbeat prints, as Rust types. Other programs rely on its shape.
//!
//! The types are plain data for serde. Their values come from a model, a checkpoint or a list of devices. This module prints nothing. A new
//! field may be added at any time. A field that is renamed or removed needs an entry in CHANGELOG.md.

mod batch;
mod bench;
mod build;
mod calls;
mod chat;
mod classify;
mod device;
mod embed;
mod error;
mod generate;
mod inspect;
mod memory;
mod predict;
mod published;
mod quality;
mod score;
mod speed;

pub use batch::{BatchChoice, BatchFailure, BatchLine, BatchReport, TokenCounts, TokenLogprobs};
pub use bench::{BenchExtra, BenchRecord, Samples};
pub use build::BuildReport;
pub use calls::{FunctionReport, ToolCallReport};
pub use chat::ChatReport;
pub use classify::{ClassReport, ClassifyReport};
pub use device::{DeviceLimits, DeviceReport, Features, device_of, devices};
pub use embed::{EmbedReport, RerankReport, RerankReports, RerankedQuery, RerankedReport, VectorReport};
pub use error::{ErrorBody, ErrorReport};
pub use generate::{ChoiceReport, GenerateReport, ModelReport, TimingsReport, TokenLine};
pub use inspect::{DeviceMemory, Hyper, InspectReport, TensorReport, inspect};
pub use memory::MemoryReport;
pub use predict::{PredictReport, PredictedStep};
pub use published::{PublishedReport, published};
pub use quality::{QualityReport, VariantReport, WeightsReport};
pub use score::ScoreReport;
pub use speed::{DecodeCost, DeviceRates, MEASURED, SpeedReport, two_digits, well_known};
pub use wingbeat::low_level::exec::predict::PredictedWord;
