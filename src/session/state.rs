//! State files: safetensors files with the contents of a slot. A state file is written under a temporary name and then renamed, so no incomplete
//! file remains.

mod checksum;
mod file;

use super::definition::{Definition, TUNED, tuned};
use super::identity::weights_hash;
use super::{Model, ModelSource, Options, Session, Slot, Snapshot};
use crate::error::{Error, Kind, Result, short, size, try_alloc};
use crate::sample::{self, Sampler};
use crate::tensor::DType;
use crate::weights::convert::refuse_same_file;
use crate::weights::write::{Tensors, safetensors_bytes, write_for};
use crate::weights::{Checkpoint, EXPECTED, NewTensor, Readers, read_safetensors};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub use checksum::{check_state_file, is_damaged};
use file::{StateFile, floats, from_hex, integers, number, penalty_counts};

const WEIGHTS_HASH: &str = "weights_hash";
/// The format version of new files. Version 1, without a checksum, is still read.
const FORMAT_VERSION: &str = "2";
/// Limit on the number of read tokens that a state file may declare. Sums with a number up to this limit do not overflow.
const MAX_TOKENS: usize = usize::MAX >> 8;
/// Limit on the number of token ids that a state file may list.
const MAX_KEPT_TOKENS: usize = 1 << 28;
/// The most bytes that a state file may have in addition to four times the bytes of a slot: four lists of ids.
const MAX_BESIDE: u64 = 16 * MAX_KEPT_TOKENS as u64;
/// Metadata key of the pending bytes, in hexadecimal digits. Later tokens decide whether these bytes become text: they are an incomplete character,
/// or the beginning of a stop text. Older files lack this key.
const PENDING: &str = "pending_bytes";

/// Contents to write to a state file in addition to the state itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct StateExtras<'a> {
    /// The tokens that the slot has read.
    pub tokens: Option<&'a [u32]>,
    /// The state of the sampler.
    pub sampler: Option<&'a sample::Memory>,
    /// Bytes after the text that may still become part of it: an incomplete character, or the beginning of a stop text
    /// ([`Text::pending`](super::Text::pending)).
    pub pending: &'a [u8],
    /// Keys and values of the caller's own metadata. Do not use keys that wingbeat writes: the caller's value would replace wingbeat's.
    pub metadata: &'a [(&'a str, String)],
}

/// Contents read from a state file in addition to the state itself.
#[derive(Debug, Clone, Default)]
pub struct LoadedState {
    /// The tokens that the slot has read, if they were saved.
    pub tokens: Option<Vec<u32>>,
    /// The state of the sampler (penalty counts, position in the random stream and more), if it was saved.
    pub sampler: Option<sample::Memory>,
    /// Bytes after the text that may still become part of it: an incomplete character, or the beginning of a stop text. Pass them to
    /// [`Text::begin_after`](super::Text::begin_after).
    pub pending: Vec<u8>,
    /// All metadata of the file: wingbeat's and the caller's keys with their values.
    pub metadata: BTreeMap<String, String>,
    /// A note for the user if the file is a tuned state or belongs to other weights, otherwise `None`.
    pub note: Option<String>,
}

impl LoadedState {
    /// Restores the sampler state of the file. A given `seed` replaces the saved seed and restarts the random stream. If the file has no sampler
    /// state, `sampler` reads the saved tokens instead, and `seed` has no effect.
    pub fn begin(&self, sampler: &mut Sampler, seed: Option<u64>) {
        let tokens = self.tokens.as_deref().unwrap_or_default();
        let Some(mut memory) = self.sampler.clone() else { return sampler.read(tokens) };
        if let Some(seed) = seed {
            (memory.seed, memory.draws) = (seed, 0);
        }
        // The saved sampler kept only as many tokens as its own settings need. `sampler` may need more, so it receives all saved tokens.
        if memory.recent.len() < tokens.len() {
            memory.recent = tokens.to_vec();
        }
        sampler.restore(memory);
    }
}

impl Snapshot {
    /// Writes a state file. The file can be loaded into any model with the same weights. If the model has attention and `extras` has no tokens, the
    /// file stores the tokens that the snapshot has recorded.
    ///
    /// # Errors
    /// `Model` if the snapshot belongs to other weights; `File` if the file cannot be written; `Input` if `path` is an existing file that is not a
    /// state file.
    pub fn save(&self, model: &Model, path: &Path, extras: StateExtras<'_>) -> Result<()> {
        self.file(model, extras)?.write(path)
    }

    /// Returns the bytes of the file that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// `Model` if the snapshot belongs to other weights; `Memory` if there is too little memory.
    pub fn bytes(&self, model: &Model, extras: StateExtras<'_>) -> Result<Vec<u8>> {
        self.file(model, extras)?.bytes()
    }

    fn file(&self, model: &Model, extras: StateExtras<'_>) -> Result<StateFile> {
        let StateExtras { tokens, sampler, pending, metadata } = extras;
        self.check_model(model)?;
        let tape = model.tape();
        let mut file = StateFile::new(model.facts().architecture, model.weights_hash());
        for (spec, values) in tape.states.iter().zip(&self.states) {
            file.floats(&spec.name, &spec.shape, values);
        }
        for (spec, rows) in tape.caches.iter().zip(&self.caches) {
            file.floats(&spec.name, &[self.n_tokens, spec.n_heads, spec.head_size], rows);
        }
        file.floats("last_logits", &[self.logits.len()], &self.logits);
        file.put("n_tokens", self.n_tokens.to_string());
        if let Some(matrices) = tape.states.iter().find(|s| s.is_matrices()) {
            file.put("state_dtype", matrices.format.name().into());
        }
        // With attention, `read_to` compares a slot's tokens with later texts, so the file keeps them.
        if let Some(tokens) = tokens.or(Some(self.tokens.as_slice()).filter(|_| !tape.caches.is_empty())) {
            file.integers("tokens", tokens.iter());
        }
        if let Some(sampler) = sampler {
            file.put("seed", sampler.seed.to_string());
            file.put("draws", sampler.draws.to_string());
            let (ids, counts): (Vec<u32>, Vec<u32>) = sampler.counts.iter().copied().unzip();
            file.integers("penalty_ids", ids.iter());
            file.integers("penalty_counts", counts.iter());
            if !sampler.recent.is_empty() {
                file.integers("recent_tokens", sampler.recent.iter());
            }
            if let Some(mu) = sampler.mu {
                file.put("mirostat_mu", mu.to_string());
            }
        }
        if !pending.is_empty() {
            file.put(PENDING, pending.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        metadata.iter().for_each(|(key, value)| file.put(key, value.clone()));
        Ok(file)
    }
}

impl Session {
    /// Writes the contents of a slot to a state file, with `tokens` and `sampler` if given.
    ///
    /// # Errors
    /// The errors of [`snapshot`](Self::snapshot) and [`Snapshot::save`].
    pub fn save(&mut self, slot: Slot, path: &Path, tokens: Option<&[u32]>, sampler: Option<&sample::Memory>) -> Result<()> {
        self.save_with(slot, path, StateExtras { tokens, sampler, ..StateExtras::default() })
    }

    /// Writes the contents of a slot to a state file, with additional content. Returns the same errors as [`save`](Self::save).
    pub fn save_with(&mut self, slot: Slot, path: &Path, extras: StateExtras<'_>) -> Result<()> {
        self.snapshot(slot)?.save(&self.model, path, extras)
    }

    /// Opens a slot with the contents of a state file. Refuses a state of other weights unless `any_weights` is true. Also accepts a tuned initial
    /// state: a trained state in tensors `blocks.N.att.time_state`. A tuned state does not name its weights, so the weights are not checked.
    /// [`LoadedState::note`] then says so.
    ///
    /// # Errors
    /// The errors of [`Snapshot::load`]; `Input` if all slots are in use.
    pub fn load(&mut self, path: &Path, any_weights: bool) -> Result<(Slot, LoadedState)> {
        let (snapshot, loaded) = Snapshot::load(&self.model, path, any_weights)?;
        Ok((self.restore(&snapshot)?, loaded))
    }
}

impl Snapshot {
    /// Reads a state file as [`Session::load`] does, without opening a slot.
    ///
    /// # Errors
    /// `File` if the file is not a state or is damaged; `Model` if the state belongs to another model; `Input` if the state has read more
    /// tokens than the context holds.
    pub fn load(model: &Model, path: &Path, any_weights: bool) -> Result<(Snapshot, LoadedState)> {
        // A tuned state can be in any kind of checkpoint file.
        let checkpoint = open(path)?;
        if checkpoint.names().any(|n| n.ends_with(TUNED)) {
            return load_tuned(model, &checkpoint).map_err(|e| e.at(path.display()));
        }
        if !is_saved(&checkpoint) {
            return Err(other_than_state(&checkpoint).at(path.display()));
        }
        let map = map_of(&checkpoint).map_err(|e| e.at(path.display()))?;
        Self::parse(model, (*map).as_ref(), any_weights).map_err(|e| e.at(path.display()))
    }

    fn parse(model: &Model, bytes: &[u8], any_weights: bool) -> Result<(Snapshot, LoadedState)> {
        let (tensors, metadata) = read_safetensors(bytes)?;
        let parsed = Self::parse_tensors(model, &tensors, &metadata, any_weights);
        // A sparse file can claim 100 GB. Such a file is wrong in any case, so nobody waits for its checksum.
        let most = model.slot_bytes().saturating_mul(4).saturating_add(MAX_BESIDE);
        if bytes.len() as u64 > most {
            let text = format!("expected a state of at most {}, found {}", size(most), size(bytes.len() as u64));
            return parsed.and_then(|_| Err(Error::file(text)));
        }
        // Damage can cause any other error, so a wrong checksum is reported first.
        checksum::check(&tensors, &metadata)?;
        parsed
    }

    fn parse_tensors(
        model: &Model,
        tensors: &Tensors<'_>,
        metadata: &BTreeMap<String, String>,
        any_weights: bool,
    ) -> Result<(Snapshot, LoadedState)> {
        let mut loaded = LoadedState::default();
        let meta = |key: &str| metadata.get(key).map(String::as_str).unwrap_or("");
        let shown = |key: &str| metadata.get(key).map_or_else(|| "no value".into(), |text| short(text, 40));
        let architecture = model.facts().architecture;
        if meta("architecture") != architecture {
            return Err(Error::model(format!("expected a state of the architecture {architecture}, found {}", shown("architecture"))));
        }
        if meta("weights_hash") != model.weights_hash() {
            if !any_weights {
                return Err(Error::model("the state was made with the weights of another model")
                    .hint("use the model that made the state, or accept the state with `any_weights`"));
            }
            loaded.note = Some("the state was made with the weights of another model".into());
        }
        let n_tokens = number("n_tokens", meta("n_tokens")).and_then(|n| check_length(model, n))?;
        let tape = model.tape().clone();
        let states = tape.states.iter().map(|spec| floats(tensors, &spec.name, &spec.shape)).collect::<Result<_>>()?;
        let n_vocab = model.facts().n_vocab;
        // The limit on each list. `n_tokens` alone is too small for `penalty_ids`: the sampler may have accepted tokens that the slot has not read.
        // `penalty_ids` has no duplicates, so `n_vocab` more entries are enough.
        let integers = |tensors: &Tensors<'_>, name: &str| integers(tensors, name, n_tokens.min(MAX_KEPT_TOKENS).saturating_add(n_vocab));
        let logits = match tensors.get("last_logits") {
            Some((_, shape, _)) if shape == &[0] => Vec::new(),
            _ => floats(tensors, "last_logits", &[model.n_outputs()])?,
        };
        loaded.tokens = integers(tensors, "tokens")?;
        if let Some(id) = loaded.tokens.iter().flatten().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::file(format!("expected token ids below {n_vocab}, found {id}")).at("tensor tokens"));
        }
        let counts = integers(tensors, "penalty_counts")?.map(penalty_counts);
        if let (Some(ids), Some(counts)) = (integers(tensors, "penalty_ids")?, counts) {
            let mut seen = std::collections::HashSet::new();
            if let Some(twice) = ids.iter().find(|id| !seen.insert(**id)) {
                return Err(Error::file(format!("the token id {twice} occurs twice in penalty_ids")));
            }
            if ids.len() != counts.len() || ids.iter().any(|&id| id as usize >= n_vocab) {
                let text = format!("expected as many penalty_ids as penalty_counts, all below {n_vocab}; found {}", ids.len());
                return Err(Error::file(format!("{text} ids and {} counts", counts.len())));
            }
            // Files of versions before DRY and mirostat lack `recent_tokens` and `mirostat_mu`.
            let recent = integers(tensors, "recent_tokens")?.unwrap_or_default();
            if let Some(id) = recent.iter().find(|&&id| id as usize >= n_vocab) {
                return Err(Error::file(format!("expected ids below {n_vocab}, found {id}")).at("recent_tokens"));
            }
            let mu = metadata.get("mirostat_mu").map(|text| number("mirostat_mu", text)).transpose()?;
            let counts = ids.into_iter().zip(counts).collect();
            loaded.sampler =
                Some(sample::Memory { counts, seed: number("seed", meta("seed"))?, draws: number("draws", meta("draws"))?, recent, mu });
        }
        let mut caches = Vec::new();
        for spec in &tape.caches {
            caches.push(floats(tensors, &spec.name, &[n_tokens, spec.n_heads, spec.head_size])?);
        }
        let tokens = loaded.tokens.clone().unwrap_or_default();
        let snapshot = Snapshot { weights: model.weights_hash().into(), states, caches, logits, n_tokens, tokens };
        loaded.pending = metadata.get(PENDING).map_or(Ok(Vec::new()), |text| from_hex(text))?;
        loaded.metadata = metadata.clone();
        Ok((snapshot, loaded))
    }
}

fn load_tuned(model: &Model, checkpoint: &Checkpoint) -> Result<(Snapshot, LoadedState)> {
    let states = tuned(checkpoint, model.tape(), model.state_orientation())?;
    let note = Some("a tuned initial state: the file has no hash, so the weights were not checked".into());
    let snapshot = Snapshot { weights: model.weights_hash().into(), states, ..Snapshot::default() };
    Ok((snapshot, LoadedState { note, ..LoadedState::default() }))
}

/// Returns `n_tokens`, or an error if it exceeds the context or `MAX_TOKENS`.
fn check_length(model: &Model, n_tokens: usize) -> Result<usize> {
    if let Some(context) = model.context().filter(|&context| n_tokens > context) {
        let text = format!("this state has read {n_tokens} tokens, but the context holds {context} tokens");
        return Err(Error::input(text).hint("use a larger `context`"));
    }
    match n_tokens > MAX_TOKENS {
        true => Err(Error::file(format!("expected a state of at most {MAX_TOKENS} tokens, found {n_tokens} tokens")).at("n_tokens")),
        false => Ok(n_tokens),
    }
}

/// The tokens and metadata of a state file, without states, KV cache and logits.
#[derive(Debug, Clone)]
pub struct SavedTokens {
    /// The tokens that the slot had read; empty if the file does not list them.
    pub tokens: Vec<u32>,
    /// The number of tokens that the slot had read.
    pub n_tokens: usize,
    /// True if the file has logits, so that sampling needs no further token.
    pub has_logits: bool,
    /// All metadata of the file.
    pub metadata: BTreeMap<String, String>,
}

/// Reads the tokens and metadata of a state file, without states, KV cache and logits.
///
/// # Errors
/// `File` if the file is not a saved state or is damaged.
pub fn saved_tokens(path: &Path) -> Result<SavedTokens> {
    let read = || {
        let checkpoint = open(path)?;
        if !is_saved(&checkpoint) {
            return Err(other_than_state(&checkpoint));
        }
        let map = map_of(&checkpoint)?;
        let (tensors, metadata) = read_safetensors((*map).as_ref())?;
        let tokens = integers(&tensors, "tokens", MAX_KEPT_TOKENS)?.unwrap_or_default();
        let n_tokens = number("n_tokens", metadata.get("n_tokens").map_or("", String::as_str))?;
        let has_logits = tensors.get("last_logits").is_some_and(|(_, shape, _)| shape != &[0]);
        Ok(SavedTokens { tokens, n_tokens, has_logits, metadata })
    };
    read().map_err(|e: Error| e.at(path.display()))
}

/// Maps a state file into memory. Copies nothing, because the file may declare huge tensors.
fn map_of(checkpoint: &Checkpoint) -> Result<std::sync::Arc<dyn AsRef<[u8]> + Send + Sync>> {
    checkpoint.check_uncut()?;
    let map = checkpoint.names().next().and_then(|name| checkpoint.file_of(name));
    map.ok_or_else(|| Error::file("the file has no tensors"))
}

/// Returns whether a file is a state that wingbeat saved.
pub fn is_saved(checkpoint: &Checkpoint) -> bool {
    checkpoint.metadata().contains_key(WEIGHTS_HASH)
}

const EXPECTED_STATE: &str = "expected a saved state or a tuned initial state";
const HOW_TO_SAVE: &str = "make a state with `Session::save`";

/// Opens the checkpoint file of a state. If `path` is a folder or is not a checkpoint, the error says that a state was expected.
fn open(path: &Path) -> Result<Checkpoint> {
    Checkpoint::open(path).map_err(|e| match e.message.strip_prefix(EXPECTED) {
        Some(found) => Error { hint: Some(HOW_TO_SAVE.into()), message: format!("{EXPECTED_STATE}{found}"), ..e },
        None if path.is_dir() => {
            Error { hint: Some("give the path of a state file".into()), message: format!("{EXPECTED_STATE}, found a folder"), ..e }
        }
        None => e,
    })
}

/// Returns the error for a checkpoint that is not a state. The message names the content of the checkpoint.
fn other_than_state(checkpoint: &Checkpoint) -> Error {
    let has = |is: &dyn Fn(&str) -> bool| checkpoint.names().any(is);
    let (found, hint) = if has(&|name| name.contains(".lora_A")) {
        ("a LoRA adapter", "merge the adapter into its model with `Conversion::lora`")
    } else if has(&|name| name == "emb.weight" || name.ends_with("embed_tokens.weight")) {
        ("a model", "give a model with `model`; make a state with `Session::save`")
    } else {
        ("other tensors", HOW_TO_SAVE)
    };
    Error::file(format!("{EXPECTED_STATE}, found {found}")).hint(hint)
}

/// Converts a tuned initial state to a state file for `model`. Loads no weights.
///
/// # Errors
/// `File` or `Model` if `from` is not a tuned state or does not fit the model; `Input` if `to` is the file `from`, the model's file, or an
/// existing file that is not a state file.
pub async fn tuned_into_state(from: &Path, model: &Path, options: &Options, to: &Path) -> Result<()> {
    let checkpoint = Checkpoint::open(from)?;
    if !checkpoint.names().any(|n| n.ends_with(TUNED)) {
        let e = Error::file("expected a tuned initial state, a file with tensors blocks.N.att.time_state; found no such tensor");
        return Err(e.hint("give the file of a tuned initial state, or leave out `state_of` to convert a model").at(from.display()));
    }
    let definition = Definition::new(&ModelSource::Path(model.to_path_buf()), options)?;
    refuse_same_file(&checkpoint, to)?;
    definition.checkpoint.iter().try_for_each(|c| refuse_same_file(c, to))?;
    let parts = tuned(&checkpoint, &definition.tape, options.state_orientation)?;
    let hash = weights_hash(&definition.tape, definition.source.as_ref(), definition.adapter.as_deref()).await?;
    let mut file = StateFile::new(definition.blueprint.facts().architecture, &hash);
    for (spec, numbers) in definition.tape.states.iter().zip(&parts) {
        file.floats(&spec.name, &spec.shape, numbers);
    }
    definition.tape.caches.iter().for_each(|c| file.floats(&c.name, &[0, c.n_heads, c.head_size], &[]));
    file.floats("last_logits", &[0], &[]);
    file.put("n_tokens", "0".into());
    file.write(to)
}

/// Checks that a state file may be written to `path`: no file is there, or the file is empty or a state file.
///
/// # Errors
/// `Input` if `path` is an existing file that is neither empty nor a state file.
pub fn check_replaceable(path: &Path) -> Result<()> {
    let is_other = path.metadata().is_ok_and(|m| m.is_file() && m.len() > 0) && !Checkpoint::open(path).is_ok_and(|found| is_saved(&found));
    if is_other {
        let e = Error::input("the file exists and is not a state file, so it is not replaced");
        return Err(e.at(path.display()).hint("choose another name for the state file"));
    }
    Ok(())
}
