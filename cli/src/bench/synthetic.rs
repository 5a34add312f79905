//! Writes a synthetic model (seeded random weights) as a checkpoint, so that another engine can be measured with the same model.

use crate::progress::{Progress, Unit};
use std::io::Write;
use std::path::Path;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::arch;
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, write_safetensors};
use wingbeat::low_level::words::synthetic::{MODEL_SEED, Synthetic};

/// Writes the synthetic model `name` in f16, with the official tensor names and shapes.
///
/// # Errors
/// `Usage` if no synthetic model has this name, `File` if the file cannot be written.
pub fn write(name: &str, path: &Path) -> Result<()> {
    let blueprint = arch::synthetic::named(name)?;
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let mut entries = Vec::new();
    for (tensor, shape, _) in tape.tensors() {
        let official = official_shape(tensor, &shape);
        let data = move |out: &mut dyn Write| {
            let bytes = Synthetic { seed: MODEL_SEED }.bytes(tensor, &shape);
            out.write_all(&bytes).map_err(|e| Error::io(e, path))
        };
        entries.push(NewTensor { name: tensor.into(), dtype: DType::F16, shape: official, data: Box::new(data) });
    }
    let mut metadata = blueprint.metadata();
    metadata.insert("format".into(), "pt".into());
    let mut bar = Progress::new("writing", Unit::Bytes);
    write_safetensors(path, &metadata, entries, &mut |done, total| bar.show(done, total))
}

/// Returns the shape of a tensor in official files. These files store the token-shift vectors and a few other vectors as `[1, 1, C]`, where C
/// is the length of the vector.
fn official_shape(tensor: &str, shape: &[usize]) -> Vec<usize> {
    let last = tensor.rsplit('.').next().unwrap_or(tensor);
    let is_mix = ["x_", "time_mix_", "time_maa_"].iter().any(|p| last.starts_with(p));
    match shape {
        [width] if is_mix || ["w0", "a0", "v0", "k_k", "k_a"].contains(&last) => vec![1, 1, *width],
        _ => shape.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wingbeat::low_level::session::{Model, ModelSource, Options};

    #[test]
    #[ignore = "writes 380 MB"]
    fn the_file_holds_what_the_name_means() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.safetensors");
        write("rwkv7-0.1b", &path).unwrap();
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let hash = |source| Model::load(&source, &options, &mut |_, _| ()).unwrap().weights_hash().to_string();
        assert_eq!(hash(ModelSource::Path(path)), hash(ModelSource::Synthetic("rwkv7-0.1b".into())));
    }
}
