//! Checkpoints: reads files as named tensors over memory maps, and writes named tensors to files.
//!
//! Tensors of every file format have the same *canonical* names and orientations, as in RWKV's official `.pth` or, for a GLM, in `transformers`. So
//! no other module depends on file formats.
//!
//! Every file is treated as hostile: nothing in it is executed, and every size is checked before it is used. This module knows no architecture:
//! `arch` determines which tensors a model needs, and what they mean.

mod archive;
mod calibration;
mod coded;
mod config;
pub mod convert;
mod encode;
mod families;
mod fetch;
mod folder;
mod gguf;
mod glm;
pub mod hf_folder;
#[cfg(test)]
pub(crate) mod hostile;
mod image;
mod index;
mod kinds;
mod layout;
mod locate;
mod located;
pub mod lora;
mod map;
mod names;
pub mod new_file;
mod orient;
mod parts;
mod pickle;
mod pth;
mod safetensors;
#[cfg(test)]
mod same;
#[cfg(test)]
mod sets;
pub mod shards;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod write;

pub use calibration::{Calibration, ColumnSums};
pub use config::{GROUP_NORM_EPS, HEAD_SIZE, LAYER_NORM_EPS, LERP_ORDER, STOP_IDS, ids, lerp_indices};
pub use convert::{CodedTensors, Conversion, convert};
pub use encode::write_view;
pub use fetch::FetchedTensors;
pub(crate) use gguf::shared_name;
pub(crate) use gguf::write::{GgufPlace, check as check_gguf, places as gguf_places};
pub use gguf::{GgufContent, GgufValue, TokenLists};
pub use glm::{FLASH, Flash, GLM, Glm};
pub(crate) use index::read_small;
pub(crate) use kinds::EXPECTED;
pub use layout::Layout;
pub use lora::Lora;
pub use new_file::{NewFile, Readers};
pub use pth::RERANKER_LAYERS;
pub use write::{NewTensor, read_safetensors, write_safetensors};

use crate::error::{Error, Kind, Result};
use crate::tensor::{DType, View};
use config::ModelConfig;
pub use folder::EXTENSIONS;
use locate::FileKind;
use located::LocatedTensor;
use map::Map;
use names::NameStyle;
use parts::CheckpointFiles;
use serde_json::{Map as Object, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the number N of the layer if `name` begins with `blocks.N.` (RWKV) or `model.layers.N.` (GLM), otherwise `None`.
pub fn layer_of(name: &str) -> Option<usize> {
    let rest = name.strip_prefix("blocks.").or_else(|| name.strip_prefix("model.layers."))?;
    rest.split('.').next()?.parse().ok()
}

/// A family of models, RWKV or GLM. Reads the names, the configuration and the GGUF metadata in the family's files.
trait ModelFamily: Sync {
    /// Returns the family's name, for messages.
    fn name(&self) -> &'static str;

    /// Returns true if a `config.json` with this `model_type` describes a model of the family. `None` means that the key is missing.
    fn is_model_type(&self, model_type: Option<&str>) -> bool;

    /// Reads a `config.json` of the family.
    fn config(&self, config: Object<String, Value>) -> Result<Box<dyn ModelConfig>>;

    /// Returns the values of `general.architecture` in the family's GGUF files.
    fn gguf_architectures(&self) -> &'static [&'static str];

    /// Returns the tensors of a GGUF file under their canonical names. Also adds metadata that the family needs to `header.metadata`.
    fn gguf(&self, architecture: &str, header: &mut gguf::Header<'_>) -> Result<Vec<LocatedTensor>>;

    /// Returns true if the tensors have names of this family. `glm` is the configuration of a GLM, if the checkpoint has one.
    fn recognises(&self, tensors: &[LocatedTensor], glm: Option<&Glm>) -> bool;

    /// Returns the tensors with their canonical names and orientations, and the style of the names in the file. `facts` is evidence for the
    /// orientations. `glm` is as in [`recognises`](ModelFamily::recognises).
    fn slots(&self, tensors: Vec<LocatedTensor>, facts: &orient::Facts, glm: Option<&Glm>) -> Result<(Vec<TensorSlot>, NameStyle)>;
}

/// All families. The first that recognises a file is chosen. RWKV is last, because it accepts any names.
static FAMILIES: &[&dyn ModelFamily] = &[&families::glm::GlmFiles, &families::rwkv::RwkvFiles];

/// Adds the hint that the file is damaged or unsupported, if the error has the kind `File` and no hint. Other errors stay unchanged.
fn or_damaged(e: Error) -> Error {
    if e.kind == Kind::File { e.hint("the file is damaged or unsupported: download the file again") } else { e }
}

/// An open checkpoint: named tensors over memory maps of files, or over static bytes. A clone is cheap, because it shares the maps. Several
/// threads may use one checkpoint.
#[derive(Clone)]
pub struct Checkpoint(Arc<CheckpointInner>);

struct CheckpointInner {
    /// The files that hold tensors. `LocatedTensor::file` is an index into this list.
    maps: Vec<Arc<Map>>,
    /// The path of the file, or of the index of several files. `None` if the bytes are static.
    path: Option<PathBuf>,
    /// The path of the `config.json`, or `None` if no configuration was read.
    config: Option<PathBuf>,
    name: String,
    kind: FileKind,
    style: NameStyle,
    metadata: BTreeMap<String, String>,
    /// The canonical names and their tensors, in natural order of the names.
    slots: Vec<(String, TensorSlot)>,
    index: HashMap<String, usize>,
}

/// The place of a canonical tensor in a file. `swapped` is true if the file stores the tensor's last two dimensions swapped.
#[derive(Clone)]
struct TensorSlot {
    located: LocatedTensor,
    swapped: bool,
}

impl TensorSlot {
    /// Returns a view of the tensor in the canonical orientation.
    fn view<'a>(&self, maps: &'a [Arc<Map>]) -> Result<View<'a>> {
        Ok(self.oriented(self.located.view(maps[self.located.file].bytes())?))
    }

    fn oriented<'a>(&self, view: View<'a>) -> View<'a> {
        if self.swapped { view.transposed() } else { view }
    }

    /// Checks that the tensor is inside its file. If the bytes are in memory, also checks that they fit the shape.
    fn check(&self, maps: &[Arc<Map>]) -> Result<()> {
        let map = &maps[self.located.file];
        match map.ranged() {
            Some(_) => self.located.check_inside(map.len()),
            None => self.view(maps).map(|_| ()),
        }
    }

    /// Returns the canonical shape of the tensor.
    fn shape(&self) -> Vec<usize> {
        let mut shape = self.located.shape.clone();
        if let (true, &mut [.., ref mut rows, ref mut cols]) = (self.swapped, &mut shape[..]) {
            std::mem::swap(rows, cols);
        }
        shape
    }
}

impl Checkpoint {
    /// Opens a checkpoint.
    ///
    /// `path` is one of
    /// - a file, or its name without the extension (`.safetensors`, `.st`, `.pth`, `.gguf`, tried in this order),
    /// - the index of several files (`.index.json`), or one of these files,
    /// - a folder that holds exactly one checkpoint.
    ///
    /// A `config.json` in the same folder is also read in two cases: if the files have standard names of `transformers`, or if the tensors
    /// belong to a GLM and the metadata have no configuration.
    ///
    /// # Errors
    ///
    /// `File` if a file is missing, truncated, damaged, hostile or in another format. `Model` if the configuration is unsupported or
    /// contradicts the tensors.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        let path = locate::resolve(path)?;
        let parts = CheckpointFiles::open(&path).map_err(or_damaged)?;
        let is_bare_glm = || !parts.metadata.contains_key(GLM) && names::glm::recognises(&parts.tensors);
        let config = folder::config_of(&path).or_else(|| folder::config_beside(&path).filter(|_| is_bare_glm()));
        Self::build(parts, folder::model_name(&path), config).map_err(|e| or_damaged(e).at(path.display()))
    }

    /// Opens a safetensors file whose bytes are part of the program. `name` is the checkpoint's name in messages.
    ///
    /// # Errors
    ///
    /// The errors of [`Checkpoint::open`].
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Checkpoint> {
        let parts = CheckpointFiles::one(Map::fixed(bytes), FileKind::Safetensors);
        parts.and_then(|parts| Self::build(parts, name.to_string(), None)).map_err(|e| e.at(name))
    }

    fn build(parts: CheckpointFiles, name: String, config: Option<PathBuf>) -> Result<Checkpoint> {
        let CheckpointFiles { maps, kind, tensors, mut metadata, path } = parts;
        let dot_st = path.as_deref().and_then(Path::extension).is_some_and(|e| e.eq_ignore_ascii_case("st"));
        let declared = match kind {
            FileKind::Gguf => Some(Layout::Official), // the GGUF reader returns the official orientation
            _ => metadata.get(layout::LAYOUT_KEY).and_then(|word| word.parse().ok()),
        };
        let facts = orient::Facts { dot_st, declared };
        let settings = config.as_deref().map(config::read).transpose()?;
        let is_tied = settings.as_ref().is_some_and(|settings| settings.is_tied());
        let glm = match (settings.as_ref().and_then(|settings| settings.glm()), metadata.get(GLM)) {
            (Some(glm), _) => Some(("config.json", glm.clone())),
            (None, Some(json)) => Some(("metadata", Glm::parse(json).map_err(|e| e.at(GLM))?)),
            (None, None) => None,
        };
        let (slots, style) = names::canonical(tensors, &facts, is_tied, glm.as_ref().map(|(_, glm)| glm))?;
        metadata.extend(names::metadata(&slots, style));
        for (name, slot) in &slots {
            slot.check(&maps).map_err(|e| e.at(format!("tensor {name}")))?;
        }
        if let Some(settings) = settings {
            metadata.extend(config::metadata(settings.as_ref(), &slots).map_err(|e| e.at("config.json"))?);
        }
        if let Some((whose, glm)) = glm {
            glm.check_tensors(&slots).map_err(|e| e.at(whose))?;
            metadata.insert(GLM.to_string(), glm.to_json());
        }
        let index = slots.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        log::debug!("{name}: {} tensors in {} files, {}, {} layout", slots.len(), maps.len(), kind.name(), style.name());
        Ok(Checkpoint(Arc::new(CheckpointInner { maps, path, config, name, kind, style, metadata, slots, index })))
    }

    /// Returns the path of the file, or of the index of several files. Returns `None` if the bytes are part of the program.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the path of the `config.json` that was read, or `None` if no configuration was read.
    pub fn config_path(&self) -> Option<&Path> {
        self.0.config.as_deref()
    }

    /// Returns the number of files that hold tensors.
    pub fn n_files(&self) -> usize {
        self.0.maps.len()
    }

    /// Returns the paths of all files that were read: the files with tensors, their index, and the configuration.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let beside = self.0.path.iter().chain(&self.0.config).map(PathBuf::as_path);
        self.0.maps.iter().filter_map(|map| map.path()).chain(beside)
    }

    /// Returns the file's name without folder and extension. Returns the folder's name instead if the checkpoint has an index, or standard names
    /// of `transformers` and a `config.json`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the file format, detected by content: `pth`, `safetensors` or `gguf`.
    pub fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// Returns the layout of names and orientations in the file: `official`, `web-rwkv`, `hf`, `decoder`, `fla`, `hybrid`, `chatglm` or
    /// `gguf`.
    pub fn layout(&self) -> &'static str {
        match self.0.kind {
            FileKind::Gguf => self.kind(),
            _ => self.0.style.name(),
        }
    }

    /// Returns the canonical names in natural order: block 10 comes after block 9.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.slots.iter().map(|(name, _)| name.as_str())
    }

    fn slot(&self, name: &str) -> Option<&TensorSlot> {
        Some(&self.0.slots[*self.0.index.get(name)?].1)
    }

    /// Returns a view of a tensor by its canonical name, in the canonical orientation. The view copies no elements. Returns `None` if no tensor has
    /// this name, or if the tensor's shape and bytes contradict each other. Also returns `None` if the tensor's file is read by ranges.
    pub fn tensor(&self, name: &str) -> Option<View<'_>> {
        self.slot(name)?.view(&self.0.maps).ok()
    }

    /// Returns the canonical shape of a tensor, or `None` if no tensor has this name.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.slot(name).map(TensorSlot::shape)
    }

    /// Returns the type of a tensor's elements in the file, or `None` if no tensor has this name.
    pub fn stored_dtype(&self, name: &str) -> Option<DType> {
        self.slot(name).map(|slot| slot.located.dtype())
    }

    /// Returns whether a tensor is multiplied by a scale when it is read.
    pub fn is_scaled(&self, name: &str) -> bool {
        self.slot(name).is_some_and(|slot| slot.located.scale != 1.0)
    }

    /// Returns a view of a tensor by its canonical name, reshaped to `shape`. The comparison of the shapes ignores dimensions of size 1.
    ///
    /// # Errors
    ///
    /// The errors of [`check_shape`](Self::check_shape).
    pub fn require(&self, name: &str, shape: &[usize]) -> Result<View<'_>> {
        self.check_shape(name, shape)?;
        let view = self.tensor(name).ok_or_else(|| Error::model("the tensor is not in memory: its file is read by ranges"));
        view.and_then(|view| reshaped(view, shape)).map_err(|e| e.at(self.place_of(name)))
    }

    /// Checks that a tensor exists, has the shape `shape`, and can be read as weights. The comparison ignores dimensions of size 1.
    ///
    /// # Errors
    ///
    /// `Model` if the tensor is missing, or has another shape or an unsupported type.
    pub fn check_shape(&self, name: &str, shape: &[usize]) -> Result<()> {
        let found = self.shape(name).ok_or_else(|| {
            Error::model(format!("the tensor is missing; the model needs it with the shape {shape:?}"))
                .hint("the file is incomplete, or was made for another model: download the file again, or use another file")
                .at(self.place_of(name))
        })?;
        let checked = match without_ones(&found) == without_ones(shape) {
            true => self.stored_dtype(name).map_or(Ok(()), DType::check_weight),
            false => Err(wrong_shape(&found, shape)),
        };
        checked.map_err(|e| e.at(self.place_of(name)))
    }

    /// Returns the place of a tensor for errors: the file and the name.
    pub(crate) fn place_of(&self, name: &str) -> String {
        format!("{}: tensor {name}", self.location())
    }

    /// Returns the metadata: all keys of a safetensors file, or the numbers and short texts of a GGUF file. The metadata also have the values of a
    /// `config.json` that shapes do not determine. A GLM has the key [`GLM`] in every file format.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// Reads the lists of the vocabulary in a GGUF file. Returns `None` if the file has no vocabulary or another format.
    ///
    /// # Errors
    ///
    /// `File` if a list is damaged, hostile or too long.
    pub fn token_lists(&self) -> Result<Option<TokenLists<'_>>> {
        match (self.0.kind, self.0.maps.first()) {
            (FileKind::Gguf, Some(map)) => TokenLists::read(map.bytes()).map_err(|e| e.at(self.location())),
            _ => Ok(None),
        }
    }

    /// Returns the metadata of a GGUF file whose keys begin with `prefix`, including arrays and long texts. Returns an empty list for other formats.
    ///
    /// # Errors
    ///
    /// `File` if the header is damaged.
    pub(crate) fn gguf_values(&self, prefix: &str) -> Result<Vec<(String, GgufValue)>> {
        let (FileKind::Gguf, Some(map)) = (self.0.kind, self.0.maps.first()) else { return Ok(Vec::new()) };
        let header = gguf::Header::read(map.bytes(), map.bytes().len() as u64).map_err(|e| e.at(self.location()))?;
        let values = header.raw_values(prefix).map_err(|e| e.at(self.location()))?;
        Ok(values.into_iter().map(|(key, bytes)| (key.to_string(), GgufValue::Copied(bytes.to_vec()))).collect())
    }

    /// Returns all bytes of the file that holds a tensor, or `None` if no tensor has this name. If the file is read by ranges, returns only its
    /// first bytes, which hold the header. The bytes stay valid after the checkpoint is dropped.
    pub fn file_of(&self, name: &str) -> Option<Arc<dyn AsRef<[u8]> + Send + Sync>> {
        let (_, slot) = &self.0.slots[*self.0.index.get(name)?];
        Some(self.0.maps[slot.located.file].clone())
    }

    /// Lets the pages of a mapped tensor leave the process's memory. They are read from the file again when they are needed.
    pub(crate) fn release(&self, name: &str) {
        if let Some(slot) = self.slot(name) {
            self.0.maps[slot.located.file].release(slot.located.bytes.clone());
        }
    }

    /// Checks that every file is still at least as long as its map. A read beyond the end of a truncated file would end the process.
    ///
    /// # Errors
    ///
    /// `File` if a file became shorter.
    pub fn check_uncut(&self) -> Result<()> {
        self.0.maps.iter().try_for_each(|map| map.check_uncut())
    }

    /// Returns the path of the checkpoint, or its name if the bytes are static.
    fn location(&self) -> String {
        self.path().map_or_else(|| self.0.name.clone(), |p| p.display().to_string())
    }
}

fn without_ones(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|&d| d != 1).collect()
}

fn wrong_shape(found: &[usize], needed: &[usize]) -> Error {
    Error::model(format!("the model needs the shape {needed:?}, found the shape {found:?}"))
        .hint("the file is damaged, or was made for another model: download the file again, or use another file")
}

/// Returns the view with the shape `shape`. Fails if the two shapes differ in more than dimensions of size 1.
fn reshaped<'a>(view: View<'a>, shape: &[usize]) -> Result<View<'a>> {
    view.reshaped(shape).ok_or_else(|| wrong_shape(view.shape(), shape))
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({}, {}, {} tensors)", self.location(), self.kind(), self.0.slots.len())
    }
}
