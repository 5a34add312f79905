//! How tokens are drawn: flags over the defaults of the model's family.

use crate::error::{Error, Result};
use crate::sample::{Order, Sampling};
use crate::session::Model;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::SystemTime;

#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Below 1 is more certain, 0 always takes the most likely token [default: 1; GLM 0.8]
    #[arg(long, visible_alias = "temp", value_name = "X", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the most likely tokens up to this share of the probability; 1 is off [default: 0.85; GLM 0.8]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Keep this many tokens; 0 is off [default: 0; GLM 50]
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Keep tokens at least this fraction as likely as the most likely one; 0 is off [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Taken from the logit of every token that was generated before [default: 0.2; GLM 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Taken once for each time that it was [default: 0.2; GLM 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// What is left of those counts after each token [default: 0.996]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    penalty_decay: Option<f32>,
    /// Divides positive logits of tokens that were generated before, multiplies negative ones; 1 is off [default: 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Added to one token's logit; repeatable
    #[arg(long, value_name = "ID=X")]
    logit_bias: Vec<String>,
    /// Never draw this token; repeatable
    #[arg(long, value_name = "ID")]
    ban: Vec<u32>,
    /// Names the random stream [default: random, shown by --json]
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
    /// End before this text; repeatable
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Do not end at the end-of-text token
    #[arg(long)]
    pub ignore_eos: bool,
    /// When the temperature applies: pip (after the filters, as the official RWKV package) or hf (before, as transformers) [default: pip; GLM hf]
    #[arg(long, value_name = "ORDER", value_parser = ["pip", "hf"])]
    sampler_order: Option<String>,
}

impl SamplingArgs {
    /// Checked against the model's vocabulary. Greedy takes no penalties but those asked for: it means the most likely token.
    pub fn sampling(&self, model: &Model) -> Result<Sampling> {
        let mut s = model.sampling().clone();
        if self.temperature == Some(0.0) {
            s = Sampling { order: s.order, ..Sampling::greedy(0) };
        }
        let set = |field: &mut f32, flag: Option<f32>| *field = flag.unwrap_or(*field);
        set(&mut s.temperature, self.temperature);
        set(&mut s.top_p, self.top_p);
        set(&mut s.min_p, self.min_p);
        set(&mut s.presence_penalty, self.presence_penalty);
        set(&mut s.frequency_penalty, self.frequency_penalty);
        set(&mut s.penalty_decay, self.penalty_decay);
        set(&mut s.repeat_penalty, self.repeat_penalty);
        s.top_k = self.top_k.unwrap_or(s.top_k);
        s.logit_bias = self.logit_bias.iter().map(|text| bias(text)).collect::<Result<_>>()?;
        s.ban.clone_from(&self.ban);
        s.seed = self.seed.unwrap_or_else(random_seed);
        s.order = match self.sampler_order.as_deref() {
            Some("hf") => Order::Hf,
            Some(_) => Order::Pip,
            None => s.order,
        };
        s.check(model.facts().n_vocab)?;
        Ok(s)
    }

    /// The seed, where one was asked for.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }
}

/// `ID=X`.
fn bias(text: &str) -> Result<(u32, f32)> {
    let parsed = text.split_once('=').and_then(|(id, x)| Some((id.trim().parse().ok()?, x.trim().parse().ok()?)));
    parsed.ok_or_else(|| Error::usage(format!("expected ID=X such as 261=-1.5, found {text:?}")).at("--logit-bias"))
}

/// 53 bits, so that a reader of JSON that knows only doubles gets the same seed. The standard library's hash keys are random.
fn random_seed() -> u64 {
    let mut hash = RandomState::new().build_hasher();
    hash.write_u128(SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos()));
    hash.finish() >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_and_seeds() {
        assert_eq!(bias("7=-1.5").unwrap(), (7, -1.5));
        assert_eq!(bias("7=-inf").unwrap(), (7, f32::NEG_INFINITY));
        assert!(bias("7").is_err() && bias("=1").is_err() && bias("-7=1").is_err());
        assert!(random_seed() != random_seed() && random_seed() < 1 << 53);
    }
}
