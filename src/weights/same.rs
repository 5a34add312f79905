//! Tests that a model has the same names, shapes and elements in every file format. Also tests folders that contradict themselves.

use super::sets::{
    C, Made, N_LAYER, V, VERSIONS, Words, as_pth, decoder, fla, hugging_face, official, prefixed, write_plain, write_sharded,
};
use super::testing::put;
use super::*;
use crate::tensor::DType;
use serde_json::json;
use tempfile::{TempDir, tempdir};

/// Checks that a checkpoint has exactly the expected names, shapes and elements. `what` names the case in a failure.
pub(super) fn check(opened: &Checkpoint, expected: &[Made], what: &str) {
    let mut names: Vec<&str> = expected.iter().map(|t| t.name.as_str()).collect();
    names.sort();
    let mut found: Vec<&str> = opened.names().collect();
    found.sort();
    assert_eq!(found, names, "{what}");
    for t in expected {
        let view = opened.tensor(&t.name).unwrap();
        assert_eq!((view.shape(), view.to_f32().unwrap()), (&t.shape[..], t.numbers.clone()), "{what}: {}", t.name);
    }
}

fn config(dir: &TempDir, more: serde_json::Value) {
    let mut config = json!({"model_type": "rwkv7", "hidden_size": C, "vocab_size": V, "num_hidden_layers": N_LAYER, "head_dim": 4});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    put(dir, "config.json", config.to_string().as_bytes());
}

#[test]
fn every_form_holds_the_same() {
    for version in VERSIONS {
        let expected = official(version);
        let dir = tempdir().unwrap();
        let pth = Checkpoint::open(&put(&dir, "a.pth", &as_pth(&expected))).unwrap();
        assert_eq!((pth.kind(), pth.layout(), pth.n_files()), ("pth", "official", 1));
        check(&pth, &expected, version);
        for (file, layout) in [("b.st", Layout::WebRwkv), ("c.safetensors", Layout::Official)] {
            let path = dir.path().join(file);
            convert(&pth, &path, &Conversion { layout, ..Conversion::default() }, &mut |_, _| ()).unwrap();
            let opened = Checkpoint::open(&path).unwrap();
            let layout = if version == "v4" { Layout::Official } else { layout }; // v4 has nothing to rename or swap
            let layout = if version == "v5.2" && file == "b.st" { Layout::WebRwkv } else { layout };
            assert_eq!((opened.kind(), opened.layout()), ("safetensors", layout.name()), "{version}");
            check(&opened, &expected, file);
        }
        for (words, bin) in [(Words::Maa, false), (Words::Mix, true)] {
            let dir = tempdir().unwrap();
            write_sharded(dir.path(), &hugging_face(version, words), bin);
            config(&dir, json!({}));
            let opened = Checkpoint::open(dir.path()).unwrap();
            let kind = if bin { "pth" } else { "safetensors" };
            assert_eq!((opened.kind(), opened.layout(), opened.n_files()), (kind, "hf", 2), "{version}");
            assert_eq!(opened.name(), dir.path().canonicalize().unwrap().file_name().unwrap().to_str().unwrap());
            check(&opened, &expected, &format!("{version} {words:?}"));
            opened.check_uncut().unwrap();
            for t in &expected {
                let view = opened.tensor(&t.name).unwrap();
                let (owner, bytes) = (opened.file_of(&t.name).unwrap(), view.dense_bytes().unwrap());
                let file = (*owner).as_ref().as_ptr_range();
                assert!(file.start <= bytes.as_ptr() && bytes.as_ptr_range().end <= file.end, "{}", t.name);
            }
            // The path of a shard and the path of the index both open the whole model. Every model converts to the same official file.
            let shard = opened.files().next().unwrap().to_path_buf();
            check(&Checkpoint::open(&shard).unwrap(), &expected, "shard");
            check(&Checkpoint::open(opened.path().unwrap()).unwrap(), &expected, "index");
            let one = dir.path().join("one");
            convert(&opened, &one, &Conversion::default(), &mut |_, _| ()).unwrap();
            let one = Checkpoint::open(&one).unwrap();
            assert_eq!(one.layout(), "official");
            check(&one, &expected, "converted");
            for path in opened.files() {
                let e = convert(&opened, path, &Conversion::default(), &mut |_, _| ()).unwrap_err();
                assert!(e.to_string().contains("is also an input file"), "{e}");
            }
        }
    }
    for (version, architecture) in [("v6", "rwkv6"), ("v7", "rwkv7")] {
        let expected = official(version);
        let bytes: Vec<Vec<u8>> = expected.iter().map(|t| testing::singles(&t.numbers)).collect();
        // The written file also has a value residual in layer 0, which no model reads.
        let tensors: Vec<_> =
            expected.iter().zip(&bytes).map(|(t, b)| (t.name.as_str(), DType::F32, t.shape.as_slice(), b.as_slice())).collect();
        let file = testing::gguf(architecture, &[("wkv.head_size", 4)], &tensors);
        let opened = Checkpoint::open(&put(&tempdir().unwrap(), "d.gguf", &file)).unwrap();
        assert_eq!((opened.kind(), opened.layout()), ("gguf", "gguf"));
        check(&opened, &expected, architecture);
    }
    for stacked in [false, true] {
        let dir = tempdir().unwrap();
        write_plain(&dir.path().join("model.safetensors"), &fla(stacked));
        config(&dir, json!({"model_type": "rwkv7_fla", "norm_eps": 2e-5, "tie_word_embeddings": false}));
        let opened = Checkpoint::open(dir.path()).unwrap();
        assert_eq!((opened.layout(), opened.n_files()), ("fla", 1));
        check(&opened, &official("v7"), "fla");
        assert_eq!((opened.metadata()[GROUP_NORM_EPS].as_str(), opened.metadata()[LAYER_NORM_EPS].as_str()), ("0.00008", "0.00002"));
        for layout in [Layout::Official, Layout::WebRwkv] {
            let one = dir.path().join("one");
            convert(&opened, &one, &Conversion { layout, ..Conversion::default() }, &mut |_, _| ()).unwrap();
            let one = Checkpoint::open(&one).unwrap();
            check(&one, &official("v7"), "converted");
            assert_eq!(one.metadata()[GROUP_NORM_EPS], "0.00008", "no config.json is beside it");
        }
    }
}

#[test]
fn folders_of_2026_hold_the_same() {
    let config_of_2026 = json!({"model_type": "rwkv", "architectures": ["RwkvForCausalLM"], "architecture_version": "rwkv7", "head_dim": null,
        "head_size": 4, "num_attention_heads": 2, "intermediate_size": 12, "context_length": 8192, "layer_norm_epsilon": 1e-5,
        "decay_low_rank_dim": 3, "a_low_rank_dim": 8, "v_low_rank_dim": 2, "gate_low_rank_dim": 3, "wkv_state_dtype": "float32"});
    let forms = [
        ("decoder", decoder(false)),
        ("decoder", decoder(true)),
        ("official", prefixed("model.", "lm_head.weight")),
        ("official", prefixed("model.", "head.weight")),
        ("official", prefixed("_orig_mod.", "_orig_mod.head.weight")),
        ("official", prefixed("rwkv7.", "rwkv7.head.weight")),
    ];
    for (layout, tensors) in forms {
        let dir = tempdir().unwrap();
        write_sharded(dir.path(), &tensors, false);
        config(&dir, config_of_2026.clone());
        let opened = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(opened.layout(), layout, "{}", tensors[0].name);
        check(&opened, &official("v7"), &tensors[0].name);
        assert!(!opened.metadata().contains_key(GROUP_NORM_EPS), "the ε of layer norms does not change the 64e-5 of group norms");
        let copy = dir.path().join("copy");
        let files = [("tokenizer.json".to_string(), b"{}".to_vec())];
        let what = Conversion { layout: Layout::HuggingFace, files: &files, ..Conversion::default() };
        convert(&opened, &copy, &what, &mut |_, _| ()).unwrap();
        let text = convert(&opened, &copy, &what, &mut |_, _| ()).unwrap_err().to_string();
        assert!(text.contains("copy: expected a new or empty folder, found a folder with files"), "{text}");
        let copied = Checkpoint::open(&copy).unwrap();
        assert_eq!(copied.layout(), "decoder");
        check(&copied, &official("v7"), "written as a folder");
        assert_eq!(std::fs::read(copy.join("tokenizer.json")).unwrap(), b"{}");
        for (key, wrong) in [("num_attention_heads", 4), ("decay_low_rank_dim", 4), ("v_low_rank_dim", 8), ("head_size", 8)] {
            let mut other = config_of_2026.clone();
            other[key] = json!(wrong);
            config(&dir, other);
            let text = Checkpoint::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains(&format!("the configuration sets {key} to {wrong}, but ")), "{text}");
        }
    }
}

#[test]
fn the_configuration_is_read_and_checked() {
    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), &hugging_face("v6", Words::Maa));
    let open = || Checkpoint::open(dir.path());
    assert!(open().unwrap().metadata().is_empty());
    config(&dir, json!({"model_type": "rwkv6", "layer_norm_epsilon": 1e-5, "intermediate_size": null}));
    assert!(!open().unwrap().metadata().contains_key(GROUP_NORM_EPS), "the ε of layer norms does not change the 64e-5 of group norms");
    let refusal = |more| {
        config(&dir, more);
        let text = open().unwrap_err().to_string();
        assert!(text.contains("config.json: ") && !text.contains('\n'), "{text}");
        text
    };
    assert!(refusal(json!({"hidden_size": 16})).contains("the configuration sets hidden_size to 16, but emb.weight has 8"));
    assert!(refusal(json!({"vocab_size": 65536})).contains("the configuration sets vocab_size to 65536, but emb.weight has 11"));
    assert!(refusal(json!({"num_hidden_layers": 3})).contains("the configuration sets num_hidden_layers to 3, but the file has 2"));
    assert!(refusal(json!({"model_type": "rwkv7qwen3"})).contains("rwkv7qwen3"));
    assert!(refusal(json!({"layer_norm_epsilon": 0.0})).contains("epsilon"));
    assert!(refusal(json!({"hidden_size": "x".repeat(2 << 20)})).contains("at most 1048576 bytes"));
    put(&dir, "config.json", b"[[[");
    assert!(open().unwrap_err().to_string().contains("config.json: expected the configuration of a model as JSON"));
    // The config.json is ignored, because `mine.pth` is not a standard name of `transformers`.
    Checkpoint::open(&put(&dir, "mine.pth", &as_pth(&official("v4")))).unwrap();

    let dir = tempdir().unwrap();
    write_plain(&dir.path().join("model.safetensors"), &fla(true));
    config(&dir, json!({"norm_eps": 1e-5, "head_dim": 64}));
    assert!(
        Checkpoint::open(dir.path()).unwrap_err().to_string().contains("the configuration sets head_dim to 64, but blocks.0.att.r_k has 4")
    );
    let without_head: Vec<Made> = fla(false).into_iter().filter(|t| t.name != "lm_head.weight").collect();
    write_plain(&dir.path().join("model.safetensors"), &without_head);
    config(&dir, json!({"tie_word_embeddings": true}));
    let tied = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(tied.tensor("head.weight").unwrap().to_f32().unwrap(), tied.tensor("emb.weight").unwrap().to_f32().unwrap());
    config(&dir, json!({"tie_word_embeddings": false}));
    assert!(Checkpoint::open(dir.path()).unwrap().tensor("head.weight").is_none());
}

/// A folder of three tensors in two shards, with an index that a test may change.
struct Folder {
    dir: TempDir,
    index: serde_json::Value,
}

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";

impl Folder {
    fn new() -> Folder {
        let dir = tempdir().unwrap();
        let mut dice = testing::Dice(3);
        let mut made = |name: &str| Made::new(name, &[2, C], &mut dice);
        write_plain(&dir.path().join(ONE), &[made("a"), made("b")]);
        write_plain(&dir.path().join(TWO), &[made("c")]);
        Folder { dir, index: json!({"weight_map": {"a": ONE, "b": ONE, "c": TWO}}) }
    }

    fn open(&self) -> Result<Checkpoint> {
        put(&self.dir, "model.safetensors.index.json", self.index.to_string().as_bytes());
        Checkpoint::open(self.dir.path())
    }

    fn refusal(&self) -> String {
        let text = self.open().unwrap_err().to_string();
        assert!(!text.contains('\n') && text.len() < 600, "{text}");
        text
    }
}

#[test]
fn an_index_and_its_shards_must_agree() {
    let refusal = |change: fn(&mut Folder)| {
        let mut folder = Folder::new();
        change(&mut folder);
        folder.refusal()
    };
    assert_eq!(Folder::new().open().unwrap().names().collect::<Vec<_>>(), ["a", "b", "c"]);
    let text = refusal(|f| drop(f.index["weight_map"].as_object_mut().unwrap().remove("b")));
    assert!(text.contains(&format!("tensor b: {ONE} has this tensor, but the index does not list it")), "{text}");
    let text = refusal(|f| f.index["weight_map"]["d"] = json!(TWO));
    assert!(text.contains(&format!("tensor d: the index places this tensor in {TWO}, but no shard has it")), "{text}");
    let text = refusal(|f| f.index["weight_map"]["b"] = json!(TWO));
    assert!(text.contains(&format!("tensor b: the index places this tensor in {TWO}, but {ONE} has it")), "{text}");
    let text = refusal(|f| {
        let made = ["a", "c"].map(|name| Made::new(name, &[1], &mut testing::Dice(1)));
        write_plain(&f.dir.path().join(TWO), &made);
    });
    assert!(text.contains(&format!("tensor a: two shards have this tensor: {ONE} and {TWO}")), "{text}");
    let text = refusal(|f| std::fs::remove_file(f.dir.path().join(TWO)).unwrap());
    assert!(text.contains("1 of 2 shards of the index are missing; the first missing file is"), "{text}");
    assert!(refusal(|f| std::fs::write(f.dir.path().join(TWO), b"").unwrap()).contains("empty file"));
    assert!(refusal(|f| std::fs::write(f.dir.path().join(TWO), b"{\"a\": 1, \"b\": 2}").unwrap()).contains(TWO));
    let text = refusal(|f| {
        let pth = as_pth(&[Made::new("c", &[1], &mut testing::Dice(1))]);
        std::fs::write(f.dir.path().join(TWO), pth).unwrap();
    });
    assert!(text.contains("expected a safetensors shard like the first shard, found pth"), "{text}");
    assert!(refusal(|f| f.index = json!({"weight_map": {"a": "../x.safetensors"}})).contains("the shard path"));
    // This index names itself as the shard of the tensor `a`.
    assert!(refusal(|f| f.index["weight_map"]["a"] = json!("model.safetensors.index.json")).contains("found text that begins with \"{"));
    // A config.json is not an index.
    let dir = tempdir().unwrap();
    let text = Checkpoint::open(&put(&dir, "config.json", b"{\"hidden_size\": 4096}")).unwrap_err().to_string();
    assert!(
        text.contains("config.json: expected an index that lists the files of a checkpoint")
            && text.contains("give the path of the checkpoint or of its folder"),
        "{text}"
    );
    let file = std::fs::File::create(dir.path().join("model.safetensors.index.json")).unwrap();
    std::io::Write::write_all(&mut &file, b"{\"weight_map\":{").unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let text = Checkpoint::open(&dir.path().join("model.safetensors.index.json")).unwrap_err().to_string();
    assert!(text.contains("a file of at most 67108864 bytes"), "{text}");
}

#[test]
#[cfg(unix)]
fn a_symlink_is_fine_and_a_cut_shard_is_noticed() {
    let folder = Folder::new();
    let blob = folder.dir.path().join("blob");
    std::fs::rename(folder.dir.path().join(TWO), &blob).unwrap();
    std::os::unix::fs::symlink("blob", folder.dir.path().join(TWO)).unwrap();
    let opened = folder.open().unwrap();
    std::fs::OpenOptions::new().write(true).open(&blob).unwrap().set_len(9).unwrap();
    let text = opened.check_uncut().unwrap_err().to_string();
    assert!(text.contains(TWO) && text.contains("shorter"), "{text}");
    assert!(folder.refusal().contains(TWO));
}

#[test]
fn flipped_bytes_of_an_index_never_panic() {
    let folder = Folder::new();
    let original = folder.index.to_string().into_bytes();
    let mut dice = testing::Dice(0xf11b);
    for _ in 0..1000 {
        let mut bytes = original.clone();
        for _ in 0..1 + dice.roll(4) {
            let at = dice.roll(bytes.len());
            bytes[at] = if dice.roll(2) == 0 { dice.roll(256) as u8 } else { bytes[at] ^ (1 << dice.roll(8)) };
        }
        bytes.truncate(if dice.roll(4) == 0 { dice.roll(bytes.len()) } else { bytes.len() });
        if let Err(e) = Checkpoint::open(&put(&folder.dir, "model.safetensors.index.json", &bytes)) {
            assert!(!e.to_string().contains('\n') && e.to_string().len() < 2000, "{e}");
        }
    }
}

/// In a `.pth`, the strides of the stacked mixes are arbitrary.
#[test]
fn rows_of_a_stack_stay_inside_their_storage() {
    let open = |strides: &[usize]| {
        let mut p = testing::Pickle::dict();
        p.tensor("model.layers.0.attn.x_x", "0", DType::F32, 6 * C, (0, &[6, C], strides));
        let numbers: Vec<f32> = (0..6 * C).map(|i| i as f32).collect();
        let file = testing::zip(&[("r/data.pkl", &p.stop()), ("r/data/0", &testing::singles(&numbers))]);
        Checkpoint::open(&put(&tempdir().unwrap(), "a.pth", &file))
    };
    let transposed = open(&[1, 6]).unwrap();
    assert_eq!(transposed.tensor("blocks.0.att.x_k").unwrap().to_f32().unwrap(), (0..C).map(|i| (2 + 6 * i) as f32).collect::<Vec<_>>());
    for strides in [[C + 1, 1], [C, 2], [isize::MAX as usize, 1], [usize::MAX / 8, 1], [1, isize::MAX as usize]] {
        let text = open(&strides).unwrap_err().to_string();
        assert!(text.contains("a.pth: tensor blocks.0.att.x_") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn the_type_of_each_tensor_is_kept() {
    let dir = tempdir().unwrap();
    write_sharded(dir.path(), &hugging_face("v5.2", Words::Maa), false);
    assert_eq!(Checkpoint::open(dir.path()).unwrap().tensor("emb.weight").unwrap().dtype(), DType::F32);
}
