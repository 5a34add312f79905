//! Plays a tape on a GPU through wgpu. Only this folder uses wgpu, so that the rest of the library does not depend on it. `tests/layers.rs` checks
//! this.

mod adapter;
mod ahead;
mod compose;
mod device;
mod draws;
mod early;
mod executor;
mod indent;
mod kernel;
mod memory;
mod model;
mod op;
mod plan;
mod readback;
mod reflect;
mod show;
mod stored;
mod stream;
mod upload;
mod weights;

pub use adapter::{Adapter, AdapterKind, Backend, adapters, adapters_async, compiled_backends};
pub use compose::{Recipe, SlotUse, compose, slots};
pub use device::Device;
pub use draws::{DrawSizes, Draws};
pub use indent::indented;
pub use kernel::parse;
pub use model::GpuModel;
pub use reflect::{Access, Signature};
pub use show::{KernelFile, Variant, find_kernels, kernel_files, variants};
