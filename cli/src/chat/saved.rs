//! Lists the saved chats of a folder, for the error of `/load` about a missing file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::METADATA_KEY;

/// The maximum number of chats that the error lists.
const SHOWN: usize = 8;
/// The number of bytes of a file's header that are searched for the key that marks a chat.
const SEARCHED: u64 = 1 << 20;

/// Returns the error for a file that `/load` does not find. The hint names the saved chats in the same folder.
pub fn missing(path: &Path) -> Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let e = Error::file("no such file").at(path.display());
    let place = if folder == Path::new(".") { "this folder".into() } else { folder.display().to_string() };
    if !folder.is_dir() {
        return e.hint(format!("there is no folder {place}"));
    }
    let chats = chats(folder);
    match chats.len() {
        0 => e.hint(format!("{place} has no saved chat; /save FILE writes one")),
        n if n > SHOWN => e.hint(format!("saved chats in {place}: {}, and {} more", chats[..SHOWN].join(", "), n - SHOWN)),
        _ => e.hint(format!("saved chats in {place}: {}", chats.join(", "))),
    }
}

/// Returns the names of the saved chats in a folder, in alphabetical order.
fn chats(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_file() && is_chat(&entry.path()));
    let mut names: Vec<String> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns whether a file is a saved chat: its header (safetensors: a length, then JSON) has the key of a chat.
fn is_chat(path: &Path) -> bool {
    let header = || {
        let mut file = File::open(path).ok()?;
        let mut length = [0; 8];
        file.read_exact(&mut length).ok()?;
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(SEARCHED)).read_to_end(&mut header).ok()?;
        Some(header)
    };
    let key = format!("\"{METADATA_KEY}\":");
    header().is_some_and(|header| header.starts_with(b"{") && header.windows(key.len()).any(|part| part == key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_chat_names_those_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let said = || missing(&folder.path().join("nope")).to_string();
        assert!(said().contains("nope: no such file (") && said().ends_with("has no saved chat; /save FILE writes one)"), "{}", said());
        let header = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("b.st", &header("{\"__metadata__\":{\"chat\":\"{}\"}}"));
        write("a", &header("{\"__metadata__\":{\"chat\":\"{}\"}}"));
        write("state.st", &header("{\"__metadata__\":{\"format\":\"x\"}}"));
        write("notes.txt", b"the \"chat\": of today");
        assert!(said().ends_with(": a, b.st)"), "{}", said());
        let elsewhere = missing(&folder.path().join("x/nope")).to_string();
        assert!(elsewhere.contains("there is no folder"), "{elsewhere}");
    }
}
