//! `embed`: computes the vectors of texts.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::requests::{Events, for_one_caller};
use super::target::ForceArgs;
use super::texts::TextsArgs;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Input, Request};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::arch::Task;
use wingbeat::low_level::session::{EmbedOptions, Output as Results, Pooling, VectorRule};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewFile, NewTensor, Readers, write_safetensors};

const EXAMPLES: &str = "\
The output has one line per text, in the order of the texts: {\"index\",\"embedding\",\"tokens\"}. tokens is the number of tokens.

Examples:
  wingbeat embed -m rwkv0b1-emb-curriculum.pth \"A bird flies\" \"Stones lie\"
  wingbeat embed -m rwkv7-1.5b.pth -f texts.txt -o vectors.npy
  wingbeat embed -m rwkv0b1-emb-curriculum.pth -f notes.jsonl --field text -o vectors.safetensors";

/// Compute a vector for each text
///
/// With a checkpoint of the model family EmbeddingRWKV, the vector is the same as from the Python package rwkv-emb. With any other model, the vector is the model's hidden state after the last token.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Texts whose vectors are computed [default: the lines of standard input, if --file is absent]
    #[arg(value_name = "TEXT", help_heading = "Input")]
    texts: Vec<String>,
    #[command(flatten)]
    input: TextsArgs,
    /// Write the vectors to FILE, as an array with one row per text. FILE must end with .npy or .safetensors [default: JSON lines on standard output]
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
    /// Scale each vector to the Euclidean length 1; this is the default
    #[arg(long, visible_alias = "normalise", help_heading = OUTPUT, overrides_with = "no_normalize", hide_short_help = true)]
    normalize: bool,
    /// Do not scale the vectors to the Euclidean length 1
    #[arg(long, visible_alias = "no-normalise", help_heading = OUTPUT, overrides_with = "normalize")]
    no_normalize: bool,
    /// How hidden states become a vector: last (the state after the last token) or mean (the mean over all tokens). Not for EmbeddingRWKV models [default: last]
    #[arg(long, value_name = "KIND", help_heading = OUTPUT, value_parser = ["last", "mean"], hide_possible_values = true)]
    pooling: Option<String>,
    /// Task for which an EmbeddingRWKV model computes vectors: retrieval, similarity or classification. Other models have no tasks [default: retrieval]
    #[arg(long, value_name = "TASK", help_heading = OUTPUT, value_parser = Task::ALL.map(Task::name), hide_possible_values = true)]
    task: Option<String>,
    /// Process N texts at once, at most 1023 [default: 16, or fewer if memory is short]
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=1023), hide_short_help = true)]
    slots: Option<u32>,
    /// Print one JSON object with all vectors, in place of one line per text
    #[arg(long, help_heading = OUTPUT, conflicts_with = "output")]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// The format of an output file.
#[derive(Clone, Copy)]
enum Container {
    Npy,
    Safetensors,
}

pub fn run(args: Args) -> Outcome {
    let target = args.output.as_deref().map(|path| Ok::<_, Error>((path, container(path)?))).transpose()?;
    target.iter().try_for_each(|(path, _)| args.existing.check(path))?;
    if args.model.state.is_some() {
        return Err(Error::usage("embed always starts from an empty state").hint("leave out --state").at("--state").into());
    }
    let texts = args.input.read(args.texts, "text")?;
    let options = EmbedOptions {
        pooling: args.pooling.map(|kind| if kind == "mean" { Pooling::Mean } else { Pooling::Last }),
        task: args.task.and_then(|name| Task::ALL.into_iter().find(|task| task.name() == name)),
        normalise: !args.no_normalize,
    };
    let model = args.model.load_for(Results::Hidden)?;
    let n_slots = slots::fitting(&model, &args.model.weights.run.on, args.slots.map(|n| n as usize))?.min(texts.len());
    let rule = VectorRule::new(&model, &options)?;
    let encoded = texts.iter().map(|placed| rule.encode(&model, &placed.text).map_err(|e| e.at(&placed.place)));
    let encoded = encoded.collect::<Result<Vec<Vec<u32>>>>()?;
    let lengths: Vec<usize> = encoded.iter().map(Vec::len).collect();
    let normalized = options.normalise;
    let engine = EngineOptions { slots: n_slots, cache: CacheOptions::off(), embed: options, ..EngineOptions::default() };
    let engine = Engine::start(&model, for_one_caller(engine))?;
    let stop = signals::stop_flag();
    let mut bar = Progress::new("reading", Unit::Tokens);
    let mut out = Output::new(false);
    let mut kept = Vec::new();
    // Vectors that arrived before the vector of an earlier text. They wait here, because the output has the order of the texts.
    let mut early = BTreeMap::new();
    let mut next = 0;
    for event in Events::submit(&engine, Request::vectors(encoded.into_iter().map(Input::Tokens).collect::<Vec<_>>()), &stop)? {
        match event? {
            Event::Vector { index, vector } => drop(early.insert(index, vector)),
            Event::Progress { processed_tokens, prompt_tokens, .. } => bar.show(processed_tokens as u64, prompt_tokens as u64),
            _ => {}
        }
        while let Some(embedding) = early.remove(&next) {
            let report = VectorReport { index: next, embedding, tokens: lengths[next] };
            next += 1;
            if target.is_some() || args.json {
                kept.push(report);
            } else {
                out.json(&report)?;
            }
        }
    }
    drop(bar);
    let dimensions = model.facts().n_embd;
    match target {
        Some((path, Container::Npy)) => write_npy(path, &kept, dimensions)?,
        Some((path, Container::Safetensors)) => write_tensors(path, &kept, dimensions)?,
        None if args.json => {
            out.json(&EmbedReport { model: model.name().into(), dimensions, normalized, embeddings: kept })?;
        }
        None => {}
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the format for the extension of the output file's name.
fn container(path: &Path) -> Result<Container> {
    match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("npy") => Ok(Container::Npy),
        Some("safetensors") => Ok(Container::Safetensors),
        _ => Err(Error::usage("expected a file name that ends with .npy or .safetensors").at(path.display())),
    }
}

/// Writes an array `[n, dimensions]` of f32 in NumPy's format, version 1.
fn write_npy(path: &Path, vectors: &[VectorReport], dimensions: usize) -> Result<()> {
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {dimensions}), }}", vectors.len());
    // Magic bytes, version, length and text fill a multiple of 64 bytes. The text ends with a newline.
    let width = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let header = format!("{text:<0$}\n", width - 1);
    let new = NewFile::create(path, Readers::Umask)?;
    new.check_room((10 + width + 4 * vectors.len() * dimensions) as u64)?;
    let mut out = BufWriter::new(new.file());
    let mut write = || -> std::io::Result<()> {
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&(width as u16).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        vectors.iter().flat_map(|v| &v.embedding).try_for_each(|x| out.write_all(&x.to_le_bytes()))?;
        out.flush()
    };
    write().map_err(|e| Error::io(e, path))?;
    drop(out);
    new.finish()
}

/// Writes `embeddings`, f32 `[n, dimensions]`, and `n_tokens`, i32 `[n]`, to a safetensors file.
fn write_tensors(path: &Path, vectors: &[VectorReport], dimensions: usize) -> Result<()> {
    let io = |e| Error::io(e, path);
    let rows =
        |out: &mut dyn Write| vectors.iter().flat_map(|v| &v.embedding).try_for_each(|x| out.write_all(&x.to_le_bytes())).map_err(io);
    let counts = |out: &mut dyn Write| vectors.iter().try_for_each(|v| out.write_all(&(v.tokens as i32).to_le_bytes())).map_err(io);
    let entries = vec![
        NewTensor { name: "embeddings".into(), dtype: DType::F32, shape: vec![vectors.len(), dimensions], data: Box::new(rows) },
        NewTensor { name: "n_tokens".into(), dtype: DType::I32, shape: vec![vectors.len()], data: Box::new(counts) },
    ];
    write_safetensors(path, &BTreeMap::new(), entries, &mut |_, _| ())
}

/// The vector of one text.
#[derive(Debug, Clone, Serialize)]
pub struct VectorReport {
    /// The index of the text in the input, from 0.
    pub index: usize,
    pub embedding: Vec<f32>,
    /// The number of tokens of the text, including the end-of-text token of an embedding model.
    pub tokens: usize,
}

/// The vectors of all texts.
#[derive(Debug, Clone, Serialize)]
pub struct EmbedReport {
    /// The name of the model.
    pub model: String,
    /// The number of elements of a vector.
    pub dimensions: usize,
    /// True if the vectors are scaled to the Euclidean length 1.
    pub normalized: bool,
    pub embeddings: Vec<VectorReport>,
}
