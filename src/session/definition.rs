//! Reads the definition of a model from its file, and checks the file's tensors before weights are loaded.

use super::adapted::Adapted;
use super::options::{ModelSource, Options, Output, StateOrientation};
use crate::arch::{self, Blueprint, GROUP_NORM_EPS, Shapes};
use crate::error::{Error, Result, filled, size};
use crate::files::Reading;
use crate::quant::{self, Scaling};
use crate::tape::{Bytes, Source, Tape};
use crate::tensor::{DType, View};
use crate::weights::{Checkpoint, GLM, Glm, Lora};
use crate::words::synthetic::{MODEL_SEED, Synthetic};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The name of the embedded model.
pub const EMBEDDED: &str = "small-world";

/// Suffix of the tensor names of a tuned initial state: a trained state in which a text begins, in place of the empty state.
pub const TUNED: &str = ".att.time_state";

/// Returns whether a file is a tuned initial state and not a model.
pub fn is_tuned(checkpoint: &Checkpoint) -> bool {
    checkpoint.names().any(|name| name.ends_with(TUNED)) && checkpoint.shape("emb.weight").is_none()
}

/// A model before its weights are loaded: the source of the weights, the architecture with its sizes (blueprint), and the recorded program
/// (tape).
pub struct Definition {
    pub name: String,
    pub kind: String,
    pub blueprint: Box<dyn Blueprint>,
    pub tape: Tape,
    pub source: Box<dyn Source>,
    /// The folder that contains the file. `None` if the model is not a file.
    pub folder: Option<PathBuf>,
    /// The open checkpoint file. `None` for a synthetic model.
    pub checkpoint: Option<Checkpoint>,
    /// The hash of the LoRA adapter that `source` merges into the weights. `None` without an adapter.
    pub adapter: Option<String>,
}

impl Definition {
    /// Opens a model's source and reads the model's definition.
    ///
    /// # Errors
    /// `File` or `Model` if the file is damaged or not supported, or lacks a tensor; `Usage` if an option does not suit the model.
    pub fn new(source: &ModelSource, options: &Options) -> Result<Definition> {
        let checkpoint = match source {
            ModelSource::Path(path) => Checkpoint::open(path)?,
            ModelSource::Files { files, main: None } => Checkpoint::open(files.folder())?,
            ModelSource::Files { files, main: Some(main) } => Checkpoint::open(&files.path(main))?,
            #[cfg(feature = "embedded-model")]
            ModelSource::Embedded => embedded()?,
            ModelSource::Synthetic(name) => {
                if options.rope_theta.is_some() {
                    return Err(Error::usage("a synthetic model has no rotary base to change").hint("leave out `rope_theta`"));
                }
                let blueprint = arch::synthetic::named(name)?;
                let (source, tape) = (Box::new(Synthetic { seed: MODEL_SEED }), record(blueprint.as_ref(), options));
                return Ok(Definition {
                    name: name.clone(),
                    kind: "synthetic".into(),
                    blueprint,
                    tape,
                    source,
                    folder: None,
                    checkpoint: None,
                    adapter: None,
                });
            }
        };
        Definition::of(checkpoint, options)
    }

    /// Reads the definition of the model in an open file. Returns the same errors as [`new`](Self::new).
    pub fn of(checkpoint: Checkpoint, options: &Options) -> Result<Definition> {
        let place = checkpoint.path().map_or_else(|| checkpoint.name().to_string(), |p| p.display().to_string());
        let eps = options.group_norm_eps.map(|e| e.to_string());
        let glm = options.rope_theta.map(|theta| with_theta(&checkpoint, theta)).transpose().map_err(|e| e.at(&place))?;
        let shapes = Overridden { shapes: &checkpoint, group_norm_eps: eps.as_deref(), glm: glm.as_deref() };
        let blueprint = arch::detect(&shapes).map_err(|e| e.at(place))?;
        let tape = record(blueprint.as_ref(), options);
        let kind = if checkpoint.path().is_some() { checkpoint.kind() } else { "embedded" };
        let folder = checkpoint.path().and_then(Path::parent).map(Path::to_path_buf);
        let name = checkpoint.name().into();
        let kept = Some(checkpoint.clone());
        if checkpoint.is_ranged() && options.lora.is_some() {
            let e = Error::usage("an adapter needs the model's file on disk or in memory, but this file is read by ranges").field("lora");
            return Err(e.hint("merge the adapter with `wingbeat convert`"));
        }
        let lora = options.lora.as_ref().map(|(path, alpha)| Lora::open_for(path, *alpha, &checkpoint)).transpose()?;
        let source = oriented(checkpoint, options.state_orientation);
        let adapter = lora.as_ref().map(Lora::identity).transpose()?;
        let source = match lora {
            Some(lora) => Box::new(Adapted { source, lora }),
            None => source,
        };
        let definition = Definition { name, kind: kind.into(), blueprint, tape, source, folder, checkpoint: kept, adapter };
        definition.check()?;
        Ok(definition)
    }

    /// Checks that all tensors are present with the right shape, before memory is allocated for the weights.
    fn check(&self) -> Result<()> {
        for (name, shape, optional) in self.tape.tensors() {
            if !optional || self.source.has(name) {
                self.source.check(name, &shape)?;
            }
        }
        Ok(())
    }
}

fn record(blueprint: &dyn Blueprint, options: &Options) -> Tape {
    let mut tape = Tape::new();
    tape.ends_hidden = options.output == Output::Hidden;
    blueprint.record(&mut tape);
    tape
}

/// Returns notes for the user about a checkpoint: tensors that the model does not read, number types that are converted, and warnings about the
/// configuration.
pub fn notes(checkpoint: &Checkpoint, tape: &Tape) -> Vec<String> {
    let read: HashSet<&str> = tape.tensors().into_iter().map(|(name, ..)| name).collect();
    // Some trainers save tensors that no model reads. No note mentions these tensors.
    let is_left_over = |name: &str| name.contains(".ln0.") || ["v0", "v1", "v2"].iter().any(|n| name == format!("blocks.0.att.{n}"));
    // If steps return hidden states, the tape reads no tensor of the head. Embedding models and rerankers read their head on the host.
    let is_head = |name: &str| tape.ends_hidden && ["head.", "lm_head.", "score."].iter().any(|prefix| name.starts_with(prefix));
    let unread: Vec<&str> = checkpoint.names().filter(|n| !read.contains(n) && !is_left_over(n) && !is_head(n)).collect();
    let mut notes = Vec::new();
    if let Some(first) = unread.first() {
        let more = if unread.len() > 1 { format!(" and {} more tensors", unread.len() - 1) } else { String::new() };
        notes.push(format!("the model does not use the tensor {first}{more}"));
    }
    notes.extend(conversion_notes(checkpoint, tape));
    // If the user has overridden the base of rotary positions, the configuration's warnings do not apply and are left out.
    let as_said = |glm: &Glm| tape.rotary.is_some_and(|r| r.base == glm.rope_theta);
    if let Some(glm) = checkpoint.metadata().get(GLM).and_then(|json| Glm::parse(json).ok()).filter(as_said) {
        notes.extend(glm.warnings());
    }
    notes.extend(context_note(checkpoint.metadata()));
    notes
}

/// Returns notes about matrices whose format differs from the file's. Either the file has a block type without kernels, or a quantised matrix is
/// quantised again.
fn conversion_notes(checkpoint: &Checkpoint, tape: &Tape) -> Vec<String> {
    let mut seen = HashSet::new();
    // For each pair of types in the file and in memory: the number of tensors and of weights.
    let mut converted: BTreeMap<(DType, &str), (usize, usize)> = BTreeMap::new();
    for part in tape.matrices.iter().flat_map(|m| &m.parts) {
        let Some(dtype) = checkpoint.stored_dtype(&part.tensor).filter(|dtype| dtype.size_bytes().is_none()) else { continue };
        if !dtype.name().eq_ignore_ascii_case(part.format.name()) {
            let (tensors, weights) = converted.entry((dtype, part.format.name())).or_default();
            *tensors += usize::from(seen.insert(&part.tensor));
            *weights += part.rows * part.k;
        }
    }
    let note = |((dtype, format), (n, weights)): ((DType, &str), (usize, usize))| {
        if quant::find(format).is_ok_and(|format| format.scaling() != Scaling::None) {
            return format!("{n} tensors of {dtype} are converted to {format}, which does not restore precision");
        }
        let bytes = |format: &str| size(quant::find(format).map_or(0, |f| f.bytes_per_row(weights)) as u64);
        let other = match dtype {
            DType::MXFP4 => "q5_0",
            DType::TQ1_0 | DType::TQ2_0 => "q4_0",
            _ => return format!("{n} tensors of {dtype} are converted to {format}"),
        };
        let (now, then) = (bytes(format), bytes(other));
        format!("{n} tensors of {dtype} are converted to {format} and take {now}; with `quant` {other} they take {then}")
    };
    converted.into_iter().map(note).collect()
}

/// Returns a note if the context length in a GGUF file is not used, otherwise `None`. The context length is replaced if it is out of range or equals
/// the model's width: one converter writes the width by mistake.
fn context_note(metadata: &BTreeMap<String, String>) -> Option<String> {
    let used = Glm::parse(metadata.get(GLM)?).ok()?.max_context;
    let key = format!("{}.context_length", metadata.get("general.architecture")?);
    let said = metadata.get(&key).filter(|said| **said != used.to_string())?;
    Some(format!(
        "the file sets {key} to {said}, but the model has a context of {used} tokens, which is used; `context` sets another number"
    ))
}

/// A checkpoint's shapes and metadata, with the metadata values that the user has overridden.
struct Overridden<'a> {
    shapes: &'a Checkpoint,
    group_norm_eps: Option<&'a str>,
    glm: Option<&'a str>,
}

impl Shapes for Overridden<'_> {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.shapes.shape(tensor)
    }
    fn n_layer(&self) -> usize {
        self.shapes.n_layer()
    }
    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String> {
        self.shapes.find(is)
    }
    fn metadata(&self, key: &str) -> Option<&str> {
        let told = match key {
            GROUP_NORM_EPS => self.group_norm_eps,
            GLM => self.glm,
            _ => None,
        };
        told.or_else(|| Shapes::metadata(self.shapes, key))
    }
}

/// Opens the model that is embedded in the program: a trained RWKV-7 of 2 million parameters that knows a small world.
#[cfg(feature = "embedded-model")]
pub fn embedded() -> Result<crate::weights::Checkpoint> {
    crate::weights::Checkpoint::from_static(EMBEDDED, crate::assets::MODEL)
}

/// Returns the configuration of a GLM checkpoint as JSON, with `theta` as the base of the rotary position embedding.
///
/// # Errors
/// `Usage` if the checkpoint is not a GLM.
fn with_theta(checkpoint: &Checkpoint, theta: f64) -> Result<String> {
    let Some(said) = checkpoint.metadata().get(GLM) else {
        return Err(Error::usage("only a GLM has a rotary base to change").hint("leave out `rope_theta`"));
    };
    let glm = Glm { rope_theta: theta, ..Glm::parse(said)? };
    Ok(glm.to_json())
}

/// Wraps the checkpoint as a source of weights that returns initial states as `[heads, value, key]`. `orientation` is their index order in the file.
fn oriented(checkpoint: Checkpoint, orientation: StateOrientation) -> Box<dyn Source> {
    match orientation {
        StateOrientation::ValueKey => Box::new(checkpoint),
        StateOrientation::KeyValue => Box::new(Transposed(Box::new(checkpoint))),
    }
}

/// A checkpoint whose file has initial states as `[heads, key, value]`. Reading transposes these states to `[heads, value, key]`.
struct Transposed(Box<dyn Source>);

impl Source for Transposed {
    fn has(&self, name: &str) -> bool {
        self.0.has(name)
    }
    fn dtype(&self, name: &str) -> Option<DType> {
        self.0.dtype(name)
    }
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        match name.ends_with(TUNED) {
            true => self.0.with(name, shape, &mut |view| read(&view.clone().transposed())),
            false => self.0.with(name, shape, read),
        }
    }
    fn share(&self, name: &str, shape: &[usize]) -> Result<Option<Bytes>> {
        self.0.share(name, shape)
    }
    fn check(&self, name: &str, shape: &[usize]) -> Result<()> {
        self.0.check(name, shape)
    }
    fn release(&self, name: &str) {
        self.0.release(name);
    }
    fn is_ranged(&self) -> bool {
        self.0.is_ranged()
    }
    fn fetch<'a>(&'a self, names: &'a [&str]) -> Reading<'a, Option<Box<dyn Source>>> {
        Box::pin(async move { Ok(self.0.fetch(names).await?.map(|fetched| Box::new(Transposed(fetched)) as Box<dyn Source>)) })
    }
    fn elements<'a>(&'a self, wanted: &'a [(&str, &[usize], usize, usize)]) -> Reading<'a, Vec<Vec<f32>>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for &(name, shape, at, n) in wanted {
                if !name.ends_with(TUNED) {
                    found.extend(self.0.elements(&[(name, shape, at, n)]).await?);
                    continue;
                }
                // The elements are scattered in the file, so the whole tensor is read.
                let fetched = self.fetch(&[name]).await?;
                let mut numbers = vec![0.0; n];
                fetched.as_deref().unwrap_or(self).with(name, shape, &mut |view| view.read_f32(at, &mut numbers))?;
                found.push(numbers);
            }
            Ok(found)
        })
    }
}

/// Reads a file with a tuned initial state (a trained state in which a text begins). Returns one list of elements for each state of the tape, in the
/// order of the tape. State matrices are `[heads, value, key]`. Shift vectors (inputs of the previous token) are zeros if the file does not have
/// them.
///
/// # Errors
/// `Model` if the file does not fit the tape.
pub fn tuned(checkpoint: &Checkpoint, tape: &Tape, orientation: StateOrientation) -> Result<Vec<Vec<f32>>> {
    let found = checkpoint.names().filter(|n| n.ends_with(TUNED)).count();
    let expected = tape.states.iter().filter(|s| s.name.ends_with(".att.wkv")).count();
    if found > expected {
        return Err(Error::model(format!("expected a tuned state of {expected} layers, as in the model; found {found} layers")));
    }
    let source = oriented(checkpoint.clone(), orientation);
    let mut parts = Vec::new();
    for spec in &tape.states {
        let block = spec.name.strip_suffix(".att.wkv");
        if block.is_some() && !spec.is_matrices() {
            return Err(Error::model("RWKV-4 has no tuned initial states, because its state is not a matrix"));
        }
        let shift = spec.name.strip_suffix(".att.shift").map(|b| format!("{b}.att.ts_state")).filter(|name| source.has(name));
        let mut numbers = filled(0.0, spec.len(), &spec.name)?;
        if let Some(name) = block.map(|b| format!("{b}{TUNED}")).or(shift) {
            source.with(&name, &spec.shape, &mut |view| view.read_f32(0, &mut numbers))?;
        }
        parts.push(numbers);
    }
    Ok(parts)
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests;
