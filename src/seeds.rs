//! Writes seeds (first inputs) of the fuzz targets to `fuzz/seeds`. The seeds are small files that other tests use, too. To write the
//! seeds, run the ignored tests of this file.
//!
//! Seeds that are text (grammars, templates, lines of `batch`) were written by hand. No test writes these seeds.

use crate::chat::Format;
use crate::conversation::Conversation;
use crate::session::{Model, ModelSource, Options, Session};
use crate::vocab;
use crate::weights::testing::Pickle;
use crate::weights::{hostile, read_safetensors};
use std::fs;
use std::path::Path;

fn put(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
}

/// Returns the header of a safetensors file.
fn header(file: &[u8]) -> &[u8] {
    let n = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    &file[8..8 + n]
}

#[test]
#[ignore = "writes fuzz/seeds"]
fn checkpoints() {
    put("checkpoint", "small.pth", &hostile::small_pth());
    put("checkpoint", "small.safetensors", &hostile::small_safetensors());
    put("checkpoint", "small.gguf", &hostile::small_gguf());
    put("checkpoint", "glm.safetensors", &hostile::small_glm());
    put("checkpoint", "glm.gguf", &hostile::small_glm_gguf());
}

/// Writes two pickles with tensors, and one pickle that the reader refuses. The tensors refer to two storages (files of elements in a `.pth`
/// archive): `0` with 64 bytes and `1` with 16 bytes. The seeds do not contain the storages, because the fuzz target adds them.
#[test]
#[ignore = "writes fuzz/seeds"]
fn pickles() {
    use crate::tensor::DType;
    let mut two = Pickle::dict();
    two.tensor("emb.weight", "0", DType::F32, 16, (0, &[4, 4], &[4, 1]));
    two.tensor("blocks.0.att.w1", "1", DType::BF16, 8, (2, &[2, 3], &[3, 1]));
    put("pickle", "two", &two.stop());
    let mut transposed = Pickle::dict();
    transposed.tensor("head.weight", "0", DType::F16, 32, (0, &[8, 4], &[1, 8]));
    transposed.text("epoch").int(3).raw(b"s").text("list").raw(b"](K\x01K\x02es").text("pair").raw(b"K\x01K\x02\x86s");
    put("pickle", "turned", &transposed.stop());
    put("pickle", "refused", b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.");
}

#[test]
#[ignore = "writes fuzz/seeds"]
fn vocabularies() {
    for (name, file) in vocab::testing::files() {
        put("vocabulary", name, &file);
    }
}

/// Writes only the header of each state file: the fuzz target appends the tensors' elements.
#[test]
#[ignore = "writes fuzz/seeds"]
fn states_and_chats() {
    let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
    let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.state");
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &[1, 2, 3]).unwrap();
    session.save(slot, &path, Some(&[1, 2, 3]), None).unwrap();
    put("state", "saved", header(&fs::read(&path).unwrap()));

    let format = Format::of(&model).unwrap();
    let settings = format.settings();
    let mut conversation = Conversation::new(&model, format, settings, Box::new(|_, _| ())).unwrap();
    let path = folder.path().join("chat.state");
    conversation.save(&path).unwrap();
    let file = fs::read(&path).unwrap();
    put("state", "chat", header(&file));
    put("saved_chat", "begun", read_safetensors(&file).unwrap().1["chat"].as_bytes());
}
