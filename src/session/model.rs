//! Loaded models. A model's weights are on one or several devices. The weights come from a file or from the program itself, or are random.

use super::definition::{Definition, notes};
use super::footprint::{Footprint, Sizes, as_assigned, by_device, token_params};
use super::identity::weights_hash;
use super::importance::{FilePlaces, assign, file_places};
use super::layout::{fitted, lay_out, sizes};
use super::options::{CHUNK, Device, LONG_CHUNK, ModelSource, Options, StateOrientation};
use super::pages::Pages;
use super::place::{are_discrete, check_memory, choose_devices, has_gpu, place, placed};
use super::quantised::{QuantisedTensor, quantised_tensors};
use super::vocabulary::vocabulary;
use crate::arch::{Facts, Purpose};
use crate::error::{Error, Result, filled};
use crate::exec::{Loaded, mapped_bytes};
use crate::files::Files;
use crate::quant::Activations;
use crate::sample::Sampling;
use crate::tape::{Capacity, MatrixSpec, Source, TOKENS_PER_BLOCK, Tape};
use crate::vocab::{self, Choice, Vocab};
use crate::weights::Checkpoint;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use web_time::Instant;

/// The largest context that a user may set, in tokens: twice the longest context that a published model was trained with.
const MAX_CONTEXT: usize = 1 << 21;
/// A loaded model. Clones share the weights. `Send` and `Sync`.
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    name: String,
    kind: String,
    folder: Option<PathBuf>,
    notes: Vec<String>,
    state_orientation: StateOrientation,
    facts: Facts,
    loaded: Arc<dyn Loaded>,
    vocab: Choice,
    device: Device,
    dtype: String,
    n_params: u64,
    weight_bytes: u64,
    hash: String,
    /// The places of tensors in importance matrices, by canonical name. Empty in a browser.
    file_places: FilePlaces,
    importance: Option<String>,
    chunk: usize,
    context: Option<usize>,
    sampling: Sampling,
    load_ms: f64,
    /// Keeps the caller's files as long as the model, because the chat template is read from their folder later.
    _files: Option<Files>,
    /// Reads the weights of the layers that always run on the host: the last layers of embedding models and rerankers. `None` for other models.
    host_layers: Option<Box<dyn Source>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Model").field(&self.name()).finish()
    }
}

impl Model {
    /// Loads a checkpoint with default options.
    ///
    /// # Errors
    /// The errors of [`load_async`](Self::load_async).
    pub fn open(path: impl Into<PathBuf>) -> Result<Model> {
        Self::load(&ModelSource::Path(path.into()), &Options::default(), &mut |_, _| ())
    }

    /// Loads a model. Calls `progress(bytes of weights loaded so far, total bytes)`. Blocks until the model is loaded.
    ///
    /// # Errors
    /// The errors of [`load_async`](Self::load_async).
    pub fn load(source: &ModelSource, options: &Options, progress: &mut dyn FnMut(u64, u64)) -> Result<Model> {
        crate::exec::wait::block_on(Self::load_async(source, options, progress))
    }

    /// Loads a model as [`load`](Self::load) does. In a browser, only this function can load a model, because adapters, devices and uploads
    /// must be awaited there.
    ///
    /// # Errors
    /// `File` or `Model` if the file is damaged or not supported; `Usage` or `Input` if an option does not fit the model; `Device` if the
    /// chosen device does not exist or fails; `Memory` if the model does not fit in the free memory.
    pub async fn load_async(source: &ModelSource, options: &Options, progress: &mut dyn FnMut(u64, u64)) -> Result<Model> {
        let started = Instant::now();
        if let ModelSource::Files { files, main } = source {
            Checkpoint::fetch_heads(files, main.as_deref()).await?;
        }
        let mut definition = Definition::new(source, options)?;
        let facts = definition.blueprint.facts();
        let (vocab, vocab_note) = vocab(source, options, &facts, definition.checkpoint.as_ref())?;
        let mut tape = std::mem::take(&mut definition.tape);
        tape.cache_format = options.cache_dtype.format();
        tape.activations = options.activations;
        tape.store_states(options.state_dtype.format())?;
        let context = options.context_of(&facts);
        if let Some(context) = context.filter(|context| !(1..=MAX_CONTEXT).contains(context)) {
            return Err(Error::usage(format!("expected a context of 1 to {MAX_CONTEXT} tokens, found {context} tokens")));
        }
        let layout = lay_out(&mut tape, facts.n_layer, definition.source.as_ref(), options, context).await?;
        // A browser makes and reads no importance matrices, so this condition leaves the code out of its module.
        let (mut file_places, mut importance) = (FilePlaces::new(), None);
        if cfg!(not(target_family = "wasm")) {
            file_places = self::file_places(definition.checkpoint.as_ref());
            if let Some(calibration) = &options.calibration {
                importance = Some(assign(&mut tape.matrices, &file_places, calibration)?);
            }
        }
        let hash = weights_hash(&tape, definition.source.as_ref(), definition.adapter.as_deref()).await?;
        let dtype = tape.formats().join("+");
        let mut notes = definition.checkpoint.as_ref().map_or_else(Vec::new, |c| notes(c, &tape));
        notes.extend(vocab_note);
        notes.extend(layout.notes);
        let tensors = tape.tensors();
        let n_params = tensors.iter().filter(|t| !t.2 || definition.source.has(t.0)).map(|t| t.1.iter().product::<usize>() as u64).sum();
        drop(tensors);
        let weight_bytes = tape.matrices.iter().map(|m| m.size_bytes() as u64).sum();
        let chosen = choose_devices(&layout.parts, options).await?;
        if has_gpu(&chosen) {
            tape.keep_rounded();
        }
        let placed = placed(&chosen, tape.n_layers());
        let mapped = |m: &MatrixSpec| mapped_bytes(m, definition.source.as_ref());
        let footprint = Footprint::of(&tape, &sizes(options, context), &as_assigned).with_mapped(&tape, &placed, &mapped)?;
        if let Err(e) = check_memory(&chosen, &by_device(&placed, &|_| &footprint)) {
            let fitted = fitted(&tape, definition.source.as_ref(), options, context).await;
            return Err(e.hint(fitted.map_or_else(|e| e.message, |f| format!("use `strategy={:?}`, which fits", f.strategy))));
        }
        let chunk = options.chunk.unwrap_or_else(|| {
            let long = Sizes { tokens: LONG_CHUNK, ..sizes(options, context) };
            let footprint = Footprint::of(&tape, &long, &as_assigned).with_mapped(&tape, &placed, &mapped);
            let fits = footprint.is_ok_and(|footprint| check_memory(&chosen, &by_device(&placed, &|_| &footprint)).is_ok());
            if are_discrete(&chosen) && fits { LONG_CHUNK } else { CHUNK }
        });
        let (loaded, device) = place(&Arc::new(tape), definition.source.as_ref(), options, chosen, progress).await?;
        let host_layers = (facts.purpose != Purpose::Logits).then_some(definition.source);
        Ok(Model(Arc::new(Inner {
            name: definition.name,
            kind: definition.kind,
            folder: definition.folder,
            notes,
            state_orientation: options.state_orientation,
            facts,
            loaded,
            vocab,
            device,
            dtype,
            n_params,
            weight_bytes,
            hash,
            file_places,
            importance,
            chunk,
            context,
            sampling: definition.blueprint.sampling(),
            load_ms: started.elapsed().as_secs_f64() * 1e3,
            host_layers,
            _files: match source {
                ModelSource::Files { files, .. } => Some(files.clone()),
                _ => None,
            },
        })))
    }

    /// Returns the name of the model.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Returns the folder that contains the model's file. `None` if the model was not loaded from a file.
    pub fn folder(&self) -> Option<&Path> {
        self.0.folder.as_deref()
    }
    /// Returns notes for the user: tensors of the file that the model does not read, converted number types, and peculiarities of the placement on
    /// devices.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }
    /// Returns the kind of source that the weights come from: `pth`, `safetensors`, `gguf`, `embedded` or `synthetic`.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }
    /// Returns the sizes and properties of the model's architecture.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }
    /// Returns the vocabulary. `None` if no vocabulary was found.
    pub fn vocab(&self) -> Option<&Vocab> {
        match &self.0.vocab {
            Choice::Found(vocab) => Some(vocab),
            Choice::Missing { .. } => None,
        }
    }
    /// Returns the vocabulary for work that needs one.
    ///
    /// # Errors
    /// `Input` with the message `refused` if no vocabulary was found. The hint says where to get one.
    pub fn needed_vocab(&self, refused: &str) -> Result<&Vocab> {
        match &self.0.vocab {
            Choice::Found(vocab) => Ok(vocab),
            Choice::Missing { hint } => Err(Error::input(refused).hint(hint.clone())),
        }
    }
    /// Returns a hint: which vocabulary the model needs, and where to get it. `None` if the model has a vocabulary.
    pub fn vocab_hint(&self) -> Option<&str> {
        match &self.0.vocab {
            Choice::Found(_) => None,
            Choice::Missing { hint } => Some(hint),
        }
    }
    /// Returns a description of the device that runs the model. If several devices run the model, describes all of them.
    pub fn device(&self) -> &Device {
        &self.0.device
    }
    /// Returns the weight formats of the matrices, such as `f16`. Several formats are joined by `+`.
    pub fn dtype(&self) -> &str {
        &self.0.dtype
    }
    /// Returns the number of the model's parameters.
    pub fn n_params(&self) -> u64 {
        self.0.n_params
    }
    /// Returns how many parameters compute one token: one row of each embedding table, the experts of one token, and all other weights.
    pub fn token_params(&self) -> u64 {
        token_params(self.tape())
    }
    /// Returns how many bytes of matrices are read to compute one token: one row of each embedding table, the token's experts, and all other
    /// matrices. Columns that sparse products skip count, too.
    pub fn token_bytes(&self) -> u64 {
        self.tape().matrices.iter().map(|m| m.token_bytes() as u64).sum()
    }
    /// Returns the size of all matrices in bytes.
    pub fn weight_bytes(&self) -> u64 {
        self.0.weight_bytes
    }
    /// Returns the average number of bits per weight over all matrices. Scales and padding count.
    pub fn bits_per_weight(&self) -> f64 {
        let parts = self.tape().matrices.iter().flat_map(|m| &m.parts);
        8.0 * self.weight_bytes() as f64 / parts.map(|p| p.rows * p.k).sum::<usize>() as f64
    }
    /// Returns the tensors that are stored in a quantised format, in the order of the model.
    pub fn quantised_tensors(&self) -> Vec<QuantisedTensor> {
        quantised_tensors(&self.tape().matrices)
    }
    /// Returns the bytes of device memory that the weights take. For streamed layers (copied from host memory in every step), only the buffers that
    /// receive them count. On the CPU, host memory and mapped files count.
    pub fn device_bytes(&self) -> u64 {
        self.0.loaded.device_bytes()
    }
    /// Returns the bytes of device memory for one page: the recurrent states of one slot. A page stores some state vectors twice, because a step
    /// reads one copy and writes the other. Both copies count. The KV cache does not.
    pub fn state_bytes(&self) -> u64 {
        self.tape().states.iter().map(|s| s.size_bytes(1) as u64).sum()
    }
    /// Returns the size in bytes of the matrices that are read sparsely: the device reads only the columns whose input is not zero. Returns 0 on the
    /// CPU.
    pub fn sparse_bytes(&self) -> u64 {
        self.0.loaded.sparse_bytes()
    }
    /// Returns the bytes of device memory that one slot takes at most: two pages ([`state_bytes`](Self::state_bytes) each), and a KV cache with a
    /// full context. The second page receives the new states when a step must not change the first page.
    pub fn slot_bytes(&self) -> u64 {
        let room = Capacity {
            pages: Pages::new(1, true).len() - 1,
            blocks: self.0.context.map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK)),
            ..Capacity::default()
        };
        let footprint = Footprint::of(self.tape(), &Sizes { room, tokens: 1, outputs: 1 }, &as_assigned);
        footprint.slots(0..footprint.layers.len())
    }
    /// Returns the hash of the weights. State files store this hash, so that states of other weights can be refused.
    pub fn weights_hash(&self) -> &str {
        &self.0.hash
    }
    /// Returns the properties that determine rounding, as one text. The text has the formats of matrices, states and KV cache, and the device's API
    /// and name. It also has the hash of the matrices' importance, and a mark if activations are rounded.
    pub fn numerics(&self) -> String {
        let tape = self.tape();
        let state = tape.states.iter().find(|state| state.is_matrices()).map_or("", |state| state.format.name());
        let Device { backend, name, .. } = self.device();
        let importance = self.importance().map_or_else(String::new, |hash| format!(" importance {hash}"));
        let rounded = if self.0.loaded.rounds() { " i8 activations" } else { "" };
        format!("{}{importance}{rounded} {state} {} {backend} {name}", self.dtype(), tape.cache_format.name())
    }
    /// Returns `I8` if products of the model round activations, otherwise `Float`.
    pub fn activations(&self) -> Activations {
        if self.0.loaded.rounds() { Activations::I8 } else { Activations::Float }
    }
    /// Returns a hash of the importance with which the weights were encoded (`Options::calibration`). `None` if the weights were encoded without a
    /// calibration.
    pub fn importance(&self) -> Option<&str> {
        self.0.importance.as_deref()
    }
    /// Returns the milliseconds that loading took.
    pub fn load_ms(&self) -> f64 {
        self.0.load_ms
    }
    pub(super) fn file_places(&self) -> &FilePlaces {
        &self.0.file_places
    }
    pub(super) fn state_orientation(&self) -> StateOrientation {
        self.0.state_orientation
    }
    /// Returns the largest number of tokens that a slot can read. `None` for a recurrent model without attention, which has no limit.
    pub fn context(&self) -> Option<usize> {
        self.0.context
    }
    /// Returns whether a slot can be rewound to any of its tokens. Rewinding needs a KV cache of all tokens, and no recurrent state: a recurrent
    /// state holds no earlier states. RWKV-7b has a KV cache and a recurrent state, so the result is `false`.
    pub fn can_rewind(&self) -> bool {
        self.0.context.is_some() && self.tape().states.is_empty()
    }
    /// Returns the default sampling settings of the model's family.
    pub fn sampling(&self) -> &Sampling {
        &self.0.sampling
    }
    pub(super) fn chunk(&self) -> usize {
        self.0.chunk
    }
    pub(super) fn loaded(&self) -> Arc<dyn Loaded> {
        self.0.loaded.clone()
    }
    /// Returns the elements of a tensor that a layer on the host needs, in row-major order. `shape` is the expected shape.
    ///
    /// # Errors
    /// `Model` if the tensor is missing or has another shape.
    pub(super) fn host_tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let source = self.0.host_layers.as_ref().ok_or_else(|| Error::model("this model has no layers on the host").at(name))?;
        let mut numbers = filled(0.0, shape.iter().product(), name)?;
        source.with(name, shape, &mut |view| view.read_f32(0, &mut numbers))?;
        Ok(numbers)
    }
    /// Returns how many numbers a step returns per requested token: the number of logits, or n_embd for a model that returns hidden states.
    pub(super) fn n_outputs(&self) -> usize {
        self.tape().logits.map_or(0, |var| self.tape().var_spec(var).columns[0])
    }
    /// Returns whether steps return hidden states in place of logits.
    pub fn returns_hidden(&self) -> bool {
        self.tape().ends_hidden
    }
    /// Returns a `Model` error if the model predicts no tokens: an embedding model, a reranker, a classifier, or a model that was opened for hidden
    /// states.
    pub fn check_speaks(&self) -> Result<()> {
        let facts = self.facts();
        let (what, hint) = match (&facts.purpose, &facts.labels) {
            (Purpose::Embedding { .. }, _) => ("computes vectors of texts", "use `wingbeat embed`, or Request::vectors"),
            (Purpose::Reranker { .. }, _) => ("is a reranker", "use `wingbeat rerank`, or EngineOptions::reranker"),
            _ if self.returns_hidden() => ("was opened for hidden states", "open it with Output::Logits"),
            (_, Some(_)) => ("is a classifier", "use `wingbeat classify`, or Request::classes"),
            (_, None) => return Ok(()),
        };
        Err(Error::model(format!("this model {what} and cannot generate text")).hint(hint))
    }
    /// Returns a `Model` error if the model computes no class logits.
    pub(super) fn check_classifies(&self) -> Result<()> {
        match self.facts().labels.is_some() && !self.returns_hidden() {
            true => Ok(()),
            false => Err(Error::model("this model is not a classifier: it has no classification head (tensor score.weight)")
                .hint("use a checkpoint that was trained as a classifier")),
        }
    }
    /// Checks that the model knows all ids.
    ///
    /// # Errors
    /// `Input` with the first unknown id.
    pub fn check_ids(&self, tokens: &[u32]) -> Result<()> {
        let n_vocab = self.facts().n_vocab;
        match tokens.iter().find(|&&token| token as usize >= n_vocab) {
            Some(token) => Err(Error::input(format!("token id {token} is out of range: the largest id of the model is {}", n_vocab - 1))),
            None => Ok(()),
        }
    }
    /// Returns the token ids of a text. `encode` is a method of the vocabulary.
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary; the errors of `encode`.
    pub(super) fn encode(&self, text: &str, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        let vocab = self.needed_vocab("cannot encode text: no vocabulary was found for this model, which accepts only token ids")?;
        encode(vocab, text.as_bytes())
    }
    /// Returns the token ids of a text that follows `n_before` tokens. If `n_before` is 0, special tokens may begin the text, as in every prompt.
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary, or the text cannot be encoded.
    pub fn encode_after(&self, n_before: usize, text: &str) -> Result<Vec<u32>> {
        self.encode(text, if n_before == 0 { Vocab::encode_prompt } else { Vocab::encode_further })
    }
    pub(super) fn tape(&self) -> &Arc<Tape> {
        self.0.loaded.tape()
    }
}

/// Chooses the model's vocabulary. [`Choice::Missing`] has a hint that says where to get the vocabulary. Also returns a note for the user if the
/// vocabulary in the model's file is unusable, or has the World vocabulary's size but other tokens.
///
/// # Errors
/// `Input` if the vocabulary has an id that the model does not have; the errors of [`Vocab::find`].
fn vocab(source: &ModelSource, options: &Options, facts: &Facts, checkpoint: Option<&Checkpoint>) -> Result<(Choice, Option<String>)> {
    let (vocab, note) = match (&options.vocab, source) {
        (Some(path), _) => Vocab::find_noting(path)?,
        #[cfg(feature = "embedded-model")]
        (None, ModelSource::Embedded) => (Vocab::small_world(), None),
        _ => match checkpoint.map_or_else(|| (vocab::choose(facts.n_vocab, None), None), |c| vocabulary(c, facts.n_vocab)) {
            (Choice::Found(vocab), note) => (vocab, note),
            missing => return Ok(missing),
        },
    };
    if vocab.max_id() as usize >= facts.n_vocab {
        let text = format!("the vocabulary has token ids up to {}, but the model has only {} tokens", vocab.max_id(), facts.n_vocab);
        let e = Error::input(text).hint(match options.vocab {
            Some(_) => "leave out `vocab`, or name a file with this model's vocabulary",
            None => "name the model's vocabulary file with `vocab`",
        });
        return Err(options.vocab.iter().fold(e, |e, path| e.at(path.display())));
    }
    Ok((Choice::Found(vocab), note))
}
