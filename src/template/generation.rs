//! Settings of sampling and length, from a `generation_config.json` or from defaults.

use crate::error::{Error, Result, in_words, short, with_place};
use crate::sample::{Order, Sampling};
use serde_json::{Map, Value};

/// Settings of sampling and length. The fields have the names that transformers uses.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// The default of the setting `chat_len_max`: the maximum number of tokens in an answer. (In transformers, this name limits prompt and answer
    /// together.)
    pub max_length: usize,
    /// The maximum number of tokens in an answer. In a conversation, this limit applies in addition to `chat_len_max`. In a request with messages,
    /// the limit applies if the request sets no `max_tokens`. `None` sets no limit.
    pub max_new_tokens: Option<usize>,
    /// If false, the most probable token after penalties is always chosen.
    pub do_sample: bool,
    /// The number of beams, which must be 1.
    pub num_beams: usize,
    pub temperature: f32,
    pub top_p: f32,
    /// The number of most probable tokens that are kept; 0 keeps all tokens.
    pub top_k: usize,
    pub min_p: f32,
    /// The penalty for tokens of the prompt and the answer; 1 means no penalty.
    pub repetition_penalty: f32,
    /// The sampler's `presence_penalty`; 0 means no penalty.
    pub presence_penalty: f32,
    /// The sampler's `frequency_penalty`; 0 means no penalty.
    pub frequency_penalty: f32,
    /// The sampler's `penalty_decay`, 0 to 1: all penalty counts are multiplied by this number after each token.
    pub penalty_decay: f32,
    /// The order in which the sampler applies its filters and the temperature.
    pub order: Order,
    /// Ids of tokens that end an answer, in addition to the family's stop tokens.
    pub eos: Vec<u32>,
    /// Texts that end an answer.
    pub stop_strings: Vec<String>,
    /// The seed of the random stream.
    pub seed: u64,
}

impl GenerationConfig {
    /// Returns the defaults of `chat` and `stream_chat` in GLM-4's and ChatGLM3's code.
    pub fn glm() -> Self {
        let Sampling { temperature, top_p, top_k, .. } = Sampling::glm();
        GenerationConfig { max_length: 8192, do_sample: true, temperature, top_p, top_k, ..Self::transformers() }
    }

    /// Returns the settings that the authors of GLM-Z1 recommend.
    pub fn z1() -> Self {
        GenerationConfig { temperature: 0.6, top_p: 0.95, top_k: 40, ..Self::glm() }
    }

    /// Returns the settings in `sampling` that this type has: penalties, temperature, order, and the filters top-p, top-k and min-p.
    pub fn of(sampling: &Sampling) -> Self {
        let Sampling { temperature, top_p, top_k, min_p, repeat_penalty, order, .. } = *sampling;
        let Sampling { presence_penalty, frequency_penalty, penalty_decay, .. } = *sampling;
        let penalties = GenerationConfig { presence_penalty, frequency_penalty, penalty_decay, ..Self::transformers() };
        GenerationConfig { do_sample: true, temperature, top_p, top_k, min_p, repetition_penalty: repeat_penalty, order, ..penalties }
    }

    /// Returns these settings with the penalties, the temperature and the filters of `sampling`.
    pub fn with_sampling(&self, sampling: &Sampling) -> Self {
        let GenerationConfig { max_length, max_new_tokens, ref eos, ref stop_strings, seed, .. } = *self;
        GenerationConfig { max_length, max_new_tokens, eos: eos.clone(), stop_strings: stop_strings.clone(), seed, ..Self::of(sampling) }
    }

    /// Returns the defaults of transformers' `generate`, which is greedy. Only `max_length` is GLM's, because transformers' default is 20 tokens.
    fn transformers() -> Self {
        GenerationConfig {
            max_length: 8192,
            max_new_tokens: None,
            do_sample: false,
            num_beams: 1,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 50,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_decay: 1.0,
            order: Order::Hf,
            eos: Vec::new(),
            stop_strings: Vec::new(),
            seed: 0,
        }
    }

    /// Reads a `generation_config.json`. Settings that the file lacks keep their values. Refuses an unsupported setting that would change the text,
    /// unless its value turns the setting off.
    ///
    /// # Errors
    /// `File` if the file is not a JSON object, `Usage` if a setting has a wrong type or is refused.
    pub fn read(mut self, json: &[u8]) -> Result<Self> {
        let settings: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|e| Error::file(format!("expected generation settings as a JSON object: {}", with_place(&e))).caused_by(e))?;
        for (key, value) in &settings {
            if !value.is_null() {
                self.set(key, value).map_err(|e| e.at(key))?;
            }
        }
        self.check()?;
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        match key {
            "max_length" => self.max_length = of(value)?,
            "max_new_tokens" => self.max_new_tokens = Some(of(value)?),
            "do_sample" => self.do_sample = of(value)?,
            "num_beams" => self.num_beams = of(value)?,
            "temperature" => self.temperature = of(value)?,
            "top_p" => self.top_p = of(value)?,
            "top_k" => self.top_k = of(value)?,
            "min_p" => self.min_p = of(value)?,
            "repetition_penalty" => self.repetition_penalty = of(value)?,
            "presence_penalty" => self.presence_penalty = of(value)?,
            "frequency_penalty" => self.frequency_penalty = of(value)?,
            "penalty_decay" => self.penalty_decay = of(value)?,
            "eos_token_id" if value.is_array() => self.eos = of(value)?,
            "eos_token_id" => self.eos = vec![of(value)?],
            "stop_strings" if value.is_array() => self.stop_strings = of(value)?,
            "stop_strings" => self.stop_strings = vec![of(value)?],
            _ => return refuse(key, value),
        }
        Ok(())
    }

    /// Checks that all settings are supported.
    ///
    /// # Errors
    /// `Usage` if `num_beams` is not 1.
    pub fn check(&self) -> Result<()> {
        match self.num_beams {
            1 => Ok(()),
            n => Err(Error::usage(format!("expected 1 beam, found {n}: beam search is not supported"))
                .at("num_beams")
                .hint("set num_beams to 1 in generation_config.json")),
        }
    }

    /// Converts these settings to the settings of the sampler.
    pub fn sampling(&self) -> Sampling {
        let GenerationConfig { presence_penalty, frequency_penalty, penalty_decay, order, .. } = *self;
        let penalties = Sampling { presence_penalty, frequency_penalty, penalty_decay, ..Sampling::greedy(self.seed) };
        let common = Sampling { repeat_penalty: self.repetition_penalty, order, ..penalties };
        if !self.do_sample {
            return common;
        }
        Sampling { temperature: self.temperature, top_p: self.top_p, top_k: self.top_k, min_p: self.min_p, ..common }
    }
}

fn of<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|e| Error::usage(in_words(&e)).caused_by(e))
}

/// Unsupported settings that change the text, each with the values that turn the setting off. An empty list means `false`, 0 and empty values.
const REFUSED: &[(&str, &[f64])] = &[
    ("num_beam_groups", &[1.0]),
    ("num_return_sequences", &[1.0]),
    ("penalty_alpha", &[]),
    ("typical_p", &[1.0]),
    ("top_h", &[]),
    ("epsilon_cutoff", &[]),
    ("eta_cutoff", &[]),
    ("diversity_penalty", &[]),
    ("encoder_repetition_penalty", &[1.0]),
    ("no_repeat_ngram_size", &[]),
    ("encoder_no_repeat_ngram_size", &[]),
    ("bad_words_ids", &[]),
    ("force_words_ids", &[]),
    ("constraints", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("forced_decoder_ids", &[]),
    ("exponential_decay_length_penalty", &[]),
    ("sequence_bias", &[]),
    ("suppress_tokens", &[]),
    ("begin_suppress_tokens", &[]),
    ("min_length", &[]),
    ("min_new_tokens", &[]),
    ("max_time", &[]),
    ("guidance_scale", &[1.0]),
    ("watermarking_config", &[]),
    ("dola_layers", &[]),
    ("token_healing", &[]),
];

fn refuse(key: &str, value: &Value) -> Result<()> {
    let is_empty = match value {
        Value::Bool(yes) => !yes,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let Some((_, off)) = REFUSED.iter().find(|(refused, _)| *refused == key) else {
        log::debug!("generation_config.json: {} changes no text or is unknown: ignored", key.escape_default());
        return Ok(());
    };
    // In a setting that names a token, 0 is a token's id and does not mean off.
    let neutral: &[f64] = if off.is_empty() && !key.ends_with("_id") { &[0.0] } else { off };
    if is_empty || value.as_f64().is_some_and(|x| neutral.contains(&x)) {
        return Ok(());
    }
    let shown = short(&value.to_string(), 40);
    Err(Error::usage(format!("this setting changes the text and is not supported; found the value {shown}"))
        .hint("remove the setting from generation_config.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<GenerationConfig> {
        GenerationConfig::glm().read(json.as_bytes())
    }

    #[test]
    fn defaults_are_the_familys() {
        let glm = GenerationConfig::glm();
        assert_eq!((glm.max_length, glm.max_new_tokens, glm.num_beams, glm.do_sample), (8192, None, 1, true));
        assert_eq!(glm.sampling(), Sampling::glm());
        assert_eq!(read("{}").unwrap(), glm);
        let greedy = GenerationConfig { do_sample: false, repetition_penalty: 1.1, ..glm }.sampling();
        assert!(greedy.is_greedy() && greedy.repeat_penalty == 1.1 && greedy.top_k == 0);
        assert!(GenerationConfig::transformers().sampling().is_greedy());
    }

    #[test]
    fn files_are_read() {
        let original = r#"{"eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329, "do_sample": true, "temperature": 0.7,
            "max_length": 128000, "top_p": 0.9, "transformers_version": "4.40.2", "typical_p": 1.0, "min_length": 0, "bad_words_ids": null}"#;
        let config = read(original).unwrap();
        assert_eq!((config.max_length, config.temperature, config.top_p, config.top_k), (128_000, 0.7, 0.9, 50));
        assert_eq!(config.eos, [151329, 151336, 151338]);
        assert_eq!(read(r#"{"eos_token_id": 2, "top_k": null, "stop_strings": "x"}"#).unwrap().stop_strings, ["x"]);
        let hf = GenerationConfig::transformers().read(br#"{"eos_token_id": [1], "pad_token_id": 1}"#).unwrap();
        assert!(!hf.do_sample);
    }

    #[test]
    fn unsupported_settings_are_refused_by_name() {
        let cases = [
            (r#"{"num_beams": 4}"#, "num_beams: expected 1 beam, found 4"),
            (r#"{"penalty_alpha": 0.6}"#, "penalty_alpha: this setting changes the text and is not supported; found the value 0.6"),
            (r#"{"typical_p": 0.9}"#, "typical_p: this setting changes the text and is not supported; found the value 0.9"),
            (r#"{"no_repeat_ngram_size": 3}"#, "no_repeat_ngram_size: "),
            (r#"{"bad_words_ids": [[1]]}"#, "bad_words_ids: "),
            (r#"{"forced_eos_token_id": 0}"#, "forced_eos_token_id: "),
            (r#"{"guidance_scale": 1.5}"#, "guidance_scale: "),
            (r#"{"token_healing": true}"#, "token_healing: "),
            (r#"{"watermarking_config": {"greenlist_ratio": 0.25}}"#, "watermarking_config: "),
            (r#"{"top_p": "x"}"#, "top_p: found the string \"x\" instead of a number"),
            (r#"{"max_length": -1}"#, "max_length: found the number -1 instead of a whole number"),
            ("[]", "expected generation settings as a JSON object"),
        ];
        for (json, want) in cases {
            let said = read(json).unwrap_err().to_string();
            assert!(said.starts_with(want), "{json}: {said}");
        }
        let off = r#"{"typical_p": 1, "epsilon_cutoff": 0.0, "token_healing": false, "guidance_scale": 1.0, "suppress_tokens": [], "length_penalty": 2,
            "num_return_sequences": 1, "a_new_key": 7}"#;
        assert_eq!(read(off).unwrap(), GenerationConfig::glm());
    }
}
