//! Composes WGSL from small files: the line `import package::a::b::{x, y};` inserts `shaders/a/b.wgsl`, once.
//!
//! `import package::slot::weight::{decode};` imports from a slot, a placeholder for a module. The recipe names the module that fills the
//! slot. The module must define or import each name in the braces. The composer generates the module `constants` from the recipe.
//!
//! `unroll i in N { … $i … }` repeats its body N times, each time on new lines; N is a number or a constant of the recipe. Compilers of software
//! adapters do not unroll loops themselves.

use crate::error::{Error, Result};
use crate::tape::Dispatch;

/// Every shader file: the path below `shaders/` without extension, and the text.
pub(super) static SHADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

/// Identifies the kernel of a dispatch. Equal recipes compose to equal text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recipe {
    pub shader: &'static str,
    /// The slots of the shader, each with the module that fills it.
    pub modules: Vec<(&'static str, String)>,
    pub constants: Vec<(&'static str, u32)>,
}

impl From<&Dispatch> for Recipe {
    fn from(d: &Dispatch) -> Self {
        Recipe { shader: d.shader, modules: d.modules.clone(), constants: d.constants.clone() }
    }
}

/// Composes the whole text of a shader, as a browser's compiler accepts it. `for_naga` makes the text that naga's parser accepts.
///
/// # Errors
/// `Device` if a file, a slot or an imported name is missing.
pub fn compose(recipe: &Recipe) -> Result<String> {
    Ok(composed(recipe, false)?.0)
}

/// A slot of a shader file, and the module that fills it in a recipe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotUse {
    /// The file that imports from the slot: its path below `shaders/` without extension.
    pub file: String,
    pub slot: String,
    /// The path of the module below `shaders/` without extension.
    pub module: String,
}

/// Returns the slots that the files of a recipe import from, each slot of a file once.
///
/// # Errors
/// The errors of [`compose`].
pub fn slots(recipe: &Recipe) -> Result<Vec<SlotUse>> {
    Ok(composed(recipe, false)?.1)
}

/// Composes the text of a shader, and lists the slots of its files. If `is_marked` is true, a comment names the file before the text of each
/// file.
pub(super) fn composed(recipe: &Recipe, is_marked: bool) -> Result<(String, Vec<SlotUse>)> {
    let mut text = String::new();
    let mut composer = Composer { recipe, is_marked, done: Vec::new(), wanted: Vec::new(), slots: Vec::new() };
    composer.splice(recipe.shader, &mut text)?;
    composer.check()?;
    Ok((hoist(&text), composer.slots))
}

/// Lines with `enable` that WGSL requires and naga's parser refuses. naga supports these extensions without such a line.
pub(super) const NOT_FOR_NAGA: &[&str] = &["enable subgroups;"];

/// Empties the lines of [`NOT_FOR_NAGA`], so that all other lines keep their numbers.
pub fn for_naga(text: &str) -> String {
    text.lines().flat_map(|line| [if NOT_FOR_NAGA.contains(&line) { "" } else { line }, "\n"]).collect()
}

/// Moves the `enable` lines of all files to the beginning, each once, as WGSL requires.
fn hoist(text: &str) -> String {
    let (mut enables, mut rest) = (String::new(), String::new());
    for line in text.lines() {
        let known = enables.lines().any(|l| l == line);
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

/// Expands `unroll i in N { … }`, outer loops first.
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
    let repeated: String = (0..count).map(|i| format!("{}\n", body.trim().replace(&format!("${name}"), &i.to_string()))).collect();
    let (before, after) = (text[..start].trim_end_matches(' '), text[close + 1..].trim_start_matches(' '));
    let starts_line = before.is_empty() || before.ends_with('\n');
    let gap = if starts_line { "" } else { "\n" };
    unroll(&format!("{before}{gap}{repeated}{}", after.strip_prefix('\n').unwrap_or(after)), recipe)
}

struct Composer<'a> {
    recipe: &'a Recipe,
    is_marked: bool,
    /// The modules that are inserted already, each with the names that it defines or imports.
    done: Vec<(String, Vec<String>)>,
    /// Imports to check: the importing file, the module and the imported name. The imports are checked at the end, because modules may import each
    /// other.
    wanted: Vec<(String, String, String)>,
    slots: Vec<SlotUse>,
}

impl Composer<'_> {
    /// Appends a module, after the modules that it imports. Does nothing if the module was appended before.
    fn splice(&mut self, module: &str, text: &mut String) -> Result<()> {
        if self.done.iter().any(|(done, _)| done == module) {
            return Ok(());
        }
        self.done.push((module.to_string(), Vec::new()));
        let at = self.done.len() - 1;
        self.done[at].1 = if module == "constants" { self.constants(text) } else { self.file(module, text)? };
        Ok(())
    }

    fn constants(&self, text: &mut String) -> Vec<String> {
        if self.is_marked {
            text.push_str("\n// The constants of the recipe.\n\n");
        }
        text.extend(self.recipe.constants.iter().map(|(name, value)| format!("const {name}: u32 = {value}u;\n")));
        self.recipe.constants.iter().map(|(name, _)| (*name).to_string()).collect()
    }

    /// Appends a file after its imports. Returns the names that the file defines or imports.
    fn file(&mut self, module: &str, text: &mut String) -> Result<Vec<String>> {
        let Some((_, source)) = SHADERS.iter().find(|(path, _)| *path == module) else {
            return Err(self.wrong(format!("no shader file {module}.wgsl")));
        };
        let (mut own, mut offered) = (String::new(), Vec::new());
        for line in source.lines() {
            let Some(import) = line.strip_prefix("import ") else {
                own.extend([line, "\n"]);
                continue;
            };
            let (imported, names) = self.import(module, import)?;
            self.splice(&imported, text)?;
            self.wanted.extend(names.iter().map(|name| (module.to_string(), imported.clone(), (*name).to_string())));
            offered.extend(names.into_iter().map(str::to_string));
        }
        let own = unroll(&own, self.recipe)?;
        offered.extend(definitions(&own));
        if self.is_marked {
            text.push_str(&format!("\n// shaders/{module}.wgsl\n\n"));
        }
        text.push_str(&own);
        Ok(offered)
    }

    fn check(&self) -> Result<()> {
        let offers = |module: &str, name: &str| self.done.iter().any(|(done, names)| done == module && names.iter().any(|n| n == name));
        match self.wanted.iter().find(|(_, module, name)| !offers(module, name)) {
            Some((file, module, name)) => Err(self.wrong(format!("{file}.wgsl imports {name} of {module}, which does not define it"))),
            None => Ok(()),
        }
    }

    /// Parses an import of a file. Returns the imported module and the imported names. `package::lib::cursor::{n_tokens, row_at};` names two items of the file `lib/cursor`.
    /// `package::slot::weight::decode;` names one item of the module that fills the slot `weight`.
    fn import<'t>(&mut self, file: &str, import: &'t str) -> Result<(String, Vec<&'t str>)> {
        let path = import.trim().strip_prefix("package::").and_then(|p| p.strip_suffix(';')).and_then(|p| p.rsplit_once("::"));
        let Some((path, names)) = path else {
            return Err(self.wrong(format!("cannot read `import {import}`")));
        };
        let names = names.trim_matches(['{', '}']).split(',').map(str::trim).collect();
        let Some(slot) = path.strip_prefix("slot::") else { return Ok((path.replace("::", "/"), names)) };
        let Some((_, module)) = self.recipe.modules.iter().find(|(filled, _)| *filled == slot) else {
            return Err(self.wrong(format!("the slot {slot} is not filled")));
        };
        let found = SlotUse { file: file.to_string(), slot: slot.to_string(), module: module.replace("::", "/") };
        if !self.slots.contains(&found) {
            self.slots.push(found.clone());
        }
        Ok((found.module, names))
    }

    fn wrong(&self, text: String) -> Error {
        Error::device(text).at(self.recipe.shader)
    }
}

/// Returns the names that a text defines at module scope.
fn definitions(text: &str) -> Vec<String> {
    let (mut names, mut depth) = (Vec::new(), 0usize);
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        if depth == 0 {
            names.extend(definition(code).map(str::to_string));
        }
        depth = (depth + code.matches('{').count()).saturating_sub(code.matches('}').count());
    }
    names
}

/// Returns the name of the function, type, constant or variable that a line at module scope defines.
fn definition(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    // Attributes: `@compute @workgroup_size(WG)`.
    while let Some(attribute) = rest.strip_prefix('@') {
        let name_ends = attribute.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let end = if attribute[name_ends..].starts_with('(') { attribute.find(')')? + 1 } else { name_ends };
        rest = attribute[end..].trim_start();
    }
    let (keyword, rest) = rest.split_at(rest.find(|c: char| !c.is_alphanumeric())?);
    if !["fn", "struct", "const", "override", "alias", "var"].contains(&keyword) {
        return None;
    }
    let rest = if rest.starts_with('<') { &rest[rest.find('>')? + 1..] } else { rest }.trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_inserted_once_and_slots_are_filled() {
        let recipe = Recipe {
            shader: "linear/windows",
            modules: vec![("weight", "weight::f32".into()), ("scale", "scale::none".into()), ("matrix", "matrix::windows".into())],
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
    fn an_empty_slot_and_an_undefined_name_are_errors() {
        let said = |modules: &[(&'static str, &str)]| {
            let modules = modules.iter().map(|&(slot, module)| (slot, module.to_string())).collect();
            compose(&Recipe { shader: "linear/windows", modules, constants: vec![("QUADS", 1), ("TOKENS", 1), ("TILES", 8)] })
                .unwrap_err()
                .message
        };
        assert_eq!(said(&[("weight", "weight::f32"), ("scale", "scale::none")]), "the slot matrix is not filled");
        let e = said(&[("weight", "scale::none"), ("scale", "scale::none"), ("matrix", "matrix::windows")]);
        assert!(e.contains("imports CELL_WORDS of scale/none, which does not define it"), "{e}");
    }

    #[test]
    fn definitions_at_module_scope_are_found() {
        let text = "const A: u32 = 1u;\n@group(1) @location(0) var<storage, read> w0: array<u32>;\nvar<private> p: f32;\n// fn no() {\n\
                    @compute @workgroup_size(WG)\nfn main() {\n    const inner = 1u;\n}\nstruct S {\n    x: f32,\n}\nalias T = f32;\n";
        assert_eq!(definitions(text), ["A", "w0", "p", "main", "S", "T"]);
    }

    #[test]
    fn extensions_come_first_and_once() {
        let text = hoist("a\nenable f16;\nenable subgroups;\nb\nenable f16;\n");
        assert_eq!((text.as_str(), for_naga(&text).as_str()), ("enable f16;\nenable subgroups;\na\nb\n", "enable f16;\n\na\nb\n"));
    }
}
