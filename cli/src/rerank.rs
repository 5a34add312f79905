//! `rerank`: scores documents for a query with a reranker of EmbeddingRWKV.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::prompt::text_file;
use super::requests::{Events, for_one_caller};
use super::texts::TextsArgs;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use serde::Serialize;
use std::path::{Path, PathBuf};
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Request};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{Output as Results, end_of_text};

const EXAMPLES: &str = "\
The output has one line per document, the best document first: {\"index\",\"score\",\"logit\",\"document\"}. index counts the given documents from 0. score is a number from 0 to 1.

Examples:
  wingbeat rerank -m emb.pth --reranker reranker.pth \"Who flies?\" \"Birds fly\" \"Stones lie\"
  wingbeat rerank -m emb.pth --reranker reranker.pth \"Who flies?\" -f documents.txt --top-n 5";

/// Sort documents by how well each document answers a query
///
/// Needs an EmbeddingRWKV checkpoint (-m), and the reranker that was trained with this checkpoint (--reranker).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Query that the documents should answer
    #[arg(value_name = "QUERY", help_heading = "Input")]
    query: String,
    /// Read further queries from FILE, one per line, and sort the documents for each query. Each document is prefilled only once; the states of up to 4096 documents stay in memory
    #[arg(long, value_name = "FILE", help_heading = "Input", hide_short_help = true)]
    queries: Option<PathBuf>,
    /// Documents to sort [default: the lines of standard input, if --file is absent]
    #[arg(value_name = "DOCUMENT", help_heading = "Input")]
    documents: Vec<String>,
    #[command(flatten)]
    input: TextsArgs,
    /// Checkpoint of the reranker that was trained with the model of -m; required
    #[arg(long, value_name = "PATH", help_heading = "Model")]
    reranker: Option<PathBuf>,
    /// Print only the N best documents [default: all]
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=u32::MAX))]
    top_n: Option<u32>,
    /// Process N documents at once, at most 1022 [default: 16, or fewer if memory is short]
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=1022), hide_short_help = true)]
    slots: Option<u32>,
    /// Print one JSON object with all documents, in place of one line per document
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    if args.model.state.is_some() {
        return Err(Error::usage("rerank always starts from an empty state").hint("leave out --state").at("--state").into());
    }
    let placed = args.input.read(args.documents, "document")?;
    if let Some(empty) = placed.iter().find(|placed| placed.text.is_empty()) {
        return Err(Error::input("the document is empty").at(&empty.place).into());
    }
    let more = args.queries.as_deref().map(queries).transpose()?;
    let model = args.model.load_for(Results::Hidden)?;
    end_of_text(&model)?;
    let Some(path) = &args.reranker else {
        let e = Error::usage("the flag is missing").at("--reranker");
        return Err(e.hint("add --reranker PATH, the reranker that belongs to the model, such as rwkv0b1-reranker.pth").into());
    };
    let beside = args.model.load_beside(path)?;
    let n_slots = slots::fitting(&model, &args.model.weights.run.on, args.slots.map(|n| n as usize))?.min(placed.len());
    // The cache keeps the state after each document for the next queries.
    let cache = match more {
        // A document leaves a fork of its slot in device memory until its state is copied to the host. All slots may end their documents in one step.
        Some(_) => CacheOptions { device_bytes: n_slots as u64 * model.slot_bytes(), host_bytes: u64::MAX, ..CacheOptions::default() },
        None => CacheOptions::off(),
    };
    let engine = EngineOptions { slots: n_slots, cache, reranker: Some(beside), ..EngineOptions::default() };
    let engine = Engine::start(&model, for_one_caller(engine))?;
    let stop = signals::stop_flag();
    let documents: Vec<String> = placed.into_iter().map(|placed| placed.text).collect();
    let mut bar = Progress::new("reading", Unit::Tokens);
    let mut scores = |query: &str| -> Result<Vec<f32>> {
        let mut logits = vec![None; documents.len()];
        for event in Events::submit(&engine, Request::ranking(query, documents.clone()), &stop)? {
            match event? {
                Event::Score { index, logit } => logits[index] = Some(logit),
                Event::Progress { processed_tokens, prompt_tokens, .. } => bar.show(processed_tokens as u64, prompt_tokens as u64),
                _ => {}
            }
        }
        let missing = || Error::device("the engine returned no score for a document");
        logits.into_iter().collect::<Option<_>>().ok_or_else(missing)
    };
    let report = |query: String, logits: Vec<f32>| {
        let report = |(index, (logit, document)): (usize, (f32, &String))| {
            let score = 1.0 / (1.0 + (-f64::from(logit)).exp());
            RerankedReport { index, score, logit, document: document.clone() }
        };
        let mut results: Vec<RerankedReport> = logits.into_iter().zip(&documents).enumerate().map(report).collect();
        // The sort is stable: documents with the same score keep their order.
        results.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        results.truncate(args.top_n.map_or(usize::MAX, |n| n as usize));
        RerankReport { query, results }
    };
    let Some(more) = more else {
        let logits = scores(&args.query)?;
        drop(bar);
        let found = report(args.query, logits);
        let mut out = Output::new(false);
        match args.json {
            true => out.json(&found)?,
            false => found.results.iter().try_for_each(|result| out.json(result))?,
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut queries = Vec::new();
    for query in std::iter::once(args.query).chain(more) {
        let logits = scores(&query)?;
        queries.push(report(query, logits));
    }
    drop(bar);
    let mut out = Output::new(false);
    if args.json {
        out.json(&RerankReports { queries })?;
    } else {
        for RerankReport { query, results } in &queries {
            results.iter().try_for_each(|result| out.json(&RerankedQuery { query, result }))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the queries in a file, one per line.
fn queries(path: &Path) -> Result<Vec<String>> {
    let text = text_file(path)?;
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    match lines.iter().position(String::is_empty) {
        Some(line) => Err(Error::input("the query is empty").at(format!("{}:{}", path.display(), line + 1))),
        None => Ok(lines),
    }
}

/// The score of one document.
#[derive(Debug, Clone, Serialize)]
pub struct RerankedReport {
    /// The index of the document in the input, from 0.
    pub index: usize,
    /// How well the document answers the query, from 0 to 1.
    pub score: f64,
    /// The number that the model computes. The score is 1 / (1 + exp(-logit)).
    pub logit: f32,
    pub document: String,
}

/// The score of a document for one of several queries.
#[derive(Debug, Clone, Serialize)]
pub struct RerankedQuery<'a> {
    pub query: &'a str,
    #[serde(flatten)]
    pub result: &'a RerankedReport,
}

/// The scores of documents for several queries.
#[derive(Debug, Clone, Serialize)]
pub struct RerankReports {
    pub queries: Vec<RerankReport>,
}

/// The scores of documents for a query, best first.
#[derive(Debug, Clone, Serialize)]
pub struct RerankReport {
    pub query: String,
    pub results: Vec<RerankedReport>,
}
