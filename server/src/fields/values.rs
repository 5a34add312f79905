//! Values that other servers write in another form, and fields that make sense only together.

use super::Dialect;
use crate::failure::{Answer, Failure};
use serde_json::value::RawValue;
use wingbeat::engine::Fields;
use wingbeat::error::Error;

/// The keys of vLLM's object `structured_outputs`, and the fields that they set here.
const STRUCTURED: [(&str, &str); 5] =
    [("json", "json_schema"), ("regex", "regex"), ("choice", "choice"), ("grammar", "grammar"), ("json_object", "json_object")];

/// Values that other servers write in another way: the field, the value there, and the value here. `None` leaves the field out.
const VALUES: [(&str, &str, Option<&str>); 8] = [
    ("top_k", "-1", Some("0")),
    ("top_n_sigma", "-1", None),
    ("nsigma", "-1", None),
    ("repeat_last_n", "-1", Some("\"all\"")),
    ("repetition_penalty_range", "-1", None),
    ("repetition_penalty_range", "0", None),
    ("rep_pen_range", "0", None),
    ("dry_penalty_last_n", "-1", None),
];

/// The mean surprise at which mirostat aims in llama-server and Ollama, if a request turns mirostat on without a target.
const MIROSTAT_TAU: &str = "5.0";

/// Returns whether two values in JSON are equal. The number `1` equals `1.0`.
pub fn same(a: &str, b: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    a == b || number(a).is_some_and(|a| number(b) == Some(a)) || compact(a) == compact(b)
}

/// Returns JSON without blanks outside its texts.
fn compact(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let mut keeps = |c: char| {
        let keeps = is_text || !c.is_ascii_whitespace();
        is_text ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        keeps
    };
    json.chars().filter(|c| keeps(*c)).collect()
}

/// Replaces the values of other servers (`VALUES`), and adds the rules in vLLM's object `structured_outputs` as fields.
///
/// # Errors
/// 400 if the object has an unknown key.
pub fn replace(fields: &mut Fields<'_>) -> Answer<()> {
    for (name, theirs, ours) in VALUES {
        if fields.get(name).is_some_and(|value| same(value, theirs)) {
            fields.take(name);
            if let Some(ours) = ours {
                fields.add(name, raw(ours)?);
            }
        }
    }
    match fields.take("structured_outputs").filter(|object| *object != "null") {
        Some(object) => add_structured(fields, object).map_err(|e| e.in_field("structured_outputs")),
        None => Ok(()),
    }
}

fn add_structured<'a>(fields: &mut Fields<'a>, object: &'a str) -> Answer<()> {
    let inner = Fields::read(object.as_bytes())?;
    for (key, value) in inner.iter() {
        let Some((_, ours)) = STRUCTURED.iter().find(|(theirs, _)| *theirs == key) else {
            if ["true", "false"].contains(&value) {
                // Options such as `disable_any_whitespace` concern vLLM's own grammars.
                continue;
            }
            return Err(Failure::field(key, "expected one of the keys json, regex, choice, grammar and json_object"));
        };
        fields.add(ours, raw(value)?);
    }
    Ok(())
}

/// Converts fields that make sense only together, or only in their dialect.
///
/// # Errors
/// 400 if a value is not JSON.
pub fn combine(at: Dialect, fields: &mut Fields<'_>) -> Answer<()> {
    // In Ollama, every negative number means no limit.
    if at == Dialect::Options && fields.get("max_tokens").is_some_and(|value| value.starts_with('-')) {
        fields.take("max_tokens");
        fields.add("max_tokens", raw("-1")?);
    }
    // In llama-server and Ollama, `mirostat` is a version, and another field has the target. In this server, `mirostat` is the target.
    let tau = fields.take("mirostat_tau");
    let is_version = tau.is_some() || matches!(at, Dialect::Llama | Dialect::Options);
    if is_version && let Some(version) = fields.take("mirostat").filter(|version| *version != "null" && !same(version, "0")) {
        let target = if tau.is_none() && version.parse::<f64>().is_err() { version } else { tau.unwrap_or(MIROSTAT_TAU) };
        fields.add("mirostat", raw(target)?);
    }
    Ok(())
}

fn raw(json: &str) -> Answer<&RawValue> {
    Ok(serde_json::from_str(json).map_err(|e| Error::input(e.to_string()))?)
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, settle};
    use super::*;
    use wingbeat::engine::{Follows, Input, Request, Rules};

    fn read_at(at: Dialect, json: &str) -> Answer<(Request, Vec<String>)> {
        let mut fields = Fields::read(json.as_bytes())?;
        let warnings = settle(at, &mut fields)?.warnings;
        let (request, unknown) = Request::read_settings(Input::Text("a".into()), &fields)?;
        assert!(unknown.is_empty(), "{unknown:?}");
        Ok((request, warnings))
    }

    fn read(json: &str) -> Answer<Request> {
        read_at(Dialect::Chat, json).map(|(request, _)| request)
    }

    fn setting(request: &Request, name: &str) -> Vec<String> {
        request.sampling.iter().filter(|(known, _)| known == name).flat_map(|(_, values)| values.clone()).collect()
    }

    #[test]
    fn rules_of_vllm_are_rules_here() {
        let follows = |json: &str| match read(json).unwrap().follows {
            Some(Follows::Rules(rules)) => rules,
            other => panic!("{json}: {other:?}"),
        };
        let schema = Rules::Schema("{\"type\":\"integer\"}".into());
        assert_eq!(follows(r#"{"guided_json": {"type":"integer"}}"#), schema);
        assert_eq!(follows(r#"{"structured_outputs": {"json": {"type":"integer"}, "disable_any_whitespace": true}}"#), schema);
        assert_eq!(follows(r#"{"guided_regex": "[a-z]+"}"#), Rules::Regex("[a-z]+".into()));
        assert_eq!(follows(r#"{"guided_choice": ["a", "b"]}"#), Rules::Choice(vec!["a".into(), "b".into()]));
        assert_eq!(follows(r#"{"structured_outputs": {"choice": ["a"]}}"#), Rules::Choice(vec!["a".into()]));
        assert_eq!(follows(r#"{"guided_grammar": "root ::= \"a\""}"#), Rules::Gbnf("root ::= \"a\"".into()));
        assert_eq!(follows(r#"{"structured_outputs": {"json_object": true}}"#), Rules::Object);
        let said = read(r#"{"structured_outputs": {"structural_tag": "x"}}"#).unwrap_err().message();
        assert!(said.starts_with("structured_outputs.structural_tag: expected one of the keys json, regex"), "{said}");
    }

    #[test]
    fn names_of_one_field_agree_or_the_request_is_refused() {
        let request =
            read(r#"{"max_new_tokens": 7, "max_tokens": 7.0, "n_predict": 7, "rep_pen": 1.1, "repetition_penalty": 1.10}"#).unwrap();
        assert_eq!((request.max_tokens, setting(&request, "repeat-penalty")), (Some(7), vec!["1.1".into()]));
        assert_eq!(read(r#"{"stopping_strings": ["x"], "stop_sequence": [], "stop": [ "x" ]}"#).unwrap().stop, Some(vec!["x".into()]));
        for (json, want) in [
            (r#"{"n_predict": 3, "max_tokens": 4}"#, "n_predict: expected the value of `max_tokens`, 4, found 3"),
            (
                r#"{"stop": ["a b"], "stopping_strings": ["ab"]}"#,
                r#"stopping_strings: expected the value of `stop`, ["a b"], found ["ab"]"#,
            ),
            (r#"{"rep_pen": 1.1, "repetition_penalty": 1.2}"#, "repetition_penalty: expected the value of `rep_pen`, 1.1, found 1.2"),
        ] {
            let said = read(json).unwrap_err().message();
            assert!(said.starts_with(want), "{said}");
        }
    }

    #[test]
    fn values_of_others_mean_what_they_mean_there() {
        let request = read(r#"{"top_k": -1, "repeat_last_n": -1, "top_n_sigma": -1.0, "n_predict": -1, "stop_token_ids": [5]}"#).unwrap();
        assert_eq!(setting(&request, "top-k"), ["0"]);
        assert_eq!(setting(&request, "repeat-last-n"), ["all"]);
        assert!(!request.sets("top-n-sigma") && request.max_tokens == Some(wingbeat::engine::UNLIMITED) && request.stop_token_ids == [5]);
        for (at, json, want) in [
            (Dialect::Llama, r#"{"mirostat": 2}"#, "5"),
            (Dialect::Options, r#"{"mirostat": 1, "mirostat_tau": 3}"#, "3"),
            (Dialect::Chat, r#"{"mirostat": 4.5}"#, "4.5"),
            (Dialect::Chat, r#"{"mirostat_mode": 2, "mirostat_tau": 6, "mirostat_eta": 0.1}"#, "6"),
        ] {
            assert_eq!(setting(&read_at(at, json).unwrap().0, "mirostat"), [want], "{json}");
        }
        assert!(!read_at(Dialect::Llama, r#"{"mirostat": 0, "mirostat_tau": 5}"#).unwrap().0.sets("mirostat"));
        assert_eq!(read_at(Dialect::Options, r#"{"num_predict": -3}"#).unwrap().0.max_tokens, Some(wingbeat::engine::UNLIMITED));
    }

    #[test]
    fn fields_that_change_an_answer_are_done_or_refused() {
        for json in [
            r#"{"negative_prompt": " "}"#,
            r#"{"best_of": 2}"#,
            r#"{"functions": [{}]}"#,
            r#"{"use_beam_search": true}"#,
            r#"{"top_a": 0.1}"#,
            r#"{"lora": [1]}"#,
        ] {
            let said = read(json).unwrap_err().message();
            let name = json.split('"').nth(1).unwrap();
            assert!(said.starts_with(&format!("{name}: this field is not supported, found ")), "{said}");
        }
        read(r#"{"best_of": 1.0, "functions": [ ], "top_a": 0, "lora": [], "negative_prompt": "", "user": "x", "num_beams": null}"#)
            .unwrap();
        let (_, warnings) = read_at(Dialect::Options, r#"{"num_ctx": 4096, "temprature": 1}"#).unwrap();
        assert!(
            warnings[0].starts_with("num_ctx: the operator chooses the context") && warnings[1] == "temprature: unknown field; ignored",
            "{warnings:?}"
        );
        let (_, warnings) = read_at(Dialect::Ollama, r#"{"model": "a", "keep_alive": "5m", "temperature": 1}"#).unwrap();
        assert_eq!(warnings, ["temperature: a field of `options`; ignored"]);
    }
}
