//! Compares random models of GLM-4's relatives with their logits in `transformers`. `tools/glm-models.py` made the models and the logits.

use crate::support::{devices, nmse, options, score};
use std::path::Path;
use wingbeat::low_level::session::{Model, ModelSource, Session};
use wingbeat::low_level::weights::{Checkpoint, read_safetensors};

/// The last two models have heads of 12 and 20 channels, which attention kernels pad to whole units of 8.
const MODELS: [&str; 5] = ["glm-32b", "glm-edge", "glm-41v", "glm-heads-12", "glm-heads-20"];

fn path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

#[test]
fn relatives_give_the_logits_of_transformers() {
    if !path("").is_dir() {
        eprintln!("SKIPPED: the folder tests/models is in the repository only");
        return;
    }
    for (name, device) in MODELS.into_iter().flat_map(|name| devices().iter().map(move |d| (name, *d))) {
        let golden = std::fs::read(path(&format!("{name}.golden.safetensors"))).unwrap();
        let (tensors, _) = read_safetensors(&golden).unwrap();
        let words = |tensor: &str| tensors[tensor].2.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect::<Vec<_>>();
        let tokens: Vec<u32> = words("tokens").into_iter().map(u32::from_le_bytes).collect();
        let expected: Vec<f32> = words("logits").into_iter().map(f32::from_le_bytes).collect();
        let mut options = options(device);
        options.dtype = "f32".parse().unwrap();
        let model = Model::load(&ModelSource::Path(path(name)), &options, &mut |_, _| ()).unwrap();
        let mut session = Session::new(&model, 1).unwrap();
        let slot = session.open().unwrap();
        let logits = score(&mut session, slot, &tokens);
        let error = nmse(&logits, &expected).sqrt();
        eprintln!("{name} on {device}: {error:.1e}");
        assert!(error <= 1e-6, "{name} on {device}: {error:.1e}");
    }
}

#[test]
fn the_vision_encoder_is_left_out() {
    if !path("").is_dir() {
        eprintln!("SKIPPED: the folder tests/models is in the repository only");
        return;
    }
    let text = Checkpoint::open(&path("glm-41v")).unwrap();
    assert!(text.names().count() > 20 && text.names().all(|name| !name.contains("visual")));
}
