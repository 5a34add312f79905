//! Tests that a converted model needs no other file and computes the same logits.

use super::*;
use crate::session::{Model, ModelSource, Options, Session, convert_coded, embedded};
use crate::tensor::DType;
use crate::weights::Layout;
use crate::weights::testing::put;
use std::path::PathBuf;

fn models() -> [(Checkpoint, Vocab); 3] {
    let file = |name: &str| Checkpoint::open(&PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models")).join(name)).unwrap();
    [(embedded().unwrap(), Vocab::small_world()), (file("tiny-rwkv6.safetensors"), Vocab::tiny()), (file("tiny-glm4"), Vocab::tiny())]
}

/// Loads a file on the CPU with F32 floats and returns the model and the logits after each token of a text.
fn logits(path: &Path, quant: &str) -> (Model, Vec<f32>) {
    let options = Options {
        device: "cpu".parse().unwrap(),
        dtype: "f32".parse().unwrap(),
        quant: Some(quant.parse().unwrap()),
        ..Options::default()
    };
    let model = Model::load(&ModelSource::Path(path.to_path_buf()), &options, &mut |_, _| ()).unwrap();
    let tokens = Vocab::tiny().encode(b"In the beginning God created the heaven").unwrap();
    let mut all = Vec::new();
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    let mut each = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Ok(())
    };
    session.score(slot, &tokens, &mut each, &mut |_, _| ()).unwrap();
    drop(session);
    (model, all)
}

fn write(input: &Checkpoint, out: &Path, vocab: &GgufVocab, quant: Option<&str>) -> Result<()> {
    let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), ..Conversion::default() };
    let plan: Option<QuantPlan> = quant.map(|quant| quant.parse().unwrap());
    convert_gguf(input, out, vocab, plan.as_ref(), &what, &mut |_, _| ())
}

#[test]
fn logits_and_vocabulary_stay_the_same() {
    for (input, vocab) in models() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, gguf, again) = (dir.path().join("m.safetensors"), dir.path().join("m.gguf"), dir.path().join("again.gguf"));
        convert(&input, &plain, &Conversion::default(), &mut |_, _| ()).unwrap();
        for (quant, loaded, kept) in [
            (None, "f16", "f16"),
            (Some("q8_0"), "q8_0,low-rank=f16", "keep"),
            (Some("q4_0,head=q8_0"), "q4_0,head=q8_0,low-rank=f16", "keep"),
        ] {
            // A plan may name the low-rank pairs only if the model has some.
            let loaded = if input.name().contains("glm") { loaded.replace(",low-rank=f16", "") } else { loaded.to_string() };
            write(&input, &gguf, &GgufVocab::Given(vocab.clone()), quant).unwrap();
            let (model, found) = logits(&gguf, kept);
            assert!(found == logits(&plain, &loaded).1, "{} {quant:?}", input.name());
            let own = model.vocab().unwrap();
            assert_eq!(
                (own.first_difference(&vocab), own.encode(b"In 'the\\\n\"x\xff").unwrap()),
                (None, vocab.encode(b"In 'the\\\n\"x\xff").unwrap())
            );
            let whole = Checkpoint::open(&gguf).unwrap();
            assert_eq!(whole.metadata().get(GLM), input.metadata().get(GLM));
            // A GGUF file that is converted again keeps its vocabulary, its template and its blocks.
            write(&whole, &again, &GgufVocab::Own, quant).unwrap();
            let values = |path: &Path| Checkpoint::open(path).unwrap().gguf_values(TOKENIZER).unwrap();
            assert_eq!(values(&again), values(&gguf));
            assert!(logits(&again, kept).1 == found);
        }
    }
}

#[test]
fn codes_of_a_quantised_file_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (coded, gguf) = (dir.path().join("m.safetensors"), dir.path().join("m.gguf"));
    let plan = "q4_0,low-rank=f16";
    convert_coded(&embedded().unwrap(), &coded, &plan.parse().unwrap(), &Conversion::default(), &mut |_, _| ()).unwrap();
    write(&Checkpoint::open(&coded).unwrap(), &gguf, &GgufVocab::Without, Some(plan)).unwrap();
    assert!(logits(&gguf, "keep").1 == logits(&coded, plan).1);
}

#[test]
fn a_template_of_the_folder_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    convert(&embedded().unwrap(), &path, &Conversion::default(), &mut |_, _| ()).unwrap();
    let input = Checkpoint::open(&path).unwrap();
    let out = dir.path().join("m.gguf");
    let template = || {
        write(&input, &out, &GgufVocab::Given(Vocab::tiny()), None).unwrap();
        let (_, value) = Checkpoint::open(&out).unwrap().gguf_values(TEMPLATE).unwrap().remove(0);
        let GgufValue::Copied(bytes) = value else { panic!("values of a file are copied") };
        String::from_utf8(bytes[12..].to_vec()).unwrap()
    };
    assert_eq!(template(), WORLD_TEMPLATE);
    put(
        &dir,
        "tokenizer_config.json",
        br#"{"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d {{ x }}"}]}"#,
    );
    assert_eq!(template(), "d {{ x }}");
    put(&dir, "tokenizer_config.json", br#"{"chat_template": "c"}"#);
    assert_eq!(template(), "c");
    put(&dir, "chat_template.jinja", "é".as_bytes());
    assert_eq!(template(), "é");
}

#[test]
fn templates_of_both_families_are_jinja() {
    use crate::template::{Family, Jinja, Message, Role, Template, whole};
    let messages = [Message::new(Role::System, "be brief"), Message::user("hi"), Message::new(Role::Assistant, "ho"), Message::user("x ")];
    let render = |source: &str, family| whole(&Jinja::parse(source, family).unwrap().render(&messages).unwrap());
    let world = render(WORLD_TEMPLATE, Family::Rwkv);
    assert!(world.ends_with("System: be brief\n\nUser: hi\n\nAssistant: ho\n\nUser: x\n\nAssistant:"), "{world:?}");
    let glm = render(&format!("[gMASK]<sop>\n{GLM_TEMPLATE}"), Family::Glm4);
    assert_eq!(glm, "[gMASK]<sop><|system|>\nbe brief<|user|>\nhi<|assistant|>\nho<|user|>\nx <|assistant|>");
}

#[test]
fn wrong_uses_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("m.gguf");
    let path = dir.path().join("m.safetensors");
    convert(&embedded().unwrap(), &path, &Conversion::default(), &mut |_, _| ()).unwrap();
    let input = Checkpoint::open(&path).unwrap();
    let refusal = |vocab: &GgufVocab, quant| write(&input, &out, vocab, quant).unwrap_err();
    let e = refusal(&GgufVocab::Own, None);
    assert!(e.to_string().contains("a GGUF file needs a vocabulary") && e.hint.unwrap().contains("`vocab=none`"));
    let e = refusal(&GgufVocab::Given(Vocab::world()), None).to_string();
    assert!(e.contains("the vocabulary has ids up to 65529, but the model has 2048 embeddings"), "{e}");
    let e = refusal(&GgufVocab::Without, Some("q8_0,head=i4")).to_string();
    assert!(e.contains("the format i4 is not a type of GGUF files, expected one of q8_0, q6_k, "), "{e}");
    write(&input, &out, &GgufVocab::Without, None).unwrap();
    assert_eq!(Checkpoint::open(&out).unwrap().metadata()["tokenizer.ggml.model"], "no_vocab");
}
