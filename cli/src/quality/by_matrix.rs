//! `quality --by-matrix`: quantises one tensor at a time, and compares the loss that each tensor causes with the memory that it saves.

use super::report::{ByMatrixReport, TensorReport, VariantReport};
use crate::model_options::load_quietly;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::{ExitCode, Outcome};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::QuantPlan;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::{Model, ModelSource, Options, Quality, Session, Windows, quality};

/// The arguments of a comparison that quantises one tensor at a time.
pub struct ByMatrix<'a> {
    pub source: &'a ModelSource,
    /// The options of the quantised model, without `quant`.
    pub options: &'a Options,
    pub plan: &'a QuantPlan,
    pub windows: &'a Windows<'a>,
}

impl ByMatrix<'_> {
    fn load(&self, plan: QuantPlan) -> Result<Model> {
        load_quietly(self.source, &Options { quant: Some(plan), ..self.options.clone() })
    }

    /// Compares the reference with a model whose tensors are all quantised, then with one quantised tensor at a time. Returns the first result, the
    /// first result as a report, and one report per tensor. Tensors with the largest loss per saved MiB come first.
    pub fn measure(&self, reference: &mut Session) -> Result<(Quality, VariantReport, Vec<TensorReport>)> {
        let all = self.load(self.plan.clone())?;
        let tensors = all.quantised_tensors();
        if tensors.is_empty() {
            return Err(Error::usage(format!("`quant={}` quantises no matrix of this model", self.plan)).field("quant"));
        }
        let n_models = tensors.len() as u64 + 1;
        let mut bar = Progress::new("comparing", Unit::Tokens);
        let mut compare = |reference: &mut Session, i: u64, model: &Model| {
            let mut session = Session::new(model, 1)?;
            quality(reference, &mut session, self.windows, &mut |done, total| {
                bar.show(i * total as u64 + done as u64, n_models * total as u64);
            })
        };
        let q = compare(reference, 0, &all)?;
        let report = VariantReport::new(self.plan.to_string(), &all, &q);
        drop(all);
        let mut reports = Vec::new();
        for (i, tensor) in (1..).zip(tensors) {
            let model = self.load(self.plan.clone().only(tensor.tensor.clone()))?;
            reports.push(TensorReport::new(tensor, &compare(reference, i, &model)?));
        }
        reports.sort_by(|a, b| b.loss_percent_per_mib.total_cmp(&a.loss_percent_per_mib));
        Ok((q, report, reports))
    }
}

/// Prints the report as a table or as an object.
pub fn print(report: &ByMatrixReport, json: bool) -> Outcome {
    let mut out = Output::new(false);
    if json {
        out.json(report)?;
    } else {
        out.line("| matrix | format | saves | loss % | KL mean | loss % per MiB |")?;
        out.line("|:--|:--|--:|--:|--:|--:|")?;
        for t in &report.tensors {
            let (saved, loss, per_mib) = (size(t.bytes_saved), t.loss.loss_percent, t.loss_percent_per_mib);
            out.line(format_args!("| {} | {} | {saved} | {loss:.4} | {:.3e} | {per_mib:.4} |", t.tensor, t.format, t.loss.kl_mean))?;
        }
        let all = &report.all;
        out.line("")?;
        out.line(format_args!(
            "all together: loss {:.4} %, KL mean {:.3e}, {:.2} bits per weight",
            all.loss.loss_percent, all.loss.kl_mean, all.weights.bits_per_weight
        ))?;
        out.line(report.comparison.counts())?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
