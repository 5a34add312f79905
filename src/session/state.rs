//! State files: one slot's memory as safetensors, written to a temporary name and renamed.

use super::{Memory, Session, Slot};
use crate::error::{Error, Result};
use crate::sample;
use crate::tape::State;
use crate::tensor::DType;
use crate::weights::{Checkpoint, Entry, read_safetensors, write_safetensors};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const FORMAT_VERSION: &str = "1";
/// How the names of tuned initial states end.
const TUNED: &str = ".att.time_state";

/// What a state file brought beside the slot.
#[derive(Debug, Clone, Default)]
pub struct LoadedState {
    /// The tokens that led here, where they were saved.
    pub tokens: Option<Vec<u32>>,
    /// Penalty counts and the place of the random stream, where they were saved.
    pub sampler: Option<sample::Memory>,
    /// Something the user should know: a tuned state, a hash that was not checked.
    pub note: Option<String>,
}

impl Session {
    /// Writes a slot's state. `tokens` and `sampler` are kept where given.
    pub fn save(&mut self, slot: Slot, path: &Path, tokens: Option<&[u32]>, sampler: Option<&sample::Memory>) -> Result<()> {
        let memory = self.memory(slot)?.clone();
        let tape = self.model().tape().clone();
        let mut tensors = Vec::new();
        for (i, spec) in tape.states.iter().enumerate() {
            let page = if spec.halves { self.pages.shift(memory.page) } else { memory.page };
            tensors.push((spec.name.clone(), DType::F32, spec.shape.clone(), f32_bytes(&self.executor.read_state(State(i), page)?)));
        }
        tensors.push(("last_logits".into(), DType::F32, vec![memory.logits.len()], f32_bytes(&memory.logits)));
        if let Some(tokens) = tokens {
            tensors.push(("tokens".into(), DType::I32, vec![tokens.len()], tokens.iter().flat_map(|t| t.to_le_bytes()).collect()));
        }
        let mut metadata: BTreeMap<String, String> = BTreeMap::new();
        let mut put = |k: &str, v: String| metadata.insert(k.into(), v);
        put("format_version", FORMAT_VERSION.into());
        put("architecture", self.model().facts().architecture.into());
        put("weights_hash", self.model().weights_hash().into());
        put("dtype", "f32".into());
        put("wingbeat", env!("CARGO_PKG_VERSION").into());
        put("n_tokens", memory.n_tokens.to_string());
        if let Some(sampler) = sampler {
            put("seed", sampler.seed.to_string());
            put("draws", sampler.draws.to_string());
            let ids = sampler.counts.iter().flat_map(|(id, _)| id.to_le_bytes()).collect();
            let counts: Vec<f32> = sampler.counts.iter().map(|(_, n)| *n).collect();
            tensors.push(("penalty_ids".into(), DType::I32, vec![counts.len()], ids));
            tensors.push(("penalty_counts".into(), DType::F32, vec![counts.len()], f32_bytes(&counts)));
        }
        let entry = |(name, dtype, shape, bytes): (String, DType, Vec<usize>, Vec<u8>)| Entry {
            name,
            dtype,
            shape,
            data: Box::new(move |out: &mut dyn Write| out.write_all(&bytes).map_err(|e| Error::io(e, path))),
        };
        write_safetensors(path, &metadata, tensors.into_iter().map(entry).collect(), &mut |_, _| ())
    }

    /// Opens a slot from a state file. A file of other weights is refused unless `any_weights`; a tuned initial state
    /// (`blocks.N.att.time_state`) carries no hash and is accepted with a note.
    pub fn load(&mut self, path: &Path, any_weights: bool) -> Result<(Slot, LoadedState)> {
        // A tuned state is a checkpoint: any file that we read, in whatever orientation it says or shows.
        let tuned = Checkpoint::open(path).ok().filter(|c| c.names().any(|n| n.ends_with(TUNED)));
        if let Some(checkpoint) = tuned {
            return self.load_tuned(&checkpoint);
        }
        let bytes = std::fs::read(path).map_err(|e| Error::io(e, path))?;
        self.load_bytes(&bytes, any_weights).map_err(|e| e.at(path.display()))
    }

    fn load_bytes(&mut self, bytes: &[u8], any_weights: bool) -> Result<(Slot, LoadedState)> {
        let (tensors, metadata) = read_safetensors(bytes)?;
        let mut loaded = LoadedState::default();
        let meta = |key: &str| metadata.get(key).map(String::as_str).unwrap_or("");
        if meta("format_version") != FORMAT_VERSION {
            let text = format!("expected a wingbeat state of format {FORMAT_VERSION}, found {:?}", meta("format_version"));
            return Err(Error::file(text).hint("make one with generate --save-state"));
        }
        let architecture = self.model().facts().architecture;
        if meta("architecture") != architecture {
            return Err(Error::model(format!("this state is of {:?}, the model is {architecture}", meta("architecture"))));
        }
        if meta("weights_hash") != self.model().weights_hash() {
            if !any_weights {
                return Err(Error::model("this state was made with other weights").hint("use --state-any to load it all the same"));
            }
            loaded.note = Some("this state was made with other weights".into());
        }
        let tape = self.model().tape().clone();
        let mut parts = Vec::new();
        for spec in &tape.states {
            parts.push(floats(&tensors, &spec.name, &spec.shape)?);
        }
        let n_vocab = self.model().facts().n_vocab;
        let logits = match tensors.get("last_logits") {
            Some((_, shape, _)) if shape == &[0] => Vec::new(),
            _ => floats(&tensors, "last_logits", &[n_vocab])?,
        };
        loaded.tokens = integers(&tensors, "tokens")?;
        if let (Some(ids), Some((_, shape, _))) = (integers(&tensors, "penalty_ids")?, tensors.get("penalty_counts")) {
            let number =
                |key: &str| meta(key).parse().map_err(|_| Error::file(format!("expected a number as {key}, found {:?}", meta(key))));
            let counts = floats(&tensors, "penalty_counts", &shape.clone())?;
            if ids.len() != counts.len() || ids.iter().any(|&id| id as usize >= n_vocab) {
                return Err(Error::file(format!("{} penalty ids do not fit {} counts and {n_vocab} tokens", ids.len(), counts.len())));
            }
            loaded.sampler =
                Some(sample::Memory { counts: ids.into_iter().zip(counts).collect(), seed: number("seed")?, draws: number("draws")? });
        }
        let n_tokens = meta("n_tokens").parse().unwrap_or(0);
        Ok((self.restore(&parts, logits, n_tokens)?, loaded))
    }

    /// `[H, value, key]` a layer, as the trainers write it; shift vectors start at zero.
    fn load_tuned(&mut self, checkpoint: &Checkpoint) -> Result<(Slot, LoadedState)> {
        let tape = self.model().tape().clone();
        let mut parts = Vec::new();
        for spec in &tape.states {
            parts.push(match spec.name.strip_suffix(".att.wkv") {
                Some(block) => checkpoint.require(&format!("{block}{TUNED}"), &spec.shape)?.to_f32()?,
                None => vec![0.0; spec.len()],
            });
        }
        let note = Some("a tuned initial state: it carries no hash of the weights that it was tuned for".into());
        Ok((self.restore(&parts, Vec::new(), 0)?, LoadedState { note, ..LoadedState::default() }))
    }

    /// A slot on a page of its own with these numbers, one vector a state of the tape.
    fn restore(&mut self, parts: &[Vec<f32>], logits: Vec<f32>, n_tokens: usize) -> Result<Slot> {
        let slot = self.open()?;
        self.pages.release(super::pages::ZERO);
        let page = self.pages.take();
        self.slots[slot.0] = Some(Memory { page, logits, n_tokens });
        let tape = self.model().tape().clone();
        for (i, (spec, values)) in tape.states.iter().zip(parts).enumerate() {
            let at = if spec.halves { self.pages.shift(page) } else { page };
            if let Err(e) = self.executor.write_state(State(i), at, values) {
                self.close(slot)?;
                return Err(e);
            }
        }
        Ok(slot)
    }
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

type Tensors<'a> = crate::weights::write::Tensors<'a>;

fn floats(tensors: &Tensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    match tensors.get(name) {
        Some((dtype, found, bytes)) if found == shape => crate::tensor::View::dense(*dtype, shape, bytes)?.to_f32().map_err(|e| e.at(name)),
        Some((_, found, _)) => Err(Error::file(format!("expected shape {shape:?}, found {found:?}")).at(name)),
        None => Err(Error::file(format!("expected a tensor of shape {shape:?}, found none")).at(name)),
    }
}

fn integers(tensors: &Tensors<'_>, name: &str) -> Result<Option<Vec<u32>>> {
    match tensors.get(name) {
        None => Ok(None),
        Some((DType::I32, _, bytes)) => Ok(Some(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())),
        Some((dtype, _, _)) => Err(Error::file(format!("expected I32, found {dtype}")).at(name)),
    }
}
