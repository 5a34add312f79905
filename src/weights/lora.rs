//! A low-rank adapter and its merge into the model that it was trained on: W += (alpha / r)·B·A.
//!
//! Whatever else the adapter's file holds (mixes, norms, whole matrices) was trained in full and takes the place of the
//! model's, as the trainers' own merge scripts do. What fits no tensor of the model is an error: a merge that leaves out a
//! part gives a model that nobody trained.

use super::Checkpoint;
use super::encode::{write_numbers, write_view};
use super::write::WriteData;
use crate::error::{Error, Result, filled};
use crate::tensor::{DType, View};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Rows of the product are made in blocks of about so many numbers.
const BLOCK_LEN: usize = 64 << 10;
/// What memory is taken for.
const LORA: &str = "an adapter's product";
/// An open adapter.
#[derive(Debug)]
pub struct Lora {
    file: Checkpoint,
    alpha: f32,
    /// By the name of the model's tensor.
    pairs: BTreeMap<String, Pair>,
    /// From the name of the model's tensor to the name in `file`.
    trained: BTreeMap<String, String>,
}

/// The two names in the file, and the sizes that they have.
#[derive(Debug)]
struct Pair {
    /// [r, in]
    a: String,
    /// [out, r]
    b: String,
    rank: usize,
    n_in: usize,
    n_out: usize,
}

impl Lora {
    /// Opens an adapter (any file that `Checkpoint` opens) for a model. `alpha` is what the trainer was given: files do not hold it.
    pub fn open(path: &Path, alpha: f32, model: &Checkpoint) -> Result<Lora> {
        if !alpha.is_finite() || alpha == 0.0 {
            return Err(Error::usage(format!("expected the alpha that the adapter's trainer was given, found {alpha}")));
        }
        let file = Checkpoint::open(path)?;
        let mut lora = Self::sort(file, alpha).map_err(|e| e.at(path.display()))?;
        lora.rename(model);
        Ok(lora)
    }

    /// web-rwkv's names of vectors, which only a whole model shows to be its: what the model lacks under one, it may have under
    /// the official one.
    fn rename(&mut self, model: &Checkpoint) {
        let official = |target: String| match model.tensor(&target) {
            Some(_) => target,
            None => {
                let other = target.replace(".time_mix_", ".time_maa_").replace(".time_first", ".time_faaaa");
                if model.tensor(&other).is_some() { other } else { target }
            }
        };
        self.trained = std::mem::take(&mut self.trained).into_iter().map(|(target, name)| (official(target), name)).collect();
    }

    fn sort(file: Checkpoint, alpha: f32) -> Result<Lora> {
        let (mut halves, mut trained) = (BTreeMap::<String, [Option<String>; 2]>::new(), BTreeMap::new());
        for name in file.names() {
            let at = |e: Error| e.at(format!("tensor {name}"));
            let is_weight = file.tensor(name).is_some_and(|v| v.dtype().is_weight());
            if !is_weight {
                return Err(at(Error::model("expected F32, F16 or BF16 numbers, found another type")));
            }
            let twice = match half(name) {
                Some((target, i)) => halves.entry(target).or_default()[i].replace(name.to_string()),
                None => trained.insert(whole(name), name.to_string()),
            };
            if let Some(other) = twice {
                return Err(at(Error::file(format!("{other} is for the same tensor of the model"))));
            }
        }
        if halves.is_empty() {
            return Err(Error::file("expected an adapter with pairs of lora_A and lora_B, found none")
                .hint("a model trained in full needs no merge"));
        }
        let mut pairs = BTreeMap::new();
        for (target, found) in halves {
            let pair = match found {
                [Some(a), Some(b)] => Pair::of(&file, a, b)?,
                [Some(one), None] => return Err(Error::file("expected its lora_B too, found none").at(format!("tensor {one}"))),
                [None, Some(one)] => return Err(Error::file("expected its lora_A too, found none").at(format!("tensor {one}"))),
                [None, None] => continue,
            };
            if trained.contains_key(&target) {
                return Err(Error::file("found both a pair and a whole matrix for it").at(format!("tensor {target}")));
            }
            pairs.insert(target, pair);
        }
        Ok(Lora { file, alpha, pairs, trained })
    }

    /// How many matrices it changes by a pair.
    pub fn n_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// How many tensors it replaces.
    pub fn n_replaced(&self) -> usize {
        self.trained.len()
    }

    pub(super) fn checkpoint(&self) -> &Checkpoint {
        &self.file
    }

    /// That everything it holds fits a tensor of the model.
    pub(super) fn check(&self, model: &Checkpoint) -> Result<()> {
        let at = |e: Error, name: &str| e.at(format!("tensor {name}")).at(self.file.place());
        let find = |target: &str, name: &str| {
            model.tensor(target).ok_or_else(|| {
                let e = Error::model(format!("expected {target} in the model, found no such tensor"));
                at(e.hint("give the model that the adapter was trained on"), name)
            })
        };
        for (target, pair) in &self.pairs {
            let expected = find(target, &pair.a)?;
            if expected.shape() != [pair.n_out, pair.n_in] || !expected.dtype().is_weight() {
                let text =
                    format!("expected a pair for {} {:?}, found one for {:?}", expected.dtype(), expected.shape(), [pair.n_out, pair.n_in]);
                return Err(at(Error::model(text), &pair.a));
            }
        }
        for (target, name) in &self.trained {
            let expected = find(target, name)?;
            let found = self.view(name)?;
            let long = |s: &[usize]| -> Vec<usize> { s.iter().copied().filter(|&d| d != 1).collect() };
            let fits = long(found.shape()) == long(expected.shape()) && found.reshaped(expected.shape()).is_some();
            if !fits || !expected.dtype().is_weight() {
                let text = format!("expected the model's {} {:?}, found {:?}", expected.dtype(), expected.shape(), found.shape());
                return Err(at(Error::model(text), name));
            }
        }
        Ok(())
    }

    /// Whether a tensor of the model is another with it.
    pub fn changes(&self, target: &str) -> bool {
        self.pairs.contains_key(target) || self.trained.contains_key(target)
    }

    /// The model's tensor `w` with what the adapter does to it, as f32 in memory; none where it does nothing.
    ///
    /// # Errors
    /// Where what the adapter holds for it has another shape.
    pub fn applied(&self, target: &str, w: &View<'_>) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match (self.replacement(target).transpose()?, self.pairs.get(target)) {
            (Some(trained), _) => write_view(&trained, DType::F32, &mut bytes)?,
            (None, Some(pair)) => self.merge(pair, w, DType::F32, &mut bytes)?,
            (None, None) => return Ok(None),
        }
        Ok(Some(bytes))
    }

    /// What takes the place of the model's tensor.
    pub(super) fn replacement(&self, target: &str) -> Option<Result<View<'_>>> {
        self.trained.get(target).map(|name| self.view(name))
    }

    /// Writes the model's matrix `w` with its pair merged; none if it has no pair.
    pub(super) fn merged<'a>(&'a self, target: &str, w: &View<'a>, dtype: DType) -> Option<WriteData<'a>> {
        let (pair, w) = (self.pairs.get(target)?, w.clone());
        Some(Box::new(move |out: &mut dyn Write| self.merge(pair, &w, dtype, out)))
    }

    /// In f32, rounded once. A stays in memory whole, [r, in] in f32; W and B pass by in blocks of rows.
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

    fn view(&self, name: &str) -> Result<View<'_>> {
        self.file.tensor(name).ok_or_else(|| Error::file("expected this tensor").at(format!("tensor {name}")).at(self.file.place()))
    }
}

impl Pair {
    fn of(file: &Checkpoint, a: String, b: String) -> Result<Pair> {
        let shape = |name: &str| file.tensor(name).map(|v| v.shape().to_vec()).unwrap_or_default();
        match (&shape(&a)[..], &shape(&b)[..]) {
            (&[rank, n_in], &[n_out, other]) if rank == other && ![rank, n_in, n_out].contains(&0) => Ok(Pair { a, b, rank, n_in, n_out }),
            (found_a, found_b) => {
                let text = format!("expected lora_A [r, in] and lora_B [out, r] of one rank, found {found_a:?} and {found_b:?}");
                Err(Error::file(text).at(format!("tensor {a}")))
            }
        }
    }
}

/// Of `blocks.3.att.key.lora_A`, with or without PEFT's ends: the model's tensor, and 0 for A or 1 for B.
fn half(name: &str) -> Option<(String, usize)> {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let name = name.strip_suffix(".default").unwrap_or(name);
    let (stem, i) = name.strip_suffix(".lora_A").map(|s| (s, 0)).or_else(|| name.strip_suffix(".lora_B").map(|s| (s, 1)))?;
    Some((format!("{}.weight", stem.strip_suffix(".weight").unwrap_or(stem)), i))
}

/// The model's name of a tensor that was trained in full.
fn whole(name: &str) -> String {
    name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".").replace(".base_layer.", ".")
}

#[cfg(test)]
mod tests;
