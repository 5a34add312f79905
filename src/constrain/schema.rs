//! Checks a JSON schema before llguidance compiles it. Errors have a JSON pointer. Limits on the schema keep the compile time short.

mod keyword;
mod merge;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result, short};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::rc::Rc;

/// The maximum number of subschemas, required names, and values of `enum` and `const` together. The work of llguidance's compiler may grow with the
/// square of this number, because the compiler may copy half of the schema once for each subschema in the other half.
const MAX_PARTS: usize = 10_000;
/// The largest depth of nested subschemas.
const MAX_DEPTH: usize = 64;
/// The largest depth of nesting through references: the sum of the depths of all referenced subschemas. llguidance's compiler recurses into each
/// level.
const MAX_LEVELS: usize = 10_000;
/// The largest number of bytes in all names, patterns and values together.
const MAX_BYTES: usize = 1 << 20;
/// The largest number of characters that an error message quotes from a text in the schema.
const QUOTED: usize = 60;

/// Checks the subschemas that apply to the output. A definition that no reference uses is not checked.
///
/// # Errors
/// `Input` if a subschema is invalid, unsupported or too large. The error has the subschema's JSON pointer.
pub fn check(root: &Value) -> Result<()> {
    let mut walk = Walk { root, wait: Vec::new(), referred: HashSet::new(), n_parts: 0, n_bytes: 0, n_levels: 0 };
    walk.wait.push(Subschema { at: Pointer::default(), schema: root, depth: 0, levels: 0 });
    let mut parts = Vec::new();
    while let Some(part) = walk.wait.pop() {
        walk.part(&part)?;
        parts.push(part);
    }
    merge::check(root, &parts)
}

/// The JSON pointer of a subschema. The pointer is empty at the root of the schema. Errors show only the beginning of a long pointer.
#[derive(Debug, Clone, Default)]
pub struct Pointer(Option<Rc<(Pointer, String)>>);

impl Pointer {
    pub fn then(&self, step: impl std::fmt::Display) -> Pointer {
        Pointer(Some(Rc::new((self.clone(), step.to_string()))))
    }

    fn is_root(&self) -> bool {
        self.0.is_none()
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 120;
        let steps: Vec<&str> = std::iter::successors(self.0.as_deref(), |step| step.0.0.as_deref()).map(|step| step.1.as_str()).collect();
        let mut shown = String::new();
        for step in steps.iter().rev().take(SHOWN) {
            shown.push('/');
            shown += &short(step, SHOWN).replace('~', "~0").replace('/', "~1");
        }
        if shown.is_empty() { Ok(()) } else { write!(f, "schema at {}", short(&shown, SHOWN)) }
    }
}

/// A subschema that applies to the output.
struct Subschema<'s> {
    at: Pointer,
    schema: &'s Value,
    /// The number of subschemas around this one, counted from the root or from the target of the last reference.
    depth: usize,
    /// An upper bound of the number of subschemas and references between the root and this subschema.
    levels: usize,
}

struct Walk<'s> {
    root: &'s Value,
    wait: Vec<Subschema<'s>>,
    /// The targets of all references found so far, as written in the schema.
    referred: HashSet<&'s str>,
    n_parts: usize,
    n_bytes: usize,
    n_levels: usize,
}

impl<'s> Walk<'s> {
    fn part(&mut self, part: &Subschema<'s>) -> Result<()> {
        self.count(1, 0)?;
        if part.depth > MAX_DEPTH {
            return Err(Error::input(format!("schemas are nested more than {MAX_DEPTH} deep")).at(&part.at));
        }
        match part.schema {
            Value::Bool(_) => Ok(()),
            Value::Object(all) => {
                for (at, schema) in below(&part.at, part.schema) {
                    self.wait.push(Subschema { at, schema, depth: part.depth + 1, levels: part.levels + 1 });
                    self.n_levels = self.n_levels.max(part.levels + 1);
                }
                all.iter().try_for_each(|(name, value)| self.keyword(part, all, name, value))
            }
            _ => Err(Error::input("expected a schema, which is an object, true or false").at(&part.at)),
        }
    }

    fn keyword(&mut self, part: &Subschema<'s>, all: &'s Map<String, Value>, name: &'s str, value: &'s Value) -> Result<()> {
        self.count(0, name.len())?;
        keyword::check(name, value, all, part.at.is_root()).map_err(|e| e.at(&part.at))?;
        match (name, value) {
            ("properties" | "patternProperties", Value::Object(below)) => self.count(0, below.keys().map(String::len).sum()),
            ("enum" | "const", values) => self.values(values),
            ("pattern", Value::String(pattern)) => self.count(0, pattern.len()),
            ("required", Value::Array(names)) => self.count(names.len(), names.iter().filter_map(Value::as_str).map(str::len).sum()),
            ("$ref", Value::String(target)) => self.refer(part, target),
            _ => Ok(()),
        }
    }

    /// Adds the target of a reference to the subschemas to check, unless the target was added before.
    fn refer(&mut self, part: &Subschema, target: &'s str) -> Result<()> {
        if !self.referred.insert(target) {
            return Ok(());
        }
        let shown = short(target, QUOTED);
        if target != "#" && !target.starts_with("#/") {
            let e = Error::input(format!("\"$ref\" to {shown} is unsupported")).at(&part.at);
            return Err(e.hint("refer to a part of the same schema, such as #/$defs/name"));
        }
        let Some((at, schema)) = find(self.root, target) else {
            let e = Error::input(format!("\"$ref\" refers to {shown}, which this schema does not have")).at(&part.at);
            return Err(e.hint("define this part of the schema, or correct the \"$ref\""));
        };
        let levels = self.n_levels + 1;
        if levels > MAX_LEVELS {
            return Err(Error::input(format!("schemas refer to one another more than {MAX_LEVELS} deep")).at(&part.at));
        }
        self.n_levels = levels;
        self.wait.push(Subschema { at, schema, depth: 0, levels });
        Ok(())
    }

    /// Counts the values and the bytes of an `enum` or `const`, including nested values.
    fn values(&mut self, values: &'s Value) -> Result<()> {
        let mut wait = vec![values];
        while let Some(value) = wait.pop() {
            match value {
                Value::Array(all) => wait.extend(all),
                Value::Object(all) => wait.extend(all.values()),
                _ => {}
            }
            let n_bytes = match value {
                Value::String(text) => text.len(),
                Value::Object(all) => all.keys().map(String::len).sum(),
                _ => 1,
            };
            self.count(1, n_bytes)?;
        }
        Ok(())
    }

    fn count(&mut self, n_parts: usize, n_bytes: usize) -> Result<()> {
        self.n_parts += n_parts;
        self.n_bytes += n_bytes;
        if self.n_parts > MAX_PARTS {
            return Err(Error::input(format!("the schema has more than {MAX_PARTS} subschemas, names and values")));
        }
        if self.n_bytes > MAX_BYTES {
            return Err(Error::input(format!("the schema's names, patterns and values have more than {MAX_BYTES} bytes")));
        }
        Ok(())
    }
}

/// Returns the direct subschemas of a schema, each with its JSON pointer. The target of a `$ref` is not included.
pub fn below<'s>(at: &Pointer, schema: &'s Value) -> Vec<(Pointer, &'s Value)> {
    let mut all = Vec::new();
    for (name, value) in schema.as_object().into_iter().flatten() {
        let at = at.then(name);
        match (name.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(below)) => {
                all.extend(below.iter().map(|(name, schema)| (at.then(name), schema)));
            }
            ("prefixItems" | "items" | "allOf" | "anyOf" | "oneOf", Value::Array(below)) => {
                all.extend(below.iter().enumerate().map(|(i, schema)| (at.then(i), schema)));
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => all.push((at, schema)),
            _ => {}
        }
    }
    all
}

/// Returns the schema that the reference `target` refers to, with its JSON pointer. Returns `None` if `root` has no such schema. Escapes in the
/// reference are not decoded, as in llguidance's compiler.
pub fn find<'s>(root: &'s Value, target: &str) -> Option<(Pointer, &'s Value)> {
    let mut found = (Pointer::default(), root);
    let steps = target.strip_prefix('#')?;
    for step in steps.strip_prefix('/').unwrap_or(steps).split('/').filter(|_| steps.len() > 1) {
        let next = match found.1 {
            Value::Array(all) => all.get(step.parse::<usize>().ok()?)?,
            other => other.get(step)?,
        };
        found = (found.0.then(step), next);
    }
    Some(found)
}
