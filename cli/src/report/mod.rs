//! Parts of the JSON that several verbs print, as Rust types. The JSON of a single verb is defined beside that verb. Other programs rely on
//! all these types: a new field may be added at any time, but a renamed or removed field needs an entry in CHANGELOG.md.

mod build;
mod calls;
mod device;
mod error;
mod model;
mod speed;

pub use build::BuildReport;
pub use calls::ToolCallReport;
pub use device::{DeviceReport, device_of, devices};
pub use error::{ErrorBody, ErrorReport};
pub use model::{ModelReport, TimingsReport};
pub use speed::{DecodeCost, DeviceRates, MEASURED, SpeedReport, two_digits, well_known};
