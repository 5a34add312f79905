//! Parts of the JSON that several verbs print, as Rust types. The JSON of one verb is beside the verb. Other programs rely on the shape of both: a new
//! field may be added at any time, and a field that is renamed or removed needs an entry in CHANGELOG.md.

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
