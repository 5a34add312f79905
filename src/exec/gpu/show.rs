//! Shows kernels to people who read shaders: the names of all kernels, the recipes that a device uses, and the composed text of a recipe.

use super::compose::{NOT_FOR_NAGA, Recipe, SHADERS, composed};
use super::draws::DrawSizes;
use super::indent::indented;
use crate::error::Result;
use crate::quant::{Format, floats};
use crate::tape::{Caps, Lowering, Tape};
use crate::words::WORDS;
use std::collections::HashSet;

/// A shader file with an entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFile {
    /// The path below `shaders/` without extension: `linear/matvec`.
    pub name: &'static str,
    /// The first words of the comment at the top of the file.
    pub about: String,
}

/// Returns all kernels, sorted by name.
pub fn kernel_files() -> Vec<KernelFile> {
    let kernels = SHADERS.iter().filter(|(_, text)| text.contains("@compute"));
    kernels.map(|&(name, text)| KernelFile { name, about: about(text) }).collect()
}

/// Returns the kernels that `name` means: the kernel of this path, or every kernel whose path ends with the part `name`. Accepts `shaders/` before
/// and `.wgsl` after a path. Returns an empty list if the name is unknown.
pub fn find_kernels(name: &str) -> Vec<&'static str> {
    let name = name.strip_prefix("shaders/").unwrap_or(name);
    let name = name.strip_suffix(".wgsl").unwrap_or(name);
    let last = |path: &str| path.rsplit('/').next() == Some(name);
    let all: Vec<&'static str> = kernel_files().into_iter().map(|file| file.name).collect();
    match all.iter().find(|path| **path == name) {
        Some(path) => vec![path],
        None => all.into_iter().filter(|path| last(path)).collect(),
    }
}

/// Returns the comment at the top of a file up to the first colon, bracket or full stop.
fn about(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//"));
    let comment = lines.map(str::trim).collect::<Vec<_>>().join(" ") + " ";
    let end = [": ", " (", ". "].into_iter().filter_map(|mark| comment.find(mark)).min();
    comment[..end.unwrap_or(comment.len())].trim().to_string()
}

/// A recipe that a device uses, and one step that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    pub recipe: Recipe,
    /// The name of a word (a fused operation) that has the recipe. `None` for the kernels that sample tokens.
    pub word: Option<&'static str>,
    /// The number of tokens in the smallest step that was found to use the recipe.
    pub tokens: usize,
}

/// The numbers of tokens in the steps to lower. Together, these steps use every kernel of the words.
const TOKENS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 256];

/// Returns the recipes that a device with the capabilities `caps` uses if all weights have the format `format`, each once. The recipes of `tapes`
/// come first, then the recipes of the words' test cases, then the recipes of the kernels that sample tokens. For each tape, recipes for caches in
/// f16 and states in f32, the defaults of models, come before recipes for caches in f32 and states in f16.
pub fn variants(tapes: impl IntoIterator<Item = Tape>, format: &'static dyn Format, caps: &Caps) -> Vec<Variant> {
    let mut known = HashSet::new();
    let mut found = Vec::new();
    let mut keep = |recipe: Recipe, word, tokens| {
        if known.insert(recipe.clone()) {
            found.push(Variant { recipe, word, tokens });
        }
    };
    let others: Vec<_> = floats().collect();
    for mut tape in tapes.into_iter().chain(WORDS.iter().flat_map(|word| (word.cases)()).map(|case| case.tape)) {
        tape.store_as(format);
        tape.keep_rounded();
        for (cache, state) in floats().zip(others.iter().rev()) {
            tape.cache_format = cache;
            // A tape without matrix states refuses f16, and keeps its states in f32.
            tape.store_states(*state).ok();
            for cx in lowerings(&tape, caps) {
                for word in &tape.words {
                    word.lower(&cx).iter().for_each(|dispatch| keep(dispatch.into(), Some(word.name()), cx.tokens));
                }
            }
        }
    }
    let sizes = DrawSizes { n_vocab: 65536, stride: 65536, n_slots: 1, n_steps: 1 };
    sizes.dispatches().iter().for_each(|dispatch| keep(dispatch.into(), None, 1));
    found
}

/// Returns three steps of a tape for each number of tokens: a step of at most four slots, a step of one token per slot with a long context, and a
/// step of one slot with logits of every token.
fn lowerings<'a>(tape: &'a Tape, caps: &'a Caps) -> impl Iterator<Item = Lowering<'a>> {
    let steps = |tokens: usize| [(tokens.min(4), 1, tokens), (tokens, 1, 8192), (1, tokens, tokens)].map(|step| (tokens, step));
    TOKENS.into_iter().flat_map(steps).map(move |(tokens, (runs, outputs, context))| Lowering {
        tape,
        caps,
        tokens,
        runs,
        outputs,
        capacity: tokens,
        context,
    })
}

impl Variant {
    /// Returns the composed text of the recipe as naga accepts it, indented. The text begins with a comment: the lines of `title`, the word that uses
    /// the recipe, the module in each slot, and the constants. Each file's part begins with a comment that names the file.
    ///
    /// # Errors
    /// The errors of [`compose`](super::compose).
    pub fn text(&self, title: &str) -> Result<String> {
        let (text, slots) = composed(&self.recipe, true)?;
        let mut header: Vec<String> = title.lines().map(str::to_string).collect();
        if let Some(word) = self.word {
            let steps = if self.tokens == 1 { "1 token".into() } else { format!("{} tokens", self.tokens) };
            header.push(format!("Used by the word {word} in steps of {steps}."));
        }
        for slot in slots {
            let line = format!("Slot {}: {}", slot.slot, slot.module);
            if !header.contains(&line) {
                header.push(line);
            }
        }
        let constants: Vec<String> = self.recipe.constants.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        if !constants.is_empty() {
            header.push(format!("Constants: {}", constants.join(", ")));
        }
        let mut all: String = header.iter().map(|line| format!("// {line}\n")).collect();
        for line in text.lines().map(str::trim_end) {
            if NOT_FOR_NAGA.contains(&line) {
                all.push_str(&format!("// {line} // Tint needs this line, naga refuses it.\n"));
            } else if !line.is_empty() || !all.ends_with("\n\n") {
                all.extend([line, "\n"]);
            }
        }
        Ok(indented(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_path_and_by_last_part() {
        assert_eq!(find_kernels("linear/matvec"), ["linear/matvec"]);
        assert_eq!(find_kernels("matvec"), find_kernels("shaders/linear/matvec.wgsl"));
        // A module without an entry point is no kernel.
        assert!(find_kernels("lib/cursor").is_empty() && find_kernels("vec").is_empty());
    }

    #[test]
    fn kernels_have_a_few_words() {
        assert_eq!(about("// The recurrence (paper, eq. 1). More.\n"), "The recurrence");
        assert_eq!(about("// Ends the time mix\n// of RWKV:  y = x\n\n// Other."), "Ends the time mix of RWKV");
        for file in kernel_files() {
            assert!((10..150).contains(&file.about.len()), "{file:?}");
        }
    }
}
