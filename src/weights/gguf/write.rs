//! Writes GGUF files as llama.cpp reads them: the reverse of the reader.
//!
//! A family of models describes its tensors and sizes ([`GgufModel`]). The caller adds the vocabulary and chooses the block types. This module knows
//! the container and the types, not the models.

use super::blocks::BlockType;
use super::header::DEFAULT_ALIGNMENT;
use super::model::{GgufModel, GgufTensor, Precision};
use super::types::TYPES;
use super::value::{GgufValue, append_text};
use crate::error::{Error, Result};
use crate::quant::{self, Format};
use crate::tensor::{DType, View};
use crate::weights::new_file::Readers;
use crate::weights::write::{FileHead, NewTensor, WriteData, data_bytes, write_file};
use crate::weights::{Checkpoint, GLM, Glm, write_view};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The content of a GGUF file that tensors and configuration do not determine.
#[derive(Default)]
pub struct GgufContent {
    /// Further metadata: the vocabulary and the chat template.
    pub values: Vec<(String, GgufValue)>,
    /// The formats of matrices that are written in blocks, by canonical name. A matrix whose rows are not whole blocks stays a float, and so do
    /// vectors and low-rank matrices, as in `llama-quantize`.
    pub formats: BTreeMap<String, &'static dyn Format>,
    /// The importance of each column, by the matrix's canonical name. While the matrix is encoded, the squared errors of a column are multiplied by
    /// its importance. Without an entry, all weights of a matrix count alike.
    pub importance: BTreeMap<String, Arc<[f32]>>,
}

/// An adapter that is merged into the weights while they are written.
pub(in crate::weights) trait Adapter {
    /// Returns the tensor that replaces the model's tensor `name`, or `None` if the adapter has no such tensor.
    fn replacement(&self, name: &str) -> Option<Result<View<'_>>>;

    /// Returns a function that writes the sum of the model's matrix `w` and its low-rank pair as `dtype`. Returns `None` if the adapter has no pair
    /// for the tensor `name`.
    fn merged<'a>(&'a self, name: &str, w: &View<'a>, dtype: DType) -> Option<WriteData<'a>>;
}

/// The options of [`write`].
pub(in crate::weights) struct GgufOptions<'a> {
    /// The type of floats, except tensors that llama.cpp needs as F32. `None` means F16.
    pub dtype: Option<DType>,
    /// The LoRA adapter that is merged into the weights.
    pub lora: Option<&'a dyn Adapter>,
    /// The vocabulary and the block types. `None` writes floats, without a vocabulary.
    pub content: Option<&'a GgufContent>,
}

/// The values of `general.file_type`, by the type of most weights.
const FILE_TYPES: [(DType, u32); 15] = [
    (DType::F32, 0),
    (DType::F16, 1),
    (DType::Q4_0, 2),
    (DType::Q4_1, 3),
    (DType::Q8_0, 7),
    (DType::Q5_0, 8),
    (DType::Q5_1, 9),
    (DType::Q2K, 10),
    (DType::Q3K, 12),
    (DType::Q4K, 15),
    (DType::Q5K, 17),
    (DType::Q6K, 18),
    (DType::IQ4NL, 25),
    (DType::IQ4XS, 30),
    (DType::BF16, 32),
];

/// Describes a checkpoint in the terms of llama.cpp.
///
/// # Errors
///
/// `Usage` if llama.cpp has no architecture or no tensor names for the model. `Model` if a tensor is missing or has an unsupported shape.
pub(in crate::weights) fn describe(input: &Checkpoint) -> Result<GgufModel> {
    let glm = input.metadata().get(GLM).map(|json| Glm::parse(json)).transpose()?;
    // This is not a method of `ModelFamily`: `FAMILIES` would then refer to the writers, and a WebAssembly module for browsers would contain them.
    match &glm {
        Some(glm) => match &glm.flash {
            Some(flash) => super::flash::write::model(input, glm, flash),
            None => super::glm::write::model(input, glm),
        },
        None => super::rwkv::write::model(input),
    }
}

/// Checks that llama.cpp has an architecture and names for the tensors of a checkpoint.
///
/// # Errors
///
/// The errors of [`describe`].
pub(crate) fn check(input: &Checkpoint) -> Result<()> {
    describe(input).map(drop)
}

/// The place of a canonical tensor in a GGUF file: the tensor `tensor` has `of` matrices, and the canonical tensor is matrix `index`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GgufPlace {
    pub tensor: String,
    pub index: usize,
    pub of: usize,
}

/// Returns the places of canonical tensors in GGUF files. The list is empty if llama.cpp has no names for the model's tensors.
pub(crate) fn places(input: &Checkpoint) -> BTreeMap<String, GgufPlace> {
    let tensors = describe(input).map_or_else(|_| Vec::new(), |model| model.tensors);
    let of_tensor = |t: GgufTensor| {
        let of = t.sources.len();
        t.sources.into_iter().enumerate().map(move |(index, source)| (source, GgufPlace { tensor: t.name.clone(), index, of }))
    };
    // In RWKV-7's first block, unused tensors of the file are copies of a canonical tensor. The place of the used tensor comes later in the list,
    // so it replaces the place of the unused copy in the map.
    tensors.into_iter().flat_map(of_tensor).collect()
}

/// Writes the checkpoint `input` to the GGUF file `out`. `convert` has checked the options and the paths.
///
/// # Errors
///
/// The errors of [`describe`]; `Model` if an element does not fit its type; `File` if the file cannot be written.
pub(in crate::weights) fn write(input: &Checkpoint, out: &Path, what: &GgufOptions<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let mut model = describe(input)?;
    if what.lora.is_none() {
        model.tensors.retain(|t| !is_tied_head(t, input));
    }
    let none = GgufContent::default();
    let content = what.content.unwrap_or(&none);
    let entries = model.tensors.iter().map(|tensor| entry(input, tensor, what, content)).collect::<Result<Vec<_>>>()?;

    let n_bytes = |dtype: DType| entries.iter().filter(|e| e.dtype == dtype).filter_map(data_bytes).sum::<u64>();
    let (_, file_type) = FILE_TYPES.into_iter().max_by_key(|(dtype, _)| n_bytes(*dtype)).expect("the list is not empty");
    let text = |text: &str| GgufValue::Text(text.to_string());
    let name = input.metadata().get("general.name").map_or(input.name(), String::as_str);
    let mut values = vec![
        ("general.architecture".to_string(), text(model.architecture)),
        ("general.type".to_string(), text("model")),
        ("general.name".to_string(), text(name)),
        ("general.file_type".to_string(), GgufValue::U32(file_type)),
        ("general.quantization_version".to_string(), GgufValue::U32(2)),
    ];
    values.extend(model.basename.map(|name| ("general.basename".to_string(), text(name))));
    values.extend(model.sizes.iter().map(|(key, value)| (format!("{}.{key}", model.architecture), value.clone())));
    values.extend(content.values.iter().cloned());
    if !values.iter().any(|(key, _)| key == "tokenizer.ggml.model") {
        values.push(("tokenizer.ggml.model".to_string(), text("no_vocab")));
    }
    let head = head(&values, &entries).map_err(|e| e.at(out.display()))?;
    write_file(Readers::Umask, out, &head, entries, progress)
}

/// Returns whether a tensor is an output matrix that shares the bytes of the embedding. llama.cpp needs no copy of it: without an output matrix, it
/// uses the embedding.
fn is_tied_head(tensor: &GgufTensor, input: &Checkpoint) -> bool {
    let place = |name: &str| input.slot(name).map(|slot| (slot.located.file, slot.located.bytes.clone()));
    let names = ["lm_head.weight", "model.embed_tokens.weight"];
    tensor.sources == names[..1] && place(names[0]) == place(names[1])
}

/// Substitutes for formats whose blocks of 256 weights do not divide a row, as pairs (format, substitute). llama-quantize chooses the same types.
const INSTEAD: [(&str, &str); 6] =
    [("q2_k", "iq4_nl"), ("q3_k", "iq4_nl"), ("iq4_xs", "iq4_nl"), ("q4_k", "q5_0"), ("q5_k", "q5_1"), ("q6_k", "q8_0")];

/// Returns the block type for rows of `width` weights: the type of `format`, or its substitute. `None` if a row is not whole blocks of either type.
fn whole_blocks(format: &'static dyn Format, width: usize) -> Option<BlockType> {
    let instead = INSTEAD.iter().find(|(name, _)| *name == format.name()).and_then(|(_, other)| quant::find(other).ok());
    let mut types = [Some(format), instead].into_iter().flatten().filter_map(BlockType::of);
    types.find(|blocks| width.is_multiple_of(blocks.block_len()))
}

fn entry<'a>(input: &'a Checkpoint, tensor: &GgufTensor, what: &GgufOptions<'a>, content: &GgufContent) -> Result<NewTensor<'a>> {
    let float = what.dtype.unwrap_or(DType::F16);
    let width = tensor.shape.last().copied().unwrap_or(1);
    let format = if tensor.precision == Precision::Blocks { one_format(tensor, content)? } else { None };
    let blocks = format.and_then(|format| whole_blocks(format, width));
    let dtype = match tensor.precision {
        Precision::Single => DType::F32,
        Precision::Float | Precision::Blocks => blocks.map_or(float, |blocks| blocks.dtype),
    };
    let part = |name: &String| {
        let importance = content.importance.get(name).cloned();
        Ok(Part { importance, ..Part::of(input, name, tensor.swapped, what.lora)? })
    };
    let parts = tensor.sources.iter().map(part).collect::<Result<Vec<_>>>()?;
    let order = tensor.order.clone();
    // The parts of a stack are encoded one after the other, so a layer of experts is never in memory as a whole.
    let data: WriteData<'a> = Box::new(move |out: &mut dyn Write| {
        if !order.is_empty() {
            let mut bytes = Vec::new(); // a low-rank matrix, which is small
            parts.iter().try_for_each(|part| part.write(dtype, &mut bytes))?;
            let size = bytes.len() / order.len();
            return order
                .iter()
                .try_for_each(|&i| out.write_all(&bytes[i * size..][..size]).map_err(|e| Error::io(e, Path::new("output"))));
        }
        parts.iter().try_for_each(|part| {
            match &blocks {
                Some(blocks) => part.write_blocks(blocks, width, out),
                None => part.write(dtype, out),
            }?;
            input.release(&part.name);
            Ok(())
        })
    });
    Ok(NewTensor { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), data })
}

/// Returns the format that the parts of a tensor have in common, or `None` if they are floats.
///
/// # Errors
///
/// `Usage` if the formats of two parts differ.
fn one_format(tensor: &GgufTensor, content: &GgufContent) -> Result<Option<&'static dyn Format>> {
    let of = |name: &String| content.formats.get(name).copied();
    let named = |name: &String| of(name).map_or("floats", |format| format.name());
    let first = &tensor.sources[0];
    match tensor.sources.iter().find(|name| named(name) != named(first)) {
        Some(other) => {
            let text = format!("the layout gguf has one type for all parts of a tensor, found {} and {}", named(first), named(other));
            let e = Error::usage(text).field("quant").at(format!("tensor {}", tensor.name));
            Err(e.hint(format!("give {first} and {other} the same format in `quant`")))
        }
        None => Ok(of(first)),
    }
}

/// A canonical tensor that is written.
struct Part<'a> {
    name: String,
    view: View<'a>,
    swapped: bool,
    lora: Option<&'a dyn Adapter>,
    /// The importance of the columns, or `None` if all weights count alike.
    importance: Option<Arc<[f32]>>,
}

impl<'a> Part<'a> {
    fn of(input: &'a Checkpoint, name: &str, swapped: bool, lora: Option<&'a dyn Adapter>) -> Result<Part<'a>> {
        let view = input.tensor(name).ok_or_else(|| Error::model("the tensor is not in memory").at(input.place_of(name)))?;
        let view = match lora.and_then(|lora| lora.replacement(name)) {
            Some(trained) => trained?.reshaped(view.shape()).expect("Lora::check compared the shapes"),
            None => view,
        };
        Ok(Part { name: name.to_string(), view, swapped, lora, importance: None })
    }

    /// Writes the elements as `dtype`, a float type, in the orientation of the file.
    fn write(&self, dtype: DType, out: &mut dyn Write) -> Result<()> {
        let Some(mut merged) =
            self.lora.and_then(|lora| lora.merged(&self.name, &self.view, if self.swapped { DType::F32 } else { dtype }))
        else {
            let view = if self.swapped { self.view.clone().transposed() } else { self.view.clone() };
            return write_view(&view, dtype, out);
        };
        if !self.swapped {
            return merged(out);
        }
        let mut bytes = Vec::new(); // a low-rank matrix, which is small
        merged(&mut bytes)?;
        write_view(&View::dense(DType::F32, self.view.shape(), &bytes)?.transposed(), dtype, out)
    }

    /// Writes the elements in blocks, in rows of `width` weights.
    fn write_blocks(&self, blocks: &BlockType, width: usize, out: &mut dyn Write) -> Result<()> {
        let importance = self.importance.as_deref();
        match self.lora.and_then(|lora| lora.merged(&self.name, &self.view, DType::F32)) {
            Some(mut merged) => blocks.encode(width, importance, &mut |sink| merged(sink), out),
            None => blocks.write(&self.view, importance, out),
        }
    }
}

/// Returns the header of a file with these metadata and tensors.
///
/// # Errors
///
/// `Input` if a tensor has a type that GGUF lacks or is too large.
pub(in crate::weights) fn head(values: &[(String, GgufValue)], entries: &[NewTensor<'_>]) -> Result<FileHead> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend((values.len() as u64).to_le_bytes());
    for (key, value) in values {
        append_text(key, &mut bytes);
        value.append(&mut bytes);
    }
    let alignment = DEFAULT_ALIGNMENT as u64;
    let mut offset = 0u64;
    for e in entries {
        let at = |error: Error| error.at(format!("tensor {}", e.name));
        let kind = TYPES.iter().find(|(_, dtype)| *dtype == e.dtype).map(|(id, _)| *id);
        let kind = kind.ok_or_else(|| at(Error::input(format!("a GGUF file has no type {}", e.dtype))))?;
        append_text(&e.name, &mut bytes);
        bytes.extend((e.shape.len() as u32).to_le_bytes());
        bytes.extend(e.shape.iter().rev().flat_map(|&d| (d as u64).to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        let end = data_bytes(e).and_then(|n| offset.checked_add(n)?.checked_next_multiple_of(alignment));
        offset = end.ok_or_else(|| at(Error::input(format!("the shape {:?} is too large", e.shape))))?;
    }
    bytes.resize(bytes.len().next_multiple_of(DEFAULT_ALIGNMENT), 0);
    let total = offset.checked_add(bytes.len() as u64).ok_or_else(|| Error::input("the sum of all tensors is too large"))?;
    Ok(FileHead { bytes, alignment, total })
}
