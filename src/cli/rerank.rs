//! `rerank`: scores documents for a query with a reranker of EmbeddingRWKV.

use super::model_options::ModelArgs;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::texts::TextsArgs;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use crate::error::Error;
use crate::report::{RerankReport, RerankedReport};
use crate::session::{Output as Results, Reranker, end_of_text};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Each line of the output is {\"index\",\"score\",\"logit\",\"document\"}, best first. A score is a number from 0 to 1.

Examples:
  wingbeat rerank -m rwkv0b1-emb-curriculum.pth --reranker rwkv0b1-reranker.pth \"Who flies?\" \"Birds fly\" \"Stones lie\"
  wingbeat rerank -m rwkv0b1-emb-curriculum.pth --reranker rwkv0b1-reranker.pth \"Who flies?\" -f documents.txt --top-n 5";

/// Sort documents by how well they answer a query
///
/// Needs an EmbeddingRWKV checkpoint and the reranker that was trained with it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Query that the documents should answer
    #[arg(value_name = "QUERY", help_heading = "Input")]
    query: String,
    /// Documents to score [default: the lines of standard input, without --file]
    #[arg(value_name = "DOCUMENT", help_heading = "Input")]
    documents: Vec<String>,
    #[command(flatten)]
    input: TextsArgs,
    /// Checkpoint of the reranker, which belongs to the embedding model
    #[arg(long, value_name = "PATH", help_heading = "Model")]
    reranker: Option<PathBuf>,
    /// Print only the N best documents
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=u32::MAX))]
    top_n: Option<u32>,
    /// Read N documents at once [default: 16, fewer if memory is short]
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=1024), hide_short_help = true)]
    slots: Option<u32>,
    /// Print one JSON object in place of lines
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
    let model = args.model.load_for(Results::Hidden)?;
    end_of_text(&model)?;
    let Some(path) = &args.reranker else {
        let e = Error::usage("the flag is missing").at("--reranker");
        return Err(e.hint("add --reranker PATH, the reranker that belongs to the model, such as rwkv0b1-reranker.pth").into());
    };
    let beside = args.model.load_beside(path)?;
    let n_slots = slots::fitting(&model, &args.model.run.on, args.slots.map(|n| n as usize))?.min(placed.len());
    let mut reranker = Reranker::new(&model, &beside, n_slots)?;
    signals::stop_on_interrupt(&reranker.stop_flag());
    let documents: Vec<&str> = placed.iter().map(|placed| placed.text.as_str()).collect();
    let mut bar = Progress::new("reading", Unit::Tokens);
    let logits = reranker.score(&args.query, &documents, &mut |done, total| bar.show(done as u64, total as u64))?;
    drop(bar);
    let report = |(index, (logit, document)): (usize, (f32, &str))| {
        let score = 1.0 / (1.0 + (-f64::from(logit)).exp());
        RerankedReport { index, score, logit, document: document.to_string() }
    };
    let mut results: Vec<RerankedReport> = logits.into_iter().zip(documents).enumerate().map(report).collect();
    // The sort is stable: documents with the same score keep their order.
    results.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    results.truncate(args.top_n.map_or(usize::MAX, |n| n as usize));
    let mut out = Output::new(false);
    if args.json {
        out.json(&RerankReport { query: args.query, results })?;
    } else {
        results.iter().try_for_each(|result| out.json(result))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
