//! Strict JSON schemas: objects have only the properties that the schema names, as in OpenAI's API.

use serde_json::{Map, Value, json};

/// Keywords whose values are schemas by name.
const BY_NAME: [&str; 4] = ["properties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose value is a schema or a list of schemas. The schemas of `allOf`, `if`, `then`, `else` and `not` describe parts of a value that another
/// schema describes, too, so these schemas stay open.
const NESTED: [&str; 5] = ["items", "prefixItems", "anyOf", "oneOf", "additionalProperties"];

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
            "$defs": {"b": {"properties": {"c": {}}}}, "anyOf": [{"properties": {"d": true}}]});
        let mut schema = open;
        close(&mut schema);
        let closed = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {}, "additionalProperties": false}}},
            "$defs": {"b": {"properties": {"c": {}}, "additionalProperties": false}},
            "anyOf": [{"properties": {"d": true}, "additionalProperties": false}], "additionalProperties": false});
        assert_eq!(schema, closed);
        for same in [
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}),
            json!(true),
        ] {
            let mut schema = same.clone();
            close(&mut schema);
            assert_eq!(schema, same);
        }
    }
}
