//! Writes synthetic models: files of pseudo-random numbers.

use std::path::Path;
use wingbeat::low_level::arch::Blueprint;
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, write_safetensors};
use wingbeat::low_level::words::synthetic::Synthetic;

/// Writes a model with the tensors and the metadata that `blueprint` declares.
pub fn write(blueprint: &dyn Blueprint, path: &Path) {
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let made = Synthetic { seed: 1 };
    let entry = |(name, shape, _): (&str, Vec<usize>, bool)| {
        let bytes = made.bytes(name, &shape);
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
        NewTensor { name: name.to_string(), dtype: DType::F16, shape, data: Box::new(data) }
    };
    write_safetensors(path, &blueprint.metadata(), tape.tensors().into_iter().map(entry).collect(), &mut |_, _| ()).unwrap();
}
