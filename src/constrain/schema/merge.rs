//! Checks the size of merged schemas. llguidance's compiler merges the schemas under `allOf`, `anyOf`, `oneOf` and `$ref` into the schema that
//! contains the keyword.

use super::keyword::{MAX_DIVISOR, divisor};
use super::{Subschema, find};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The maximum number of patterns and formats that one text must match. llguidance's compiler searches for a text that matches them all.
const MAX_PATTERNS: usize = 4;
/// The largest number of properties, or of required names, of an object. The work of llguidance's compiler grows with the square of this number.
const MAX_PROPERTIES: usize = 1000;
/// The largest number of properties of an object with `minProperties` or `maxProperties`. llguidance's compiler writes a list for each property.
const MAX_COUNTED: usize = 50;
/// The largest number of patterns for property names in one object. llguidance's compiler compares each pair of patterns.
const MAX_NAMES: usize = 50;

/// Checks every subschema in `parts`, together with the schemas that llguidance's compiler merges into it.
pub fn check(root: &Value, parts: &[Subschema]) -> Result<()> {
    let mut merger = Merger { root, known: HashMap::new() };
    for part in parts {
        let sum = merger.sum(part.schema, 0);
        let most_properties = if sum.is_counted { MAX_COUNTED } else { MAX_PROPERTIES };
        let beside = if sum.is_counted { " with \"minProperties\" or \"maxProperties\"" } else { "" };
        for (n, most, what) in [
            (sum.n_patterns, MAX_PATTERNS, "patterns and formats for one text"),
            (sum.n_properties, most_properties, "properties in one object"),
            (sum.n_names, MAX_NAMES, "patterns for property names in one object"),
        ] {
            if n > most {
                return Err(Error::input(format!("the schema has {n} {what}{beside}; at most {most} are supported")).at(&part.at));
            }
        }
        if sum.divisor > MAX_DIVISOR {
            let e = Error::input("several \"multipleOf\" apply to one value, and the product of their numbers has too many digits");
            return Err(e.at(&part.at).hint("use one \"multipleOf\" in place of these"));
        }
    }
    Ok(())
}

/// The size of a schema, including the schemas that are merged into it.
#[derive(Clone, Copy)]
struct Sum {
    n_patterns: usize,
    n_properties: usize,
    /// The number of patterns for property names.
    n_names: usize,
    /// `true` if the schema has `minProperties` or `maxProperties`.
    is_counted: bool,
    /// The product of the divisors (`multipleOf`). Equal divisors of two schemas count once.
    divisor: u64,
}

impl Sum {
    const NOTHING: Sum = Sum { n_patterns: 0, n_properties: 0, n_names: 0, is_counted: false, divisor: 1 };

    /// Returns the size of a schema that is merged from two schemas of the sizes `self` and `other`.
    fn and(self, other: Sum) -> Sum {
        Sum {
            n_patterns: self.n_patterns.saturating_add(other.n_patterns),
            n_properties: self.n_properties.saturating_add(other.n_properties),
            n_names: self.n_names.saturating_add(other.n_names),
            is_counted: self.is_counted || other.is_counted,
            divisor: if self.divisor == other.divisor { self.divisor } else { self.divisor.saturating_mul(other.divisor) },
        }
    }

    /// Returns, in each field, the larger value of both sizes.
    fn or(self, other: Sum) -> Sum {
        Sum {
            n_patterns: self.n_patterns.max(other.n_patterns),
            n_properties: self.n_properties.max(other.n_properties),
            n_names: self.n_names.max(other.n_names),
            is_counted: self.is_counted || other.is_counted,
            divisor: self.divisor.max(other.divisor),
        }
    }
}

struct Merger<'s> {
    root: &'s Value,
    /// The sizes that were computed before, by the address of the schema.
    known: HashMap<*const Value, Sum>,
}

impl<'s> Merger<'s> {
    /// Returns the size of a schema, including the schemas that are merged into it. A circular reference counts once.
    fn sum(&mut self, schema: &'s Value, depth: usize) -> Sum {
        /// The largest depth of nested or referenced schemas that are counted. This limit protects the stack of this check; `MAX_LEVELS` protects the
        /// stack of llguidance's compiler.
        const DEEPEST: usize = 1000;
        let (Some(all), true) = (schema.as_object(), depth < DEEPEST) else { return Sum::NOTHING };
        let key: *const Value = schema;
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.known.insert(key, Sum::NOTHING);
        let n_below =
            |name: &str| all.get(name).map_or(0, |below| below.as_object().map_or(0, Map::len) + below.as_array().map_or(0, Vec::len));
        let mut sum = Sum {
            n_patterns: ["pattern", "format"].iter().filter(|name| all.contains_key(**name)).count(),
            n_properties: n_below("properties").max(n_below("required")),
            n_names: n_below("patternProperties"),
            is_counted: all.contains_key("minProperties") || all.contains_key("maxProperties"),
            divisor: all.get("multipleOf").and_then(|value| divisor(value).ok()).unwrap_or(1),
        };
        for name in ["allOf", "anyOf", "oneOf"] {
            let below = all.get(name).and_then(Value::as_array).into_iter().flatten();
            let sums: Vec<Sum> = below.map(|schema| self.sum(schema, depth + 1)).collect();
            let merge = if name == "allOf" { Sum::and } else { Sum::or };
            sum = sum.and(sums.into_iter().fold(Sum::NOTHING, merge));
        }
        if let Some((_, target)) = all.get("$ref").and_then(Value::as_str).and_then(|target| find(self.root, target)) {
            sum = sum.and(self.sum(target, depth + 1));
        }
        self.known.insert(key, sum);
        sum
    }
}
