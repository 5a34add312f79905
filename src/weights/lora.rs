//! A LoRA adapter and its merge into the model that it was trained on: W += s·B·A. W is a matrix of the model. A `[r, in]` and B `[out, r]` are a
//! low-rank pair of the adapter, and r is the rank of the pair. The scale s is alpha / r, or what PEFT's `adapter_config.json` sets.
//!
//! Tensors of the adapter that belong to no low-rank pair (mixes, norms, whole matrices) were trained in full. These tensors replace the model's
//! tensors, as in the trainers' merge scripts. Every tensor of the adapter must fit a tensor of the model, because a partial merge is not the
//! trained model.

mod config;
mod merge;
mod names;

use super::encode::write_view;
use super::write::WriteData;
use super::{Checkpoint, TensorSlot};
use crate::error::{Error, Result};
use crate::tensor::{DType, View};
use config::LoraConfig;
use merge::{Magnitude, Pair};
use names::{Form, OF_ANOTHER, Part};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The hint for a file that lacks half of a pair.
const AGAIN: &str = "save or download the whole adapter again";

/// An open LoRA adapter.
#[derive(Debug)]
pub struct Lora {
    file: Checkpoint,
    /// The low-rank pairs, by the name of the model's tensor that a pair changes.
    pairs: BTreeMap<String, Pair>,
    /// The tensors that were trained in full, by the name of the model's tensor that they replace.
    trained: BTreeMap<String, Trained>,
    n_pairs: usize,
}

/// A tensor of the adapter that replaces a tensor of the model: its name in the file, and its place.
struct Trained {
    name: String,
    slot: TensorSlot,
}

impl std::fmt::Debug for Trained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trained").field(&self.name).finish()
    }
}

/// The tensors of a module's low-rank pair, by their names in the file.
#[derive(Default)]
struct Halves {
    a: Option<(String, Form)>,
    b: Option<(String, Form)>,
    magnitude: Option<String>,
}

/// A module's low-rank pair.
struct ModulePair {
    a: String,
    b: String,
    form: Form,
    rank: usize,
    /// The shape of the module's matrix.
    shape: [usize; 2],
    magnitude: Option<String>,
    scale: f32,
}

/// The values that determine the scale of each pair.
struct Scaling {
    alpha: f64,
    config: Option<LoraConfig>,
}

impl Lora {
    /// Opens an adapter for a model. `path` is PEFT's folder, or any path that [`Checkpoint::open`] accepts. An `adapter_config.json` in the same
    /// folder sets the scale. `alpha` is the alpha of the adapter's training (the scale is alpha / r), for an adapter without this file.
    ///
    /// # Errors
    ///
    /// `Usage` if `alpha` is 0 or not finite, contradicts the configuration, or is missing without a configuration. `File` or `Model` if the file is
    /// not a LoRA adapter, or if the configuration describes another kind of adapter.
    pub fn open(path: &Path, alpha: Option<f32>, model: &Checkpoint) -> Result<Lora> {
        if let Some(wrong) = alpha.filter(|alpha| !alpha.is_finite() || *alpha == 0.0) {
            let text = format!("expected a finite number other than 0 (the alpha of the adapter's training), found {wrong}");
            return Err(Error::usage(text).field("lora_alpha"));
        }
        let file = names::open(path).map_err(|e| e.field("lora"))?;
        let config = file.path().map(LoraConfig::beside).transpose().map_err(|e| e.field("lora"))?.flatten();
        let scaling = Scaling::of(config, alpha)?;
        Self::sort(file, &scaling, model).map_err(|e| e.at(path.display()))
    }

    /// Opens an adapter as [`open`](Self::open) does, and checks that it fits the model.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open); `Model` if a tensor of the adapter does not fit a tensor of the model.
    pub fn open_for(path: &Path, alpha: Option<f32>, model: &Checkpoint) -> Result<Lora> {
        let lora = Self::open(path, alpha, model)?;
        lora.check(model).map_err(|e| e.field("lora"))?;
        Ok(lora)
    }

    /// Returns the SHA-256, in hexadecimal digits, of everything that determines the change: the low-rank pairs with their scales, and the tensors
    /// that were trained in full.
    ///
    /// # Errors
    ///
    /// `File` if a tensor cannot be read.
    pub fn identity(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for (target, pair) in &self.pairs {
            hash.update(format!("{target}\n"));
            pair.identify(&|name| self.view(name), &mut hash)?;
        }
        for (target, trained) in &self.trained {
            let view = trained.slot.view(&self.file.0.maps)?;
            hash.update(format!("{target}{:?}\n", view.shape()));
            merge::add(&view, 0, view.len(), &mut hash)?;
        }
        Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Sorts the tensors of the file into low-rank pairs and tensors that were trained in full.
    fn sort(file: Checkpoint, scaling: &Scaling, model: &Checkpoint) -> Result<Lora> {
        if let Some(name) = file.names().find(|name| [".bone", ".miss", ".disha"].iter().any(|end| name.ends_with(end))) {
            let e = Error::file("this is a Bone, DiSHA or MiSS adapter, not a LoRA adapter").at(format!("tensor {name}"));
            return Err(e.hint("merge the adapter into the model with the merge script of its trainer, and use the merged model"));
        }
        let (mut halves, mut wholes) = (BTreeMap::<String, Halves>::new(), Vec::new());
        for (name, slot) in &file.0.slots {
            let at = |e: Error| e.at(format!("tensor {name}"));
            if !slot.located.dtype().is_weight() {
                return Err(at(Error::model("expected numbers of type F32, F16 or BF16 in a LoRA adapter")));
            }
            let Some((module, part, form)) = names::split(name) else {
                wholes.push(name);
                continue;
            };
            let of_module = halves.entry(module.to_string()).or_default();
            let twice = match part {
                Part::A => of_module.a.replace((name.clone(), form)).map(|(name, _)| name),
                Part::B => of_module.b.replace((name.clone(), form)).map(|(name, _)| name),
                Part::Magnitude => of_module.magnitude.replace(name.clone()),
            };
            if let Some(other) = twice {
                return Err(at(same_weight(&other)));
            }
        }
        if halves.is_empty() {
            return Err(Error::file("not a LoRA adapter: the file has no pair of lora_A and lora_B")
                .hint("if the file is a complete model, pass the file as `model` without `lora`"));
        }
        if let Some(name) = wholes.iter().find(|name| name.contains(".lora_")) {
            let e = Error::file("this tensor belongs to an unsupported variant of LoRA").at(format!("tensor {name}"));
            return Err(e.hint("merge the adapter into the model with the program of its trainer, and use the merged model"));
        }
        let mut modules = Vec::with_capacity(halves.len());
        let mut changed = Vec::with_capacity(halves.len() + wholes.len());
        for (module, halves) in halves {
            let pair = ModulePair::of(&file, &module, halves, scaling)?;
            changed.push(names::matrix(&module, pair.shape).map_err(|e| e.at(format!("tensor {}", pair.a)))?);
            modules.push(pair);
        }
        let is_web = modules.iter().any(|pair| pair.form == Form::Web);
        for &name in &wholes {
            let mut located = file.slot(name).expect("a name of the file").located.clone();
            located.name = names::whole(name);
            changed.push(located);
        }
        let targets = names::targets(changed, &file, is_web, model)?;
        let (mut pairs, mut trained, mut done) = (BTreeMap::<String, Pair>::new(), BTreeMap::new(), vec![0; modules.len()]);
        for names::Target { index, name, slot } in targets {
            let Some(module) = modules.get(index) else {
                let stored = wholes[index - modules.len()].clone();
                let at = |e: Error| e.at(format!("tensor {stored}"));
                if let Some(Trained { name: other, .. }) = trained.get(&name) {
                    return Err(at(same_weight(other)));
                }
                trained.insert(name, Trained { name: stored, slot });
                continue;
            };
            let pair = module.pair(&slot, done[index]);
            done[index] += slot.located.shape.first().copied().unwrap_or(0);
            if let Some(other) = pairs.get(&name) {
                return Err(same_weight(&other.left.name).at(format!("tensor {}", pair.left.name)));
            }
            pairs.insert(name, pair);
        }
        // PEFT may save the embedding of the base model beside its pair, as `base_layer`. This is no contradiction: the pair changes that embedding.
        let both = trained.iter().find(|(target, whole)| pairs.contains_key(*target) && !whole.name.contains(".base_layer."));
        if let Some((target, _)) = both {
            let e = Error::file("the LoRA adapter has both a low-rank pair and a fully trained matrix for this tensor");
            return Err(e.at(format!("tensor {target}")));
        }
        if pairs.is_empty() && trained.is_empty() {
            return Err(Error::model("the LoRA adapter changes only the vision encoder, which is not used").hint("leave out `lora`"));
        }
        Ok(Lora { file, pairs, trained, n_pairs: done.iter().filter(|rows| **rows > 0).count() })
    }

    /// Returns the number of low-rank pairs that change the model. A pair for a joint matrix of queries, keys and values counts once.
    pub fn n_pairs(&self) -> usize {
        self.n_pairs
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
                at(e.hint(OF_ANOTHER), name)
            })
        };
        for (target, pair) in &self.pairs {
            let name = &pair.right.name;
            let (shape, dtype) = find(target, name)?;
            let of_pair = [pair.n_rows, pair.n_columns];
            if shape != of_pair || !dtype.is_weight() {
                let text = format!("the model's tensor is {dtype} {shape:?}, but the low-rank pair is for the shape {of_pair:?}");
                return Err(at(Error::model(text), name));
            }
        }
        for (target, trained) in &self.trained {
            let (shape, dtype) = find(target, &trained.name)?;
            let found = trained.slot.view(&self.file.0.maps)?;
            let fits = super::without_ones(found.shape()) == super::without_ones(&shape) && found.clone().reshaped(&shape).is_some();
            if !fits || !dtype.is_weight() {
                let text = format!("the model's tensor is {dtype} {shape:?}, but the adapter's is {:?}", found.shape());
                return Err(at(Error::model(text), &trained.name));
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
        let trained = self.replacement(target).transpose()?;
        match (trained, self.pairs.get(target)) {
            (Some(trained), None) => write_view(&trained, DType::F32, &mut bytes)?,
            (trained, Some(pair)) => pair.merge(&|name| self.view(name), trained.as_ref().unwrap_or(w), DType::F32, &mut bytes)?,
            (None, None) => return Ok(None),
        }
        Ok(Some(bytes))
    }

    /// Returns the adapter's tensor that replaces the model's tensor `target`. Returns `None` if the adapter does not replace this tensor.
    pub(super) fn replacement(&self, target: &str) -> Option<Result<View<'_>>> {
        self.trained.get(target).map(|trained| trained.slot.view(&self.file.0.maps))
    }

    /// Returns a function that merges the model's matrix `w` with its low-rank pair and writes the sum. Returns `None` if the adapter has no
    /// pair for the tensor `target`.
    pub(super) fn merged<'a>(&'a self, target: &str, w: &View<'a>, dtype: DType) -> Option<WriteData<'a>> {
        let (pair, w) = (self.pairs.get(target)?, w.clone());
        Some(Box::new(move |out: &mut dyn Write| pair.merge(&|name| self.view(name), &w, dtype, out)))
    }

    /// Returns a view of a tensor of the adapter's file.
    fn view(&self, name: &str) -> Result<View<'_>> {
        self.file.tensor(name).ok_or_else(|| merge::lacking(name).at(self.file.location()))
    }
}

impl Scaling {
    /// Combines the configuration with the caller's alpha.
    ///
    /// # Errors
    ///
    /// `Usage` if the two values differ, or if neither is set.
    fn of(config: Option<LoraConfig>, alpha: Option<f32>) -> Result<Scaling> {
        let configured = config.as_ref().and_then(|config| config.alpha);
        let place = config.as_ref().map(|config| config.place.as_str());
        let e = match (configured, alpha) {
            (Some(configured), Some(alpha)) if configured as f32 != alpha => {
                let place = place.unwrap_or_default();
                Error::usage(format!("the adapter's configuration sets lora_alpha to {configured} ({place}), found {alpha}"))
                    .hint("leave out `lora_alpha`, which is for adapters without a configuration")
            }
            (Some(alpha), _) => return Ok(Scaling { alpha, config }),
            (None, Some(alpha)) => return Ok(Scaling { alpha: f64::from(alpha), config }),
            (None, None) => {
                let why = match place {
                    Some(place) => format!("{place} has no lora_alpha"),
                    None => "the adapter's folder has no adapter_config.json".to_string(),
                };
                Error::usage(format!("missing: {why}")).hint("set `lora_alpha` to the alpha of the adapter's training")
            }
        };
        Err(e.field("lora_alpha"))
    }
}

impl ModulePair {
    /// Returns the pair of a module.
    ///
    /// # Errors
    ///
    /// `File` if a matrix is missing or if the shapes do not match. `Model` if the configuration contradicts the pair.
    fn of(file: &Checkpoint, module: &str, halves: Halves, scaling: &Scaling) -> Result<ModulePair> {
        let lacks = |other: &str, this: &str, name: &str| {
            Err(Error::file(format!("the LoRA adapter has this {this}, but not the matching {other}"))
                .hint(AGAIN)
                .at(format!("tensor {name}")))
        };
        let (a, b, form, of_b) = match (halves.a, halves.b, &halves.magnitude) {
            (Some((a, form)), Some((b, of_b)), _) => (a, b, form, of_b),
            (Some((a, _)), None, _) => return lacks("lora_B", "lora_A", &a),
            (None, Some((b, _)), _) => return lacks("lora_A", "lora_B", &b),
            (None, None, magnitude) => return lacks("lora_A", "vector of magnitudes", magnitude.as_deref().unwrap_or_default()),
        };
        let shape = |name: &str| file.shape(name).unwrap_or_default();
        let (of_a, of_pair) = (shape(&a), shape(&b));
        let sizes = |form: Form| match (form, &of_a[..], &of_pair[..]) {
            (Form::Web, &[n_in, rank], &[n_out, other]) if rank == other => Some((rank, [n_out, n_in])),
            (Form::Linear, &[rank, n_in], &[n_out, other]) if rank == other => Some((rank, [n_out, n_in])),
            (Form::Embedding, &[rank, n_rows], &[width, other]) if rank == other => Some((rank, [n_rows, width])),
            _ => None,
        };
        // Programs that convert to web-rwkv's form transpose A. Some of these programs keep the name of A, so the shape decides.
        let forms = match form {
            Form::Linear => [Form::Linear, Form::Web],
            Form::Web => [Form::Web, Form::Linear],
            Form::Embedding => [Form::Embedding; 2],
        };
        let found = forms.into_iter().filter(|_| form == of_b).find_map(|form| Some((form, sizes(form)?)));
        let Some((form, (rank, shape))) = found.filter(|(_, (rank, [rows, columns]))| ![*rank, *rows, *columns].contains(&0)) else {
            let text = format!("expected the shapes [r, in] of lora_A and [out, r] of lora_B, found {of_a:?} and {of_pair:?}");
            return Err(Error::file(text).at(format!("tensor {a}")));
        };
        let at = |e: Error| e.at(format!("tensor {a}"));
        let Scaling { alpha, config } = scaling;
        let scale = match config {
            Some(config) => config.scale(module, rank, *alpha).map_err(at)?,
            None => alpha / rank as f64,
        };
        let magnitude = halves.magnitude;
        if let Some(config) = config.as_ref().filter(|config| config.is_dora != magnitude.is_some()) {
            let text = match config.is_dora {
                true => "use_dora is true, but the adapter has no lora_magnitude_vector for this pair",
                false => "use_dora is not true, but the adapter has a lora_magnitude_vector for this pair",
            };
            return Err(at(Error::model(text).at(&config.place)));
        }
        if let Some(name) = &magnitude {
            let n = if form == Form::Embedding { shape[1] } else { shape[0] };
            let found = file.shape(name).unwrap_or_default();
            if super::without_ones(&found) != super::without_ones(&[n]) {
                let text = format!("expected {n} magnitudes, one for each output, found the shape {found:?}");
                return Err(Error::file(text).at(format!("tensor {name}")));
            }
        }
        Ok(ModulePair { a, b, form, rank, shape, magnitude, scale: scale as f32 })
    }

    /// Returns the pair for the model's tensor `slot`, which is the module's matrix or its rows from row `first` on.
    fn pair(&self, slot: &TensorSlot, first: usize) -> Pair {
        let (left, right) = names::factors(&self.a, &self.b, self.form);
        // The transpose of L·R is the product of the transposes in the other order.
        let (left, right) = if slot.swapped { (right.transposed(), left.transposed()) } else { (left, right) };
        let of_columns = (self.form == Form::Embedding) != slot.swapped;
        let magnitude = self.magnitude.clone().map(|name| Magnitude { name, of_columns });
        let (shape, scale, rank) = (slot.shape(), self.scale, self.rank);
        Pair { left, right, rank, n_rows: shape[0], n_columns: shape[1], first, scale, magnitude }
    }
}

/// Returns the error for two tensors of the adapter that belong to one weight of the model.
fn same_weight(other: &str) -> Error {
    Error::file(format!("this tensor of the LoRA adapter changes the same weight as the tensor {other}"))
}

#[cfg(test)]
mod tests;
