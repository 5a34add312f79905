//! WGSL from small files: `import package::a::b::{x, y};` at the top of a file splices `shaders/a/b.wgsl` in, once.
//!
//! The composer puts modules in the place of others (a weight format for another) and generates the module `constants`. It
//! knows no device. One more form, for what no compiler of a software adapter does by itself: `unroll i in N { … $i … }`
//! repeats its body N times, N a number or a constant of the recipe.

use crate::error::{Error, Result};
use crate::tape::Dispatch;

/// Path below `shaders/` without its ending, and the text.
static SHADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// What a dispatch runs, told apart from other dispatches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recipe {
    pub shader: &'static str,
    pub modules: Vec<(&'static str, String)>,
    pub constants: Vec<(&'static str, u32)>,
}

impl From<&Dispatch> for Recipe {
    fn from(d: &Dispatch) -> Self {
        Recipe { shader: d.shader, modules: d.modules.clone(), constants: d.constants.clone() }
    }
}

/// The whole text of a shader.
pub fn compose(recipe: &Recipe) -> Result<String> {
    let mut text = String::new();
    splice(recipe.shader, recipe, &mut Vec::new(), &mut text)?;
    unroll(&hoist(&text), recipe)
}

/// Extensions that WGSL wants enabled and naga has without asking: its parser refuses the line. What hands text to a browser
/// leaves these in.
const NOT_FOR_NAGA: &[&str] = &["enable subgroups;"];

/// Puts the `enable` lines of all files before everything else, each once, where WGSL wants them.
fn hoist(text: &str) -> String {
    let (mut enables, mut rest) = (String::new(), String::new());
    for line in text.lines() {
        let known = NOT_FOR_NAGA.contains(&line) || enables.lines().any(|l| l == line);
        let into = match line.starts_with("enable ") {
            true if known => continue,
            true => &mut enables,
            false => &mut rest,
        };
        into.push_str(line);
        into.push('\n');
    }
    enables + &rest
}

/// Expands `unroll i in N { … }`, inner ones after outer ones.
fn unroll(text: &str, recipe: &Recipe) -> Result<String> {
    let Some(start) = text.find("unroll ") else { return Ok(text.to_string()) };
    let broken = || Error::device("cannot read `unroll NAME in COUNT { … }`").at(recipe.shader);
    let open = start + text[start..].find('{').ok_or_else(broken)?;
    let mut header = text[start..open].split_whitespace().skip(1);
    let (Some(name), Some("in"), Some(count)) = (header.next(), header.next(), header.next()) else { return Err(broken()) };
    let constant = recipe.constants.iter().find(|(n, _)| *n == count).map(|(_, v)| *v);
    let count = constant.or_else(|| count.parse().ok()).ok_or_else(broken)?;
    let mut depth = 0usize;
    let close = text[open..].char_indices().find(|(_, c)| {
        depth = match c {
            '{' => depth + 1,
            '}' => depth - 1,
            _ => depth,
        };
        depth == 0
    });
    let close = open + close.ok_or_else(broken)?.0;
    let body = &text[open + 1..close];
    let repeated: String = (0..count).map(|i| body.replace(&format!("${name}"), &i.to_string())).collect();
    unroll(&format!("{}{repeated}{}", &text[..start], &text[close + 1..]), recipe)
}

fn splice(name: &str, recipe: &Recipe, done: &mut Vec<String>, text: &mut String) -> Result<()> {
    if done.iter().any(|d| d == name) {
        return Ok(());
    }
    done.push(name.to_string());
    if name == "constants" {
        for (constant, value) in &recipe.constants {
            text.push_str(&format!("const {constant}: u32 = {value}u;\n"));
        }
        return Ok(());
    }
    let Some((_, source)) = SHADERS.iter().find(|(path, _)| *path == name) else {
        return Err(Error::device(format!("no shader file {name}.wgsl")).at(recipe.shader));
    };
    let mut own = String::new();
    for line in source.lines() {
        match line.strip_prefix("import ") {
            Some(import) => splice(&module_of(import, recipe)?, recipe, done, text)?,
            None => {
                own.push_str(line);
                own.push('\n');
            }
        }
    }
    text.push_str(&own);
    Ok(())
}

/// `package::lib::reduce::{WG, sum};` names the file `lib/reduce`, or what the recipe puts in its place.
fn module_of(import: &str, recipe: &Recipe) -> Result<String> {
    let path = import.trim().strip_prefix("package::").and_then(|p| p.strip_suffix(';')).and_then(|p| p.rsplit_once("::"));
    let Some((module, _)) = path else {
        return Err(Error::device(format!("cannot read `import {import}`")).at(recipe.shader));
    };
    let chosen = recipe.modules.iter().find(|(from, _)| *from == module).map_or(module, |(_, to)| to);
    Ok(chosen.replace("::", "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_spliced_once_and_can_be_replaced() {
        let recipe = Recipe {
            shader: "linear/windows",
            modules: vec![("weight::f16", "weight::f32".into()), ("matrix::rows", "matrix::windows".into())],
            constants: vec![("QUADS", 1), ("TOKENS", 1), ("TILES", 8)],
        };
        let text = compose(&recipe).unwrap();
        assert_eq!(text.matches("fn n_tokens").count(), 1);
        assert!(text.contains("fn quad7(") && text.contains("const QUADS: u32 = 1u;") && !text.contains("import "));
        let nested =
            unroll("unroll a in 2 { unroll b in TOKENS { x$a_$b } }!", &Recipe { constants: vec![("TOKENS", 3)], ..recipe.clone() });
        assert_eq!(nested.unwrap().split_whitespace().collect::<String>(), "x0_0x0_1x0_2x1_0x1_1x1_2!");
        assert!(compose(&Recipe { shader: "absent", modules: vec![], constants: vec![] }).is_err());
    }

    #[test]
    fn extensions_come_first_and_once() {
        assert_eq!(hoist("a\nenable f16;\nenable subgroups;\nb\nenable f16;\n"), "enable f16;\na\nb\n");
    }
}
