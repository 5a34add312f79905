//! `rerank`: scores documents for a query with a reranker of EmbeddingRWKV.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::prompt::{read_text, utf8};
use super::texts::TextsArgs;
use super::values::{OUTPUT, within};
use super::{Outcome, signals, slots};
use crate::report::{RerankReport, RerankReports, RerankedQuery, RerankedReport};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{Output as Results, Reranker, end_of_text};

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
    /// Read further queries from FILE, one per line, and sort the documents for each query. Each document is prefilled only once; the states of all documents stay in memory
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
    /// Process N documents at once, at most 1024 [default: 16, or fewer if memory is short]
    #[arg(long, value_name = "N", help_heading = OUTPUT, value_parser = within(1..=1024), hide_short_help = true)]
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
    let mut reranker = Reranker::new(&model, &beside, n_slots)?;
    signals::stop_on_interrupt(&reranker.stop_flag());
    let documents: Vec<&str> = placed.iter().map(|placed| placed.text.as_str()).collect();
    let mut bar = Progress::new("reading", Unit::Tokens);
    let show = &mut |done: usize, total: usize| bar.show(done as u64, total as u64);
    let report = |query: String, logits: Vec<f32>| {
        let report = |(index, (logit, document)): (usize, (f32, &&str))| {
            let score = 1.0 / (1.0 + (-f64::from(logit)).exp());
            RerankedReport { index, score, logit, document: document.to_string() }
        };
        let mut results: Vec<RerankedReport> = logits.into_iter().zip(&documents).enumerate().map(report).collect();
        // The sort is stable: documents with the same score keep their order.
        results.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        results.truncate(args.top_n.map_or(usize::MAX, |n| n as usize));
        RerankReport { query, results }
    };
    let Some(more) = more else {
        let logits = reranker.score(&args.query, &documents, show)?;
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
    let kept = reranker.read_documents(&documents, show)?;
    let mut queries = Vec::new();
    for query in std::iter::once(args.query).chain(more) {
        let logits = reranker.score_read(&query, &kept, show)?;
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
    let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
    let text = read_text(file).and_then(utf8).map_err(|e| e.at(path.display()))?;
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    match lines.iter().position(String::is_empty) {
        Some(line) => Err(Error::input("the query is empty").at(format!("{}:{}", path.display(), line + 1))),
        None => Ok(lines),
    }
}
