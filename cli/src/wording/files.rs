//! Creates the files that provoke errors, in a temporary folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;
use wingbeat::low_level::session::{Model, ModelSource, Options, Session};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::testing::{Gguf, Pickle, gguf, pth, singles, zip};
use wingbeat::low_level::weights::{NewTensor, read_safetensors, write_safetensors};

/// The embedded model on the CPU.
pub static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap()
});

pub use wingbeat::low_level::assets::MODEL as TINY;

pub struct Files(TempDir);

/// Builds a small GGUF file for RWKV-7. `build` adds the fault.
fn lying(build: impl Fn(&mut Gguf) -> &mut Gguf) -> Vec<u8> {
    let mut file = Gguf::new("rwkv7");
    build(&mut file).finish()
}

/// Returns the name and the bytes of each file whose bytes this module lists or builds.
fn plain() -> Vec<(&'static str, Vec<u8>)> {
    let small = pth(&[("emb.weight", DType::F32, &[2, 2], &singles(&[1.0; 4]))]);
    let evil = Pickle::dict().text("emb.weight").global("os", "system").stop();
    let mut outside = Pickle::dict();
    outside.tensor("emb.weight", "0", DType::F32, 4, (2, &[2, 2], &[2, 1]));
    let header = |json: &str| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    vec![
        ("empty.pth", Vec::new()),
        ("picture.png", b"\x89PNG\r\n\x1a\n........".to_vec()),
        ("page.pth", b"<!DOCTYPE html>".to_vec()),
        ("pointer.pth", b"version https://git-lfs.github.com/spec/v1\n".to_vec()),
        ("empty.zip", b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
        ("notes.txt", b"hello".to_vec()),
        ("notes.json", b"{\"a\":1}".to_vec()),
        ("vocabulary.txt", b"1 '\\x00' 1\n2 '\\x01' 1\n".to_vec()),
        ("gap.txt", b"1 'a' 1\n1 'b' 1\n".to_vec()),
        ("length.txt", b"1 'a' 2\n".to_vec()),
        ("literal.txt", b"1 'a\n".to_vec()),
        ("tokenizer.json", br#"{"version":"1.0","added_tokens":[],"model":{}}"#.to_vec()),
        ("config.json", br#"{"architectures":["Llama"]}"#.to_vec()),
        ("results.jsonl", b"{\"id\":1,\"text\":\"x\"}\n{\"id\":2,\"text\":\"y\"}\n".to_vec()),
        ("prompts.jsonl", b"{\"id\":1,\"prompt\":\"x\"}\n".to_vec()),
        // Checkpoints.
        ("cut.safetensors", TINY[..TINY.len() / 2].to_vec()),
        ("header.safetensors", TINY[..1000].to_vec()),
        ("length.safetensors", [&u64::MAX.to_le_bytes()[..], b"{}"].concat()),
        ("json.safetensors", header("{\"a\":")),
        ("type.safetensors", header(r#"{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}"#)),
        ("beyond.safetensors", header(r#"{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}"#)),
        ("size.safetensors", [header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#), vec![0; 4]].concat()),
        ("cut.pth", small[..small.len() / 2].to_vec()),
        ("archive.pth", zip(&[("a/b", b"x")])),
        ("evil.pth", zip(&[("archive/data.pkl", &evil), ("archive/data/0", &[0; 16])])),
        ("pickle.pth", zip(&[("archive/data.pkl", b"\x80\x02]\xff.")])),
        ("outside.pth", zip(&[("archive/data.pkl", &outside.stop()), ("archive/data/0", &[0; 16])])),
        ("no-model.pth", small),
        ("cut.gguf", b"GGUF\x03\0\0\0".to_vec()),
        (
            "version.gguf",
            lying(|g| {
                g.version = 9;
                g
            }),
        ),
        (
            "many.gguf",
            lying(|g| {
                g.n_tensors = 1 << 60;
                g
            }),
        ),
        (
            "more.gguf",
            lying(|g| {
                g.n_keys += 1;
                g
            }),
        ),
        ("key.gguf", lying(|g| g.u32("k", 1).u32("k", 2))),
        ("type.gguf", lying(|g| g.value("k", 13, &[0; 8]))),
        ("architecture.gguf", Gguf::new("llama").finish()),
        ("nothing.gguf", gguf("rwkv7", &[], &[])),
        // Grammars, schemas, prompts.
        ("open.gbnf", b"root ::= [a".to_vec()),
        ("unknown.gbnf", b"root ::= word".to_vec()),
        ("endless.gbnf", b"root ::= root \"a\"".to_vec()),
        ("no-root.gbnf", b"word ::= \"a\"".to_vec()),
        ("open.json", b"{".to_vec()),
        ("type.json", br#"{"type":"strin"}"#.to_vec()),
        ("reference.json", br##"{"$ref":"#/$defs/none"}"##.to_vec()),
        ("remote.json", br#"{"$ref":"https://example.com/schema"}"#.to_vec()),
        ("unsupported.json", br#"{"not":{"type":"string"}}"#.to_vec()),
        ("open.toml", b"user = \"User".to_vec()),
        ("field.toml", b"usr = \"User\"".to_vec()),
        ("code.py", b"import os\nos.system('x')\n".to_vec()),
        ("bytes.txt", b"ab\xffcd".to_vec()),
    ]
}

/// Returns a tensor of this shape in which all elements are 0.5.
fn halves(name: &str, shape: &[usize]) -> NewTensor<'static> {
    let bytes = singles(&vec![0.5; shape.iter().product()]);
    let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
    NewTensor { name: name.into(), dtype: DType::F32, shape: shape.into(), data: Box::new(data) }
}

impl Files {
    pub fn make() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        plain().into_iter().for_each(|(name, bytes)| std::fs::write(files.path(name), bytes).unwrap());
        std::fs::create_dir(files.path("folder")).unwrap();
        files.tensors("tuned.safetensors", (0..6).map(|i| halves(&format!("blocks.{i}.att.time_state"), &[2, 64, 64])));
        files.tensors("narrow.safetensors", (0..6).map(|i| halves(&format!("blocks.{i}.att.time_state"), &[2, 64, 63])));
        files.tensors("one.safetensors", [halves("blocks.0.att.time_state", &[2, 64, 64])]);
        files.tensors("lora.safetensors", [halves("blocks.0.att.key.lora_A", &[4, 128]), halves("blocks.0.att.key.lora_B", &[128, 4])]);
        files.tensors("half.safetensors", [halves("blocks.0.att.key.lora_A", &[4, 128])]);
        files.tensors("other.safetensors", [halves("model.layers.0.mlp.weight", &[4, 4])]);
        let (tiny, _) = read_safetensors(TINY).unwrap();
        let without = |left_out: &str| {
            let kept: Vec<NewTensor<'_>> =
                tiny.iter().filter(|(name, _)| *name != left_out).map(|(name, (_, shape, _))| halves(name, shape)).collect();
            kept
        };
        files.tensors("lacking.safetensors", without("blocks.1.ffn.key.weight"));
        let wrong = without("blocks.1.ffn.key.weight").into_iter().chain([halves("blocks.1.ffn.key.weight", &[3, 5])]);
        files.tensors("shape.safetensors", wrong);
        let mut session = Session::new(&MODEL, 1).unwrap();
        let slot = session.open().unwrap();
        session.prefill(slot, &[7]).unwrap();
        session.save(slot, &files.path("saved.state"), None, None).unwrap();
        let saved = std::fs::read(files.path("saved.state")).unwrap();
        std::fs::write(files.path("cut.state"), &saved[..saved.len() / 2]).unwrap();
        let replaced = |file: &[u8], text: &str, other: &str| {
            let at = file.windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap();
            [&file[..at], other.as_bytes(), &file[at + text.len()..]].concat()
        };
        let damaged = replaced(&saved, "\"checksum\"", "\"chicksum\"");
        // A file of version 1 has no checksum.
        let old = replaced(&damaged, "\"format_version\":\"2\"", "\"format_version\":\"1\"");
        let hash = MODEL.weights_hash();
        let other = replaced(&old, hash, &"0".repeat(hash.len()));
        std::fs::write(files.path("damaged.state"), damaged).unwrap();
        std::fs::write(files.path("other.state"), other).unwrap();
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the text with `DIR` replaced by the folder's path.
    pub fn with_names(&self, text: &str) -> String {
        text.replace("DIR", self.0.path().to_str().unwrap())
    }

    /// Returns the text with the folder's path replaced by `DIR`.
    pub fn without_names(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "DIR")
    }

    fn tensors(&self, name: &str, entries: impl IntoIterator<Item = NewTensor<'static>>) {
        write_safetensors(&self.path(name), &BTreeMap::new(), entries.into_iter().collect(), &mut |_, _| ()).unwrap();
    }
}
