//! Chooses the vocabulary of a model by its number of embeddings.
//!
//! The number of embeddings identifies each published model family. A file in the model's folder is used only if its largest id is in the
//! family's range. With a wrong vocabulary a model writes fluent nonsense, which is worse than an error that names the right file.

#[cfg(test)]
mod tests;

use super::{Lists, Vocab};
use crate::error::{self, Error};
use crate::files;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The result of `choose`.
#[derive(Debug, Clone)]
pub enum Choice {
    /// The vocabulary of the model.
    Found(Vocab),
    /// No vocabulary fits.
    Missing {
        /// A hint for the user: the vocabulary that the model needs (if known), how to get it, and why files in the model's folder do not fit.
        hint: String,
    },
}

/// The number of embeddings of World models.
pub const WORLD_ROWS: usize = 65536;

/// A model family whose vocabulary is a file in the model's folder.
struct VocabFamily {
    name: &'static str,
    /// The numbers of embeddings of the family's models. Some models have more embeddings than the vocabulary has ids.
    n_vocab: &'static [usize],
    /// The possible values of the largest id in the family's file. This range distinguishes the file from another family's file with the same name.
    max_id: RangeInclusive<u32>,
    /// The possible names of the file, in order of preference. A name that other families also use comes last.
    files: &'static [&'static str],
    /// The address from which the first of `files` can be downloaded.
    origin: &'static str,
}

const FAMILIES: &[VocabFamily] = &[
    VocabFamily {
        name: "World",
        n_vocab: &[WORLD_ROWS],
        max_id: 65529..=65535,
        files: &["rwkv_vocab_v20230424.txt", "rwkv_vocab_v20230424.json", "tokenizer.json"],
        origin: "https://raw.githubusercontent.com/BlinkDL/ChatRWKV/main/tokenizer/rwkv_vocab_v20230424.txt",
    },
    VocabFamily {
        name: "GPT-NeoX-20B",
        n_vocab: &[50277, 50304],
        max_id: 50276..=50276,
        files: &["20B_tokenizer.json", "tokenizer.json"],
        origin: "https://raw.githubusercontent.com/BlinkDL/RWKV-LM/main/RWKV-v4neo/20B_tokenizer.json",
    },
    VocabFamily {
        name: "MIDI",
        n_vocab: &[20096],
        max_id: 20095..=20095,
        files: &["tokenizer-midi.json", "tokenizer.json"],
        origin: "https://raw.githubusercontent.com/BlinkDL/ChatRWKV/main/music/tokenizer-midi.json",
    },
    VocabFamily {
        name: "GLM-4",
        n_vocab: &[151552],
        // Newer models have more special tokens, such as `<think>`.
        max_id: 151342..=151551,
        files: &["tokenizer.model", "tokenizer.json"],
        origin: "https://huggingface.co/THUDM/glm-4-9b-chat/resolve/main/tokenizer.model",
    },
    VocabFamily {
        name: "GLM-4.7",
        n_vocab: &[154880],
        // A complete file contains the id 154829, the last special token that ends a text.
        max_id: 154829..=154879,
        files: &["tokenizer.json"],
        origin: "https://huggingface.co/zai-org/GLM-4.7-Flash/resolve/main/tokenizer.json",
    },
    VocabFamily {
        name: "Qwen2.5",
        n_vocab: &[151936, 152064],
        max_id: 151645..=151935,
        files: &["tokenizer.json"],
        origin: "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/resolve/main/tokenizer.json",
    },
    VocabFamily {
        name: "GLM-Edge",
        n_vocab: &[59264],
        max_id: 59259..=59263,
        files: &["tokenizer.json"],
        origin: "https://huggingface.co/zai-org/glm-edge-1.5b-chat/resolve/main/tokenizer.json",
    },
    VocabFamily {
        name: "ChatGLM3",
        n_vocab: &[65024],
        max_id: 64797..=64797,
        files: &["tokenizer.model"],
        origin: "https://huggingface.co/THUDM/chatglm3-6b/resolve/main/tokenizer.model",
    },
];

/// Chooses the vocabulary of a model with `n_vocab` embeddings. `folder` is the folder of the model's file.
///
/// | `n_vocab` | Vocabulary |
/// |---|---|
/// | 65536 | World, which is embedded (feature `embedded-model`), or from `folder` |
/// | 50277, 50304 | GPT-NeoX-20B, from `folder` |
/// | 20096 | MIDI, from `folder` |
/// | 151552 | GLM-4, from `folder` |
/// | 154880 | GLM-4.7, from `folder` |
/// | 151936, 152064 | Qwen2.5, from `folder` |
/// | 59264 | GLM-Edge, from `folder` |
/// | 65024 | ChatGLM3, from `folder` |
/// | other | the only vocabulary file in `folder` |
///
/// A family's file is used only if its largest id is in the family's range. For other models, the file is `rwkv_vocab*.txt`, `vocab.txt`,
/// `tokenizer.json` or `tokenizer.model`. The largest id in this file must be below `n_vocab` and at least `n_vocab / 2`. If the folder has
/// several of these files, no file is used. A file that does not fit or cannot be read is not an error, because a model can run on token ids alone.
/// The hint then names the file and the reason.
pub fn choose(n_vocab: usize, folder: Option<&Path>) -> Choice {
    #[cfg(feature = "embedded-model")]
    if n_vocab == WORLD_ROWS {
        return Choice::Found(Vocab::world());
    }
    match FAMILIES.iter().find(|f| f.n_vocab.contains(&n_vocab)) {
        Some(family) => in_family(family, folder),
        None => alone(n_vocab, folder),
    }
}

/// Creates the vocabulary that is stored in the model's own file. Returns the embedded World vocabulary instead if an RWKV model's tokens equal
/// World's. The `String` is a note for the user if an RWKV model has as many embeddings as World models, but other tokens. Without the feature
/// `embedded-model`, the note is `None`.
///
/// # Errors
/// `File` if the lists are damaged or of an unsupported kind, or if an id has no embedding.
pub fn own(n_vocab: usize, lists: &Lists) -> error::Result<(Vocab, Option<String>)> {
    let vocab = Vocab::from_lists(lists)?;
    if vocab.max_id() as usize >= n_vocab {
        return Err(Error::file(format!("the tokens have ids up to {}, but the model has {n_vocab} embeddings", vocab.max_id())));
    }
    #[cfg(feature = "embedded-model")]
    if lists.model == "rwkv" && n_vocab == WORLD_ROWS {
        let world = Vocab::world();
        let Some(id) = vocab.first_difference(&world) else { return Ok((world, None)) };
        let note = format!("the vocabulary in the model's file is used; its tokens differ from the World vocabulary, first at id {id}");
        return Ok((vocab, Some(note)));
    }
    Ok((vocab, None))
}

fn in_family(family: &VocabFamily, folder: Option<&Path>) -> Choice {
    let mut refused = String::new();
    for path in folder.iter().flat_map(|folder| family.files.iter().map(|name| folder.join(name))).filter(|p| files::is_file(p)) {
        match Vocab::open(&path) {
            Ok(vocab) if family.max_id.contains(&vocab.max_id()) => return Choice::Found(vocab),
            Ok(vocab) => refused += &format!("; {} ends at id {}, not {}", path.display(), vocab.max_id(), family.max_id.start()),
            Err(e) => refused += &format!("; {e}"),
        }
    }
    let VocabFamily { name, origin, .. } = family;
    Choice::Missing {
        hint: format!(
            "the model needs the {name} vocabulary: download {origin} into the model's folder, or name a file with `vocab`{refused}"
        ),
    }
}

fn alone(n_vocab: usize, folder: Option<&Path>) -> Choice {
    let missing = |why: String| Choice::Missing {
        hint: format!("name the file of the model's vocabulary, which has {n_vocab} ids, with `vocab`{why}"),
    };
    let found = folder.map(vocabularies).unwrap_or_default();
    let [path] = found.as_slice() else {
        let names: Vec<String> = found.iter().map(|p| p.display().to_string()).collect();
        let why = if names.is_empty() { String::new() } else { format!("; each of {} could be the file", names.join(", ")) };
        return missing(why);
    };
    match Vocab::open(path) {
        Ok(vocab) if vocab.max_id() as usize >= n_vocab || (vocab.max_id() as usize) < n_vocab / 2 => {
            missing(format!("; {} ends at id {}", path.display(), vocab.max_id()))
        }
        Ok(vocab) => Choice::Found(vocab),
        Err(e) => missing(format!("; {}", Error { hint: None, ..e })),
    }
}

/// Returns the files in a folder that have the name of a vocabulary file, sorted.
fn vocabularies(folder: &Path) -> Vec<PathBuf> {
    // `Path::parent` of a file name without a folder is empty
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(paths) = files::list(folder) else { return Vec::new() };
    let is_vocabulary = |name: &OsStr| {
        let name = name.to_string_lossy();
        matches!(&*name, "vocab.txt" | "tokenizer.json" | "tokenizer.model") || (name.starts_with("rwkv_vocab") && name.ends_with(".txt"))
    };
    let mut found: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.file_name().is_some_and(is_vocabulary) && files::is_file(path)).collect();
    found.sort();
    found
}
