//! The names in an adapter's file: which matrix of the model each tensor belongs to.
//!
//! An adapter uses the names of the file from which it was trained, and the model's file here may use other names. So each matrix that a pair
//! changes is renamed like a tensor of the model, with the shape of the pair's product.

use super::merge::Factor;
use crate::error::{Error, Result};
use crate::tensor::{DType, dense_strides};
use crate::weights::layout::{LAYOUT_KEY, Layout};
use crate::weights::located::LocatedTensor;
use crate::weights::orient::Facts;
use crate::weights::parts::CheckpointFiles;
use crate::weights::{Checkpoint, CheckpointInner, GLM, Glm, NameStyle, TensorSlot, folder, locate, names, or_damaged};
use crate::{files, weights};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The names under which PEFT saves an adapter, in the order in which PEFT looks for them.
const STANDARD: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];
/// The prefix that PEFT adds to every name.
const PEFT: &str = "base_model.model.";
/// The hint for tensors that do not fit the model.
pub(super) const OF_ANOTHER: &str = "use the model on which the adapter was trained";

/// The part that a tensor plays in a low-rank pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    A,
    B,
    Magnitude,
}

/// How an adapter stores A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A `[r, in]` and B `[out, r]` of a matrix `[out, in]`.
    Linear,
    /// A `[r, tokens]` and B `[width, r]` of an embedding `[tokens, width]`.
    Embedding,
    /// web-rwkv's form: A `[in, r]` and B `[out, r]`.
    Web,
}

/// Opens an adapter under the names of its file.
///
/// # Errors
///
/// The errors of [`Checkpoint::open`].
pub(super) fn open(path: &Path) -> Result<Checkpoint> {
    let path = find(path)?;
    let CheckpointFiles { maps, kind, tensors, metadata, path: of_file } = CheckpointFiles::open(&path).map_err(or_damaged)?;
    let mut slots: Vec<_> = tensors.into_iter().map(|located| (located.name.clone(), TensorSlot { located, swapped: false })).collect();
    slots.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, slot) in &slots {
        slot.check(&maps).map_err(|e| or_damaged(e).at(format!("tensor {name}")).at(path.display()))?;
    }
    if let Some(pair) = slots.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::file("two tensors have this name").at(format!("tensor {}", pair[0].0)).at(path.display()));
    }
    let index = slots.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
    let name = folder::model_name(&path);
    let style = NameStyle::Official;
    Ok(Checkpoint(Arc::new(CheckpointInner { maps, path: of_file, config: None, name, kind, style, metadata, slots, index })))
}

/// Returns the path of the adapter's file. A folder may also have the files of a model, which do not count if the adapter has its standard name.
fn find(path: &Path) -> Result<PathBuf> {
    let standard = STANDARD.iter().map(|name| path.join(name)).find(|file| files::is_folder(path) && files::is_file(file));
    standard.map_or_else(|| locate::resolve(path), Ok)
}

/// Splits a name such as `base_model.model.blocks.3.att.key.lora_A.weight`. Returns the name of the module, without PEFT's prefix, and the tensor's
/// part in the module's low-rank pair. Returns `None` if the name has another form.
pub(super) fn split(name: &str) -> Option<(&str, Part, Form)> {
    let bare = name.strip_suffix(".weight").unwrap_or(name);
    let ends = [
        (".lora_A", Part::A, Form::Linear),
        (".lora_B", Part::B, Form::Linear),
        (".lora_embedding_A", Part::A, Form::Embedding),
        (".lora_embedding_B", Part::B, Form::Embedding),
        (".lora_magnitude_vector", Part::Magnitude, Form::Linear),
    ];
    let of_peft = bare.strip_suffix(".default").unwrap_or(bare);
    let found = ends.into_iter().find_map(|(end, part, form)| Some((of_peft.strip_suffix(end)?, part, form)));
    // A name such as `w_lora.lora.0.weight` is a whole matrix of flash-linear-attention, so `.weight` is not stripped here.
    let of_web = [(".lora.0", Part::A), (".lora.1", Part::B)];
    let found = found.or_else(|| of_web.into_iter().find_map(|(end, part)| Some((name.strip_suffix(end)?, part, Form::Web))));
    found.map(|(module, part, form)| (without_prefix(module.strip_suffix(".weight").unwrap_or(module)), part, form))
}

/// Returns the name of the tensor that a fully trained tensor replaces, as the model on which the adapter was trained names it. `name` is the name
/// in the adapter.
pub(super) fn whole(name: &str) -> String {
    let name = without_prefix(name);
    name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".").replace(".base_layer.", ".")
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix(PEFT).unwrap_or(name)
}

/// Returns a placeholder for the matrix of a module while names are converted. No file has its data.
///
/// # Errors
///
/// `File` if the matrix is too large for this machine.
pub(super) fn matrix(module: &str, shape: [usize; 2]) -> Result<LocatedTensor> {
    weights::located::check_shape(&shape)?;
    Ok(LocatedTensor {
        name: format!("{module}.weight"),
        dtype: DType::F32,
        shape: shape.to_vec(),
        strides: dense_strides(&shape),
        bytes: 0..shape[0] * shape[1] * 4,
        scale: 1.0,
        file: 0,
        coding: None,
    })
}

/// A tensor that the adapter changes, under its name in the model.
pub(super) struct Target {
    /// The index of the tensor in the argument `changed` of [`targets`].
    pub index: usize,
    pub name: String,
    pub slot: TensorSlot,
}

/// Returns the tensors `changed` under their names in `model`. A joint matrix of queries, keys and values becomes three tensors, in this order.
/// `is_web` is true if the adapter has web-rwkv's names.
///
/// # Errors
///
/// `Model` if a joint matrix has a wrong shape, or if the adapter changes an unsupported vision encoder.
pub(super) fn targets(mut changed: Vec<LocatedTensor>, adapter: &Checkpoint, is_web: bool, model: &Checkpoint) -> Result<Vec<Target>> {
    // Renaming keeps the field `file`, so this field can hold a tensor's index meanwhile.
    let of_files: Vec<usize> = changed.iter().map(|t| t.file).collect();
    changed.iter_mut().enumerate().for_each(|(i, t)| t.file = i);
    let slots = match model.metadata().get(GLM) {
        Some(json) => names::glm::renamed(changed, &Glm::parse(json)?).map_err(|e| e.hint(OF_ANOTHER))?.0,
        None => {
            let declared = adapter.metadata().get(LAYOUT_KEY).and_then(|word| word.parse().ok());
            let dot_st = adapter.path().and_then(Path::extension).is_some_and(|e| e.eq_ignore_ascii_case("st"));
            let facts = Facts { dot_st, declared: declared.or(is_web.then_some(Layout::WebRwkv)) };
            names::rwkv_adapter(changed, &facts, &|name| model.shape(&official(name, model)).is_some())?
        }
    };
    let target = |mut slot: TensorSlot| {
        let index = std::mem::replace(&mut slot.located.file, 0);
        slot.located.file = of_files[index];
        Target { index, name: official(&slot.located.name, model), slot }
    };
    Ok(slots.into_iter().map(target).collect())
}

/// Replaces web-rwkv's name of a vector by the official name. The adapter's file does not show which style of names it uses. So a name is replaced
/// only if the model has the official name and not web-rwkv's name.
fn official(name: &str, model: &Checkpoint) -> String {
    let other = || Some(name.replace(".time_mix_", ".time_maa_").replace(".time_first", ".time_faaaa"));
    let other = Some(name).filter(|name| model.shape(name).is_none()).and_then(|_| other());
    other.filter(|other| model.shape(other).is_some()).unwrap_or_else(|| name.to_string())
}

/// Returns L and R, whose product L·R changes the matrix of a module in the module's orientation. `a` and `b` are the names of A and B.
pub(super) fn factors(a: &str, b: &str, form: Form) -> (Factor, Factor) {
    let of = |name: &str, is_transposed| Factor { name: name.to_string(), is_transposed };
    match form {
        Form::Linear => (of(b, false), of(a, false)),
        Form::Web => (of(b, false), of(a, true)),
        Form::Embedding => (of(a, true), of(b, true)),
    }
}
