//! `list`: lists the models in the cache that wingbeat can run.

use super::ExitCode;
use super::output::{Output, say};
use super::{Outcome, fetch, published};
use serde::Serialize;
use std::path::{Path, PathBuf};
use wingbeat::low_level::arch;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::weights::Checkpoint;

const EXAMPLES: &str = "\
Examples:
  wingbeat list
  wingbeat list --json | jq -r '.[].path'";

/// List the downloaded models that wingbeat can run
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// A downloaded model.
#[derive(Serialize)]
struct ListedModel {
    /// The name that `-m` takes: a published name, or an address that begins with `hf:`.
    name: String,
    size_bytes: u64,
    path: PathBuf,
}

pub fn run(args: Args) -> Outcome {
    let (settings, cache) = fetch::cache()?;
    let models: Vec<ListedModel> = cache
        .list()?
        .into_iter()
        .filter(|cached| can_run(&cached.path))
        .map(|cached| ListedModel {
            name: published::name_of(&cached.address).map_or_else(|| cached.address.to_string(), Into::into),
            size_bytes: cached.size_bytes,
            path: cached.path,
        })
        .collect();
    let mut out = Output::new(false);
    if args.json {
        out.json(&models)?;
    } else if models.is_empty() {
        say(format_args!("no models in {}; `wingbeat pull NAME` downloads one", settings.cache.display()));
    } else {
        let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
        for model in &models {
            out.line(format_args!("{:<width$}  {:>11}  {}", model.name, size(model.size_bytes), model.path.display()))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a checkpoint is readable and has a known architecture. Reads its header only.
fn can_run(path: &Path) -> bool {
    Checkpoint::open(path).and_then(|checkpoint| arch::detect(&checkpoint).map(drop)).is_ok()
}
