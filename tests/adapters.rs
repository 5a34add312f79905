//! Compares LoRA adapters of GLM with PEFT, with the tensor names of every layout.

use crate::support::{devices, floats, logits_of, options, root};
use std::path::{Path, PathBuf};
use wingbeat::low_level::session::{Model, ModelSource, Options};
use wingbeat::low_level::weights::{read_safetensors, write_safetensors};

/// The sum of the negative log-probabilities of the golden tokens with the adapter in `glm-edge-lora`. Computed by torch with PEFT 0.21 in float32 on
/// the CPU. Without the adapter, the sum is 103.8396.
const NLL: f64 = 110.062156;

fn models() -> Option<PathBuf> {
    let models = root().join("tests/models");
    models.is_dir().then_some(models)
}

fn tokens_of(golden: &Path) -> Vec<u32> {
    let bytes = std::fs::read(golden).unwrap();
    let (tensors, _) = read_safetensors(&bytes).unwrap();
    tensors["tokens"].2.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Returns options that do not round merged matrices to f16.
fn exact(device: &str) -> Options {
    let mut options = options(device);
    options.dtype = "f32".parse().unwrap();
    options
}

fn with_lora(device: &str, lora: &Path, alpha: Option<f32>) -> Options {
    Options { lora: Some((lora.into(), alpha)), ..exact(device) }
}

fn nll(options: &Options, tokens: &[u32]) -> f64 {
    let model = Model::load(&ModelSource::Path(models().unwrap().join("glm-edge")), options, &mut |_, _| ()).unwrap();
    let logits = logits_of(&model, tokens);
    let rows = logits.chunks(logits.len() / tokens.len()).zip(&tokens[1..]);
    rows.map(|(row, &next)| row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln() - f64::from(row[next as usize])).sum()
}

#[test]
fn an_adapter_of_peft_gives_the_numbers_of_peft() {
    let Some(models) = models() else { return eprintln!("SKIPPED: the folder tests/models is in the repository only") };
    let tokens = tokens_of(&models.join("glm-edge.golden.safetensors"));
    let lora = models.join("glm-edge-lora");
    for device in devices() {
        assert!((nll(&exact(device), &tokens) - 103.839630).abs() < 1e-3);
        let found = nll(&with_lora(device, &lora, None), &tokens);
        assert!((found - NLL).abs() < 1e-3, "{device}: {found}");
    }
    // The configuration's alpha may be repeated, but not contradicted.
    assert!((nll(&with_lora("cpu", &lora, Some(8.0)), &tokens) - NLL).abs() < 1e-3);
    let open = |alpha| with_lora("cpu", &lora, Some(alpha)).open(models.join("glm-edge")).err().unwrap().to_string();
    assert!(open(9.0).contains("the adapter's configuration sets lora_alpha to 8"), "{}", open(9.0));
}

#[test]
fn the_joint_matrix_of_chatglm_is_split() {
    let Some(models) = models() else { return eprintln!("SKIPPED: the folder tests/models is in the repository only") };
    let tokens = tokens_of(&models.join("glm-edge.golden.safetensors"));
    let folder = tempfile::tempdir().unwrap();
    let numbers = |n: usize, seed: usize| (0..n).map(|i| ((i * 7 + seed) % 13) as f32 / 32.0 - 0.2).collect::<Vec<f32>>();
    // 4 query heads and 2 key heads of 16, a width of 32
    let (a, b) = (numbers(2 * 32, 1), numbers(128 * 2, 5));
    let write = |name: &str, pairs: Vec<(String, &[f32])>| {
        let path = folder.path().join(name);
        let tensors = pairs.into_iter().flat_map(|(module, rows)| {
            let (left, right) = (format!("{module}.lora_A.weight"), format!("{module}.lora_B.weight"));
            [floats(left, vec![2, 32], &a), floats(right, vec![rows.len() / 2, 2], rows)]
        });
        write_safetensors(&path, &Default::default(), tensors.collect(), &mut |_, _| ()).unwrap();
        path
    };
    let joint = "base_model.model.transformer.encoder.layers.1.self_attention.query_key_value";
    let joint = write("joint.safetensors", vec![(joint.into(), &b)]);
    let part = |part: &str| format!("base_model.model.model.layers.1.self_attn.{part}_proj");
    let parts = vec![(part("q"), &b[..128]), (part("k"), &b[128..192]), (part("v"), &b[192..])];
    let parts = write("parts.safetensors", parts);
    let of = |path: &Path| nll(&with_lora("cpu", path, Some(4.0)), &tokens);
    assert_eq!(of(&joint), of(&parts));
    assert!((of(&joint) - 103.839630).abs() > 0.1);

    let shape = [("transformer.encoder.layers.1.self_attention.query_key_value".to_string(), &b[..64])];
    let wrong = write("wrong.safetensors", shape.to_vec());
    let e = with_lora("cpu", &wrong, Some(4.0)).open(models.join("glm-edge")).err().unwrap();
    assert!(e.to_string().contains("expected 128 rows, 4 + 2 x 2 heads of 16, found shape [32, 32]"), "{e}");
    assert_eq!(e.hint.as_deref(), Some("use the model on which the adapter was trained"));
}
