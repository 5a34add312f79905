//! Tests that every family finds its file and refuses other files.

use super::*;
use std::fs;
use tempfile::TempDir;

/// Returns a WordLevel tokenizer with the ids `0..=max_id`.
fn tokenizer(max_id: u32) -> String {
    let words: Vec<String> = (0..=max_id).map(|id| format!("\"w{id}\": {id}")).collect();
    format!(r#"{{"model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "w0"}}}}"#, words.join(","))
}

fn rwkv(max_id: u32) -> String {
    (1..=max_id).map(|id| format!("{id} '{id}' {}\n", id.to_string().len())).collect()
}

fn folder(files: &[(&str, String)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// Returns the largest id of the chosen vocabulary, or the hint.
fn chosen(n_vocab: usize, files: &[(&str, String)]) -> Result<u32, String> {
    let dir = folder(files);
    match choose(n_vocab, Some(dir.path())) {
        Choice::Found(vocab) => Ok(vocab.max_id()),
        Choice::Missing { hint } => Err(hint.replace(&dir.path().display().to_string(), "DIR")),
    }
}

#[cfg(feature = "embedded-model")]
#[test]
fn world_is_built_in() {
    assert_eq!(chosen(65536, &[("vocab.txt", rwkv(9))]), Ok(65529));
    assert!(matches!(choose(65536, None), Choice::Found(_)));
}

#[test]
fn a_family_finds_its_file_and_no_other() {
    // families with two file names: a name that only this family uses, and a name that other families also use
    for family in FAMILIES {
        let &[own, common] = family.files else { continue };
        let max_id = *family.max_id.start();
        let (right, wrong) = (tokenizer(max_id), tokenizer(300));
        for &n_vocab in family.n_vocab {
            assert_eq!(chosen(n_vocab, &[(own, right.clone())]), Ok(max_id));
            assert_eq!(chosen(n_vocab, &[(common, right.clone()), ("vocab.txt", rwkv(9))]), Ok(max_id));
            assert_eq!(chosen(n_vocab, &[(common, right.clone()), (own, "{".into())]), Ok(max_id));
            let hint = chosen(n_vocab, &[]).unwrap_err();
            assert!(hint.contains(family.origin) && family.origin.ends_with(own) && hint.contains("`vocab`"), "{hint}");
            let hint = chosen(n_vocab, &[(common, wrong.clone())]).unwrap_err();
            assert!(hint.contains(family.origin) && hint.contains("DIR/tokenizer.json ends at id 300"), "{hint}");
            let hint = chosen(n_vocab, &[(own, "{\"model\": 1}".into())]).unwrap_err();
            assert!(
                hint.contains(family.origin) && hint.contains(&format!("DIR/{own}: expected a Hugging Face tokenizer (tokenizer.json)")),
                "{hint}"
            );
            assert!(matches!(choose(n_vocab, None), Choice::Missing { .. }));
        }
    }
    let large = tokenizer(50400);
    assert!(chosen(50277, &[("tokenizer.json", large)]).unwrap_err().contains("ends at id 50400"));
}

#[test]
fn glm4_finds_its_file() {
    let right = crate::vocab::glm4::tests::full_file();
    let own = "tokenizer.model";
    assert_eq!(chosen(151552, &[(own, right.clone()), ("tokenizer.json", tokenizer(300))]), Ok(151342));
    assert_eq!(chosen(151343, &[(own, right)]), Ok(151342));
    // a `tokenizer.json` that would produce other ids
    let json = r#"{"model": {"vocab": {}}, "added_tokens": [{"id": 151331, "content": "[gMASK]"}]}"#;
    let hint = chosen(151552, &[("tokenizer.json", json.into())]).unwrap_err();
    assert!(hint.contains("DIR/tokenizer.json: GLM-4's tokenizer must set ignore_merges"), "{hint}");
    let hint = chosen(151552, &[("tokenizer.json", tokenizer(300))]).unwrap_err();
    assert!(
        hint.contains("GLM-4 vocabulary: download https://huggingface.co/THUDM/glm-4-9b-chat/resolve/main/tokenizer.model into"),
        "{hint}"
    );
}

#[test]
fn chatglm3_finds_its_file_and_glm4_does_not_take_it() {
    let dir = folder(&[]);
    fs::write(dir.path().join("tokenizer.model"), crate::vocab::sentence_piece::tests::like_chatglm3()).unwrap();
    match choose(65024, Some(dir.path())) {
        Choice::Found(vocab) => assert_eq!((vocab.max_id(), vocab.special("sop")), (64797, Some(64792))),
        Choice::Missing { hint } => panic!("{hint}"),
    }
    let Choice::Missing { hint } = choose(151552, Some(dir.path())) else { panic!("GLM-4 has another") };
    assert!(hint.contains("tokenizer.model ends at id 64797, not 151342"), "{hint}");
    let hint = chosen(65024, &[("tokenizer.model", crate::vocab::glm4::tests::full_file())]).unwrap_err();
    assert!(
        hint.contains("the model needs the ChatGLM3 vocabulary: download https://") && hint.contains("ends at id 151342, not 64797"),
        "{hint}"
    );
}

#[test]
fn any_other_model_takes_the_only_file_that_fits() {
    for name in ["vocab.txt", "rwkv_vocab_chess.txt"] {
        assert_eq!(chosen(100, &[(name, rwkv(99)), ("notes.txt", rwkv(3))]), Ok(99));
    }
    assert_eq!(chosen(100, &[("tokenizer.json", tokenizer(50))]), Ok(50));
    let missed = |files: &[(&str, String)], why: &str| {
        let hint = chosen(100, files).unwrap_err();
        assert!(hint.contains("`vocab`") && hint.contains("which has 100 ids") && hint.contains(why), "{hint}");
    };
    missed(&[], "");
    missed(&[("vocab.txt", rwkv(100))], "DIR/vocab.txt ends at id 100");
    missed(&[("vocab.txt", rwkv(49))], "ends at id 49");
    missed(&[("vocab.txt", "nonsense".into())], "DIR/vocab.txt: line 1: expected a token as ID");
    missed(&[("vocab.txt", rwkv(99)), ("tokenizer.json", tokenizer(99))], "DIR/tokenizer.json, DIR/vocab.txt could be the file");
    assert!(matches!(choose(100, None), Choice::Missing { .. }));
    assert!(matches!(choose(100, Some(Path::new("/nowhere/at/all"))), Choice::Missing { .. }));
}
