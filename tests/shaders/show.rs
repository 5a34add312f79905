//! Tests the text of kernels that `doctor --kernel` prints.

use super::CLASSES;
use std::collections::BTreeSet;
use wingbeat::low_level::exec::gpu::{Recipe, compose, indented, kernel_files, variants};
use wingbeat::low_level::quant::FORMATS;
use wingbeat::low_level::tape::{Caps, Class};

/// naga parses the text of every kernel in every format, and the text has the code of the composed kernel.
#[test]
fn every_kernel_can_be_shown_in_every_format() {
    let plain = |class| Caps::plain(class, 128 << 20);
    let groups = plain(Class::Groups);
    let mut all: Vec<Caps> = CLASSES.map(plain).into();
    all.extend([Caps { subgroups: true, ..groups.clone() }, Caps { cooperative: Some(16), ..groups }]);
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    for format in FORMATS {
        for caps in &all {
            let mut of_class = BTreeSet::new();
            for variant in variants([], *format, caps) {
                let Recipe { shader, modules, .. } = &variant.recipe;
                // One variant for each kernel and set of modules. Other variants differ only in constants.
                if !of_class.insert((*shader, modules.clone())) {
                    continue;
                }
                shown.insert(shader);
                let text = variant.text("a title\nof two lines").unwrap();
                naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{variant:?}: {}", e.emit_to_string(&text)));
                assert!(
                    text.starts_with("// a title\n// of two lines\n") && text.contains(&format!("\n// shaders/{shader}.wgsl\n")),
                    "{text}"
                );
                assert_eq!(indented(&text), text);
                assert_eq!(code(&text), code(&compose(&variant.recipe).unwrap()), "{variant:?}");
            }
        }
    }
    // No format reaches every kernel: f32, for example, has no cooperative matrices.
    let names: BTreeSet<&str> = kernel_files().iter().map(|file| file.name).collect();
    assert_eq!(shown, names);
}

/// Returns the tokens of a text without comments and without the line that naga refuses.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| *line != "enable subgroups;").map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(str::split_whitespace).collect()
}
