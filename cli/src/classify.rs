//! `classify`: determines the class of a text with a model that has a classification head.

use super::ExitCode;
use super::model_options::ModelArgs;
use super::output::Output;
use super::prompt::{InputArgs, NewlineArgs};
use super::values::OUTPUT;
use super::{Outcome, signals};
use crate::report::ClassifyReport;
use wingbeat::error::Error;
use wingbeat::low_level::session::{Prompt, Session};

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
    let mut session = Session::new(&model, 1)?;
    signals::stop_on_interrupt(&session.stop_flag());
    let tokens = given.tokens(|text| session.encode(&Prompt::Text(text)))?;
    let logits = session.classify(&tokens)?;
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
