//! Describes a checkpoint from its header, without opening a device and without reading weights.

use super::memory::{MemoryReport, memory, weights_by_format};
use super::sizes::{active_params, published_name};
use crate::report::{DecodeCost, SpeedReport};
use serde::Serialize;
use std::collections::BTreeMap;
use wingbeat::error::Result;
use wingbeat::low_level::arch;
use wingbeat::low_level::exec::FloatChoice;
use wingbeat::low_level::front_end::Choice;
use wingbeat::low_level::front_end::WORLD_ROWS;
use wingbeat::low_level::quant::Float;
use wingbeat::low_level::session::footprint::DeviceBytes;
use wingbeat::low_level::session::{self, Options, bytes_by_device, vocabulary};
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::weights::Checkpoint;

#[derive(Debug, Clone, Serialize)]
pub struct InspectReport {
    /// The file format: `pth`, `safetensors` or `gguf`.
    pub kind: &'static str,
    /// The naming scheme of the tensors: `official`, `web-rwkv`, `hf`, `decoder`, `fla`, `chatglm` or `gguf`.
    pub layout: &'static str,
    /// The number of files that hold tensors.
    pub files: usize,
    pub name: String,
    /// The architecture, such as `rwkv7`. `None` if the model cannot run. In this case the field `note` has the reason.
    pub architecture: Option<&'static str>,
    pub version: Option<&'static str>,
    /// The purpose of a model that computes no logits: `embedding` or `reranker`. `None` for a model that computes logits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<&'static str>,
    /// The tasks of an embedding model, such as `retrieval`. Empty for other models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<&'static str>,
    #[serde(flatten)]
    pub hyper: Hyper,
    /// The number of tensors of each element type.
    pub dtypes: BTreeMap<&'static str, usize>,
    pub n_params: u64,
    /// The number of parameters that compute one token, of a model with experts: one row of the embedding, the experts of the token, and all other
    /// parameters. `None` for other models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_active_params: Option<u64>,
    /// The name of the published model that has the sizes of this model, such as `rwkv7-2.9b`. `None` if no published model has these sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// The bytes of all weights in memory, by format: `f32`, `f16` and every value of the option `quant` except `keep`.
    pub weight_bytes: BTreeMap<&'static str, u64>,
    /// The number of weight bytes that decoding one token reads, for each weight format that the matrices can be stored in.
    pub bytes_per_token: BTreeMap<&'static str, u64>,
    /// The memory that the model needs. Matrices are quantised as in the file, or as the option `quant` says; all other matrices are f16. `None` if
    /// the model cannot run.
    pub memory: Option<MemoryReport>,
    /// The weight formats that `memory` assumes, joined by `+`.
    pub weights: String,
    /// The memory that the model needs on each device with the option `strategy`. Empty without this option.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceMemory>,
    /// The model's context length in tokens. `None` if the model has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// The origin of the vocabulary: `small-world` or `world` (built in), `own` (in the model's file) or `file` (in the model's folder). `None` if no
    /// vocabulary was found.
    pub vocabulary: Option<&'static str>,
    /// An estimate of the decode speed on this machine. `None` if the machine was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<SpeedReport>,
    /// The cost of a token. `None` if the architecture is unknown.
    #[serde(skip)]
    pub cost: Option<DecodeCost>,
    /// The vocabulary in the model's own file. `None` if the file has no vocabulary, or a damaged vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_vocab: Option<OwnVocab>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<TensorReport>>,
}

/// The vocabulary in a GGUF file.
#[derive(Debug, Clone, Serialize)]
pub struct OwnVocab {
    /// The kind: `rwkv`, `gpt2` or `llama`.
    pub kind: String,
    /// The number of entries, unused entries included.
    pub n_tokens: usize,
}

/// The sizes of the model, from the shapes of its tensors. All sizes are `None` if the architecture is unknown.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Hyper {
    pub n_layer: Option<usize>,
    pub n_embd: Option<usize>,
    pub n_ffn: Option<usize>,
    pub n_head: Option<usize>,
    pub head_size: Option<usize>,
    pub vocab: Option<usize>,
}

/// The memory that one device needs for its part of a model, in bytes. The strategy divides the model among the devices.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceMemory {
    /// The id of the device: `gpu:N` or `cpu`.
    pub id: String,
    /// The bytes of the weights that are copied to the device. Weights that the CPU reads from the mapped file do not count.
    pub weights: u64,
    /// The bytes of the states and caches of a session with one slot.
    pub state: u64,
    pub scratch: u64,
    /// The sum of `weights`, `state` and `scratch`.
    pub total: u64,
    /// The bytes of the weights that the CPU reads from the mapped file.
    pub mapped: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct TensorReport {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
}

/// Describes a checkpoint by the names and shapes of its tensors. An unknown architecture is not an error. `options` affect only the
/// fields `memory`, `weights`, `devices` and `note`.
///
/// # Errors
/// `Usage` if the option `strategy` or `quant` does not suit the model.
pub fn inspect(checkpoint: &Checkpoint, with_tensors: bool, options: &Options) -> Result<InspectReport> {
    let mut tensors = Vec::new();
    let (mut dtypes, mut n_params) = (BTreeMap::new(), 0u64);
    for name in checkpoint.names() {
        let Some(view) = checkpoint.tensor(name) else { continue };
        *dtypes.entry(view.dtype().name()).or_insert(0) += 1;
        n_params += view.len() as u64;
        tensors.push(TensorReport { name: name.into(), dtype: view.dtype().name(), shape: view.shape().to_vec() });
    }
    let mut report = InspectReport {
        kind: checkpoint.kind(),
        layout: checkpoint.layout(),
        files: checkpoint.n_files(),
        name: checkpoint.name().into(),
        architecture: None,
        version: None,
        purpose: None,
        tasks: Vec::new(),
        hyper: Hyper::default(),
        dtypes,
        n_params,
        n_active_params: None,
        published: None,
        weight_bytes: BTreeMap::new(),
        bytes_per_token: BTreeMap::new(),
        memory: None,
        weights: String::new(),
        devices: Vec::new(),
        context: None,
        vocabulary: None,
        speed: None,
        cost: None,
        own_vocab: checkpoint.token_lists().ok().flatten().map(|lists| OwnVocab { kind: lists.model, n_tokens: lists.tokens.len() }),
        note: None,
        tensors: with_tensors.then_some(tensors),
    };
    match arch::detect(checkpoint) {
        Ok(blueprint) => {
            let f = blueprint.facts();
            (report.architecture, report.version) = (Some(f.architecture), Some(f.version));
            (report.purpose, report.tasks) = (f.purpose.name(), f.purpose.tasks());
            report.hyper = Hyper {
                n_layer: Some(f.n_layer),
                n_embd: Some(f.n_embd),
                n_ffn: Some(f.n_ffn),
                n_head: Some(f.n_head),
                head_size: Some(f.head_size),
                vocab: Some(f.n_vocab),
            };
            let mut tape = Tape::new();
            blueprint.record(&mut tape);
            report.n_active_params = active_params(&tape);
            let cost = DecodeCost::of(&mut tape);
            report.bytes_per_token.clone_from(&cost.bytes_per_token);
            report.cost = Some(cost);
            report.published = published_name(&f);
            report.weight_bytes = weights_by_format(&mut tape, checkpoint)?;
            let context = options.context_of(&f).unwrap_or(0);
            tape.cache_format = options.cache_dtype.format();
            report.context = f.context;
            tape.store_as(Float::F16.format());
            let options = Options { dtype: FloatChoice::Exactly(Float::F16), ..options.clone() };
            let (devices, mut notes) = by_strategy(&mut tape, f.n_layer, checkpoint, &options, (context > 0).then_some(context))?;
            report.devices = devices;
            report.weights = tape.formats().join("+");
            notes.extend(session::notes(checkpoint, &tape));
            // With this state format, loading the model would fail with the same message.
            notes.extend(tape.store_states(options.state_dtype.format()).err().map(|e| e.to_string()));
            let (choice, note) = vocabulary(checkpoint, f.n_vocab);
            if !matches!(checkpoint.token_lists(), Ok(None)) {
                notes.extend(note);
            }
            let is_found = matches!(choice, Choice::Found(_));
            report.vocabulary = match checkpoint.path() {
                None => Some("small-world"),
                Some(_) if !is_found => None,
                Some(_) if report.own_vocab.is_some() => Some("own"),
                Some(_) if f.n_vocab == WORLD_ROWS => Some("world"),
                Some(_) => Some("file"),
            };
            report.note = Some(notes).filter(|n| !n.is_empty()).map(|n| n.join("; "));
            report.memory = Some(memory(&tape, context));
        }
        Err(e) => report.note = Some(e.to_string()),
    }
    Ok(report)
}

/// Sets the format that `options` select for each matrix of `tape` (the model's recorded program). Returns the memory that the model needs on
/// each device, or an empty list without the option `strategy`, and notes about the placement.
fn by_strategy(
    tape: &mut Tape,
    n_layer: usize,
    checkpoint: &Checkpoint,
    options: &Options,
    context: Option<usize>,
) -> Result<(Vec<DeviceMemory>, Vec<String>)> {
    let (devices, notes) = bytes_by_device(tape, n_layer, checkpoint, options, context)?;
    let one = |(id, bytes): (String, DeviceBytes)| DeviceMemory {
        id,
        weights: bytes.weights,
        state: bytes.slots,
        scratch: bytes.scratch,
        total: bytes.total(),
        mapped: bytes.mapped,
    };
    Ok((devices.into_iter().map(one).filter(|_| options.strategy.is_some()).collect(), notes))
}
