//! Rewrites a checkpoint as safetensors: in the official layout, in web-rwkv's layout for programs that read `.st`, or as a Hugging Face
//! folder. Also writes GGUF files for llama.cpp.
//!
//! The values of tensors change only if their type changes, if a matrix is quantised, or if an adapter is merged. Tensors are written in small
//! blocks. Only a tensor that is both merged and quantised is in memory as a whole.

use super::gguf::GgufContent;
use super::gguf::write::{self as gguf, GgufOptions};
use super::hf_folder;
use super::layout::{LAYOUT_KEY, Layout};
use super::names::to_web;
use super::orient::swapped_by_web;
use super::shards::{self, SideFile};
use super::write::{NewTensor, WriteData, write_safetensors};
use super::{Calibration, Checkpoint, GLM, Lora, coded, config, write_view};
use crate::error::{Error, Result};
use crate::quant::Coding;
use crate::tensor::{DType, View};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The matrices that [`convert()`] quantises.
pub struct CodedTensors<'a> {
    /// The coding of each matrix, by its canonical name.
    pub codings: BTreeMap<String, Coding>,
    /// Writes the codes and the scales of a matrix. The first argument is the canonical name of the matrix.
    pub write: &'a dyn Fn(&str, &mut dyn Write) -> Result<()>,
}

/// The options of [`convert()`].
#[derive(Clone, Copy, Default)]
pub struct Conversion<'a> {
    /// The type to which floating-point tensors are converted. Integers keep their type. With `None`, F32, F16 and BF16 stay as they are, and
    /// quantised matrices and GGUF blocks become F16. In web-rwkv's layout and in GGUF files, `None` means F16. Tensors that llama.cpp needs as F32
    /// are always F32 in GGUF files.
    pub dtype: Option<DType>,
    /// The layout of the written files.
    pub layout: Layout,
    /// The LoRA adapter that is merged into the weights.
    pub lora: Option<&'a Lora>,
    /// The importance of columns, for the encoders of quantised matrices.
    pub calibration: Option<&'a Calibration>,
    /// The matrices to quantise. Only the official layout supports quantised matrices.
    pub coded: Option<&'a CodedTensors<'a>>,
    /// The vocabulary and the block types of a GGUF file. Only [`Layout::Gguf`] uses this field. `None` writes floats, without a vocabulary.
    pub gguf: Option<&'a GgufContent>,
    /// Small files to add to a folder beside the weights, such as a vocabulary. A conversion to one file ignores this list.
    pub files: &'a [SideFile],
    /// The maximum number of bytes of a file with weights. If set, `out` is a folder that is created: the weights in shards, their index, and a
    /// manifest with hashes.
    pub shard_bytes: Option<u64>,
}

/// Writes all tensors of `input` to the safetensors or GGUF file `out`, or to the folder `out` in the layout of Hugging Face. `progress` is called
/// with the bytes written so far and the bytes in total.
///
/// # Errors
///
/// `Usage` if the options contradict each other or if `out` is a file of the input. `Model` if an element does not fit the type, or if the
/// adapter belongs to another model. `File` if the output cannot be written, or if `out` is a folder that is not empty.
pub fn convert(input: &Checkpoint, out: &Path, what: &Conversion<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let Conversion { dtype, layout, lora, coded, gguf: content, files, shard_bytes, calibration: _ } = *what;
    if let Some(d) = dtype.filter(|d| !d.is_writable()) {
        return Err(Error::usage(format!("expected F32, F16 or BF16 as the number type to write, found {d}")));
    }
    if layout != Layout::Official && coded.is_some() {
        return Err(Error::usage(format!("the layout {layout} has no quantised matrices")).hint("leave out `quant` or `layout`"));
    }
    if layout == Layout::HuggingFace && input.tensor("blocks.0.att.r_k").is_none() {
        let e = Error::usage("the layout hf exists for RWKV-7 only").at(input.location());
        return Err(e.hint("leave out `layout`"));
    }
    let others = [(GLM, "is a GLM"), (config::STOP_IDS, "has the body of Qwen2")];
    let other = others.into_iter().find(|(key, _)| layout == Layout::WebRwkv && input.metadata().contains_key(*key));
    if let Some((_, what)) = other {
        let e = Error::usage(format!("the layout web-rwkv is for RWKV models only, and this model {what}")).at(input.location());
        return Err(e.hint("convert the model without `layout=web-rwkv`"));
    }
    if layout == Layout::Gguf && shard_bytes.is_some() {
        return Err(Error::usage("the layout gguf writes one file, not a folder").hint("leave out `shard` or `layout`"));
    }
    for checkpoint in [Some(input), lora.map(Lora::checkpoint)].into_iter().flatten() {
        refuse_same_file(checkpoint, out)?;
        checkpoint.check_uncut()?;
    }
    if let Some(lora) = lora {
        lora.check(input)?;
    }
    if layout == Layout::Gguf {
        let lora = lora.map(|lora| lora as &dyn gguf::Adapter);
        return gguf::write(input, out, &GgufOptions { dtype, lora, content }, progress);
    }
    let mut metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    // Shapes do not determine the two epsilons, so the new file's metadata must have them.
    let epsilons = [config::GROUP_NORM_EPS, config::LAYER_NORM_EPS].into_iter().filter_map(|key| input.metadata().get_key_value(key));
    metadata.extend(epsilons.map(|(key, value)| (key.clone(), value.clone())));
    if layout == Layout::Official {
        metadata.extend(input.metadata().clone());
        metadata.insert(LAYOUT_KEY.to_string(), layout.name().to_string());
    }
    let views = || input.names().map(|name| (name, input.tensor(name).expect("names() lists what tensor() finds")));
    let mut entries = Vec::new();
    let mut codings: Vec<(&str, Coding, Vec<usize>)> = Vec::new();
    if let Some(coded) = coded {
        codings = views().filter_map(|(name, view)| Some((name, *coded.codings.get(name)?, view.shape().to_vec()))).collect();
        for (name, coding, shape) in &codings {
            let (name, coding) = (*name, *coding);
            let (rows, k) = coding.sides(shape);
            let n_bytes = coding.size_bytes(rows, k).expect("a view of the numbers exists");
            let data: WriteData<'_> = Box::new(move |out: &mut dyn Write| (coded.write)(name, out));
            entries.push(NewTensor { name: name.to_string(), dtype: DType::U8, shape: vec![n_bytes], data });
        }
    }
    for (name, view) in views().filter(|(name, _)| !coded.is_some_and(|c| c.codings.contains_key(*name))) {
        let wanted = match layout {
            Layout::Official | Layout::HuggingFace if view.dtype().is_writable() => dtype.unwrap_or(view.dtype()),
            // Safetensors files cannot have the block formats of GGUF files, so F16 replaces these formats by default. In web-rwkv's layout, the
            // default is F16 for all tensors, because web-rwkv reads F16.
            _ => dtype.unwrap_or(DType::F16),
        };
        let hf_name = if layout == Layout::HuggingFace { hf_folder::name_of(name)? } else { None };
        if layout == Layout::HuggingFace && hf_name.is_none() {
            continue;
        }
        let dtype = if view.dtype().is_weight() { wanted } else { view.dtype() };
        let view = match lora.and_then(|lora| lora.replacement(name)) {
            Some(trained) => trained?.reshaped(view.shape()).expect("check() compared the shapes"),
            None => view,
        };
        if let Some(data) = lora.and_then(|lora| lora.merged(name, &view, dtype)) {
            // Merged matrices have the same orientation in all layouts, and another name only in the layout of Hugging Face.
            entries.push(NewTensor { name: hf_name.unwrap_or_else(|| name.to_string()), dtype, shape: view.shape().to_vec(), data });
            continue;
        }
        entries.push(match (layout, hf_name) {
            (Layout::WebRwkv, _) => web_entry(input, name, view, dtype)?,
            (_, Some(hf_name)) => entry(hf_name, hf_folder::squeezed(view), dtype, 1),
            (_, None) => entry(name.to_string(), view, dtype, 1),
        });
    }
    if layout == Layout::HuggingFace {
        return hf_folder::write(input, out, entries, files, shard_bytes, progress);
    }
    // The metadata of a shard must not describe matrices of other shards, because the reader refuses names that its file lacks.
    let metadata = |entries: &[NewTensor<'_>]| {
        let own = codings.iter().filter(|(name, ..)| entries.iter().any(|entry| entry.name == *name));
        let mut metadata = metadata.clone();
        metadata.extend(coded::describe(own.map(|(name, coding, shape)| (*name, *coding, &shape[..]))));
        metadata
    };
    match shard_bytes {
        Some(most) => shards::write(out, entries, &metadata, files, most, progress),
        None => write_safetensors(out, &metadata(&entries), entries, progress),
    }
}

impl gguf::Adapter for Lora {
    fn replacement(&self, name: &str) -> Option<Result<View<'_>>> {
        Lora::replacement(self, name)
    }

    fn merged<'a>(&'a self, name: &str, w: &View<'a>, dtype: DType) -> Option<WriteData<'a>> {
        Lora::merged(self, name, w, dtype)
    }
}

/// Returns the file entry of a tensor. If `repeat` is more than 1, each element is written `repeat` times, and the shape has an additional last
/// dimension of size `repeat`.
fn entry<'a>(name: String, view: View<'a>, dtype: DType, repeat: usize) -> NewTensor<'a> {
    let mut shape = view.shape().to_vec();
    let data: WriteData<'a> = if repeat == 1 {
        Box::new(move |out: &mut dyn Write| write_view(&view, dtype, out))
    } else {
        shape.push(repeat);
        Box::new(move |out: &mut dyn Write| {
            let mut bytes = Vec::new(); // one number per head
            write_view(&view, dtype, &mut bytes)?;
            let size = dtype.size_bytes().expect("write_view wrote numbers one by one");
            let repeated: Vec<u8> = bytes.chunks(size).flat_map(|number| number.repeat(repeat)).collect();
            out.write_all(&repeated).map_err(|e| Error::io(e, Path::new("output")))
        })
    };
    NewTensor { name, dtype, shape, data }
}

/// Returns the file entry of a tensor in web-rwkv's layout.
fn web_entry<'a>(input: &'a Checkpoint, name: &str, view: View<'a>, dtype: DType) -> Result<NewTensor<'a>> {
    let view = if swapped_by_web(name) { view.transposed() } else { view };
    // RWKV-5.0 and 5.1 have one decay and one bonus per head. web-rwkv expects both per channel, [H, S], so each element is repeated S times.
    let block = name.strip_suffix("time_decay").or_else(|| name.strip_suffix("time_faaaa")).or_else(|| name.strip_suffix("time_first"));
    let norm = block.and_then(|b| input.tensor(&format!("{b}ln_x.weight"))).map(|v| v.len());
    let Some(width) = norm.filter(|_| view.shape().len() == 1) else {
        return Ok(entry(to_web(name), view, dtype, 1));
    };
    if name.ends_with("time_first") {
        return Err(Error::model("web-rwkv cannot read the exponentiated bonus of early RWKV-5 models")
            .at(format!("tensor {name}"))
            .hint("leave out `layout`"));
    }
    let n_heads = view.len();
    if n_heads == 0 || !width.is_multiple_of(n_heads) {
        return Err(Error::model(format!("expected a number of heads that divides the {width} channels, found {n_heads} heads"))
            .at(format!("tensor {name}")));
    }
    Ok(entry(to_web(name), view, dtype, width / n_heads))
}

/// Returns an error if `out` is a file from which `input` was read.
///
/// # Errors
///
/// `Usage` if `out` is one of these files, possibly under another name.
pub fn refuse_same_file(input: &Checkpoint, out: &Path) -> Result<()> {
    input.files().try_for_each(|path| refuse_same_path(path, out))
}

/// Returns an error if `out` is the file `source`, possibly under another name.
///
/// # Errors
///
/// `Usage` if both paths are the same file.
pub fn refuse_same_path(source: &Path, out: &Path) -> Result<()> {
    // Two paths can be the same file only if both exist.
    let (Ok(source), Ok(target)) = (source.canonicalize(), out.canonicalize()) else { return Ok(()) };
    if source == target || same_inode(&source, &target) {
        let e = Error::usage("the output file is also an input file");
        return Err(e.at(out.display()).hint("choose another name for the output file"));
    }
    Ok(())
}

/// Returns true if both paths are hard links of one file.
#[cfg(unix)]
fn same_inode(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |p: &Path| std::fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
    id(a).is_some() && id(a) == id(b)
}

#[cfg(not(unix))]
fn same_inode(_: &Path, _: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests;
