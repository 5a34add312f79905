//! `rm`: removes a downloaded model from the cache.

use super::ExitCode;
use super::output::say;
use super::{Outcome, consent, fetch, published};
use crate::hub::{Address, shown};
use wingbeat::error::{Error, Kind};
use wingbeat::low_level::front_end::size;

const EXAMPLES: &str = "\
Examples:
  wingbeat rm rwkv7-g1-1.5b
  wingbeat rm --yes hf:BlinkDL/rwkv7-g1        every file of the repository
  wingbeat rm --partial hf:BlinkDL/rwkv7-g1    what interrupted downloads left";

/// Remove a downloaded model
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of a published model, or hf:OWNER/REPO[/FILE][@REVISION], as `wingbeat list` prints it
    #[arg(value_name = "NAME|hf:OWNER/REPO[/FILE]")]
    model: String,
    /// Remove only what interrupted downloads left
    #[arg(long)]
    partial: bool,
    /// Remove the model without asking
    #[arg(long)]
    yes: bool,
}

pub fn run(args: Args) -> Outcome {
    let address = published::named_model(&args.model)?.address;
    let (settings, cache) = fetch::cache()?;
    let removal = if args.partial { cache.removal_of_partials(&address)? } else { cache.removal(&address)? };
    let Some(removal) = removal else {
        let what = if args.partial { "no interrupted download of this model" } else { "no such model" };
        let e = Error::file(format!("{what} in {}", settings.cache.display())).at(shown(&args.model));
        let repository = Address { file: None, ..address };
        let hint = match cache.partials(&repository).len() {
            0 => "`wingbeat list` lists the models that are there".into(),
            _ => format!("the repository has interrupted downloads: wingbeat rm --partial {repository} removes them"),
        };
        return Err(e.hint(hint).into());
    };
    let freed = size(removal.size_bytes);
    if !args.yes {
        if !consent::can_ask() {
            let e = Error::usage("a model is removed only after a question, and there is no terminal to ask").at(shown(&args.model));
            return Err(e.hint("add --yes").into());
        }
        if !consent::ask(&format!("remove {address} and free {freed}?"), false)? {
            return Err(Error::new(Kind::Interrupted, "not removed").at(shown(&args.model)).into());
        }
    }
    removal.run()?;
    say(format_args!("removed {address}: {freed} are free"));
    Ok(ExitCode::SUCCESS)
}
