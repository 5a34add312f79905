//! Plays a tape on a GPU through wgpu. No other folder names wgpu.

mod ahead;
mod compose;
mod device;
mod draws;
#[cfg(not(target_arch = "wasm32"))]
mod early;
mod executor;
mod kernel;
mod memory;
mod model;
mod op;
mod pending;
mod plan;
mod readback;
mod reflect;
mod size;
mod stored;
mod stream;
mod table;
mod upload;
mod weights;

pub use compose::{Recipe, compose};
#[cfg(not(target_arch = "wasm32"))]
pub use device::adapters;
pub use device::{Adapter, AdapterKind, Backend, Device, adapters_async, compiled_backends};
pub use draws::{DrawSizes, Draws};
pub use kernel::parse;
pub use model::GpuModel;
pub use reflect::{Access, Signature};
