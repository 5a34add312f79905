//! Strict JSON schemas: objects have only the properties that the schema names, as in OpenAI's API.

use serde_json::{Map, Value, json};

/// Keywords whose values are schemas by name.
const BY_NAME: [&str; 4] = ["properties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose value is a schema or a list of schemas.
const NESTED: [&str; 3] = ["items", "prefixItems", "additionalProperties"];

/// Keywords with alternatives. Beside `properties`, they describe parts of the same value, so neither they nor the schema itself are closed. The
/// schemas of `allOf`, `if`, `then`, `else` and `not` are never closed, for the same reason.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

/// Keywords with which a schema itself says what other properties its objects have.
const OPENERS: [&str; 6] = ["additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "$ref", "if"];

/// Closes the objects of a schema: an object with named properties has no other properties, unless the schema itself says so.
pub fn close(schema: &mut Value) {
    let Value::Object(keys) = schema else { return };
    for name in BY_NAME {
        keys.get_mut(name).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut).for_each(close);
    }
    for name in NESTED {
        match keys.get_mut(name) {
            Some(Value::Array(all)) => all.iter_mut().for_each(close),
            Some(one) => close(one),
            None => {}
        }
    }
    let has_alternatives = ALTERNATIVES.iter().any(|name| keys.contains_key(*name));
    if has_alternatives && keys.contains_key("properties") {
        return;
    }
    for name in ALTERNATIVES {
        keys.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
    }
    if keys.contains_key("properties") && !OPENERS.iter().any(|opener| keys.contains_key(*opener)) {
        keys.insert("additionalProperties".into(), json!(false));
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
        let mut alternatives = json!({"anyOf": [{"properties": {"d": true}}, {"type": "null"}]});
        close(&mut alternatives);
        assert_eq!(alternatives, json!({"anyOf": [{"properties": {"d": true}, "additionalProperties": false}, {"type": "null"}]}));
        for same in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}),
            // Closing the parent or a member would allow no value with both keys.
            json!({"properties": {"kind": {}}, "oneOf": [{"properties": {"x": {}}, "required": ["x"]}]}),
            json!(true),
        ] {
            let mut schema = same.clone();
            close(&mut schema);
            assert_eq!(schema, same);
        }
    }
}
