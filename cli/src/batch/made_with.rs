//! The settings that determine which texts a run of `batch` generates.
//!
//! Settings that change no text under `--deterministic` are left out: slots, device, backend, chunk. The fields of the input lines are left
//! out, too.

use super::Args;
use crate::grammar_options::NamedRules;
use crate::resume::{RunFile, hash_of_checkpoint, hash_of_parts};
use serde_json::{Map, Value, json};
use wingbeat::error::Result;
use wingbeat::low_level::sample::{Sampling, Setting};
use wingbeat::low_level::session::Model;

/// Returns the settings of this run, to be saved beside the results. `rules` is the grammar or schema given by the command-line flags.
///
/// # Errors
/// `File` if the state file cannot be read.
pub fn run_file(args: &Args, model: &Model, sampling: &Sampling, rules: Option<&NamedRules>) -> Result<RunFile> {
    let mut made_with = Map::new();
    let mut put = |name: &str, value: Value| drop(made_with.insert(name.into(), value));
    put("model", model.weights_hash().into());
    put("quantisation", format!("{}, {:.2} bits", model.dtype(), model.bits_per_weight()).into());
    put("activations", model.activations().name().into());
    put("importance", model.importance().into());
    put("vocabulary", model.vocab().map(|v| hash_of_parts((0..=v.max_id()).map(|id| v.token(id)))).into());
    let run = &args.model.weights.run;
    put("cache-dtype", model.context().map(|_| run.cache_dtype.as_str()).into());
    put("state-dtype", run.state_dtype.as_str().into());
    put("group-norm-eps", run.group_norm_eps.into());
    put("state", args.model.state.as_deref().map(hash_of_checkpoint).transpose()?.into());
    put("max-tokens", if args.max_tokens == usize::MAX { (-1).into() } else { args.max_tokens.into() });
    put("stop", json!(args.sampling.stop));
    put("ignore-eos", args.sampling.ignore_eos.into());
    put("format", args.format.name().into());
    put("thinking", args.format.thinking().into());
    put("add-bos", args.format.add_bos().then_some(true).into());
    put("close", rules.map(|_| args.grammar.close().name()).into());
    put("rules", rules.map(|rules| hash_of_parts([rules.identity().as_bytes()])).into());
    for setting in Setting::all().iter().filter(|s| s.name != "preset" && s.name != "seed") {
        put(&format!("sampling.{}", setting.name), sampling.get(setting.name)?.into());
    }
    Ok(RunFile::new(model.name(), sampling.seed, made_with))
}
