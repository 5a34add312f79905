//! What the crate that follows grammars says when it gives up, in the words of whoever wrote the grammar. Its own words name its parts and
//! repeat the grammar, so none of them is shown.

use super::schema::{Pointer, below, find};
use crate::error::Error;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// What the crate says, and what it means for a grammar.
const MEANT: [(&str, &str); 9] = [
    ("NoExtensionBias", "no token of the vocabulary may come next, and the text may not end"),
    ("Current row has", AMBIGUOUS),
    ("Too many items", AMBIGUOUS),
    ("cancelled", AMBIGUOUS),
    ("lexer_fuel", TOO_LARGE),
    ("initial lexer configuration", TOO_LARGE),
    ("fuel exhausted", TOO_LARGE),
    ("symbols", "the grammar has too many different parts"),
    ("too many states", TOO_LARGE),
];
const AMBIGUOUS: &str = "there are too many ways to go on at once";
const TOO_LARGE: &str = "the grammar's texts, classes and repetitions are too large together";

/// What the crate says about a schema, what it means, and what to do.
const OF_SCHEMA: [(&str, &str, &str); 7] = [
    ("oneOf constraints", "\"oneOf\" is unsupported where several of its schemas may match", "use \"anyOf\""),
    (
        "min/maxProperties",
        "\"minProperties\" and \"maxProperties\" are unsupported beside properties that may be left out",
        "list them under \"required\"",
    ),
    (
        "circular references",
        "\"$ref\" leads back to itself beside other keywords, which is unsupported",
        "move the keywords into the schema that is referred to",
    ),
    ("disjoint", "\"patternProperties\" has patterns that may match the same name", "write patterns that cannot, or merge them"),
    (
        "Unable to determine",
        "a pattern with its bounds is too large to compile",
        "write it shorter, or remove \"minLength\" and \"maxLength\"",
    ),
    ("too large", "the schema is too large to compile", "split it"),
    ("stack level", "the schemas to be merged are nested too deeply", "merge them by hand"),
];

/// What an error of the crate means.
pub fn told(error: &dyn std::fmt::Display) -> String {
    let said = error.to_string();
    MEANT.iter().find(|(known, _)| said.contains(known)).map_or("the grammar is too complex to compile", |(_, meant)| meant).into()
}

/// The smallest part of a schema that cannot be compiled, and why. `said` is the error of the whole; `compile` gives that of a schema, or
/// `None`.
pub fn blame(root: &Value, said: String, mut compile: impl FnMut(&Value) -> Option<String>) -> Error {
    /// For finding the part: a message is not worth more.
    const LIMIT: Duration = Duration::from_secs(3);
    const STEPS: usize = 100;
    let begun = Instant::now();
    let (mut at, mut schema, mut said) = (Pointer::default(), root, said);
    'deeper: for _ in 0..STEPS {
        let mut parts = below(&at, schema);
        parts.extend(schema.get("$ref").and_then(Value::as_str).and_then(|target| find(root, target)));
        // Halves of the parts, until one part is left.
        while !parts.is_empty() {
            let half = parts.split_off(parts.len() / 2);
            for some in [half, std::mem::take(&mut parts)].into_iter().filter(|some| !some.is_empty()) {
                if begun.elapsed() > LIMIT {
                    break 'deeper;
                }
                // Where it fails in another way, it refers to what has been left out.
                let Some(error) = compile(&alone(root, &some)).filter(|e| kind(e) == kind(&said)) else { continue };
                if let [(pointer, part)] = some.as_slice() {
                    (at, schema, said) = (pointer.clone(), part, error);
                    continue 'deeper;
                }
                parts = some;
                break;
            }
        }
        break;
    }
    meaning(schema, &said).at(at)
}

/// A schema that needs each of these parts.
fn alone(root: &Value, parts: &[(Pointer, &Value)]) -> Value {
    let below: Map<String, Value> = parts.iter().enumerate().map(|(i, (_, part))| (i.to_string(), (*part).clone())).collect();
    let names: Vec<&String> = below.keys().collect();
    let mut schema = json!({ "type": "object", "required": names, "additionalProperties": false });
    schema["properties"] = Value::Object(below);
    for name in ["$defs", "definitions", "$schema", "x-guidance"] {
        if let Some(value) = root.get(name) {
            schema[name] = value.clone();
        }
    }
    schema
}

fn meaning(schema: &Value, said: &str) -> Error {
    if said.contains("nsatisfiable") {
        let names = ["imum", "Length", "Items", "Properties"];
        for (least, most) in names.map(|name| (format!("min{name}"), format!("max{name}"))) {
            let number = |name: &str| schema.get(name).and_then(Value::as_f64);
            if let (Some(from), Some(to)) = (number(&least), number(&most))
                && from > to
            {
                return Error::input(format!("\"{least}\" is larger than \"{most}\""));
            }
        }
        return Error::input("no JSON matches this schema: its parts contradict one another");
    }
    match OF_SCHEMA.iter().find(|(known, ..)| said.contains(known)) {
        Some((_, meant, hint)) => Error::input(*meant).hint(*hint),
        None => Error::input(told(&said).replace("the grammar", "the schema")),
    }
}

/// What the crate says, apart from names and numbers.
fn kind(said: &str) -> Option<&'static str> {
    let all = OF_SCHEMA.iter().map(|(known, ..)| *known).chain(MEANT.iter().map(|(known, _)| *known));
    std::iter::once("nsatisfiable").chain(all).find(|known| said.contains(known))
}
