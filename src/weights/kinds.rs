//! Describes a file that is not a checkpoint: names its format and gives the user a hint.
//!
//! This module looks only at the content and never fails. A wrong guess only leads to a wrong hint.

use crate::error::{Error, short};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The beginning of every error for a file that is not a checkpoint.
pub const EXPECTED: &str = "expected a .pth, .safetensors or .gguf checkpoint";
const AGAIN: &str = "download the file again";
const PATH: &str = "give the path of the checkpoint";
const UNPACK: &str = "unpack it first";

/// Formats that are not checkpoints, as (first bytes, description, hint).
const MAGIC: [(&[u8], &str, &str); 17] = [
    (b"PK\x05\x06", "an empty zip archive", AGAIN),
    (b"fmgg", "an rwkv.cpp file, not supported", "use the original .pth"),
    (b"tjgg", "a file of an old llama.cpp, not supported", "use a .gguf, or the original checkpoint"),
    (b"lmgg", "a file of an old llama.cpp, not supported", "use a .gguf, or the original checkpoint"),
    (b"\x1f\x8b", "a gzip archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"BZh", "a bzip2 archive", UNPACK),
    (b"Rar!", "a rar archive", UNPACK),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", PATH),
    (b"\xff\xd8\xff", "a JPEG image", PATH),
    (b"GIF8", "a GIF image", PATH),
    (b"%PDF", "a PDF document", PATH),
    (b"\x7fELF", "a program", PATH),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, not supported", "use a .pth or .safetensors file of the model"),
    (b"version https://git-lfs", "a Git-LFS pointer, not the file itself", "run `git lfs pull`, or download the file"),
];

/// Returns the error for bytes that are not a checkpoint.
pub fn refusal(bytes: &[u8]) -> Error {
    let (found, hint) = describe(bytes);
    Error::file(format!("{EXPECTED}, found {found}")).hint(hint)
}

/// Returns a description of a file that is not a checkpoint, and a hint.
fn describe(bytes: &[u8]) -> (String, &'static str) {
    if let Some((_, found, hint)) = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return (found.to_string(), hint);
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into_owned();
    let is_text = !bytes.is_empty() && bytes.iter().take(4096).all(|b| !b.is_ascii_control() || b.is_ascii_whitespace());
    match bytes {
        [] => ("an empty file".into(), AGAIN),
        [0x80, 0..=5, ..] => (
            "a bare pickle, as torch wrote it before 2020; nothing was executed".into(),
            "load the file with torch in a sandbox and save it again, or download a .safetensors file",
        ),
        _ if bytes.get(257..262) == Some(b"ustar") => ("a tar archive".into(), UNPACK),
        _ if start.trim_start().starts_with('<') => ("a web page".into(), "the download failed: download the file again"),
        _ if is_text && is_vocabulary(&start) => ("a vocabulary".into(), "give this file as `vocab` and the checkpoint as `model`"),
        _ if is_text => (format!("text that begins with {:?}", short(start.lines().next().unwrap_or_default(), 40)), PATH),
        _ if bytes.len() < 9 => ("a file of fewer than 9 bytes".into(), AGAIN),
        _ => {
            let start: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
            (format!("an unknown format that begins with the bytes {}", start.join(" ")), "check the path")
        }
    }
}

/// Returns true if a text begins like a vocabulary of RWKV, `1 '\x00' 1`, or of tiktoken, `IQ== 0`.
fn is_vocabulary(text: &str) -> bool {
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (first, second, is_more) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().is_some());
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    is_number(first) && second.starts_with(['\'', '"', 'b']) || first.ends_with('=') && is_number(second) && !is_more
}

/// To detect the kind of a JSON file, at most this many bytes of the file are read. No tokenizer.json is larger.
const MAX_JSON_BYTES: usize = 64 << 20;

/// The top-level keys by which kinds of JSON files are recognised. A key that the file lacks is `None`.
#[derive(Deserialize)]
struct KindKeys {
    weight_map: Option<IgnoredAny>,
    model: Option<IgnoredAny>,
    added_tokens: Option<IgnoredAny>,
    architectures: Option<IgnoredAny>,
    model_type: Option<IgnoredAny>,
    tokenizer_class: Option<IgnoredAny>,
    id: Option<IgnoredAny>,
}

/// Returns the error for a known JSON file that is not an index of shards, such as a tokenizer.json. Returns `None` for an index, which has a
/// `weight_map`, and for unknown JSON.
pub fn other_json(bytes: &[u8]) -> Option<Error> {
    let bytes = &bytes[..bytes.len().min(MAX_JSON_BYTES)];
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<KindKeys>();
    let fields = values.next()?.ok()?;
    let (found, hint) = match fields {
        KindKeys { weight_map: Some(_), .. } => return None,
        KindKeys { model: Some(_), added_tokens: Some(_), .. } => {
            ("a tokenizer.json, which is a vocabulary", "give this file as `vocab` and the checkpoint as `model`")
        }
        KindKeys { architectures: Some(_), .. } | KindKeys { model_type: Some(_), .. } => {
            ("a config.json, which describes a model", "give the folder of this file")
        }
        KindKeys { tokenizer_class: Some(_), .. } => ("a tokenizer_config.json", "give the folder of this file"),
        KindKeys { id: Some(_), .. } => ("lines of JSON, such as prompts or results of batch", PATH),
        _ => return None,
    };
    Some(Error::file(format!("{EXPECTED}, found {found}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_formats_are_named() {
        for (bytes, found) in [
            (b"".as_slice(), "an empty file"),
            (b"\x89PNG\r\n\x1a\nxxxxx", "a PNG image"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "a Git-LFS pointer"),
            (b"\n<!DOCTYPE html>", "a web page"),
            (b"1 '\\x00' 1\n2 '\\x01' 1\n", "a vocabulary"),
            (b"IQ== 0\nIg== 1\n", "a vocabulary"),
            (b"hello\n", "text that begins with \"hello\""),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a bare pickle"),
            (b"\x01\x02\x03", "a file of fewer than 9 bytes"),
            (b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", "the bytes 01 02 03 04 05 06 07 08"),
        ] {
            let said = refusal(bytes).to_string();
            assert!(said.starts_with(EXPECTED) && said.contains(found), "{said}");
        }
    }

    #[test]
    fn other_json_is_named() {
        let said = |text: &str| other_json(text.as_bytes()).map(|e| e.to_string()).unwrap_or_default();
        assert!(said(r#"{"version":"1.0","added_tokens":[],"model":{"type":"BPE"}}"#).contains("a tokenizer.json"));
        assert!(said(r#"{"architectures":["Glm4ForCausalLM"]}"#).contains("a config.json"));
        assert!(said("{\"id\":1,\"text\":\"x\"}\n{\"id\":2}\n").contains("results of batch"));
        assert_eq!(said(r#"{"weight_map":7}"#) + &said("{}") + &said("{\"id\":"), "");
    }
}
