//! Tests hostile grammars and schemas. A request with a hostile grammar or schema gets a text or an error of one line. Other requests are not
//! affected.

use super::cli::{code, feed, put, refused, run, stderr, words};
use serde_json::{Value, json};

/// Returns a grammar with a chain of 30 000 rules, each of which refers to the next rule.
fn chain() -> String {
    let rules: String = (0..30_000).map(|i| format!("r{i} ::= r{} | \"b\"\n", i + 1)).collect();
    format!("root ::= r0\n{rules}r30000 ::= \"a\"")
}

#[test]
fn a_hostile_line_of_a_batch_is_an_error_of_its_own() {
    let choices = |n: usize| (0..n).map(|i| format!("\"{i:b}\" s")).collect::<Vec<_>>().join(" | ");
    let hostile = [
        json!({ "grammar": chain() }),
        json!({ "grammar": format!("root ::= s\ns ::= {}", choices(5000)) }),
        json!({ "grammar": format!("root ::= {}", "(".repeat(100_000)) }),
        json!({ "json_schema": { "items": { "pattern": "(".repeat(10_000) } } }),
        json!({ "json_schema": { "enum": (0..50_000).collect::<Vec<_>>() } }),
        json!({ "json_schema": { "multipleOf": 999_999_937 } }),
    ];
    let mut lines: Vec<Value> = hostile.to_vec();
    lines.insert(3, json!({ "grammar": "root ::= \"good\"" }));
    for (i, line) in lines.iter_mut().enumerate() {
        line["id"] = json!(i.to_string());
        line["prompt"] = json!("x");
    }
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = feed(&words("batch - -n 4"), input.as_bytes());
    let results: Vec<Value> = String::from_utf8_lossy(&output.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let of =
        |i: usize| results.iter().find(|r| r["id"].as_str() == Some(&i.to_string())).unwrap_or_else(|| panic!("{i}: {}", stderr(&output)));
    assert_eq!(of(3)["text"], "good");
    for i in (0..lines.len()).filter(|&i| i != 3) {
        let said = of(i)["error"]["message"].as_str().unwrap();
        assert!(said.chars().count() < 400 && !said.contains(char::is_control), "{said:.500}");
    }
}

#[test]
fn an_error_of_a_schema_is_one_line_with_a_pointer() {
    let folder = tempfile::tempdir().unwrap();
    let schema =
        json!({ "type": "object", "title": "secret ".repeat(1000), "properties": { "age": { "type": "integer", "not": { "const": 3 } } } });
    let path = put(&folder, "schema.json", schema.to_string().as_bytes());
    let args = ["generate", "x", "-n", "1", "--json-schema", path.to_str().unwrap()];
    let output = run(&args);
    refused(&output, 1, "schema.json: schema at /properties/age: the keyword \"not\" of JSON schemas is unsupported (remove the keyword)");
    assert!(!stderr(&output).contains("secret"));
    std::fs::write(&path, r#"{"type": "object", "properties": {"a": {"minimum": 3, "maximum": 2, "type": "integer"}}, "required": ["a"]}"#)
        .unwrap();
    refused(&run(&args), 1, "schema at /properties/a: \"minimum\" is larger than \"maximum\"");
}

/// Runs the program with limited memory, so that a failure does not affect other tests.
#[cfg(target_os = "linux")]
#[test]
fn a_chain_of_rules_ends_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "chain.gbnf", chain().as_bytes());
    let script = "ulimit -v 4000000; exec \"$0\" generate x --device cpu -n 1 --grammar \"$1\"";
    let output = std::process::Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_wingbeat")]).arg(path).output().unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    refused(&output, 1, "rules refer to one another more than 4000 deep");
}
