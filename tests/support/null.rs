//! A model whose kernels do nothing: what is left is the host's work.

use std::path::Path;
use std::sync::Arc;
use wingbeat::arch::{Base, Blueprint, Ranks, Rwkv7};
use wingbeat::exec::gpu::Device;
use wingbeat::session::{Model, ModelSource, Options};
use wingbeat::tape::{Caps, Class, Tape};
use wingbeat::tensor::DType;
use wingbeat::weights::{Entry, write_safetensors};
use wingbeat::words::synthetic::Synthetic;

/// A model of 24 narrow layers on the null device.
pub fn model(folder: &Path) -> Model {
    let path = folder.join("narrow.safetensors");
    let ranks = Ranks { w: 8, a: 8, v: 8, g: 8 };
    let blueprint = Rwkv7 { base: Base { n_layer: 24, ..Base::new(64, 256, 64, 512) }, ranks };
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let made = Synthetic { seed: 1 };
    let entry = |(name, shape, _): (&str, Vec<usize>, bool)| {
        let bytes = made.bytes(name, &shape);
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
        Entry { name: name.to_string(), dtype: DType::F16, shape, data: Box::new(data) }
    };
    write_safetensors(&path, &Default::default(), tape.tensors().into_iter().map(entry).collect(), &mut |_, _| ()).unwrap();
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    let caps = Caps::plain(Class::Groups, 128 << 20);
    let mut options = Options::default();
    options.gpu = Some(Arc::new(Device::adopt(device, queue, caps, false)));
    Model::load(&ModelSource::Path(path), &options, &mut |_, _| ()).unwrap()
}
