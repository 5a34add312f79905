//! Compares merges with numbers of PEFT 0.21, and tests the configuration beside an adapter.

use super::super::super::Layout;
use super::super::super::sets::{Made, as_pth, write_plain};
use super::super::super::testing::put;
use super::super::*;
use super::{merge, numbers};
use tempfile::{TempDir, tempdir};

fn made(name: &str, shape: &[usize], [a, b, m]: [usize; 3]) -> Made {
    let number = |i: usize| (((i * a + b) % m) as f32 - (m / 2) as f32) / 8.0;
    Made { name: name.into(), shape: shape.to_vec(), numbers: (0..shape.iter().product()).map(number).collect() }
}

/// Writes a model of an embedding and a matrix. Returns the model, and PEFT's names and numbers of an adapter for both.
fn model_and_adapter(dir: &TempDir) -> (Checkpoint, Vec<Made>) {
    let model = [made("emb.weight", &[5, 3], [7, 3, 11]), made("blocks.0.att.key.weight", &[4, 3], [5, 2, 13])];
    let model = Checkpoint::open(&put(dir, "model.pth", &as_pth(&model))).unwrap();
    let (key, emb) = ("base_model.model.blocks.0.att.key", "base_model.model.emb");
    let adapter = vec![
        made(&format!("{key}.lora_A.weight"), &[2, 3], [3, 1, 7]),
        made(&format!("{key}.lora_B.weight"), &[4, 2], [4, 1, 9]),
        made(&format!("{emb}.lora_embedding_A"), &[2, 5], [3, 2, 7]),
        made(&format!("{emb}.lora_embedding_B"), &[3, 2], [5, 4, 9]),
    ];
    (model, adapter)
}

/// Writes PEFT's folder of an adapter.
fn folder(tensors: &[Made], config: &str) -> TempDir {
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("adapter_model.safetensors"), tensors);
    put(&dir, "adapter_config.json", config.as_bytes());
    dir
}

#[track_caller]
fn close(found: &[f32], expected: &[f32]) {
    let is_close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-6);
    assert!(found.len() == expected.len() && is_close, "{found:?} {expected:?}");
}

#[test]
fn merges_are_those_of_peft() {
    let dir = tempdir().unwrap();
    let (model, plain) = model_and_adapter(&dir);
    let mut dora = plain.clone();
    for (module, magnitudes) in [("blocks.0.att.key", &[0.5f32, 1.0, 1.5, 2.0][..]), ("emb", &[0.75, 1.25, 2.0])] {
        let name = format!("base_model.model.{module}.lora_magnitude_vector");
        dora.push(Made { name, shape: vec![magnitudes.len()], numbers: magnitudes.to_vec() });
    }
    // A byte order mark before the configuration is ignored.
    for (adapter, config, key, emb) in [
        (
            &plain,
            "\u{feff}{\"r\":2,\"lora_alpha\":3}",
            [-0.359375, 0.125, 0.9375, -0.0625, 0.28125, -0.34375, -0.1875, 0.648438, -0.632812, 0.109375, -0.820312, -0.289062],
            [
                -0.25, 0.601562, 0.078125, -0.65625, 0.335938, -0.046875, -0.40625, 0.398438, -0.171875, -0.8125, 0.132812, -0.296875,
                0.8125, 0.195312, -0.421875,
            ],
        ),
        (
            &plain,
            r#"{"peft_type":"LORA","r":2,"lora_alpha":3,"use_rslora":true}"#,
            [-0.301126, 0.125, 1.015165, 0.015165, 0.242417, -0.227252, -0.265165, 0.658146, -0.739602, 0.051126, -0.849437, -0.357019],
            [
                -0.25, 0.591854, 0.058709, -0.772748, 0.267981, -0.066291, -0.367417, 0.408146, -0.191291, -0.890165, 0.084272, -0.316291,
                0.890165, 0.224437, -0.441291,
            ],
        ),
        (
            &dora,
            r#"{"r":2,"lora_alpha":3,"use_dora":true}"#,
            [-0.177597, 0.061773, 0.463296, -0.139347, 0.62706, -0.766406, -0.303973, 1.051241, -1.02591, 0.249543, -1.871572, -0.659506],
            [
                -0.1333, 0.905724, 0.28341, -0.349914, 0.505794, -0.170046, -0.216613, 0.599895, -0.623502, -0.433226, 0.199965, -1.076958,
                0.433226, 0.294066, -1.530415,
            ],
        ),
        (
            &dora,
            r#"{"r":2,"lora_alpha":3,"use_dora":true,"use_rslora":true}"#,
            [-0.14121, 0.058617, 0.47605, 0.045592, 0.7288, -0.683208, -0.388073, 0.963207, -1.082419, 0.110803, -1.840934, -0.773747],
            [
                -0.121553, 0.920353, 0.201603, -0.375719, 0.416718, -0.227641, -0.178643, 0.63468, -0.656886, -0.432809, 0.131045,
                -1.08613, 0.432809, 0.349007, -1.515374,
            ],
        ),
    ] {
        let folder = folder(adapter, config);
        let lora = Lora::open(folder.path(), None, &model).unwrap();
        let merged = merge(&model, &lora, &dir, None, Layout::Official).unwrap();
        close(&numbers(&merged, "blocks.0.att.key.weight"), &key);
        close(&numbers(&merged, "emb.weight"), &emb);
        let applied = |name: &str| lora.applied(name, &model.tensor(name).unwrap()).unwrap().unwrap();
        close(bytemuck::cast_slice(&applied("emb.weight")), &emb);
    }
}

#[test]
fn the_configuration_sets_the_scale_of_each_pair() {
    let dir = tempdir().unwrap();
    let (model, adapter) = model_and_adapter(&dir);
    let merged = |config: &str| {
        let folder = folder(&adapter, config);
        let lora = Lora::open(folder.path(), None, &model).unwrap();
        let merged = merge(&model, &lora, &dir, None, Layout::Official).unwrap();
        (numbers(&merged, "blocks.0.att.key.weight"), numbers(&merged, "emb.weight"), lora.identity().unwrap())
    };
    let (one, two) = (merged(r#"{"r":2,"lora_alpha":1}"#), merged(r#"{"r":2,"lora_alpha":2}"#));
    let mixed = merged(r#"{"r":9,"rank_pattern":{"att.key":2,"emb":2},"lora_alpha":2,"alpha_pattern":{"blocks\\..*\\.key":1}}"#);
    assert_eq!((&mixed.0, &mixed.1), (&one.0, &two.1));
    assert!(one.0 != two.0 && one.1 != two.1 && one.2 != two.2 && mixed.2 != two.2);

    let open = |tensors: &[Made], config: &str, alpha| {
        let folder = folder(tensors, config);
        Lora::open(&folder.path().join("adapter_model.safetensors"), alpha, &model).map(|_| ()).map_err(|e| e.to_string())
    };
    let plain = r#"{"r":2,"lora_alpha":8}"#;
    assert_eq!(open(&adapter, plain, Some(8.0)), Ok(()));
    let text = open(&adapter, plain, Some(16.0)).unwrap_err();
    assert!(text.contains("lora_alpha to 8") && text.contains("adapter_config.json") && text.contains("found 16"), "{text}");
    assert_eq!(open(&adapter, r#"{"r":2}"#, Some(8.0)), Ok(()));
    assert!(open(&adapter, r#"{"r":2}"#, None).unwrap_err().contains("adapter_config.json has no lora_alpha"));
    assert!(open(&adapter, r#"{"peft_type":"IA3"}"#, Some(8.0)).unwrap_err().contains("found peft_type IA3"));
    assert!(open(&adapter, r#"{"lora_alpha":8,"use_dora":true}"#, None).unwrap_err().contains("has no lora_magnitude_vector"));
    let magnitude = made("base_model.model.emb.lora_magnitude_vector", &[4], [1, 1, 9]);
    let with_magnitude = [&adapter[..], &[magnitude]].concat();
    assert!(open(&with_magnitude, plain, None).unwrap_err().contains("use_dora is not true"));
    let diagonal = [&adapter[..], &[made("base_model.model.emb.lora_E", &[2, 1], [1, 1, 9])]].concat();
    assert!(open(&diagonal, plain, None).unwrap_err().contains("lora_E: this tensor belongs to an unsupported variant of LoRA"));

    let alone = tempdir().unwrap();
    write_plain(&alone.path().join("a.safetensors"), &adapter);
    let text = Lora::open(&alone.path().join("a.safetensors"), None, &model).unwrap_err().to_string();
    assert!(text.contains("lora_alpha") && text.contains("has no adapter_config.json"), "{text}");
}

#[test]
fn names_of_any_style_find_their_matrix() {
    let dir = tempdir().unwrap();
    let v7 = super::super::super::sets::official("v7");
    let model = Checkpoint::open(&put(&dir, "v7.pth", &as_pth(&v7))).unwrap();
    // Alone, these names show no style.
    for (module, target, shape) in [
        ("model.layers.0.ffn.key", "blocks.0.ffn.key.weight", [12, 8]),
        ("model.layers.1.mlp.down_proj", "blocks.1.ffn.value.weight", [8, 12]),
        ("model.layers.1.feed_forward.value", "blocks.1.ffn.value.weight", [8, 12]),
        ("lm_head", "head.weight", [11, 8]),
    ] {
        let a = made(&format!("base_model.model.{module}.lora_A.weight"), &[2, shape[1]], [3, 1, 7]);
        let b = made(&format!("base_model.model.{module}.lora_B.weight"), &[shape[0], 2], [4, 1, 9]);
        let folder = folder(&[a, b], r#"{"r":2,"lora_alpha":8}"#);
        let lora = Lora::open_for(folder.path(), None, &model).unwrap();
        assert!(lora.changes(target) && lora.n_pairs() == 1, "{module}");
    }
}
