//! `classify`: determines the class of a text with a model that has a classification head.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::prompt::{InputArgs, NewlineArgs};
use super::requests::{Events, for_one_caller};
use super::values::OUTPUT;
use super::{Outcome, signals};
use serde::Serialize;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Input, Request};
use wingbeat::error::Error;
use wingbeat::low_level::session::VectorRule;

const EXAMPLES: &str = "\
Examples:
  wingbeat classify -m glm-4-classifier/ \"I liked it\"
  wingbeat classify -m glm-4-classifier/ -f review.txt --json";

/// Determine the class of a text
///
/// Prints each class with its probability, the most likely class first. Needs a checkpoint with a classification head (tensor score.weight, or classifier_head in the original GLM-4 code).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    newline: NewlineArgs,
    /// Print the results as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

pub fn run(args: Args) -> Outcome {
    let given = args.input.require(args.newline.last())?;
    if args.model.state.is_some() {
        return Err(Error::usage("classify always starts from an empty state").hint("leave out --state").at("--state").into());
    }
    let model = args.model.load()?;
    let rule = VectorRule::classes(&model)?;
    let tokens = given.tokens(|text| rule.encode(&model, text))?;
    let engine = EngineOptions { slots: 1, cache: CacheOptions::off(), ..EngineOptions::default() };
    let engine = Engine::start(&model, for_one_caller(engine))?;
    let stop = signals::stop_flag();
    let mut bar = Progress::new("reading", Unit::Tokens);
    let mut logits = Vec::new();
    for event in Events::submit(&engine, Request::classes([Input::Tokens(tokens.clone())]), &stop)? {
        match event? {
            Event::Vector { vector, .. } => logits = vector,
            Event::Progress { processed_tokens, prompt_tokens, .. } => bar.show(processed_tokens as u64, prompt_tokens as u64),
            _ => {}
        }
    }
    drop(bar);
    let report = ClassifyReport::new(tokens, model.facts().labels.as_deref().unwrap_or_default(), &logits);
    let mut out = Output::new(false);
    if args.json {
        out.json(&report)?;
    } else {
        for class in &report.classes {
            out.line(format_args!("{:.4}  {}", class.probability, class.label))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Serialize)]
pub struct ClassifyReport {
    pub tokens: Vec<u32>,
    /// All classes, the most likely class first.
    pub classes: Vec<ClassReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ClassReport {
    pub label: String,
    pub logit: f32,
    /// The probability of the class: the softmax over the logits of all classes.
    pub probability: f64,
}

impl ClassifyReport {
    pub fn new(tokens: Vec<u32>, labels: &[String], logits: &[f32]) -> ClassifyReport {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| f64::from(logit - most).exp();
        let total: f64 = logits.iter().map(|&l| weight(l)).sum();
        let class = |(label, &logit): (&String, &f32)| ClassReport { label: label.clone(), logit, probability: weight(logit) / total };
        let mut classes: Vec<ClassReport> = labels.iter().zip(logits).map(class).collect();
        classes.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        ClassifyReport { tokens, classes }
    }
}
