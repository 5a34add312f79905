//! PEFT's `adapter_config.json`: the scale of each low-rank pair, and the kind of the adapter.
//!
//! The scale of a pair is alpha / r, or alpha / √r with `use_rslora`. `rank_pattern` and `alpha_pattern` set r and alpha of single modules. Their
//! keys are regular expressions. The first key that matches counts. A key matches a whole module name, or the end of the name after a dot.
//!
//! Some keys only describe the training, such as `target_modules`, `bias` and `modules_to_save`: the file's tensors show what was trained.
//! `fan_in_fan_out` describes how a base model stores its matrices, and does not change the pairs.

use crate::error::{Error, Result, short, with_place};
use crate::files;
use crate::weights::config::keys::ConfigKeys;
use crate::weights::index::read_small;
use fancy_regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};
use std::path::Path;

const NAME: &str = "adapter_config.json";
/// The maximum size of the file, in bytes. A pattern for every matrix of a large model takes about 100 kilobytes.
const MAX_BYTES: u64 = 4 << 20;
/// The largest number of patterns of a key. A model of a hundred layers has about a thousand matrices.
const MAX_PATTERNS: usize = 1 << 12;
/// Limits on the steps to match one pattern, and on the bytes of a compiled pattern, because a file may be hostile.
const MAX_STEPS: usize = 10_000;
const MAX_COMPILED_BYTES: usize = 1 << 18;

/// Initialisations of A and B after which the base model is unchanged. So the adapter's pairs are the whole change.
const PLAIN_STARTS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];
/// Initialisations that subtract B·A from the base model: without the first A and B, the trained pairs do not determine the change.
const CHANGED_STARTS: [(&str, &str); 5] =
    [("pissa", "PiSSA"), ("olora", "OLoRA"), ("corda", "CorDA"), ("lora_ga", "LoRA-GA"), ("loftq", "LoftQ")];
/// Keys of variants with other formulas, and what each variant is. A key counts if its value is neither null, false nor empty.
const VARIANTS: [(&str, &str); 10] = [
    ("alora_invocation_tokens", "an Activated LoRA, which changes only a part of each text"),
    ("arrow_config", "a router of several adapters"),
    ("kasa_config", "KaSA, which changes the base model"),
    ("layer_replication", "repeated layers"),
    ("lora_bias", "biases of the low-rank pairs"),
    ("monteclora_config", "MonteCLoRA, which draws weights at random"),
    ("target_parameters", "low-rank pairs of parameters outside of linear layers"),
    ("trainable_token_indices", "trained rows of the embedding"),
    ("use_bdlora", "block-diagonal pairs"),
    ("use_qalora", "QALoRA, whose pairs are for groups of inputs"),
];
const MERGED: &str = "merge the adapter with PEFT's `merge_and_unload`, and use the merged model";

/// The values of an `adapter_config.json` that determine the merge.
#[derive(Debug)]
pub(super) struct LoraConfig {
    /// The path of the file.
    pub place: String,
    /// The default of alpha, or `None` if the key is missing.
    pub alpha: Option<f64>,
    /// True if each pair has a vector of magnitudes.
    pub is_dora: bool,
    rank: Option<usize>,
    has_root: bool,
    alphas: Vec<Pattern>,
    ranks: Vec<Pattern>,
}

/// An entry of `rank_pattern` or `alpha_pattern`.
#[derive(Debug)]
struct Pattern {
    key: String,
    regex: Regex,
    value: f64,
}

impl LoraConfig {
    /// Reads the `adapter_config.json` in the folder of the file `adapter`. Returns `None` if the folder has no such file.
    ///
    /// # Errors
    ///
    /// `File` if the file is not JSON. `Model` if it describes another kind of adapter, or if a value is out of range.
    pub fn beside(adapter: &Path) -> Result<Option<LoraConfig>> {
        let path = adapter.with_file_name(NAME);
        if !files::is_file(&path) {
            return Ok(None);
        }
        let place = path.display().to_string();
        let read = read_small(&path, MAX_BYTES).and_then(|json| Self::parse(&json, &place).map_err(|e| e.at(&place)));
        read.map(Some)
    }

    pub(super) fn parse(json: &[u8], place: &str) -> Result<LoraConfig> {
        let object: Map<String, Value> = serde_json::from_slice(json).map_err(|e| {
            let text = format!("expected the configuration of an adapter as JSON: {}", short(&with_place(&e), 200));
            Error::file(text).hint("download adapter_config.json again").caused_by(e)
        })?;
        let keys = ConfigKeys::of(&object);
        let kind = keys.text("peft_type")?.unwrap_or("LORA");
        if !kind.eq_ignore_ascii_case("LORA") {
            return Err(Error::model(format!("expected a LoRA adapter (peft_type LORA), found peft_type {}", short(kind, 40))).hint(MERGED));
        }
        if let Some(Value::String(start)) = keys.get("init_lora_weights") {
            check_start(start)?;
        }
        let is_set = |key: &str| match keys.get(key) {
            None | Some(Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        };
        if let Some((key, what)) = VARIANTS.iter().find(|(key, _)| is_set(key)) {
            return Err(Error::model(format!("{key} means {what}, which is not supported")).hint(MERGED));
        }
        let (alpha, flag) = (keys.number("lora_alpha")?, |key| Ok::<_, Error>(keys.flag(key)?.unwrap_or(false)));
        if alpha == Some(0.0) {
            return Err(Error::model("expected a lora_alpha other than 0, found 0"));
        }
        let ranks = Pattern::list(&object, "rank_pattern")?;
        if let Some(wrong) = ranks.iter().find(|pattern| pattern.value < 1.0 || pattern.value.fract() != 0.0) {
            let text = format!("expected a whole number of at least 1 as the rank of {}, found {}", short(&wrong.key, 80), wrong.value);
            return Err(Error::model(text).at("rank_pattern"));
        }
        Ok(LoraConfig {
            place: place.to_string(),
            alpha,
            is_dora: flag("use_dora")?,
            rank: keys.size("r")?,
            has_root: flag("use_rslora")?,
            alphas: Pattern::list(&object, "alpha_pattern")?,
            ranks,
        })
    }

    /// Returns the scale of a module's low-rank pair. `rank` is the rank of the pair's matrices, and `alpha` the default of alpha.
    ///
    /// # Errors
    ///
    /// `Model` if the configuration sets another rank, or if a pattern takes too long.
    pub fn scale(&self, module: &str, rank: usize, alpha: f64) -> Result<f64> {
        let expected = find(&self.ranks, "rank_pattern", module)?.or(self.rank.map(|rank| rank as f64));
        if let Some(expected) = expected.filter(|expected| *expected != rank as f64) {
            let text = format!("the configuration sets the rank of {} to {expected}, but the low-rank pair has {rank}", short(module, 120));
            return Err(Error::model(text).hint("use the adapter_config.json that was saved with the adapter").at(&self.place));
        }
        let alpha = find(&self.alphas, "alpha_pattern", module)?.unwrap_or(alpha);
        Ok(alpha / if self.has_root { (rank as f64).sqrt() } else { rank as f64 })
    }
}

/// Returns an error if training with this value of `init_lora_weights` also changes the base model: the pairs are then not the whole change.
fn check_start(start: &str) -> Result<()> {
    let lower = start.to_ascii_lowercase();
    if PLAIN_STARTS.contains(&lower.as_str()) {
        return Ok(());
    }
    match CHANGED_STARTS.iter().find(|(begin, _)| lower.starts_with(begin)) {
        Some((_, name)) => {
            let text = format!("init_lora_weights is {}: {name} also changed the base model before the training", short(start, 40));
            let hint = "save the adapter with PEFT's option `path_initial_model_for_weight_conversion`, or use the merged model";
            Err(Error::model(text).hint(hint))
        }
        None => Err(Error::model(format!("unknown init_lora_weights {:?}", short(start, 40))).hint(MERGED)),
    }
}

impl Pattern {
    /// Reads an object of patterns. Returns an empty list if the key is missing.
    fn list(object: &Map<String, Value>, name: &str) -> Result<Vec<Pattern>> {
        let Some(keys) = ConfigKeys::of(object).object(name)? else { return Ok(Vec::new()) };
        let patterns: Vec<&String> = object.get(name).and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
        if patterns.len() > MAX_PATTERNS {
            return Err(Error::model(format!("expected at most {MAX_PATTERNS} patterns, found {}", patterns.len())).at(name));
        }
        patterns.into_iter().map(|key| Self::of(keys, key).map_err(|e| e.at(name))).collect()
    }

    fn of(map: ConfigKeys<'_>, key: &str) -> Result<Pattern> {
        let value = map.number(key)?.ok_or_else(|| Error::model(format!("expected a number for {}, found null", short(key, 80))))?;
        let mut builder = RegexBuilder::new(&format!(r"^(.*\.)?({key})$"));
        let regex = builder.backtrack_limit(MAX_STEPS).delegate_size_limit(MAX_COMPILED_BYTES).build().map_err(|e| {
            let text = format!("expected a regular expression, found {:?}: {}", short(key, 80), short(&e.to_string(), 120));
            Error::model(text).caused_by(e)
        })?;
        Ok(Pattern { key: key.to_string(), regex, value })
    }
}

/// Returns the value of the first pattern that matches a module's name, or `None` if no pattern matches.
fn find(patterns: &[Pattern], name: &str, module: &str) -> Result<Option<f64>> {
    for pattern in patterns {
        let is_match = pattern.regex.is_match(module).map_err(|e| {
            Error::model(format!("the regular expression {:?} takes too long to match", short(&pattern.key, 80))).at(name).caused_by(e)
        })?;
        if is_match {
            return Ok(Some(pattern.value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<LoraConfig> {
        LoraConfig::parse(json.as_bytes(), "adapter_config.json")
    }

    /// Returns the scale of a pair of rank 4, with the configuration's alpha.
    fn scale(json: &str, module: &str) -> f64 {
        let config = parse(json).unwrap();
        config.scale(module, 4, config.alpha.unwrap()).unwrap()
    }

    #[test]
    fn scales_are_those_of_peft() {
        let module = "model.layers.11.self_attn.q_proj";
        assert_eq!(scale(r#"{"r":4,"lora_alpha":8}"#, module), 2.0);
        assert_eq!(scale(r#"{"peft_type":"LORA","r":4,"lora_alpha":8,"use_rslora":true}"#, module), 4.0);
        // Each scale was read from `scaling` of PEFT 0.21 with this pattern.
        for (pattern, expected) in [
            (r#"{"q_proj":2}"#, 0.5),
            (r#"{"self_attn.q_proj":2}"#, 0.5),
            (r#"{"proj":2}"#, 2.0),
            (r#"{"attn.q_proj":2}"#, 2.0),
            (r#"{"^q_proj":2}"#, 2.0),
            (r#"{"^model.layers.11.self_attn.q_proj":2}"#, 0.5),
            (r#"{"layers\\.1\\..*":2,"layers.*":6}"#, 1.5),
            (r#"{"(k|q)_proj":2,"q_proj":6}"#, 0.5),
            (r#"{"k_proj|q_proj":2}"#, 0.5),
            (r#"{"(?!layers\\.0\\.)layers.*q_proj":2}"#, 0.5),
            (r#"{}"#, 2.0),
        ] {
            assert_eq!(scale(&format!(r#"{{"r":4,"lora_alpha":8,"alpha_pattern":{pattern}}}"#), module), expected, "{pattern}");
        }
        assert_eq!(scale(r#"{"r":8,"lora_alpha":8,"rank_pattern":{"q_proj":4}}"#, module), 2.0);
        let text = parse(r#"{"r":8}"#).unwrap().scale(module, 4, 1.0).unwrap_err().to_string();
        let expected =
            "adapter_config.json: the configuration sets the rank of model.layers.11.self_attn.q_proj to 8, but the low-rank pair has 4";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn keys_that_describe_the_training_change_nothing() {
        let json = r#"{"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"all","fan_in_fan_out":true,"target_modules":["q_proj"],"modules_to_save":
            ["lm_head"],"init_lora_weights":true,"loftq_config":{},"layer_replication":null,"lora_bias":false,"corda_config":null,"use_dora":false}"#;
        assert_eq!(scale(json, "q_proj"), 2.0);
        for start in ["false", "\"gaussian\"", "\"eva\"", "\"orthogonal\""] {
            parse(&format!(r#"{{"init_lora_weights":{start}}}"#)).unwrap();
        }
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        for (json, expected) in [
            (r#"{"peft_type":"IA3"}"#, "expected a LoRA adapter (peft_type LORA), found peft_type IA3"),
            (r#"{"peft_type":"LOHA","r":4}"#, "found peft_type LOHA"),
            (r#"{"peft_type":"ADALORA"}"#, "found peft_type ADALORA"),
            (r#"{"init_lora_weights":"pissa"}"#, "init_lora_weights is pissa: PiSSA also changed the base model before the training"),
            (r#"{"init_lora_weights":"pissa_niter_16"}"#, "init_lora_weights is pissa_niter_16: PiSSA also"),
            (r#"{"init_lora_weights":"olora"}"#, "OLoRA also changed"),
            (r#"{"init_lora_weights":"corda"}"#, "CorDA also changed"),
            (r#"{"init_lora_weights":"loftq"}"#, "LoftQ also changed"),
            (r#"{"init_lora_weights":"new"}"#, "unknown init_lora_weights \"new\""),
            (
                r#"{"alora_invocation_tokens":[1]}"#,
                "alora_invocation_tokens means an Activated LoRA, which changes only a part of each text",
            ),
            (r#"{"layer_replication":[[0,2],[1,3]]}"#, "layer_replication means repeated layers, which is not supported"),
            (r#"{"lora_bias":true}"#, "lora_bias means biases"),
            (r#"{"trainable_token_indices":{"embed_tokens":[0]}}"#, "trainable_token_indices means"),
        ] {
            let text = parse(json).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains('\n'), "{json}: {text}");
        }
    }

    #[test]
    fn hostile_values_are_one_line() {
        let many = (0..5000).map(|i| format!("\"a{i}\":1")).collect::<Vec<_>>().join(",");
        for (json, expected) in [
            ("[]".to_string(), "expected the configuration of an adapter as JSON"),
            (r#"{"lora_alpha":"8"}"#.into(), "expected a number as lora_alpha"),
            (r#"{"lora_alpha":0}"#.into(), "other than 0"),
            (r#"{"r":0}"#.into(), "expected a whole number from 1"),
            (r#"{"use_rslora":1}"#.into(), "expected true or false as use_rslora"),
            (r#"{"alpha_pattern":[1]}"#.into(), "expected an object as alpha_pattern"),
            (r#"{"alpha_pattern":{"(":1}}"#.into(), "alpha_pattern: expected a regular expression, found \"(\""),
            (r#"{"rank_pattern":{"a":1.5}}"#.into(), "rank_pattern: expected a whole number of at least 1"),
            (r#"{"alpha_pattern":{"(a{1000}){1000}":1}}"#.into(), "alpha_pattern: expected a regular expression"),
            (format!(r#"{{"rank_pattern":{{{many}}}}}"#), "expected at most 4096 patterns, found 5000"),
        ] {
            let text = parse(&json).unwrap_err().to_string();
            assert!(text.contains(expected) && !text.contains('\n') && text.len() < 400, "{text}");
        }
        let config = parse(r#"{"alpha_pattern":{"(x+x+)+\\1y":1}}"#).unwrap();
        assert!(config.scale(&"x".repeat(300), 4, 1.0).unwrap_err().to_string().contains("takes too long to match"));
    }
}
