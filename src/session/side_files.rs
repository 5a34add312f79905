//! Collects the small files that a converted Hugging Face folder has beside the weights: vocabulary, chat template and generation settings.

use crate::error::Result;
use crate::vocab::Vocab;
use crate::weights::shards::SideFile;
use crate::weights::{Checkpoint, read_small};

/// The names of the files that are copied from the folder of the input model, if that folder is a Hugging Face folder.
const COPIED: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "fake_think_generation_config.json",
    "tools_generation_config.json",
];

/// Limit on the bytes of a copied file.
const MAX_BYTES: u64 = 32 << 20;

/// Returns the files to write beside the weights of a converted Hugging Face folder, as names and contents. Copies the files in `COPIED` that are
/// beside `input`'s `config.json`. If `vocab` uses greedy longest match, as RWKV's World vocabulary does, the files of `vocab` for Hugging Face
/// programs are added. Files of `vocab` replace copies with the same name.
///
/// # Errors
///
/// `File` if a file in the input's folder cannot be read or has more than 32 MiB.
pub fn side_files(input: &Checkpoint, vocab: Option<&Vocab>) -> Result<Vec<SideFile>> {
    let mut files: Vec<SideFile> = vocab.and_then(Vocab::hugging_face_files).into_iter().flatten().collect();
    let Some(folder) = input.config_path().and_then(|path| path.parent()) else { return Ok(files) };
    for name in COPIED {
        let path = folder.join(name);
        if !path.is_file() || files.iter().any(|(written, _)| written == name) {
            continue;
        }
        files.push((name.to_string(), read_small(&path, MAX_BYTES)?));
    }
    Ok(files)
}
