//! Opens a checkpoint of any kind, determines the architecture, decodes small tensors.
//!
//! An input that begins as a JSON object is the index of two fixed shards if it names a `weight_map`, otherwise the `config.json`
//! of a fixed GLM. Any other input is the checkpoint itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::Options;
use wingbeat::low_level::weights::Checkpoint;
use wingbeat_fuzz::{count, with_file, zeros};

const KEY: &[u8] = b"weight_map";

/// The folder with the shards `a.st` and `b.st`, and the folder with a GLM of one layer. Both are removed when the process ends normally.
struct Folders {
    shards: tempfile::TempDir,
    glm: tempfile::TempDir,
}

fn folders() -> &'static Folders {
    static FOLDERS: OnceLock<Folders> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let folder = || tempfile::tempdir().expect("a temporary folder");
        let (shards, glm) = (folder(), folder());
        let all = [
            zeros(&shards.path().join("a.st"), &[("emb.weight", &[2, 4])]),
            zeros(&shards.path().join("b.st"), &[("blocks.0.ffn.key.weight", &[4, 4]), ("head.weight", &[2, 4])]),
            zeros(
                &glm.path().join("model.safetensors"),
                &[
                    ("transformer.embedding.word_embeddings.weight", &[3, 4]),
                    ("transformer.encoder.layers.0.self_attention.query_key_value.weight", &[12, 4]),
                    ("transformer.encoder.layers.0.self_attention.query_key_value.bias", &[12]),
                    ("transformer.encoder.layers.0.mlp.dense_h_to_4h.weight", &[8, 4]),
                ],
            ),
        ];
        all.into_iter().collect::<Result<()>>().expect("small files");
        Folders { shards, glm }
    })
}

fn read(path: &Path) -> Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    for name in checkpoint.names() {
        let view = checkpoint.tensor(name).expect("the name was listed");
        if view.len() < 1 << 16 {
            let _ = view.to_f32();
        }
    }
    // most inputs hold only a part of a model, so an error is expected
    let _ = wingbeat_cli::report::inspect(&checkpoint, true, &Options::default());
    Ok(())
}

/// Opens a folder in which one file is the input.
fn read_with(json: &[u8], folder: &tempfile::TempDir, name: &str) -> Result<()> {
    let path = folder.path().join(name);
    std::fs::write(&path, json).map_err(|e| Error::io(e, &path))?;
    read(folder.path())
}

fuzz_target!(|bytes: &[u8]| {
    count(match bytes.first() {
        Some(b'{') if bytes.windows(KEY.len()).any(|text| text == KEY) => {
            read_with(bytes, &folders().shards, "model.safetensors.index.json")
        }
        Some(b'{') => read_with(bytes, &folders().glm, "config.json"),
        _ => with_file(bytes, read),
    })
});
