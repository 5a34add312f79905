//! Which vocabulary a model needs, by the number of its embeddings, and where to find it.
//!
//! The published families are told apart by that number. A file beside the model is taken only when it can be no other
//! family's: a wrong vocabulary gives fluent nonsense, which is worse than an error that says what to fetch.

#[cfg(test)]
mod tests;

use super::Vocab;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What [`choose`] found.
#[derive(Debug, Clone)]
pub enum Choice {
    Found(Vocab),
    /// There is none; the hint says which one the model needs and where to get it.
    Missing {
        hint: String,
    },
}

/// Rows of World models' embeddings.
const WORLD_ROWS: usize = 65536;

/// A family whose vocabulary is a file beside the model.
struct Family {
    name: &'static str,
    /// Numbers of embeddings, with and without padding.
    n_vocab: &'static [usize],
    /// The largest id: what tells a file of this family from another's of the same name.
    max_id: u32,
    /// In order of preference. A name that other families use too comes last.
    files: &'static [&'static str],
    /// Where to get the first of `files`.
    origin: &'static str,
}

const FAMILIES: &[Family] = &[
    Family {
        name: "GPT-NeoX-20B",
        n_vocab: &[50277, 50304],
        max_id: 50276,
        files: &["20B_tokenizer.json", "tokenizer.json"],
        origin: "https://raw.githubusercontent.com/BlinkDL/RWKV-LM/main/RWKV-v4neo/20B_tokenizer.json",
    },
    Family {
        name: "MIDI",
        n_vocab: &[20096],
        max_id: 20095,
        files: &["tokenizer-midi.json", "tokenizer.json"],
        origin: "https://raw.githubusercontent.com/BlinkDL/ChatRWKV/main/music/tokenizer-midi.json",
    },
    Family {
        name: "GLM-4",
        n_vocab: &[151552],
        max_id: 151342,
        files: &["tokenizer.model", "tokenizer.json"],
        origin: "https://huggingface.co/THUDM/glm-4-9b-chat/resolve/main/tokenizer.model",
    },
    Family {
        name: "ChatGLM3",
        n_vocab: &[65024],
        max_id: 64797,
        files: &["tokenizer.model"],
        origin: "https://huggingface.co/THUDM/chatglm3-6b/resolve/main/tokenizer.model",
    },
];

/// The vocabulary of a model with `n_vocab` embeddings, whose file lies in `folder`.
///
/// 65536 is World, which is built in (feature `embedded-model`). 50277 and 50304 are GPT-NeoX-20B, 20096 is MIDI, 151552 is
/// GLM-4 and 65024 is ChatGLM3: their files are looked for in the folder, and must end at the family's last id. For any other
/// number the only vocabulary file in the folder is taken (`rwkv_vocab*.txt`, `vocab.txt`, `tokenizer.json` or
/// `tokenizer.model`), if its ids fill the embeddings at least by half and do not exceed them; of two files none is taken,
/// nobody could tell which. A file that does not fit or cannot be read is no error, since a model runs on token ids without a
/// vocabulary: the hint names it and says why it was left.
pub fn choose(n_vocab: usize, folder: Option<&Path>) -> Choice {
    if n_vocab == WORLD_ROWS {
        return world();
    }
    match FAMILIES.iter().find(|f| f.n_vocab.contains(&n_vocab)) {
        Some(family) => in_family(family, folder),
        None => alone(n_vocab, folder),
    }
}

#[cfg(feature = "embedded-model")]
fn world() -> Choice {
    Choice::Found(Vocab::world())
}

#[cfg(not(feature = "embedded-model"))]
fn world() -> Choice {
    let origin = "https://raw.githubusercontent.com/BlinkDL/ChatRWKV/main/tokenizer/rwkv_vocab_v20230424.txt";
    Choice::Missing { hint: format!("the model's is World: get {origin} and give it as the vocabulary, or build with embedded-model") }
}

fn in_family(family: &Family, folder: Option<&Path>) -> Choice {
    let mut left = String::new();
    for path in folder.iter().flat_map(|folder| family.files.iter().map(|name| folder.join(name))).filter(|p| p.is_file()) {
        match Vocab::open(&path) {
            Ok(vocab) if vocab.max_id() == family.max_id => return Choice::Found(vocab),
            Ok(vocab) => left += &format!("; {} ends at id {}, not {}", path.display(), vocab.max_id(), family.max_id),
            Err(e) => left += &format!("; {e}"),
        }
    }
    let Family { name, origin, .. } = family;
    Choice::Missing { hint: format!("the model's is {name}: get {origin} and put it beside the model, or give it with `vocab`{left}") }
}

fn alone(n_vocab: usize, folder: Option<&Path>) -> Choice {
    let missing =
        |why: String| Choice::Missing { hint: format!("give the model's own with `vocab`: none is known for {n_vocab} embeddings{why}") };
    let files = folder.map(vocabularies).unwrap_or_default();
    let [path] = files.as_slice() else {
        let names: Vec<String> = files.iter().map(|p| p.display().to_string()).collect();
        let why = if names.is_empty() { String::new() } else { format!(", and any of {} could be it", names.join(", ")) };
        return missing(why);
    };
    match Vocab::open(path) {
        Ok(vocab) if vocab.max_id() as usize >= n_vocab || (vocab.max_id() as usize) < n_vocab / 2 => {
            missing(format!(", and {} ends at id {}", path.display(), vocab.max_id()))
        }
        Ok(vocab) => Choice::Found(vocab),
        Err(e) => missing(format!("; {e}")),
    }
}

/// The files in a folder that are vocabularies by name, sorted.
fn vocabularies(folder: &Path) -> Vec<PathBuf> {
    // the folder of a bare file name is an empty path
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let is_vocabulary = |name: &OsStr| {
        let name = name.to_string_lossy();
        matches!(&*name, "vocab.txt" | "tokenizer.json" | "tokenizer.model") || (name.starts_with("rwkv_vocab") && name.ends_with(".txt"))
    };
    let mut files: Vec<PathBuf> =
        entries.flatten().filter(|e| is_vocabulary(&e.file_name())).map(|e| e.path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}
