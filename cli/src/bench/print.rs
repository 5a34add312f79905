//! Prints benchmark results as a Markdown table, as CSV, as JSON lines or as one JSON array.

use super::Test;
use super::report::BenchRecord;
use crate::Failure;
use crate::output::Output;
use crate::signals;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use wingbeat::error::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    Md,
    Csv,
    Json,
    Jsonl,
}

/// Prints benchmark results. A JSON array is printed at the end or at an interrupt. In the other formats, each result is printed at once.
pub struct Printer {
    format: OutputFormat,
    /// Standard output, locked until all results are printed. `None` for a JSON array: at an interrupt, another thread prints the array and needs the
    /// lock.
    out: Option<Output>,
    kept: Arc<Mutex<Vec<BenchRecord>>>,
    is_first: bool,
}

/// Takes all records out of `kept`, so that each record is printed only once.
fn taken(kept: &Mutex<Vec<BenchRecord>>) -> Vec<BenchRecord> {
    std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner))
}

fn print_array(records: &[BenchRecord]) -> Result<(), Failure> {
    let mut out = Output::new(false);
    out.json(&records)?;
    out.finish()
}

impl Printer {
    pub fn new(format: OutputFormat) -> Printer {
        let out = (format != OutputFormat::Json).then(|| Output::new(false));
        Printer { format, out, kept: Arc::default(), is_first: true }
    }

    /// Prints the finished records if a signal ends the program. Only a JSON array needs this: other formats print each record at once.
    pub fn print_on_interrupt(&self) {
        if self.format == OutputFormat::Json {
            let kept = self.kept.clone();
            signals::before_the_end(move || {
                let records = taken(&kept);
                if !records.is_empty() {
                    let _ = print_array(&records);
                }
            });
        }
    }

    pub fn record(&mut self, r: &BenchRecord) -> Result<(), Failure> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let Some(out) = &mut self.out else {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(r.clone());
            return Ok(());
        };
        match self.format {
            OutputFormat::Md => {
                if is_first {
                    out.line("| model | size | params | backend | device | test | batch | t/s | p50 ms | p95 ms |")?;
                    out.line("|:--|--:|--:|:--|:--|--:|--:|--:|--:|--:|")?;
                }
                out.line(row(r))
            }
            OutputFormat::Csv => {
                let cells = cells(r)?;
                if is_first {
                    out.line(cells.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(","))?;
                }
                out.line(cells.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(","))
            }
            OutputFormat::Json | OutputFormat::Jsonl => out.json(r),
        }
    }

    /// Flushes the output, or prints the JSON array. Without results, prints an empty array if `succeeded` is true, and nothing after an
    /// error.
    pub fn finish(self, succeeded: bool) -> Result<(), Failure> {
        if let Some(out) = self.out {
            return out.finish();
        }
        let records = taken(&self.kept);
        if succeeded || !records.is_empty() { print_array(&records) } else { Ok(()) }
    }
}

fn row(r: &BenchRecord) -> String {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_string(), |ms| format!("{ms:.2}"));
    let (s, w) = (&r.samples, &r.wingbeat);
    let (size, params) = (wingbeat::low_level::front_end::size(r.model_size), short(r.model_n_params));
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

/// Returns each field of a record as a name and a CSV cell. Fields that are arrays are left out. Fields of the inner object `wingbeat` get the name
/// `wingbeat.NAME`.
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

/// Formats a number of parameters: 191M, 1.53B.
pub fn short(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2}B", n / 1e9),
        n if n >= 1e8 => format!("{:.0}M", n / 1e6),
        n => format!("{:.2}M", n / 1e6),
    }
}
