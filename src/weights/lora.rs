//! A LoRA adapter and its merge into the model that it was trained on: W += (alpha / r)·B·A. W is a matrix of the model, A `[r, in]` and B `[out, r]`
//! are a low-rank pair of the adapter, and r is the rank of the pair.
//!
//! Tensors of the adapter that belong to no low-rank pair (mixes, norms, whole matrices) were trained in full. These tensors replace the model's
//! tensors, as in the trainers' merge scripts. Every tensor of the adapter must fit a tensor of the model, because a partial merge is not the
//! trained model.

use super::Checkpoint;
use super::encode::{write_numbers, write_view};
use super::write::WriteData;
use crate::error::{Error, Result, filled};
use crate::tensor::{DType, View};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The approximate number of elements in a block of rows. A merge computes one such block at a time.
const BLOCK_LEN: usize = 64 << 10;
/// The hint for a file that lacks half of a pair.
const AGAIN: &str = "save or download the whole adapter again";
/// The use of the memory, for the error of a failed allocation.
const LORA: &str = "an adapter's product";

/// An open LoRA adapter.
#[derive(Debug)]
pub struct Lora {
    file: Checkpoint,
    alpha: f32,
    /// The low-rank pairs, by the name of the model's tensor that a pair changes.
    pairs: BTreeMap<String, Pair>,
    /// The tensors that were trained in full. Maps the name of the model's tensor to the name of its replacement in `file`.
    trained: BTreeMap<String, String>,
}

/// A low-rank pair: the names of its two matrices in the file, and their sizes.
#[derive(Debug)]
struct Pair {
    /// The name of the matrix A, `[rank, n_in]`.
    a: String,
    /// The name of the matrix B, `[n_out, rank]`.
    b: String,
    rank: usize,
    n_in: usize,
    n_out: usize,
}

impl Lora {
    /// Opens an adapter for a model, from any path that [`Checkpoint::open`] accepts. `alpha` is the scale from the adapter's training, which
    /// files do not store.
    ///
    /// # Errors
    ///
    /// `Usage` if `alpha` is 0 or not finite. `File` or `Model` if the file is not an adapter.
    pub fn open(path: &Path, alpha: f32, model: &Checkpoint) -> Result<Lora> {
        if !alpha.is_finite() || alpha == 0.0 {
            return Err(Error::usage(format!(
                "expected a finite number other than 0 (the alpha of the adapter's training), found {alpha}"
            ))
            .field("lora_alpha"));
        }
        let file = Checkpoint::open(path).map_err(|e| e.field("lora"))?;
        let mut lora = Self::sort(file, alpha).map_err(|e| e.at(path.display()))?;
        lora.rename(model);
        Ok(lora)
    }

    /// Opens an adapter as [`open`](Self::open) does, and checks that it fits the model.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open); `Model` if a tensor of the adapter does not fit a tensor of the model.
    pub fn open_for(path: &Path, alpha: f32, model: &Checkpoint) -> Result<Lora> {
        let lora = Self::open(path, alpha, model)?;
        lora.check(model).map_err(|e| e.field("lora"))?;
        Ok(lora)
    }

    /// Returns the SHA-256, in hexadecimal digits, of alpha and of all tensors.
    ///
    /// # Errors
    ///
    /// `File` if a tensor cannot be read.
    pub fn identity(&self) -> Result<String> {
        let mut names: Vec<&str> = self.file.names().collect();
        names.sort_unstable();
        let mut hash = Sha256::new();
        hash.update(self.alpha.to_le_bytes());
        for name in names {
            let Some(view) = self.file.tensor(name) else { continue };
            hash.update(format!("{name}{:?}\n", view.shape()));
            let mut block = vec![0.0; BLOCK_LEN.min(view.len())];
            for at in (0..view.len()).step_by(BLOCK_LEN) {
                let n = block.len().min(view.len() - at);
                view.read_f32(at, &mut block[..n])?;
                hash.update(bytemuck::cast_slice::<f32, u8>(&block[..n]));
            }
        }
        Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Replaces web-rwkv's names of vectors by official names. The file does not show which names it uses, so a name is replaced only if the model
    /// has the official name and not web-rwkv's name.
    fn rename(&mut self, model: &Checkpoint) {
        let official = |target: String| match model.shape(&target) {
            Some(_) => target,
            None => {
                let other = target.replace(".time_mix_", ".time_maa_").replace(".time_first", ".time_faaaa");
                if model.shape(&other).is_some() { other } else { target }
            }
        };
        self.trained = std::mem::take(&mut self.trained).into_iter().map(|(target, name)| (official(target), name)).collect();
    }

    /// Sorts the tensors of the file into low-rank pairs and tensors that were trained in full.
    fn sort(file: Checkpoint, alpha: f32) -> Result<Lora> {
        if let Some(name) = file.names().find(|name| [".bone", ".miss", ".disha"].iter().any(|end| name.ends_with(end))) {
            let e = Error::file("this is a Bone, DiSHA or MiSS adapter, not a LoRA adapter").at(format!("tensor {name}"));
            return Err(e.hint("merge the adapter into the model with the merge script of its trainer, and use the merged model"));
        }
        let (mut halves, mut trained) = (BTreeMap::<String, [Option<String>; 2]>::new(), BTreeMap::new());
        for name in file.names() {
            let at = |e: Error| e.at(format!("tensor {name}"));
            let is_weight = file.tensor(name).is_some_and(|v| v.dtype().is_weight());
            if !is_weight {
                return Err(at(Error::model("expected numbers of type F32, F16 or BF16 in a LoRA adapter")));
            }
            let twice = match half(name) {
                Some((target, i)) => halves.entry(target).or_default()[i].replace(name.to_string()),
                None => trained.insert(whole(name), name.to_string()),
            };
            if let Some(other) = twice {
                return Err(at(Error::file(format!("this tensor of the LoRA adapter changes the same weight as the tensor {other}"))));
            }
        }
        if halves.is_empty() {
            return Err(Error::file("not a LoRA adapter: the file has no pair of lora_A and lora_B")
                .hint("if the file is a complete model, pass the file as `model` without `lora`"));
        }
        let mut pairs = BTreeMap::new();
        for (target, found) in halves {
            let pair = match found {
                [Some(a), Some(b)] => Pair::of(&file, a, b)?,
                [Some(one), None] => {
                    return Err(Error::file("the LoRA adapter has no lora_B for this lora_A").hint(AGAIN).at(format!("tensor {one}")));
                }
                [None, Some(one)] => {
                    return Err(Error::file("the LoRA adapter has no lora_A for this lora_B").hint(AGAIN).at(format!("tensor {one}")));
                }
                [None, None] => continue,
            };
            if trained.contains_key(&target) {
                return Err(Error::file("the LoRA adapter has both a low-rank pair and a fully trained matrix for this tensor")
                    .at(format!("tensor {target}")));
            }
            pairs.insert(target, pair);
        }
        Ok(Lora { file, alpha, pairs, trained })
    }

    /// Returns the number of matrices that the adapter changes by a low-rank pair.
    pub fn n_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of the model's tensors that the adapter replaces.
    pub fn n_replaced(&self) -> usize {
        self.trained.len()
    }

    /// Returns the adapter's file.
    pub(super) fn checkpoint(&self) -> &Checkpoint {
        &self.file
    }

    /// Checks that every tensor of the adapter fits a tensor of the model.
    ///
    /// # Errors
    ///
    /// `Model` for the first tensor that does not fit.
    pub(super) fn check(&self, model: &Checkpoint) -> Result<()> {
        let at = |e: Error, name: &str| e.at(format!("tensor {name}")).at(self.file.location());
        let find = |target: &str, name: &str| {
            model.shape(target).zip(model.stored_dtype(target)).ok_or_else(|| {
                let e = Error::model(format!("the model has no tensor {target}"));
                at(e.hint("use the model on which the adapter was trained"), name)
            })
        };
        for (target, pair) in &self.pairs {
            let (shape, dtype) = find(target, &pair.a)?;
            let of_pair = [pair.n_out, pair.n_in];
            if shape != of_pair || !dtype.is_weight() {
                let text = format!("the model's tensor is {dtype} {shape:?}, but the low-rank pair is for the shape {of_pair:?}");
                return Err(at(Error::model(text), &pair.a));
            }
        }
        for (target, name) in &self.trained {
            let (shape, dtype) = find(target, name)?;
            let found = self.view(name)?;
            let fits = super::without_ones(found.shape()) == super::without_ones(&shape) && found.clone().reshaped(&shape).is_some();
            if !fits || !dtype.is_weight() {
                let text = format!("the model's tensor is {dtype} {shape:?}, but the adapter's is {:?}", found.shape());
                return Err(at(Error::model(text), name));
            }
        }
        Ok(())
    }

    /// Returns true if the adapter changes or replaces the model's tensor `target`.
    pub fn changes(&self, target: &str) -> bool {
        self.pairs.contains_key(target) || self.trained.contains_key(target)
    }

    /// Returns the elements of the model's tensor `target` after the adapter is applied, as little-endian f32. `w` is this tensor in the model.
    /// Returns `None` if the adapter does not change this tensor.
    ///
    /// # Errors
    ///
    /// `Model` or `File` if the adapter's tensor cannot be read. `Memory` if there is too little memory.
    pub fn applied(&self, target: &str, w: &View<'_>) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match (self.replacement(target).transpose()?, self.pairs.get(target)) {
            (Some(trained), _) => write_view(&trained, DType::F32, &mut bytes)?,
            (None, Some(pair)) => self.merge(pair, w, DType::F32, &mut bytes)?,
            (None, None) => return Ok(None),
        }
        Ok(Some(bytes))
    }

    /// Returns the adapter's tensor that replaces the model's tensor `target`. Returns `None` if the adapter does not replace this tensor.
    pub(super) fn replacement(&self, target: &str) -> Option<Result<View<'_>>> {
        self.trained.get(target).map(|name| self.view(name))
    }

    /// Returns a function that merges the model's matrix `w` with its low-rank pair and writes the sum. Returns `None` if the adapter has no
    /// pair for the tensor `target`.
    pub(super) fn merged<'a>(&'a self, target: &str, w: &View<'a>, dtype: DType) -> Option<WriteData<'a>> {
        let (pair, w) = (self.pairs.get(target)?, w.clone());
        Some(Box::new(move |out: &mut dyn Write| self.merge(pair, &w, dtype, out)))
    }

    /// Writes the merged matrix W + (alpha / r)·B·A, computed in f32 and rounded once. The whole matrix A `[r, in]` is in memory. W and B are
    /// read in blocks of rows.
    fn merge(&self, pair: &Pair, w: &View<'_>, dtype: DType, out: &mut dyn Write) -> Result<()> {
        let &Pair { rank, n_in, n_out, .. } = pair;
        let (a, b) = (self.view(&pair.a)?.to_f32()?, self.view(&pair.b)?);
        let scale = self.alpha / rank as f32;
        let block_rows = (BLOCK_LEN / n_in.max(rank)).clamp(1, n_out);
        let (mut rows, mut factors) = (filled(0f32, block_rows * n_in, LORA)?, filled(0f32, block_rows * rank, LORA)?);
        let (mut delta, mut bytes) = (filled(0f32, n_in, LORA)?, Vec::new());
        for first in (0..n_out).step_by(block_rows) {
            let n = block_rows.min(n_out - first);
            let (rows, factors) = (&mut rows[..n * n_in], &mut factors[..n * rank]);
            w.read_f32(first * n_in, rows)?;
            b.read_f32(first * rank, factors)?;
            for (row, factors) in rows.chunks_mut(n_in).zip(factors.chunks(rank)) {
                delta.fill(0.0);
                for (factor, a_row) in factors.iter().zip(a.chunks(n_in)) {
                    delta.iter_mut().zip(a_row).for_each(|(d, a)| *d += factor * a);
                }
                row.iter_mut().zip(&delta).for_each(|(w, d)| *w += scale * d);
            }
            write_numbers(rows, first * n_in, dtype, &mut bytes, out)?;
        }
        Ok(())
    }

    /// Returns a view of a tensor of the adapter's file.
    fn view(&self, name: &str) -> Result<View<'_>> {
        self.file
            .tensor(name)
            .ok_or_else(|| Error::file("the LoRA adapter lacks this tensor").at(format!("tensor {name}")).at(self.file.location()))
    }
}

impl Pair {
    /// Returns the low-rank pair of the matrices `a` and `b`, or an error if their shapes do not match.
    fn of(file: &Checkpoint, a: String, b: String) -> Result<Pair> {
        let shape = |name: &str| file.tensor(name).map(|v| v.shape().to_vec()).unwrap_or_default();
        match (&shape(&a)[..], &shape(&b)[..]) {
            (&[rank, n_in], &[n_out, other]) if rank == other && ![rank, n_in, n_out].contains(&0) => Ok(Pair { a, b, rank, n_in, n_out }),
            (found_a, found_b) => {
                let text = format!("expected the shapes [r, in] of lora_A and [out, r] of lora_B, found {found_a:?} and {found_b:?}");
                Err(Error::file(text).at(format!("tensor {a}")))
            }
        }
    }
}

/// Splits a name such as `blocks.3.att.key.lora_A`, with or without PEFT's endings. Returns the name of the model's tensor, and 0 for the
/// matrix A or 1 for the matrix B. Returns `None` if the name has another form.
fn half(name: &str) -> Option<(String, usize)> {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let name = name.strip_suffix(".default").unwrap_or(name);
    let (stem, i) = name.strip_suffix(".lora_A").map(|s| (s, 0)).or_else(|| name.strip_suffix(".lora_B").map(|s| (s, 1)))?;
    Some((format!("{}.weight", stem.strip_suffix(".weight").unwrap_or(stem)), i))
}

/// Returns the name of the model's tensor that a fully trained tensor of the adapter replaces. `name` is the name in the adapter.
fn whole(name: &str) -> String {
    name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".").replace(".base_layer.", ".")
}

#[cfg(test)]
mod tests;
