//! Tests which schemas are refused, and with which errors.

use super::*;
use serde_json::json;

fn said(schema: &Value) -> String {
    check(schema).map_or_else(|e| e.to_string(), |()| String::new())
}

#[test]
fn errors_have_a_json_pointer() {
    let age = |schema: Value| json!({ "type": "object", "properties": { "a/b": { "items": schema } } });
    let cases = [
        (json!({ "not": {} }), "the keyword \"not\" of JSON schemas is unsupported (remove the keyword)"),
        (
            json!({ "type": "array", "uniqueItems": true }),
            "the keyword \"uniqueItems\" of JSON schemas is unsupported (remove the keyword; items may repeat)",
        ),
        (json!({ "if": {}, "then": {} }), "the keyword \"if\" of JSON schemas is unsupported (write the cases under \"anyOf\")"),
        (json!({ "type": "strin" }), "\"type\" must be one of null, boolean, integer, number, string, array, object, found \"strin\""),
        (json!({ "type": [] }), "\"type\" must be a type or a list of types, found an empty list"),
        (json!({ "type": "string", "minLength": -1 }), "\"minLength\" must be a whole number from 0 to 1000000000, found -1"),
        (json!({ "minItems": 10_000_000_000u64 }), "\"minItems\" must be a whole number from 0 to 1000000000, found 10000000000"),
        (json!({ "minimum": "3" }), "\"minimum\" must be a number, found \"3\""),
        (
            json!({ "maximum": 1e300 }),
            "\"maximum\" is 1e+300, which is out of range (use 0 or a number whose absolute value is between 1e-15 and 1e15, or remove the keyword)",
        ),
        (json!({ "multipleOf": 0 }), "\"multipleOf\" must be a number larger than 0, found 0"),
        (json!({ "multipleOf": 0.12345 }), "the number 0.12345 of \"multipleOf\" has too many digits"),
        (json!({ "enum": [] }), "\"enum\" must be a list of at least one value, found an empty list"),
        (json!({ "format": "colour" }), "format \"colour\" is unsupported (use date-time, "),
        (json!({ "pattern": "(a" }), "\"pattern\" is not a valid regular expression: unclosed group: (a"),
        (json!({ "pattern": "(?=a)b" }), "\"pattern\" uses look-around, which is unsupported: (?=a)b"),
        (
            json!({ "patternProperties": { "[": {} } }),
            "\"patternProperties\" is not a valid regular expression: unclosed character class: [",
        ),
        (json!({ "required": [1] }), "\"required\" must be a list of names, found a list"),
        (json!({ "properties": [] }), "\"properties\" must be an object of schemas, found an empty list"),
        (json!({ "anyOf": {} }), "\"anyOf\" must be a list of schemas, found an object"),
        (json!({ "$ref": "#/nowhere" }), "\"$ref\" refers to #/nowhere, which this schema does not have"),
        (
            json!({ "$ref": "http://example.com/x" }),
            "\"$ref\" to http://example.com/x is unsupported (refer to a part of the same schema, such as #/$defs/name)",
        ),
        (json!(7), "expected a schema, which is an object, true or false"),
    ];
    for (schema, want) in cases {
        let alone = said(&schema);
        assert!(alone.starts_with(want), "{schema}: {alone}");
        let within = said(&age(schema));
        assert!(within.starts_with(&format!("schema at /properties/a~1b/items: {want}")), "{within}");
    }
    assert_eq!(
        said(&json!({ "x-guidance": { "spaces": 1 } })).split(" (").next(),
        Some("\"x-guidance\" has an unknown setting \"spaces\"")
    );
    let definition = json!({ "$ref": "#/$defs/x", "$defs": { "x": { "allOf": [{ "contains": {} }] }, "y": { "not": {} } } });
    assert_eq!(
        said(&definition),
        "schema at /$defs/x/allOf/0: the keyword \"contains\" of JSON schemas is unsupported (remove the keyword)"
    );
}

#[test]
fn a_message_is_one_short_line() {
    let long = "x\u{1b}[31m\n".repeat(10_000);
    let mut deep = json!({ "not": {} });
    for _ in 0..50 {
        deep = json!({ "properties": { long.as_str(): deep } });
    }
    for schema in
        [json!({ "type": &long }), json!({ "format": &long }), json!({ "pattern": format!("({long}") }), json!({ "$ref": &long }), deep]
    {
        let said = said(&schema);
        assert!(!said.is_empty() && said.chars().count() < 600 && !said.contains(char::is_control), "{} {said:.300}", said.len());
    }
}

#[test]
fn schemas_of_all_kinds_pass() {
    let values: Vec<String> = (0..2000).map(|i| format!("value {i}")).collect();
    let properties: Map<String, Value> = (0..200).map(|i| (format!("p{i}"), json!({ "$ref": "#/$defs/text" }))).collect();
    for schema in [
        json!({}),
        json!(true),
        json!({ "enum": values }),
        json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": { "text": { "type": ["string", "null"], "title": "t" } }, "properties": properties }),
        json!({ "type": "array", "items": { "$ref": "#" }, "minItems": 1, "maxItems": 1_000_000_000 }),
        json!({ "type": "number", "minimum": -1.5, "exclusiveMaximum": 1e9, "multipleOf": 0.25 }),
        json!({ "type": "integer", "minimum": -9_007_199_254_740_993i64, "exclusiveMinimum": false }),
        json!({ "type": "string", "pattern": "^\\d{3}-[a-z]+/\\w$", "format": "uuid", "maxLength": 100 }),
        json!({ "anyOf": (0..500).map(|i| json!({ "pattern": format!("^{i}") })).collect::<Vec<_>>() }),
        json!({ "type": "object", "properties": { "a": {} }, "minProperties": 1, "additionalProperties": false }),
        json!({ "whatever": { "not": 7 }, "x-guidance": { "whitespace_flexible": true } }),
    ] {
        assert_eq!(said(&schema), "", "{schema:.300}");
    }
}

#[test]
fn schemas_that_would_take_long_are_refused() {
    let many = |n: usize, one: &dyn Fn(usize) -> Value| (0..n).map(one).collect::<Vec<_>>();
    let named = |n: usize| (0..n).map(|i| (format!("p{i}"), json!({}))).collect::<Map<String, Value>>();
    let mut nested = json!({});
    for _ in 0..100 {
        nested = json!({ "items": nested });
    }
    for (schema, want) in [
        (json!({ "enum": many(20_000, &|i| json!(i)) }), "the schema has more than 10000 subschemas, names and values"),
        (json!({ "const": "x".repeat(2 << 20) }), "the schema's names, patterns and values have more than 1048576 bytes"),
        (json!({ "properties": named(2000) }), "2000 properties in one object; at most 1000 are supported"),
        (
            json!({ "allOf": many(3, &|i| json!({ "required": many(400, &|j| json!(format!("{i} {j}"))) })) }),
            "1200 properties in one object",
        ),
        (
            json!({ "properties": named(60), "allOf": [{ "minProperties": 1 }] }),
            "60 properties in one object with \"minProperties\" or \"maxProperties\"; at most 50",
        ),
        (json!({ "patternProperties": named(60) }), "60 patterns for property names in one object; at most 50 are supported"),
        (
            json!({ "allOf": many(10, &|i| json!({ "pattern": format!("{i}") })) }),
            "10 patterns and formats for one text; at most 4 are supported",
        ),
        (json!({ "allOf": [{ "multipleOf": 997 }, { "multipleOf": 991 }] }), "the product of their numbers has too many digits"),
        (json!({ "multipleOf": 999_999_937 }), "the number 999999937 of \"multipleOf\" has too many digits"),
        (json!({ "pattern": "a".repeat(100_000) }), "a \"pattern\" of 100000 bytes is too long"),
        (nested, "schemas are nested more than 64 deep"),
    ] {
        assert!(said(&schema).contains(want), "{want}: {}", said(&schema));
    }
    let chain: Map<String, Value> = (0..3000)
        .map(|i| (format!("d{i}"), json!({ "not": {}, "items": { "items": { "items": { "$ref": format!("#/$defs/d{}", i + 1) } } } })))
        .collect();
    let mut chain = json!({ "$ref": "#/$defs/d0", "$defs": chain });
    for i in 0..3000 {
        chain["$defs"][format!("d{i}")].as_object_mut().unwrap().remove("not");
    }
    assert!(!said(&chain).is_empty());
}
