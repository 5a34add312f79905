//! Checkpoints: a file on disk becomes named tensors over a memory map, and named tensors become a file.
//!
//! Whatever a file's format, names and orientations are those of the official `.pth`, or of GLM in `transformers`: readers above
//! never ask which it was.
//! A file is hostile until shown otherwise: nothing in it is executed, and every size is checked before it is believed.
//! Knows no architecture: which tensors a model needs, and what they mean, is decided above.

mod archive;
mod coded;
mod config;
pub mod convert;
mod encode;
mod families;
mod folder;
mod gguf;
mod glm;
#[cfg(test)]
pub(crate) mod hostile;
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
#[cfg(test)]
pub(crate) mod testing;
pub mod write;

pub use config::{GROUP_NORM_EPS, LAYER_NORM_EPS};
pub use convert::{CodedTensors, Conversion, convert};
pub use encode::write_view;
pub use glm::{GLM, Glm};
pub(crate) use kinds::EXPECTED;
pub use layout::Layout;
pub use lora::Lora;
pub use new_file::{NewFile, Readers};
pub use write::{Entry, read_safetensors, write_safetensors};

use crate::error::{Error, Result};
use crate::tensor::View;
use config::ModelConfig;
#[cfg(feature = "cli")]
pub(crate) use folder::EXTENSIONS;
use locate::FileKind;
use located::Located;
use map::Map;
use names::Style;
use parts::Parts;
use serde_json::{Map as Object, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// N of a tensor of `blocks.N.`, or of `model.layers.N.` as GLM has it.
pub fn layer_of(name: &str) -> Option<usize> {
    let rest = name.strip_prefix("blocks.").or_else(|| name.strip_prefix("model.layers."))?;
    rest.split('.').next()?.parse().ok()
}

/// A family of models, as its files name it: what the official names are is the same for all its files.
trait Family: Sync {
    /// For messages.
    fn name(&self) -> &'static str;

    /// Whether a `config.json` with this `model_type`, or without one, describes a model of the family.
    fn is_model_type(&self, model_type: Option<&str>) -> bool;

    /// Reads a `config.json` of the family.
    fn config(&self, config: Object<String, Value>) -> Result<Box<dyn ModelConfig>>;

    /// What `general.architecture` of its GGUF files says.
    fn gguf_architectures(&self) -> &'static [&'static str];

    /// Lists the tensors of a GGUF file by their official names, and adds what the family needs to the metadata.
    fn gguf(&self, architecture: &str, header: &mut gguf::Header<'_>) -> Result<Vec<Located>>;

    /// Whether tensors of these names belong to the family. `glm` is what a configuration says, if it is a GLM's.
    fn recognises(&self, tensors: &[Located], glm: Option<&Glm>) -> bool;

    /// Gives tensors their official names and orientations; and whose names the file has.
    fn slots(&self, tensors: Vec<Located>, facts: &orient::Facts, glm: Option<&Glm>) -> Result<(Vec<Slot>, Style)>;
}

/// All families. The first that recognises a file has it, so what takes any names comes last.
static FAMILIES: &[&dyn Family] = &[&families::glm::GlmFiles, &families::rwkv::RwkvFiles];

/// An open checkpoint: named tensors over memory maps (or static bytes). Cheap to clone, shared between threads.
#[derive(Clone)]
pub struct Checkpoint(Arc<Inner>);

struct Inner {
    /// `Located::file` counts these.
    maps: Vec<Arc<Map>>,
    /// The file, or the index of several.
    path: Option<PathBuf>,
    config: Option<PathBuf>,
    name: String,
    kind: FileKind,
    style: Style,
    metadata: BTreeMap<String, String>,
    /// Canonical names, in natural order.
    slots: Vec<(String, Slot)>,
    index: HashMap<String, usize>,
}

/// Where a canonical tensor lies, and whether the file holds it with the last two dimensions swapped.
#[derive(Clone)]
struct Slot {
    located: Located,
    swapped: bool,
}

impl Slot {
    fn view<'a>(&self, maps: &'a [Arc<Map>]) -> Result<View<'a>> {
        let view = self.located.view(maps[self.located.file].bytes())?;
        Ok(if self.swapped { view.transposed() } else { view })
    }

    /// As the official file has it.
    fn shape(&self) -> Vec<usize> {
        let mut shape = self.located.shape.clone();
        if let (true, &mut [.., ref mut rows, ref mut cols]) = (self.swapped, &mut shape[..]) {
            std::mem::swap(rows, cols);
        }
        shape
    }
}

impl Checkpoint {
    /// Opens a file; a file name without its extension (`.safetensors`, `.st`, `.pth`, `.gguf`, in this order); the index of several
    /// files, or one of those; or a folder that holds exactly one checkpoint. In a folder of Hugging Face's form,
    /// `config.json` is read too, and beside a GLM in any case.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        let path = locate::resolve(path)?;
        let parts = Parts::open(&path)?;
        let is_bare_glm = || !parts.metadata.contains_key(GLM) && names::glm::recognises(&parts.tensors);
        let config = folder::config_of(&path).or_else(|| folder::config_beside(&path).filter(|_| is_bare_glm()));
        Self::build(parts, folder::model_name(&path), config).map_err(|e| e.at(path.display()))
    }

    /// A safetensors file that is part of the program.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Checkpoint> {
        let parts = Parts::one(Map::fixed(bytes), FileKind::Safetensors);
        parts.and_then(|parts| Self::build(parts, name.to_string(), None)).map_err(|e| e.at(name))
    }

    fn build(parts: Parts, name: String, config: Option<PathBuf>) -> Result<Checkpoint> {
        let Parts { maps, kind, tensors, mut metadata, path } = parts;
        let dot_st = path.as_deref().and_then(Path::extension).is_some_and(|e| e.eq_ignore_ascii_case("st"));
        let declared = match kind {
            FileKind::Gguf => Some(Layout::Official), // its reader has turned everything already
            _ => metadata.get(layout::LAYOUT_KEY).and_then(|word| word.parse().ok()),
        };
        let facts = orient::Facts { dot_st, declared };
        let said = config.as_deref().map(config::read).transpose()?;
        let is_tied = said.as_ref().is_some_and(|said| said.is_tied());
        let glm = match (said.as_ref().and_then(|said| said.glm()), metadata.get(GLM)) {
            (Some(glm), _) => Some(("config.json", glm.clone())),
            (None, Some(json)) => Some(("metadata", Glm::parse(json).map_err(|e| e.at(GLM))?)),
            (None, None) => None,
        };
        let (slots, style) = names::canonical(tensors, &facts, is_tied, glm.as_ref().map(|(_, glm)| glm))?;
        for (name, slot) in &slots {
            slot.view(&maps).map_err(|e| e.at(format!("tensor {name}")))?;
        }
        if let Some(said) = said {
            metadata.extend(config::metadata(said.as_ref(), &slots).map_err(|e| e.at("config.json"))?);
        }
        if let Some((whose, glm)) = glm {
            glm.check_tensors(&slots).map_err(|e| e.at(whose))?;
            metadata.insert(GLM.to_string(), glm.to_json());
        }
        let index = slots.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        log::debug!("{name}: {} tensors in {} files, {}, {} layout", slots.len(), maps.len(), kind.name(), style.name());
        Ok(Checkpoint(Arc::new(Inner { maps, path, config, name, kind, style, metadata, slots, index })))
    }

    /// The file, or the index of several; none if the bytes are part of the program.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// How many files hold the tensors.
    pub fn n_files(&self) -> usize {
        self.0.maps.len()
    }

    /// Every file that was read: those with tensors, their index, the configuration.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let beside = self.0.path.iter().chain(&self.0.config).map(PathBuf::as_path);
        self.0.maps.iter().filter_map(|map| map.path()).chain(beside)
    }

    /// The file's stem: its name without folder and extension. In a folder of Hugging Face's form, the folder's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// `pth`, `safetensors` or `gguf`, by content.
    pub fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// Whose names and orientations the file has: `official`, `web-rwkv`, `hf`, `fla`, `chatglm` or `gguf`.
    pub fn layout(&self) -> &'static str {
        match self.0.kind {
            FileKind::Gguf => self.kind(),
            _ => self.0.style.name(),
        }
    }

    /// Canonical names, as in the official `.pth` or in `transformers`' files of GLM; block 10 comes after block 9.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.slots.iter().map(|(name, _)| name.as_str())
    }

    /// A tensor by canonical name, in the official orientation. No byte moves.
    pub fn tensor(&self, name: &str) -> Option<View<'_>> {
        let (_, slot) = &self.0.slots[*self.0.index.get(name)?];
        slot.view(&self.0.maps).ok()
    }

    /// A tensor that must be there. Shapes are compared without their unit dimensions; the view has `shape`.
    pub fn require(&self, name: &str, shape: &[usize]) -> Result<View<'_>> {
        let place = || format!("{}: tensor {name}", self.place());
        let view = self.tensor(name).ok_or_else(|| Error::model(format!("expected shape {shape:?}, found no such tensor")).at(place()))?;
        let long = |s: &[usize]| -> Vec<usize> { s.iter().copied().filter(|&d| d != 1).collect() };
        let reshaped = (long(view.shape()) == long(shape)).then(|| view.reshaped(shape)).flatten();
        reshaped.ok_or_else(|| Error::model(format!("expected shape {shape:?}, found {:?}", view.shape())).at(place()))
    }

    /// The metadata of a safetensors file, numbers and short texts of a GGUF file (empty for a `.pth`), and what a `config.json`
    /// says that no shape tells. A GLM's has [`GLM`], whatever file it comes from.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// The bytes of the file that holds a tensor, to be kept without the rest of the checkpoint.
    pub fn file_of(&self, name: &str) -> Option<Arc<dyn AsRef<[u8]> + Send + Sync>> {
        let (_, slot) = &self.0.slots[*self.0.index.get(name)?];
        Some(self.0.maps[slot.located.file].clone())
    }

    /// Whether every file still has the length that was mapped: reading beyond a cut would end the process.
    pub fn check_uncut(&self) -> Result<()> {
        self.0.maps.iter().try_for_each(|map| map.check_uncut())
    }

    fn place(&self) -> String {
        self.path().map_or_else(|| self.0.name.clone(), |p| p.display().to_string())
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({}, {}, {} tensors)", self.place(), self.kind(), self.0.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;
    use testing::{Pickle, halves, pth, put, singles, zip};

    fn all_f32(c: &Checkpoint, name: &str) -> Vec<f32> {
        c.tensor(name).unwrap().to_f32().unwrap()
    }

    #[test]
    fn a_pth_with_strides_and_shared_storages() {
        let mut p = Pickle::dict();
        p.tensor("emb.weight", "0", DType::F32, 6, (0, &[3, 2], &[2, 1]));
        p.tensor("blocks.10.att.key.weight", "0", DType::F32, 6, (1, &[2, 2], &[1, 2])); // transposed, from element 1
        p.tensor("blocks.9.ln1.weight", "1", DType::BF16, 4, (2, &[1, 1, 2], &[9, 9, 1]));
        p.tensor("blocks.9.ln1.bias", "1", DType::BF16, 4, (0, &[2], &[1]));
        p.tensor("head.weight", "2", DType::F16, 2, (0, &[], &[]));
        let bf16: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        let file = zip(&[
            ("m/data.pkl", &p.stop()),
            ("m/byteorder", b"little"),
            ("m/data/0", &singles(&[0., 1., 2., 3., 4., 5.])),
            ("m/data/1", &bf16),
            ("m/data/2", &halves(&[7., 8.])),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let c = Checkpoint::open(&put(&dir, "model 1.5B.pth", &file)).unwrap();
        assert_eq!((c.name(), c.kind(), c.layout()), ("model 1.5B", "pth", "official"));
        let names = ["blocks.9.ln1.bias", "blocks.9.ln1.weight", "blocks.10.att.key.weight", "emb.weight", "head.weight"];
        assert_eq!(c.names().collect::<Vec<_>>(), names);
        assert_eq!(all_f32(&c, "emb.weight"), [0., 1., 2., 3., 4., 5.]);
        assert_eq!(all_f32(&c, "blocks.10.att.key.weight"), [1., 3., 2., 4.]);
        assert_eq!(all_f32(&c, "blocks.9.ln1.weight"), [3., 4.]);
        assert_eq!(all_f32(&c, "blocks.9.ln1.bias"), [1., 2.]);
        assert_eq!(all_f32(&c, "head.weight"), [7.]);
        assert_eq!(c.require("blocks.9.ln1.weight", &[2]).unwrap().shape(), [2]);
        let wrong = c.require("emb.weight", &[2, 3]).unwrap_err().to_string();
        assert!(wrong.contains("tensor emb.weight: expected shape [2, 3], found [3, 2]"), "{wrong}");
        assert!(c.require("no", &[1]).unwrap_err().to_string().contains("tensor no: expected"));
        c.check_uncut().unwrap();
        assert!(c.tensor("nothing").is_none());
        let clone = c.clone();
        std::thread::spawn(move || assert_eq!(all_f32(&clone, "head.weight"), [7.])).join().unwrap();
    }

    #[test]
    fn a_wrapped_state_dict_with_prefix_and_build() {
        let mut p = Pickle::dict();
        p.text("epoch").int(3).raw(b"s").text("state_dict").global("collections", "OrderedDict").raw(b")R");
        p.tensor("module.emb.weight", "k", DType::F32, 1, (0, &[1, 1], &[1, 1]));
        p.raw(b"}").text("_metadata").raw(b"}sb").raw(b"s");
        let file = zip(&[("x/data.pkl", &p.stop()), ("x/data/k", &singles(&[2.5]))]);
        let dir = tempfile::tempdir().unwrap();
        let c = Checkpoint::open(&put(&dir, "a.pth", &file)).unwrap();
        assert_eq!(all_f32(&c, "emb.weight"), [2.5]);
    }

    #[test]
    fn a_cut_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = put(&dir, "a.pth", &pth(&[("emb.weight", DType::F32, &[2], &singles(&[1., 2.]))]));
        let c = Checkpoint::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert!(c.check_uncut().unwrap_err().to_string().contains("shorter"), "{:?}", c.check_uncut());
    }
}
