//! Results as a table, as lines, or as one array.

use super::Test;
use crate::cli::Failure;
use crate::cli::output::Output;
use crate::error::Error;
use crate::report::BenchRecord;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Md,
    Csv,
    Json,
    Jsonl,
}

/// Prints each result as it comes; an array at the end.
pub struct Printer {
    format: Format,
    out: Output,
    kept: Vec<BenchRecord>,
    is_first: bool,
}

impl Printer {
    pub fn new(format: Format, out: Output) -> Printer {
        Printer { format, out, kept: Vec::new(), is_first: true }
    }

    pub fn record(&mut self, r: &BenchRecord) -> Result<(), Failure> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        match self.format {
            Format::Md => {
                if is_first {
                    self.out.line("| model | size | params | backend | device | test | batch | t/s | p50 ms | p95 ms |")?;
                    self.out.line("|:--|--:|--:|:--|:--|--:|--:|--:|--:|--:|")?;
                }
                self.out.line(row(r))
            }
            Format::Csv => {
                let cells = cells(r)?;
                if is_first {
                    self.out.line(cells.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(","))?;
                }
                self.out.line(cells.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(","))
            }
            Format::Json => {
                self.kept.push(r.clone());
                Ok(())
            }
            Format::Jsonl => self.out.json(r),
        }
    }

    /// Prints what was kept. An empty array says that nothing was asked for, not that it failed.
    pub fn finish(mut self, succeeded: bool) -> Result<(), Failure> {
        if self.format == Format::Json && (succeeded || !self.kept.is_empty()) {
            self.out.json(&self.kept)?;
        }
        self.out.finish()
    }
}

fn row(r: &BenchRecord) -> String {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_string(), |ms| format!("{ms:.2}"));
    let (s, w) = (&r.samples, &r.wingbeat);
    let (size, params) = (crate::error::size(r.model_size), short(r.model_n_params));
    let test = Test { n_prompt: r.n_prompt, n_gen: r.n_gen, n_depth: r.n_depth, n_batch: r.n_batch };
    format!(
        "| {} | {size} | {params} | {} | {} | {test} | {} | {:.2} ± {:.2} | {} | {} |",
        r.model_type,
        r.backends,
        r.gpu_info,
        r.n_batch,
        s.avg_ts,
        s.stddev_ts,
        ms(w.p50_ms),
        ms(w.p95_ms)
    )
}

/// Everything that is one value, ours after a dot, quoted where CSV wants it.
fn cells(r: &BenchRecord) -> Result<Vec<(String, String)>, Failure> {
    let value = serde_json::to_value(r).map_err(|e| Error::input(format!("cannot write CSV: {e}")))?;
    let mut cells = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) => cells.extend(inner.iter().map(|(k, v)| (format!("{key}.{k}"), cell(v)))),
            Value::Array(_) => {}
            value => cells.push((key.clone(), cell(value))),
        }
    }
    Ok(cells)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
        value => value.to_string(),
    }
}

/// A number of parameters for people: 191M, 1.53B.
pub fn short(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2}B", n / 1e9),
        n if n >= 1e8 => format!("{:.0}M", n / 1e6),
        n => format!("{:.2}M", n / 1e6),
    }
}
