//! Explains errors of the crate llguidance to the author of a grammar. The crate's own messages are not shown, because they name the crate's
//! internals and repeat the grammar.

use super::schema::{Pointer, below, find};
use crate::error::{Error, short};
use serde_json::{Map, Value, json};
use std::time::Duration;
use web_time::Instant;

/// Phrases in llguidance's error messages, each with its meaning for the author of a grammar.
const MEANT: [(&str, &str); 9] = [
    (NO_TEXT, "the grammar matches no text that the tokens of the vocabulary can form; look for a rule that refers only to itself"),
    ("Current row has", AMBIGUOUS),
    ("Too many items", AMBIGUOUS),
    ("cancelled", AMBIGUOUS),
    ("lexer_fuel", TOO_LARGE),
    ("initial lexer configuration", TOO_LARGE),
    ("fuel exhausted", TOO_LARGE),
    ("symbols", "the grammar has too many different parts"),
    ("too many states", TOO_LARGE),
];
/// The phrase in llguidance's error message for a grammar without a text.
const NO_TEXT: &str = "NoExtensionBias";
const AMBIGUOUS: &str = "the grammar is too ambiguous here";
const TOO_LARGE: &str = "the texts, character classes and repetitions of the grammar are too large";

/// Phrases in llguidance's error messages about a schema. Each has its meaning and a hint that says what to do.
const OF_SCHEMA: [(&str, &str, &str); 7] = [
    ("oneOf constraints", "\"oneOf\" is unsupported if several of its schemas can match", "use \"anyOf\""),
    (
        "min/maxProperties",
        "\"minProperties\" and \"maxProperties\" are unsupported with optional properties",
        "list the properties under \"required\"",
    ),
    (
        "circular references",
        "a circular \"$ref\" with other keywords beside it is unsupported",
        "move the keywords into the target of the \"$ref\"",
    ),
    ("disjoint", "two patterns of \"patternProperties\" can match the same name", "change the patterns, or merge them"),
    (
        "Unable to determine",
        "a pattern with its length bounds is too large to compile",
        "shorten the pattern, or remove \"minLength\" and \"maxLength\"",
    ),
    ("too large", "the schema is too large to compile", "split the schema"),
    ("stack level", "the schemas to merge are nested too deeply", "merge the schemas by hand"),
];

/// Returns what an error of llguidance means for the author of a grammar.
pub fn explain(error: &dyn std::fmt::Display) -> String {
    let said = error.to_string();
    MEANT.iter().find(|(known, _)| said.contains(known)).map_or("the grammar is too complex to compile", |(_, meant)| meant).into()
}

/// Finds the smallest subschema that does not compile. Returns the error of this subschema, with the subschema's JSON pointer.
///
/// `said` is llguidance's error for the whole schema `root`. `compile` returns llguidance's error for a schema, or `None` if the schema compiles.
pub fn blame(root: &Value, said: String, mut compile: impl FnMut(&Value) -> Option<String>) -> Error {
    /// The time limit of the search for the faulty subschema.
    const LIMIT: Duration = Duration::from_secs(3);
    const STEPS: usize = 100;
    let begun = Instant::now();
    let (mut at, mut schema, mut said) = (Pointer::default(), root, said);
    'deeper: for _ in 0..STEPS {
        let mut parts = below(&at, schema);
        parts.extend(schema.get("$ref").and_then(Value::as_str).and_then(|target| find(root, target)));
        // A subschema `false`, such as that of `additionalProperties`, matches nothing on purpose.
        parts.retain(|(_, part)| **part != Value::Bool(false));
        // bisect the subschemas until one subschema remains
        while !parts.is_empty() {
            let half = parts.split_off(parts.len() / 2);
            for some in [half, std::mem::take(&mut parts)].into_iter().filter(|some| !some.is_empty()) {
                if begun.elapsed() > LIMIT {
                    break 'deeper;
                }
                // ignore errors of another kind: such errors come from references whose target the reduced schema lacks
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
    let e = meaning(schema, &said);
    // The pointer of the root is empty, and an error that no keyword explains needs a place.
    if said.contains(NO_TEXT) && at.to_string().is_empty() { e.at("root of the schema") } else { e.at(at) }
}

/// Returns the schema of an object that has exactly the properties `parts`. [`blame`] compiles it to test `parts` without the rest of `root`.
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

/// Returns the error to show for the subschema `schema`. `said` is llguidance's error message.
fn meaning(schema: &Value, said: &str) -> Error {
    if said.contains("nsatisfiable") {
        let names = ["imum", "Length", "Items", "Properties"];
        for (least, most) in names.map(|name| (format!("min{name}"), format!("max{name}"))) {
            let number = |name: &str| schema.get(name).and_then(Value::as_f64);
            if let (Some(from), Some(to)) = (number(&least), number(&most))
                && from > to
            {
                return Error::input(format!("\"{least}\" is larger than \"{most}\", so that no value matches"));
            }
        }
        return Error::input("no JSON matches this schema: its parts contradict each other");
    }
    if said.contains(NO_TEXT) {
        let refers = schema.get("$ref").and_then(Value::as_str).map(|target| format!(", whose \"$ref\" is {}", short(target, 60)));
        let text = format!("no text of the vocabulary's tokens matches this schema{}", refers.unwrap_or_default());
        return Error::input(text)
            .hint("if a \"$ref\" leads back to this schema, give it an alternative under \"anyOf\", such as {\"type\": \"null\"}");
    }
    match OF_SCHEMA.iter().find(|(known, ..)| said.contains(known)) {
        Some((_, meant, hint)) => Error::input(*meant).hint(*hint),
        None => Error::input(explain(&said).replace("the grammar", "the schema")),
    }
}

/// Returns the phrase in llguidance's error message that identifies the kind of error. Returns `None` if the message contains no known phrase.
fn kind(said: &str) -> Option<&'static str> {
    let all = OF_SCHEMA.iter().map(|(known, ..)| *known).chain(MEANT.iter().map(|(known, _)| *known));
    std::iter::once("nsatisfiable").chain(all).find(|known| said.contains(known))
}
