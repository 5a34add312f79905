use super::super::Fields;
use super::read::MAX_SETTING_BYTES;
use super::*;
use crate::error::{Error, Result};

fn read(json: &str) -> Result<Request> {
    let (request, unknown) = Request::read(&Fields::read(json.as_bytes())?)?;
    match unknown.as_slice() {
        [] => Ok(request),
        unknown => Err(Error::input(format!("unknown: {}", unknown.join(", ")))),
    }
}

#[test]
fn a_request_is_read_from_its_fields() {
    let line = r#"{"prompt":"x","max_tokens":3,"stop":"\n","ignore_eos":true,"top_p":0.5,"temp":0,"ban":[1,2],"seed":null,
        "logit_bias":{"7":-1.5,"8":"-inf"},"dry_breaker":["\n","\\n"],"sampler_order":"hf","n":2.0,"priority":-3}"#;
    let request = read(line).unwrap();
    assert_eq!(request.input, Input::Text("x".into()));
    assert_eq!((request.max_tokens, request.stop.clone(), request.ignore_eos), (Some(3), Some(vec!["\n".into()]), Some(true)));
    assert_eq!((request.n, request.priority), (2, -3));
    let settings: Vec<(&str, Vec<&str>)> =
        request.sampling.iter().map(|(name, values)| (name.as_str(), values.iter().map(String::as_str).collect())).collect();
    let expected: [(&str, Vec<&str>); 6] = [
        ("top-p", vec!["0.5"]),
        ("temperature", vec!["0"]),
        ("ban", vec!["1", "2"]),
        ("logit-bias", vec!["7=-1.5", "8=-inf"]),
        ("dry-breaker", vec![r#"["\n","\\n"]"#]),
        ("sampler-order", vec!["hf"]),
    ];
    assert_eq!(settings, expected);
    let request = read(r#"{"messages":[{"role":"user","content":"x"}],"stop":["a","b"]}"#).unwrap();
    assert_eq!(request.input, Input::Messages(vec![Message::user("x")]));
    let line = r#"{"prompt":"x","max_tokens":40.0,"seed":1.0,"top_k":5.0,"temperature":1.5,"dry_breaker":"none","ban":[]}"#;
    let request = read(line).unwrap();
    let settings: Vec<(&str, &str)> = request.sampling.iter().map(|(name, values)| (name.as_str(), values[0].as_str())).collect();
    let expected = [("seed", "1"), ("top-k", "5"), ("temperature", "1.5"), ("dry-breaker", "none"), ("ban", "none")];
    assert_eq!((request.max_tokens, settings.as_slice()), (Some(40), expected.as_slice()));
    let request = read(r#"{"prompt":"x","max_tokens":-1,"seed":-1}"#).unwrap();
    assert_eq!((request.max_tokens, request.sampling), (Some(UNLIMITED), vec![("seed".into(), vec!["-1".into()])]));
    let openai = read(
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g","arguments":{"b":2}}}]},
        {"role":"tool","tool_call_id":"1","content":"7"}],"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
    )
    .unwrap();
    let linked = |message: Message| Message { id: Some("1".into()), ..message };
    let calls = [linked(Message::call("f", "{\"a\":1}")), Message::call("g", "{\"b\":2}"), linked(Message::observation("7"))];
    let messages = [vec![Message::user("x")], calls.into()].concat();
    assert_eq!((openai.input, openai.tool_choice), (Input::Messages(messages), Some(ToolChoice::Tool("f".into()))));
    let former = read(
        r#"{"messages":[{"role":"developer","content":"s"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
        {"role":"function","name":"f","content":"7"}]}"#,
    );
    let messages = vec![Message::system("s"), Message::call("f", "{}"), Message::observation("7")];
    assert_eq!(former.unwrap().input, Input::Messages(messages));
    for (choice, want) in [("auto", ToolChoice::Auto), ("none", ToolChoice::None), ("required", ToolChoice::Required)] {
        assert_eq!(read(&format!(r#"{{"prompt":"","tool_choice":"{choice}"}}"#)).unwrap().tool_choice, Some(want));
    }
    assert_eq!(read(r#"{"tokens":[1,2]}"#).unwrap().input, Input::Tokens(vec![1, 2]));
    assert_eq!(read(r#"{"prompt":"x","temprature":1,"user":"me"}"#).unwrap_err().message, "unknown: temprature, user");
}

#[test]
fn hostile_fields_are_refused() {
    let many: Vec<String> = (0..1000).map(|i| format!("\"f{i}\":0")).collect();
    let said = |line: &str| read(line).unwrap_err().to_string();
    assert!(said(&format!("{{{}}}", many.join(","))).contains("more than 100 fields"));
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for field in ["prompt", "messages", "tokens", "stop", "max_tokens", "top_p", "json_object", "n"] {
        said(&format!("{{\"prompt\":\"x\",\"{field}\":{deep}}}"));
    }
    let long = format!("{{\"prompt\":\"x\",\"ban\":[{}0]}}", "0,".repeat(MAX_SETTING_BYTES / 2));
    assert!(said(&long).contains("ban: expected a value of at most"));
    assert_eq!(read(r#"{"prompt":"x","max_tokens":9223372036854775808}"#).unwrap().max_tokens, Some(1 << 63));
}

#[test]
fn rules_are_read_from_their_fields() {
    let schema = |text: &str| Some(Follows::Rules(Rules::Schema(text.into())));
    for (fields, want) in [
        (r#""grammar":null"#, None),
        (r#""grammar":"root ::= \"a\"""#, Some(Follows::Rules(Rules::Gbnf(r#"root ::= "a""#.into())))),
        // A schema keeps the order of its properties.
        (r#""json_schema":{"properties":{"b":1,"a":2}}"#, schema(r#"{"properties":{"b":1,"a":2}}"#)),
        (r#""json_schema":" {\"properties\": {}}","json_object":false"#, schema(r#" {"properties": {}}"#)),
        (r#""json_object":true"#, Some(Follows::Rules(Rules::Object))),
        (r#""json_object":false"#, Some(Follows::NoObject)),
        (r#""json_value":true,"json_object":false"#, Some(Follows::Rules(Rules::Value))),
        (r#""json_value":false"#, Some(Follows::NoValue)),
    ] {
        assert_eq!(read(&format!(r#"{{"prompt":"x",{fields}}}"#)).unwrap().follows, want, "{fields}");
    }
}

#[test]
fn unset_fields_come_from_the_defaults() {
    let defaults = Request::text("not this").max_tokens(7).set("top_p", 0.5).set("temperature", 0.3).set("ban", 4);
    let defaults = Request { stop: Some(vec!["x".into()]), follows: Some(Follows::Rules(Rules::Object)), n: 3, ..defaults };
    let merged = read(r#"{"prompt":"this","temperature":1}"#).unwrap().over(&defaults);
    let settings = |request: &Request| request.sampling.iter().map(|(name, values)| format!("{name}={}", values[0])).collect::<Vec<_>>();
    assert_eq!(settings(&merged), ["top-p=0.5", "ban=4", "temperature=1"]);
    assert_eq!((merged.input, merged.n, merged.max_tokens, merged.stop), (Input::Text("this".into()), 1, Some(7), Some(vec!["x".into()])));
    assert_eq!(merged.follows, defaults.follows);
    // A preset replaces every default that presets have.
    assert_eq!(settings(&read(r#"{"prompt":"","preset":"greedy"}"#).unwrap().over(&defaults)), ["ban=4", "preset=greedy"]);
    let follows = |json: &str, defaults: &Request| read(json).unwrap().over(defaults).follows;
    assert_eq!(follows(r#"{"prompt":"","json_object":false}"#, &defaults), None);
    assert_eq!(follows(r#"{"prompt":"","json_value":false}"#, &defaults), defaults.follows, "no rule of that kind");
    assert_eq!(follows(r#"{"prompt":"","json_value":true}"#, &defaults), Some(Follows::Rules(Rules::Value)));
}

#[test]
fn errors_name_the_field() {
    for (line, want) in [
        ("{", "invalid JSON, found \"{\""),
        ("[1]", "expected a JSON object"),
        (r#"{"prompt":"x","max_tokens":18446744073709551616}"#, "max_tokens: expected a whole number of at least 0, or -1 for no limit"),
        (r#"{"prompt":"x","max_tokens":"9"}"#, "max_tokens: expected a whole number of at least 0, or -1 for no limit, found \"9\""),
        (r#"{"prompt":"x\ud800"}"#, "prompt: expected a string: "),
        (r"{}", "expected exactly one of the fields prompt, messages and tokens, found none of them"),
        (r#"{"prompt":"x","tokens":[1]}"#, "expected exactly one of the fields prompt, messages and tokens, found several of them"),
        (r#"{"prompt":7}"#, "prompt: expected a string, found 7"),
        (r#"{"tokens":[-1]}"#, "tokens[0]: expected a token id such as 261, found -1"),
        (r#"{"tokens":7}"#, "tokens: expected an array of token ids, found 7"),
        (r#"{"prompt":"x","stop":["a",7]}"#, "stop[1]: expected a string, found 7"),
        (r#"{"prompt":"x","tools":[{"type":"python"},{"type":"function"}]}"#, "tools[1]: expected a tool: a tool of type function needs"),
        (r#"{"messages":[{"role":"robot","content":"x"}]}"#, "messages[0].role: unknown role \"robot\", expected system, "),
        (r#"{"messages":[{"role":"user","content":7}]}"#, "messages[0].content: expected a string or an array of text parts, found 7"),
        (r#"{"prompt":"x","max_tokens":-2}"#, "max_tokens: expected a whole number of at least 0, or -1 for no limit, found -2"),
        (r#"{"prompt":"x","max_tokens":1.5}"#, "max_tokens: expected a whole number"),
        (r#"{"prompt":"x","n":0}"#, "n: expected a whole number from 1 to 128, found 0"),
        (r#"{"prompt":"x","n":"2"}"#, "n: expected a whole number from 1 to 128"),
        (r#"{"prompt":"x","priority":1.5}"#, "priority: expected a whole number"),
        (r#"{"prompt":"x","dry_breaker":[1]}"#, "dry_breaker: expected a number, a string or a list of these, found [1]"),
        (r#"{"prompt":"x","dry_breaker":[["a"]]}"#, "dry_breaker: expected a number"),
        (r#"{"prompt":"x","top_p":true}"#, "top_p: expected a number, a string or a list of these, found true"),
        (r#"{"prompt":"x","grammar":["a"]}"#, "grammar: expected a string with a GBNF grammar, found [\"a\"]"),
        (r#"{"prompt":"x","tool_choice":7}"#, "tool_choice: expected auto, none, required or the name of a tool, found 7"),
        (r#"{"prompt":"x","choice":[""]}"#, "choice: expected at least one text that is not empty, found none"),
        (r#"{"prompt":"x","regex":1}"#, "regex: expected a string with a regular expression, found 1"),
        (r#"{"prompt":"x","stop_token_ids":["a"]}"#, "stop_token_ids[0]: expected a token id such as 261, found \"a\""),
        (r#"{"prompt":"x","close":1}"#, "close: expected true or false, found 1"),
        (r#"{"prompt":"x","json_object":"yes"}"#, "json_object: expected true or false"),
        (
            r#"{"prompt":"x","grammar":"a","json_schema":{"type":"null"}}"#,
            "expected at most one of the fields grammar, json_schema, regex, choice, json_object and json_value, found 2 of them",
        ),
        (r#"{"prompt":"x","logit_bias":{"1":[]}}"#, "logit_bias: expected an object with a number for each token id or text"),
    ] {
        let said = read(line).unwrap_err().to_string();
        assert!(said.starts_with(want), "{line}: {said}");
    }
}

#[test]
fn a_sampling_value_is_the_base_of_named_settings() {
    let request = Request::text("x").sampling(crate::sample::Sampling { seed: 7, ..crate::sample::Sampling::greedy(0) }).set("top_k", 5);
    assert!(request.sets("seed") && request.sets("top-k") && !request.sets("temperature"));
    assert!(!Request::text("x").sets("seed") && Request::text("x").seed(1).sets("seed"));
    assert_eq!(Request::text("y").over(&request).base.map(|base| base.seed), Some(7));
}

#[test]
fn empty_values_are_not_set() {
    let plain = read(r#"{"prompt":"a"}"#).unwrap();
    for field in
        ["grammar", "json_schema", "regex", "choice", "preset", "format", "thinking", "state", "save_state", "tool_choice", "logit_bias"]
    {
        for empty in ["\"\"", "[]", "{}", "[ ]", "{\n}"] {
            assert_eq!(read(&format!(r#"{{"prompt":"a","{field}":{empty}}}"#)).unwrap(), plain, "{field} {empty}");
        }
    }
    assert_eq!(read(r#"{"prompt":"a","stop":""}"#).unwrap(), plain);
    // An empty list takes back the stop texts of a default.
    assert_eq!(read(r#"{"prompt":"a","stop":[]}"#).unwrap().stop, Some(Vec::new()));
    assert_eq!(read(r#"{"prompt":""}"#).unwrap().input, Input::Text("".into()));
    assert_eq!(read(r#"{"prompt":"a","choice":[" "]}"#).unwrap().follows, Some(Follows::Rules(Rules::Choice(vec![" ".into()]))));
}

#[test]
fn biases_are_objects_or_pairs() {
    let biases = |value: &str| {
        let request = read(&format!(r#"{{"prompt":"a","logit_bias":{value}}}"#))?;
        Ok::<_, crate::error::Error>(request.sampling.into_iter().flat_map(|(_, values)| values).collect::<Vec<_>>())
    };
    assert_eq!(biases(r#"[[1014,false],[1276,-1.0],["and",2]]"#).unwrap(), ["1014=-inf", "1276=-1", "\"and\"=2"]);
    assert_eq!(biases(r#"{"5": 1.5, " the": false}"#).unwrap(), ["5=1.5", "\" the\"=-inf"]);
    for wrong in ["[[1]]", "[[1,true]]", "[[-1,2]]", "{\"1\": null}"] {
        assert!(biases(wrong).unwrap_err().to_string().starts_with("logit_bias: expected an object with a number"), "{wrong}");
    }
}

#[test]
fn results_of_tools_get_the_order_of_their_calls() {
    let call = |id: &str| format!(r#"{{"id":"{id}","function":{{"name":"f","arguments":"{id}"}}}}"#);
    let calls = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{},{}]}}"#, call("1"), call("2"));
    let of = |ids: [&str; 2]| {
        let results = ids.map(|id| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"of {id}"}}"#)).join(",");
        read(&format!(r#"{{"messages":[{{"role":"user","content":"x"}},{calls},{results}]}}"#))
    };
    let Input::Messages(messages) = of(["2", "1"]).unwrap().input else { panic!() };
    let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(contents, ["x", "1", "2", "of 1", "of 2"]);
    assert!(of(["2", "3"]).unwrap_err().to_string().starts_with("messages[3].tool_call_id: no earlier message has a call"));
}
