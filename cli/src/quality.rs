//! `quality`: compares models in several weight formats with a reference model, on a text.

mod by_matrix;
mod report;

use super::ExitCode;
use super::calibrate::{calibration, start_and_rest, window};
use super::model_options::{self, RunArgs, SourceArgs, calibrate_help};
use super::output::Output;
use super::progress::{Progress, Unit};
use super::prompt::{InputArgs, LastNewline};
use super::values::{OUTPUT, within};
use super::{Failure, Outcome, signals};
use crate::report::{ModelReport, device_of};
use by_matrix::ByMatrix;
use clap::ValueHint;
use report::{ByMatrixReport, ComparisonReport, QualityReport, VariantReport, WeightsReport};
use std::path::PathBuf;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::QuantPlan;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::quant::Float;
use wingbeat::low_level::session::{Model, ModelSource, Options, Quality, Session, Windows, quality};

const EXAMPLES: &str = "\
Examples:
  wingbeat quality -m model.pth -f wikitext.txt
  wingbeat quality -m model.pth -f wikitext.txt --dtype f16 --against f32 --json
  wingbeat quality -m model.pth -f wikitext.txt --strategy \"cpu fp16i4 *10 -> cpu fp16i8\"
  wingbeat quality -m model.pth -f wikitext.txt --dtype auto --state-dtype f16
  wingbeat quality -m model.pth -f wikitext.txt --quant i4 --calibrate imatrix.gguf
  wingbeat quality -m model.pth -f wikitext.txt --quant i4 --by-matrix";

/// The heading of the options about the comparison in `--help`.
const VARIANTS: &str = "Comparison";

/// Measure how much weight formats change a model's predictions: perplexity, KL divergence, agreement
///
/// Compares variants of a model with a reference, on a text. A variant has weights in one weight format. The reference has weights of the number
/// type --against, and a recurrent state in f32. The text is cut into windows that do not overlap. In each window, the model begins with an empty
/// state and does not predict the first token, as in Hugging Face's perplexity. If the text fits into one window, the perplexity is the same as
/// from `score --keep-newline`.
///
/// Columns: mean bits per weight; bytes of all matrices; perplexity; increase of perplexity over the reference, in percent; mean, 99th percentile and maximum of the
/// divergence KL(reference || variant) in nats per token; percent of tokens for which both models have the same most likely token. Memory must
/// hold the reference and one variant at the same time.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Checkpoint whose weight formats are compared [default: the embedded model]
    #[arg(short, long, value_name = "PATH", help_heading = "Model")]
    model: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    /// Number type of the reference's weights: f16, f32 or auto. With auto, a matrix is f16 if all its values are in the range of f16, else f32
    #[arg(help_heading = VARIANTS, hide_possible_values = true, long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "f16", "f32"])]
    against: String,
    /// Number types to compare with the reference: auto, f16, f32, separated by commas. Without --dtype, --quant and --strategy, all weight formats except the reference's are compared
    #[arg(help_heading = VARIANTS, hide_possible_values = true, long, value_name = "KIND", value_delimiter = ',', value_parser = ["auto", "f16", "f32"])]
    dtype: Vec<String>,
    /// Quantised weights to compare with the reference: i8, i4-mixed, … (the same values as for `generate --quant`); repeatable
    #[arg(long, value_name = "KIND", value_parser = model_options::quant_values(), hide_possible_values = true, help_heading = VARIANTS)]
    quant: Vec<String>,
    #[arg(long, value_name = "FILE", help = calibrate_help(), value_hint = ValueHint::FilePath, help_heading = VARIANTS, hide_short_help = true)]
    calibrate: Option<PathBuf>,
    /// Quantise one matrix at a time, and list what each costs, sorted by the loss per byte saved. Needs exactly one --quant
    #[arg(long, help_heading = VARIANTS, requires = "quant", conflicts_with_all = ["dtype", "strategy"])]
    by_matrix: bool,
    /// Placement of layers on devices to compare with the reference (the same values as for `generate --strategy`); repeatable
    #[arg(help_heading = VARIANTS, hide_short_help = true, long, value_name = "STRING", conflicts_with = "device")]
    strategy: Vec<String>,
    /// Cut the text into windows of at most N tokens, at least 2 [default: 2048, or the context length of the model if that is shorter]
    #[arg(help_heading = VARIANTS, long, value_name = "N", value_parser = within(2..=u32::MAX))]
    window: Option<u32>,
    /// Print the results as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A model to compare with the reference: the name of its row in the table, and its options.
struct Variant {
    name: String,
    options: Options,
}

impl Variant {
    fn new(name: &str, options: Options) -> Variant {
        // The reference always has an f32 state, so a variant's name contains only other types.
        let state = if options.state_dtype == Float::F32 { String::new() } else { format!(", {} state", options.state_dtype) };
        Variant { name: format!("{name}{state}"), options }
    }
}

/// Returns the variants that the flags name. Without such flags, returns one variant for each weight format other than the reference's. Quantised variants
/// have the options `quantised`, and all other variants the options `plain`.
fn variants(args: &Args, plain: &Options, quantised: &Options, reference: &Model) -> Result<Vec<Variant>> {
    let of_dtype = |kind: &str| Ok(Variant::new(kind, Options { dtype: kind.parse()?, ..plain.clone() }));
    let of_quant = |kind: &str| Ok(Variant::new(kind, Options { quant: Some(kind.parse()?), ..quantised.clone() }));
    let of_strategy = |text: &str| Ok(Variant::new(text, Options { strategy: Some(text.parse()?), ..plain.clone() }));
    let floats = args.dtype.iter().map(|d| of_dtype(d)).chain(args.quant.iter().map(|q| of_quant(q)));
    let asked: Vec<Variant> = floats.chain(args.strategy.iter().map(|s| of_strategy(s))).collect::<Result<_>>()?;
    if !asked.is_empty() {
        return Ok(asked);
    }
    let differs = |kind: &&str| *kind != reference.dtype() || plain.state_dtype != Float::F32;
    ["f16", "f32"].into_iter().filter(differs).map(of_dtype).chain(QuantPlan::names().map(of_quant)).collect()
}

pub fn run(args: Args) -> Outcome {
    let given = args.input.require(LastNewline::Keep)?;
    args.run.measure_once()?;
    let source = args.model.clone().map_or(ModelSource::Embedded, ModelSource::Path);
    let plain = args.run.options(args.source.vocab.clone())?;
    let against = Options { dtype: args.against.parse()?, state_dtype: Float::F32, ..plain.clone() };
    let mut said = Vec::new();
    let model = model_options::load_saying(&source, &against, &mut said)?;
    let mut reference = Session::new(&model, 1)?;
    reference.model().check_speaks()?;
    signals::stop_on_interrupt(&reference.stop_flag());
    let (start, tokens) = start_and_rest(&reference, given)?;
    let windows = Windows { start: &start, tokens: &tokens, len: window(&model, args.window) };
    windows.n_predicted().map_err(|e| e.at(args.input.place()))?;
    let calibration = args.calibrate.as_deref().map(|file| calibration(file, &source, &plain)).transpose()?;
    let quantised = Options { calibration, ..plain.clone() };
    if args.by_matrix {
        return by_matrix(&args, &source, &quantised, &mut reference, &windows);
    }

    let mut table = QualityTable { out: Output::new(false), json: args.json, report: None };
    for Variant { name, options } in variants(&args, &plain, &quantised, &model)? {
        let variant = model_options::load_saying(&source, &options, &mut said)?;
        let mut session = Session::new(&variant, 1)?;
        let mut bar = Progress::new("comparing", Unit::Tokens);
        let q = quality(&mut reference, &mut session, &windows, &mut |done, total| bar.show(done as u64, total as u64))?;
        drop(bar);
        if table.report.is_none() {
            table.begin(QualityReport { comparison: comparison(&args, &model, &windows, &q)?, variants: Vec::new() })?;
        }
        table.row(VariantReport::new(name, &variant, &q))?;
    }
    table.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Compares the model with one quantised matrix at a time.
fn by_matrix(args: &Args, source: &ModelSource, options: &Options, reference: &mut Session, windows: &Windows<'_>) -> Outcome {
    let [plan] = args.quant.as_slice() else {
        let text = format!("--by-matrix compares the matrices of one --quant, found {}", args.quant.len());
        return Err(Error::usage(text).hint("give one --quant").into());
    };
    let compared = ByMatrix { source, options, plan: &plan.parse()?, windows };
    let (q, all, tensors) = compared.measure(reference)?;
    let comparison = comparison(args, reference.model(), windows, &q)?;
    by_matrix::print(&ByMatrixReport { comparison, all, tensors }, args.json)
}

/// Describes a comparison with the model `reference`. `q` is the result of any variant, because only the numbers of the reference are used.
fn comparison(args: &Args, reference: &Model, windows: &Windows<'_>, q: &Quality) -> Result<ComparisonReport> {
    Ok(ComparisonReport {
        version: env!("CARGO_PKG_VERSION"),
        model: ModelReport::from(reference),
        device: device_of(reference.device(), args.run.on.backend()?),
        n: q.n,
        window: windows.len,
        n_windows: windows.count(),
        reference: WeightsReport::new(args.against.as_str(), reference, q.reference_perplexity),
    })
}

/// The printed result: a table whose rows are printed as soon as their numbers are known, or one JSON object at the end.
struct QualityTable {
    out: Output,
    json: bool,
    report: Option<QualityReport>,
}

impl QualityTable {
    fn begin(&mut self, report: QualityReport) -> std::result::Result<(), Failure> {
        if !self.json {
            self.out.line("| weights | bits | size | perplexity | loss % | KL mean | KL 99 % | KL max | same top % |")?;
            self.out.line("|:--|--:|--:|--:|--:|--:|--:|--:|--:|")?;
            self.out.line(format_args!("{} - | - | - | - | - |", cells(&report.comparison.reference)))?;
        }
        self.report = Some(report);
        Ok(())
    }

    fn row(&mut self, v: VariantReport) -> std::result::Result<(), Failure> {
        if !self.json {
            let nats = [v.loss.kl_mean, v.loss.kl_p99, v.loss.kl_max].map(|kl| format!("{kl:.3e}")).join(" | ");
            let (loss, agreement) = (v.loss.loss_percent, v.loss.agreement_percent);
            self.out.line(format_args!("{} {loss:.4} | {nats} | {agreement:.2} |", cells(&v.weights)))?;
        }
        self.report.iter_mut().for_each(|report| report.variants.push(v.clone()));
        Ok(())
    }

    fn finish(mut self) -> std::result::Result<(), Failure> {
        match &self.report {
            Some(report) if self.json => self.out.json(report)?,
            Some(report) => {
                self.out.line("")?;
                self.out.line(report.comparison.counts())?
            }
            None => {
                return Err(Error::usage("nothing to compare: every variant is the same as the reference")
                    .hint("name other formats with --dtype, --quant or --strategy")
                    .into());
            }
        }
        self.out.finish()
    }
}

/// Returns the first four cells of a row: name, bits per weight, size, perplexity.
fn cells(w: &WeightsReport) -> String {
    let dtype = if w.name == w.dtype { String::new() } else { format!(" ({})", w.dtype) };
    format!("| {}{dtype} | {:.2} | {} | {:.4} |", w.name, w.bits_per_weight, size(w.weight_bytes), w.perplexity)
}
