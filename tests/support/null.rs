//! A model on the null device, which runs no kernels. Such a model measures only the work of the host.

use std::path::Path;
use std::sync::Arc;
use wingbeat::low_level::arch::{Base, Ranks, Rwkv7};
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::session::{Model, ModelSource, Options};
use wingbeat::low_level::tape::{Caps, Class};

/// Loads a model of 24 narrow layers on the null device. Its file is written to `folder`.
pub fn model(folder: &Path) -> Model {
    let path = folder.join("narrow.safetensors");
    let ranks = Ranks { w: 8, a: 8, v: 8, g: 8 };
    let blueprint = Rwkv7 { base: Base { n_layer: 24, ..Base::new(64, 256, 64, 512) }, ranks, deep_embed: None, attention: None };
    super::made::write(&blueprint, &path);
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    let caps = Caps::plain(Class::Groups, 128 << 20);
    let mut options = Options::default();
    options.gpu = Some(Arc::new(Device::adopt(device, queue, caps, false)));
    Model::load(&ModelSource::Path(path), &options, &mut |_, _| ()).unwrap()
}
