//! Closed JSON schemas: objects have only the properties that the schema names, as in OpenAI's API.

use serde_json::{Map, Value, json};

/// Keywords whose value is an object that maps names to schemas.
const BY_NAME: [&str; 4] = ["properties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose value is a schema or a list of schemas.
const NESTED: [&str; 3] = ["items", "prefixItems", "additionalProperties"];

/// Keywords with alternatives. Beside `properties`, they describe parts of the same value, so neither they nor the schema itself are closed. The
/// schemas of `allOf`, `if`, `then`, `else` and `not` are never closed, for the same reason.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// Keywords whose schemas describe parts of the same value.
const PARTS: [&str; 6] = ["allOf", "if", "then", "else", "not", "dependentSchemas"];

/// Keywords with which a schema itself decides about further properties.
const OPENERS: [&str; 6] = ["additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "$ref", "if"];

/// Sets `additionalProperties` to false for objects with named properties. Leaves out schemas that decide themselves (`OPENERS`), that require a
/// property without a schema, or that describe only a part of a value.
pub fn close(schema: &mut Value) {
    allow_others(schema, false);
}

/// Sets `additionalProperties` to true for the objects that `close` would close.
pub fn open(schema: &mut Value) {
    allow_others(schema, true);
}

fn allow_others(schema: &mut Value, allowed: bool) {
    // A definition that describes a part of a value must not exclude the other parts.
    let names = if merges(schema) { &BY_NAME[..1] } else { &BY_NAME[..] };
    allow_below(schema, allowed, names);
}

/// Returns whether the schema uses a definition for only a part of a value. The reference is then beside `properties`, or within `allOf` or a similar
/// keyword.
fn merges(value: &Value) -> bool {
    match value {
        Value::Object(keys) => {
            let refers = |names: &[&str]| names.iter().filter_map(|name| keys.get(*name)).any(has_reference);
            let has_properties = keys.contains_key("properties");
            has_properties && (keys.contains_key("$ref") || refers(&ALTERNATIVES)) || refers(&PARTS) || keys.values().any(merges)
        }
        Value::Array(all) => all.iter().any(merges),
        _ => false,
    }
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(keys) => keys.contains_key("$ref") || keys.values().any(has_reference),
        Value::Array(all) => all.iter().any(has_reference),
        _ => false,
    }
}

/// Does what [`allow_others`] does. `by_name` has the keywords of `BY_NAME` into whose schemas this function descends.
fn allow_below(schema: &mut Value, allowed: bool, by_name: &[&str]) {
    let Value::Object(keys) = schema else { return };
    for name in by_name.iter().copied() {
        keys.get_mut(name)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(|one| allow_below(one, allowed, by_name));
    }
    for name in NESTED {
        match keys.get_mut(name) {
            Some(Value::Array(all)) => all.iter_mut().for_each(|one| allow_below(one, allowed, by_name)),
            Some(one) => allow_below(one, allowed, by_name),
            None => {}
        }
    }
    let has_alternatives = ALTERNATIVES.iter().any(|name| keys.contains_key(*name));
    if has_alternatives && keys.contains_key("properties") {
        return;
    }
    for name in ALTERNATIVES {
        keys.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().for_each(|one| allow_below(one, allowed, by_name));
    }
    // If a required property has no schema, the object has further properties.
    let known = |name: &Value| name.as_str().is_some_and(|name| keys.get("properties").is_some_and(|known| known.get(name).is_some()));
    let requires_others = keys.get("required").and_then(Value::as_array).is_some_and(|required| !required.iter().all(known));
    if keys.contains_key("properties") && !requires_others && !OPENERS.iter().any(|opener| keys.contains_key(*opener)) {
        keys.insert("additionalProperties".into(), json!(allowed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_properties_are_closed() {
        let open = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {}}}},
            "$defs": {"b": {"properties": {"c": {}}}}});
        let mut schema = open;
        close(&mut schema);
        let closed = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {}, "additionalProperties": false}}},
            "$defs": {"b": {"properties": {"c": {}}, "additionalProperties": false}}, "additionalProperties": false});
        assert_eq!(schema, closed);
        let mut opened = json!({"properties": {"a": {"properties": {}}}});
        super::open(&mut opened);
        close(&mut opened);
        let all = json!({"properties": {"a": {"properties": {}, "additionalProperties": true}}, "additionalProperties": true});
        assert_eq!(opened, all);
        let mut alternatives = json!({"anyOf": [{"properties": {"d": true}}, {"type": "null"}]});
        close(&mut alternatives);
        assert_eq!(alternatives, json!({"anyOf": [{"properties": {"d": true}, "additionalProperties": false}, {"type": "null"}]}));
        for same in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}),
            // Closing the parent or a member would allow no value with both keys.
            json!({"properties": {"kind": {}}, "oneOf": [{"properties": {"x": {}}, "required": ["x"]}]}),
            json!({"properties": {"a": {}}, "required": ["a", "b"]}),
            // Definitions that are parts of a value.
            json!({"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {"A": {"properties": {"a": {}}}, "B": {"properties": {"b": {}}}}}),
            json!({"$ref": "#/$defs/A", "properties": {"x": {}}, "$defs": {"A": {"properties": {"a": {}}}}}),
            json!(true),
        ] {
            let mut schema = same.clone();
            close(&mut schema);
            assert_eq!(schema, same);
        }
    }
}
