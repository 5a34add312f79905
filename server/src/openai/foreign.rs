//! Request fields of OpenAI, vLLM and llama-server that have another name here, and fields that this server refuses. A field that would change an answer is done or
//! refused, so that no client takes one answer for another. Every other unknown field is ignored.

use crate::failure::{Answer, Failure};
use serde_json::value::RawValue;
use wingbeat::engine::Fields;
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;

/// Fields of other servers, and their names here.
const NAMES: [(&str, &str); 8] = [
    ("guided_json", "json_schema"),
    ("guided_regex", "regex"),
    ("guided_choice", "choice"),
    ("guided_grammar", "grammar"),
    ("repetition_penalty", "repeat_penalty"),
    ("typical_p", "typical"),
    ("mirostat_eta", "mirostat_rate"),
    ("dry_sequence_breakers", "dry_breaker"),
];

/// The keys of vLLM's object `structured_outputs`, and the fields that they set here.
const STRUCTURED: [(&str, &str); 5] =
    [("json", "json_schema"), ("regex", "regex"), ("choice", "choice"), ("grammar", "grammar"), ("json_object", "json_object")];

/// A field that this server does not support: its name, the values with which it changes nothing, and advice.
struct Refused(&'static str, &'static [&'static str], &'static str);

const REFUSED: [Refused; 21] = [
    Refused("functions", &["[]"], "declare the functions in `tools`"),
    Refused("function_call", &[], "choose the function with `tool_choice`"),
    Refused("best_of", &["1"], "ask for several answers with `n`"),
    Refused("use_beam_search", &["false"], "leave the field out"),
    Refused("length_penalty", &["1", "1.0"], "leave the field out"),
    Refused("min_tokens", &["0"], "leave the field out, or set `ignore_eos`"),
    Refused("bad_words", &["[]"], "ban tokens with `ban` or `logit_bias`"),
    Refused("allowed_token_ids", &["[]"], "restrict the text with `grammar` or `choice`"),
    Refused("logits_processors", &["[]"], "leave the field out"),
    Refused("include_stop_str_in_output", &["false"], "append the stop text to the answer"),
    Refused("truncate_prompt_tokens", &["-1"], "shorten the prompt"),
    Refused("prompt_logprobs", &["0", "false"], "use `echo` and `logprobs` of /v1/completions"),
    Refused("chat_template", &[], "choose a chat format with `format`"),
    Refused("documents", &["[]"], "write the documents into a message"),
    Refused("guided_whitespace_pattern", &[], "set `x-guidance` in the schema"),
    Refused("audio", &[], "leave the field out"),
    Refused("modalities", &["[\"text\"]"], "ask for text only"),
    Refused("xtc_probability", &["0", "0.0"], "leave the field out"),
    Refused("dynatemp_range", &["0", "0.0"], "leave the field out"),
    Refused("web_search_options", &[], "leave the field out"),
    Refused("thinking_budget", &["-1"], "choose the length of thoughts with `reasoning_effort`"),
];

/// Values with another meaning here: a field, its value in vLLM or llama-server, and its value here. `None` leaves the field out.
const VALUES: [(&str, &str, Option<&str>); 3] =
    [("top_k", "-1", Some("0")), ("repeat_last_n", "-1", Some("\"all\"")), ("dry_penalty_last_n", "-1", None)];

/// Gives the fields of other servers their names here.
///
/// # Errors
/// 400 with the name of a field that this server does not support.
pub fn translate(fields: &mut Fields<'_>) -> Answer<()> {
    for (theirs, ours) in NAMES {
        fields.rename(theirs, ours);
    }
    if let Some(object) = fields.take("structured_outputs") {
        add_structured(fields, object).map_err(|e| e.in_field("structured_outputs"))?;
    }
    for Refused(name, harmless, hint) in REFUSED {
        let found = fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        if let Some(value) = found.filter(|value| !harmless.contains(value)) {
            let e = Error::input(format!("this field is not supported, found {}", short(value, 40))).field(name);
            return Err(e.hint(hint).into());
        }
    }
    for (name, theirs, ours) in VALUES {
        if fields.iter().any(|(known, value)| known == name && value == theirs) {
            fields.take(name);
            if let Some(ours) = ours {
                fields.add(name, raw(ours)?);
            }
        }
    }
    // llama-server has the target of Mirostat in a field of its own.
    if let Some(tau) = fields.take("mirostat_tau") {
        let is_on = fields.take("mirostat").is_some_and(|mode| !["0", "null"].contains(&mode));
        if is_on {
            fields.add("mirostat", raw(tau)?);
        }
    }
    Ok(())
}

fn raw(json: &str) -> Answer<&RawValue> {
    Ok(serde_json::from_str(json).map_err(|e| Error::input(e.to_string()))?)
}

/// Adds the rules of vLLM's object `structured_outputs` as fields.
fn add_structured<'a>(fields: &mut Fields<'a>, object: &'a str) -> Answer<()> {
    if object == "null" {
        return Ok(());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use wingbeat::engine::{Follows, Input, Request, Rules};

    fn read(json: &str) -> Answer<Request> {
        let mut fields = Fields::read(json.as_bytes())?;
        translate(&mut fields)?;
        Ok(Request::read_settings(Input::Text("a".into()), &fields)?.0)
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
    fn fields_that_change_an_answer_are_done_or_refused() {
        let request =
            read(r#"{"repetition_penalty": 1.1, "top_k": -1, "stop_token_ids": [5], "best_of": 1, "user": "x", "min_tokens": null}"#);
        let request = request.unwrap();
        assert!(request.sets("repeat-penalty") && request.stop_token_ids == [5]);
        assert!(request.sampling.contains(&("top-k".into(), vec!["0".into()])), "{:?}", request.sampling);
        for json in [r#"{"best_of": 2}"#, r#"{"min_tokens": 4}"#, r#"{"functions": [{}]}"#, r#"{"use_beam_search": true}"#] {
            let said = read(json).unwrap_err().message();
            let name = json.split('"').nth(1).unwrap();
            assert!(said.starts_with(&format!("{name}: this field is not supported, found ")), "{said}");
        }
    }
}
