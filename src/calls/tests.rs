//! Tests which calls are found in answers, and which text remains.

use super::*;
use crate::template::Tool;
use serde_json::json;
use std::ops::ControlFlow;

fn declared() -> Declared {
    Declared::of(&["f", "get_weather"].map(|name| Tool::function(json!({ "name": name })).unwrap()))
}

/// Pushes the parts of an answer into a reader. Returns the text of the answer, with `@name arguments@` in the place of each call.
fn read<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let (mut reader, mut heard) = (CallReader::new(declared()), String::new());
    let mut hear = |piece: AnswerPiece<'_>| {
        heard += &match piece {
            AnswerPiece::Text(text) => text.to_string(),
            AnswerPiece::Call(call) => format!("@{} {}@", call.name, call.arguments),
        };
        ControlFlow::Continue(())
    };
    for piece in pieces {
        assert!(reader.push(piece, &mut hear).is_continue());
    }
    assert!(reader.finish(&mut hear).is_continue());
    heard
}

/// Pairs of an answer with calls and the expected result of `read`.
const CALLS: [(&str, &str); 44] = [
    ("**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "@f {}@"),
    ("**Tool Call:**\n```json\n{\n  \"name\": \"f\",\n  \"arguments\": {\n    \"a\": [1]\n  }\n}\n```", "@f {\n    \"a\": [1]\n  }@"),
    ("I look.\n\n**Tool Call:**\n```json\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n```\n", "I look.\n\n@f {\"a\":1}@\n"),
    (
        "**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n**Tool Call:**\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"a\": \"b\"}}\n```",
        "@f {}@\n@get_weather {\"a\": \"b\"}@",
    ),
    ("**Tool Call:** {\"name\": \"f\", \"arguments\": {}} Done.", "@f {}@ Done."),
    ("**Tool Call:**\n```\n{\"name\": \"f\", \"arguments\": {}}\n```", "@f {}@"),
    ("**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {}}", "@f {}@"),
    ("**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {}}\nText", "@f {}@\nText"),
    (
        "**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"f\", \"arguments\": {\"b\": 2}}\n```",
        "@f {}@@f {\"b\": 2}@",
    ),
    ("```json\n{\"name\": \"f\", \"arguments\": {\"x\": \"查 ``` } \\\" {\"}}\n```", "@f {\"x\": \"查 ``` } \\\" {\"}@"),
    ("```json{\"name\":\"f\",\"arguments\":{}}```", "@f {}@"),
    ("```\n{\"arguments\": {\"a\": {\"b\": {}}}, \"name\": \"f\"}\n```", "@f {\"a\": {\"b\": {}}}@"),
    ("Yes: ```json\n{\"name\": \"f\", \"arguments\": {}}\n``` there", "Yes: @f {}@ there"),
    ("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": null}}</tool_call>", "@f {\"a\": null}@"),
    ("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n", "@f {}@\n"),
    ("<tool_call>{\"name\": \"f\", \"arguments\": {}}", "@f {}@"),
    (
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>",
        "@f {}@@get_weather {}@",
    ),
    ("<tool_call>{\"id\": 7, \"type\": \"function\", \"name\": \"f\", \"arguments\": {}}</tool_call>!", "@f {}@!"),
    ("<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>", "@f {}@"),
    (
        "a<tool_calls>\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"get_weather\", \"arguments\": {\"c\": [\"]\"]}}]\n</tool_calls>b",
        "a@f {}@@get_weather {\"c\": [\"]\"]}@b",
    ),
    ("<tool_calls>[{\"name\": \"f\", \"arguments\": {}}] and", "@f {}@ and"),
    ("{\"name\": \"f\", \"arguments\": {\"a\": true}}", "@f {\"a\": true}@"),
    ("  { \"name\" : \"f\" , \"arguments\" : { } }  ", "  @f { }@  "),
    ("{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}", "@f {\"a\": 1}@"),
    ("{\"name\":\"\\u0066\",\"arguments\":{}}", "@f {}@"),
    ("First {\"name\":\"f\",\"arguments\":{}} then {\"name\":\"get_weather\",\"arguments\":{}}.", "First @f {}@ then @get_weather {}@."),
    ("{{\"name\":\"f\",\"arguments\":{}}", "{@f {}@"),
    ("**Tool Call:**\n```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```", "@f {}@"),
    (
        "**Tool Call:**\n[\n  {\"name\": \"f\", \"arguments\": {\"a\": [1]}},\n  {\"name\": \"f\", \"arguments\": {}}\n]\nDone",
        "@f {\"a\": [1]}@@f {}@\nDone",
    ),
    ("I call [{\"name\": \"f\", \"arguments\": {}} , {\"name\":\"f\",\"arguments\":{\"b\":\"]\"}}].", "I call @f {}@@f {\"b\":\"]\"}@."),
    ("<tool_call>[{\"name\": \"f\", \"arguments\": {}}]</tool_call>", "@f {}@"),
    ("{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}", "@f {}@"),
    ("```json\n{\"tool_call\": {\"name\": \"f\", \"arguments\": {}}}\n```", "@f {}@"),
    (
        "{\"tool_calls\": [{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": {}}}, {\"name\": \"f\", \"arguments\": {\"a\": 1}}]}",
        "@f {}@@f {\"a\": 1}@",
    ),
    ("{\"a\": 1} {\"name\":\"f\",\"arguments\":{}} [2]", "{\"a\": 1} @f {}@ [2]"),
    ("a [link](x) [ ] {\"a\": b {\"name\":\"f\",\"arguments\":{}}", "a [link](x) [ ] {\"a\": b @f {}@"),
    ("{\" opens an object.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "{\" opens an object.\n@f {}@"),
    ("[\"a quote\n{\"name\": \"f\", \"arguments\": {}}", "[\"a quote\n@f {}@"),
    ("[{\"name\": \"x\"}] {\"name\":\"f\",\"arguments\":{}}", "[{\"name\": \"x\"}] @f {}@"),
    ("*`<{ {\"name\":\"x\"} {\"name\":\"f\",\"arguments\":{}}", "*`<{ {\"name\":\"x\"} @f {}@"),
    (
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>x <b> \"y\"\n</arg_value></tool_call>",
        "@f {\"a\": 1, \"b\": \"x <b> \\\"y\\\"\\n\"}@",
    ),
    (
        "a\n<tool_call> get_weather \n<arg_key> a </arg_key>\n<arg_value>[1, {}]</arg_value>\n</tool_call>\n<tool_call>f</tool_call>b",
        "a\n@get_weather {\"a\": [1, {}]}@\n@f {}@b",
    ),
    (
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key><arg_value></arg_value></tool_call>",
        "@f {\"a\": \"\"}@",
    ),
    ("<tool_call>f<arg_key>a</arg_key><tool_call>f</tool_call>", "<tool_call>f<arg_key>a</arg_key>@f {}@"),
];

/// Answers without a call. Many of these answers look like calls.
const TEXTS: [&str; 37] = [
    "",
    "Hello **there** `x` <b> {y}",
    "**Tool Call:**",
    "**Tool Call:** none",
    "**Tool Call:**\n```json\n{\"name\": \"unknown\", \"arguments\": {}}\n```",
    "**Tool Call:**\n```json\n{\"name\": \"f\", \"arguments\": {\n```",
    "```json\n{\"name\": \"f\"}\n```",
    "```json\n{\"name\": \"f\", \"arguments\": {a: 1}}\n```",
    "```json\n{\"name\": \"f\", \"arguments\": [1]}\n```",
    "```json\n{\"name\": \"f\", \"arguments\": 7}\n```",
    "```json\n{\"city\": \"f\"}\n```",
    "```python\nf({\"name\": 1})\n```",
    "```rust\nfn main() { let name = \"f\"; }\n```",
    "<tool_call>f(1)</tool_call>",
    "<tool_call>{\"name\": \"F\", \"arguments\": {}}</tool_call>",
    "<tool_calls>{}</tool_calls>",
    "<tool_calls>[]</tool_calls>",
    "<tool_calls>[{\"name\": \"g\", \"arguments\": {}}]</tool_calls>",
    "{\"name\": \"f\", \"parameters\": {}}",
    "{\"name\": \"f\", \"arguments\": \"a b\"}",
    "{\"name\": \" f\", \"arguments\": {}}",
    "f\n{\"a\": 1}",
    "{\"a\": {\"name\": \"f\", \"arguments\": {}}}",
    "```json\n{\"a\": [{\"name\": \"f\", \"arguments\": {}}]}\n```",
    "[1, {\"name\": \"f\", \"arguments\": {}}]",
    "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
    "[{\"name\": \"f\", \"arguments\": {}}, 1]",
    "{\"name\": \"g\", \"arguments\": {\"name\": \"f\", \"arguments\": {}}}",
    "{\"tool_calls\": []} {\"function\": \"f\"} {\"tool_calls\": [{\"name\": \"g\", \"arguments\": {}}]}",
    "[{\"name\": \"f\", \"arguments\": {}},",
    "<tool_call>g<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
    "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>",
    "<tool_call>f<arg_key>a<arg_value>1</arg_value></tool_call>",
    "<tool_call>f<arg_key> </arg_key><arg_value>1</arg_value></tool_call>",
    "<tool_call>f<arg_key>a</arg_key>1</tool_call>",
    "<tool_call>f",
    "<tool_call>f x</tool_call>",
];

#[test]
fn calls_are_read_however_the_text_is_cut() {
    let all = CALLS.into_iter().chain(TEXTS.map(|text| (text, text)));
    for (text, want) in all {
        assert_eq!(read([text]), want, "{text}");
        for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
            assert_eq!(read([&text[..at], &text[at..]]), want, "{text} cut at {at}");
        }
        assert_eq!(read(text.split("").filter(|piece| !piece.is_empty())), want, "{text} by characters");
    }
}

#[test]
fn text_that_cannot_begin_a_call_is_shown_at_once() {
    let mut reader = CallReader::new(declared());
    let mut push = |text: &str| {
        let mut shown = String::new();
        let _ = reader.push(text, &mut |piece| {
            shown += &format!("{piece:?}");
            ControlFlow::Continue(())
        });
        shown
    };
    assert_eq!(push("a {\"city\": 1} ``"), "Text(\"a {\\\"city\\\": 1} \")");
    assert_eq!(push("`python"), "Text(\"```python\")");
    assert_eq!(push("{\"name\": \"get_we"), "");
    assert_eq!(push("b\""), "Text(\"{\\\"name\\\": \\\"get_web\\\"\")");
}

#[test]
fn long_and_endless_objects_are_text() {
    let endless = format!("{{\"name\": \"f\", \"arguments\": {{\"a\": \"{}", "x".repeat(100_000));
    assert_eq!(read([endless.as_str()]), endless);
    let endless = format!("<tool_call>f<arg_key>a</arg_key><arg_value>{}", "x".repeat(100_000));
    assert_eq!(read([endless.as_str(), "</arg_value></tool_call>"]), endless + "</arg_value></tool_call>");
    let begun = "{\"name\": \"f\", \"arguments\": {".repeat(500);
    assert_eq!(read([begun.as_str()]), begun);
}

#[test]
fn the_schema_decides_between_texts_and_json() {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "a": {"type": ["array", "string"]},
        "o": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "e": {"enum": ["1", "2"]}, "r": {"$ref": "#/x"},
    }});
    let declared = Declared::of(&[Tool::function(json!({"name": "f", "parameters": schema})).unwrap()]);
    for (key, value, want) in [
        ("s", "7", r#""7""#),
        ("s", r#""q""#, r#""\"q\"""#),
        ("i", "7", "7"),
        ("i", "seven", r#""seven""#),
        ("i", " 12345678901234567890123 ", "12345678901234567890123"),
        ("n", "1.50", "1.50"),
        ("a", "[1]", "[1]"),
        ("a", "{}", r#""{}""#),
        ("o", "null", "null"),
        ("o", "7", r#""7""#),
        ("e", "1", r#""1""#),
        ("r", "true", "true"),
        ("unknown", "tru", r#""tru""#),
        ("unknown", r#""q""#, r#""q""#),
    ] {
        let text = format!("<tool_call>f<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>");
        let call = ToolCall { name: "f".into(), arguments: format!("{{\"{key}\": {want}}}") };
        assert_eq!(keyed::KeyedForm.read(&text, true, &declared), FormReading::Calls(vec![call], text.len()), "{key} {value}");
    }
}

#[test]
fn without_tools_all_text_is_text() {
    let mut reader = CallReader::new(Declared::default());
    let mut shown = 0;
    let _ = reader.push(CALLS[0].0, &mut |piece| {
        shown += usize::from(piece == AnswerPiece::Text(CALLS[0].0));
        ControlFlow::Continue(())
    });
    assert_eq!(shown, 1);
}

#[test]
fn a_first_line_names_a_declared_tool() {
    let read = |text: &str| SegmentForm.read(text, true, &declared());
    assert_eq!(read(" f \n{}"), FormReading::Begins("f".into(), 4));
    assert_eq!([read("g\n{}"), read("f"), read("\nf\n")], [FormReading::Text, FormReading::Text, FormReading::Text]);
    assert_eq!(SegmentForm.read("f", false, &declared()), FormReading::More);
}
