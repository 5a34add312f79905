//! `pull`: downloads a model into the cache that Hugging Face's programs use.

use super::ExitCode;
use super::output::Output;
use super::{Outcome, fetch, published};

const EXAMPLES: &str = "\
Examples:
  wingbeat pull rwkv7-g1-1.5b                   a published model (docs/models.md lists their names)
  wingbeat pull hf:BlinkDL/rwkv7-g1/FILE.pth    a file of a repository on huggingface.co
  wingbeat pull hf:zai-org/glm-4-9b-chat        a repository with one model

A download that was interrupted goes on where it stopped. Without a network, a model in the cache is used. Environment variables: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE,
HF_HUB_OFFLINE, as in Hugging Face's programs";

/// Download a model from Hugging Face, and print its path
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of a published model, or hf:OWNER/REPO[/FILE][@REVISION]
    #[arg(value_name = "NAME|hf:OWNER/REPO[/FILE]")]
    model: String,
}

pub fn run(args: Args) -> Outcome {
    let found = published::named_model(&args.model)?;
    let path = fetch::pulled(&found.address)?;
    let mut out = Output::new(false);
    out.line(path.display())?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
