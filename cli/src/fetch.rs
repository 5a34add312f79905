//! Finds a model in the cache. Downloads a missing model if the user agrees.

use super::consent;
use super::output::say;
use super::progress::{Progress, Unit};
use crate::hub::{Address, Cache, Client, HubSettings, Plan, shown};
use std::path::PathBuf;
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::front_end::size;

/// Returns the hub settings from the environment variables, and the cache in the folder that these settings name.
pub fn cache() -> Result<(HubSettings, Cache)> {
    let settings = HubSettings::from_environment(dirs::home_dir())?;
    let cache = Cache::new(settings.cache.clone());
    Ok((settings, cache))
}

/// Returns the path of the model at `address`, for which the user typed `typed`. If the cache has the model, opens no connection, and prints a note
/// if `newer` names a newer model. Otherwise downloads the model after `--yes` or after a person at the terminal agreed.
///
/// # Errors
/// `missing` if the model is not in the cache and may not be downloaded. `Interrupted` if the person declines. `File` if the download fails.
pub fn path(typed: &str, address: &Address, newer: Option<&str>, missing: Error) -> Result<PathBuf> {
    let (settings, cache) = cache()?;
    if let Some(path) = cache.find(address)? {
        if let Some(newer) = newer {
            say(format_args!("note: {newer} is a newer model of this series"));
        }
        return Ok(path);
    }
    let is_agreed = consent::is_given();
    if !is_agreed && !consent::can_ask() {
        return Err(missing);
    }
    let client = Client::new(settings);
    let plan = Plan::make(&client, address)?;
    if !is_agreed {
        let question = format!("{} is not on this disk: download {}?", shown(typed), size(plan.remaining_bytes(&cache)));
        if !consent::ask(&question, true)? {
            return Err(Error::new(Kind::Interrupted, "not downloaded").at(shown(typed)));
        }
    }
    run(&plan, &client, &cache, address)
}

/// Asks the hub for a model's current commit, downloads the files that the cache lacks, and returns the model's path. If the hub cannot be asked or
/// the cache cannot be written, prints a note and returns the path of the copy in the cache.
///
/// # Errors
/// `File` if the download fails, or if nothing can be downloaded and the cache does not have the model.
pub fn pulled(address: &Address) -> Result<PathBuf> {
    let (settings, cache) = cache()?;
    let client = Client::new(settings);
    let plan = match Plan::make(&client, address) {
        Ok(plan) => plan,
        Err(e) => return kept(&cache, address, &e.message).ok_or(e),
    };
    run(&plan, &client, &cache, address).or_else(|e| {
        let refused = plan.refused_by(&cache);
        refused.and_then(|refused| kept(&cache, address, &format!("the cache cannot be written: {}", refused.message))).ok_or(e)
    })
}

/// Returns the path of the copy in the cache, and prints why the copy is used. Returns `None` if the cache has no copy.
fn kept(cache: &Cache, address: &Address, why: &str) -> Option<PathBuf> {
    let path = cache.find(address).ok()??;
    say(format_args!("note: {}; using the copy in the cache", shown(why)));
    Some(path)
}

/// Downloads a model with a progress bar, and returns its path.
pub fn run(plan: &Plan, client: &Client, cache: &Cache, address: &Address) -> Result<PathBuf> {
    if let Some(newer) = &plan.newer {
        say(format_args!("note: {newer} is a newer model of this series"));
    }
    let (total, remaining) = (plan.size_bytes(), plan.remaining_bytes(cache));
    let mut bar = Progress::new("downloading", Unit::Bytes);
    if remaining > 0 && remaining < total {
        say(format_args!("downloading {address}: {} of {} are missing", size(remaining), size(total)));
    } else if remaining > 0 {
        say(format_args!("downloading {address}: {}", size(total)));
    }
    plan.run(client, cache, &mut |done, total| bar.show(done, total))
}
