//! `list`: lists the models in the cache that wingbeat can run.

use super::ExitCode;
use super::output::{Output, say};
use super::{Outcome, fetch, published};
use crate::hub::{Address, shown};
use serde::Serialize;
use std::path::{Path, PathBuf};
use wingbeat::low_level::arch;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::weights::Checkpoint;

const EXAMPLES: &str = "\
Examples:
  wingbeat list
  wingbeat list --json | jq -r '.[] | select(.partial | not) | .path'";

/// List the downloaded models that wingbeat can run, and interrupted downloads
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
    /// True if an interrupted download left only a part of the file. If the file's name is unknown, `name` is the repository.
    partial: bool,
}

impl ListedModel {
    fn new(address: &Address, size_bytes: u64, path: PathBuf, partial: bool) -> ListedModel {
        let name = published::name_of(address).map_or_else(|| address.to_string(), Into::into);
        ListedModel { name, size_bytes, path, partial }
    }
}

pub fn run(args: Args) -> Outcome {
    let (settings, cache) = fetch::cache()?;
    let found = cache.list()?;
    for e in &found.faults {
        say(format_args!("warning: {e}"));
    }
    let whole = found.models.into_iter().filter(|cached| can_run(&cached.path));
    let whole = whole.map(|cached| ListedModel::new(&cached.address, cached.size_bytes, cached.path, false));
    let cut = found.partials.into_iter().map(|partial| ListedModel::new(&partial.address, partial.size_bytes, partial.path, true));
    let models: Vec<ListedModel> = whole.chain(cut).collect();
    let mut out = Output::new(false);
    if args.json {
        out.json(&models)?;
    } else if models.is_empty() {
        say(format_args!("no models in {}; `wingbeat pull NAME` downloads one", settings.cache.display()));
    } else {
        let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
        for model in &models {
            let end = if model.partial { "  (partial)" } else { "" };
            let path = model.path.display();
            out.line(format_args!("{:<width$}  {:>11}  {path}{end}", shown(&model.name), size(model.size_bytes)))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a checkpoint is readable and has a known architecture. Reads its header only.
fn can_run(path: &Path) -> bool {
    Checkpoint::open(path).and_then(|checkpoint| arch::detect(&checkpoint).map(drop)).is_ok()
}
