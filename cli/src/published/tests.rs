use super::*;
use std::collections::HashSet;
use wingbeat::low_level::arch;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::{Options, PartOn, bytes_by_device};
use wingbeat::low_level::tape::Tape;
use wingbeat::low_level::words::synthetic::{MODEL_SEED, Synthetic};

fn said(text: &str) -> String {
    match target(Path::new(text)) {
        Ok(Target::Path) => "passes".into(),
        #[cfg(feature = "download")]
        Ok(Target::Hub(found)) => found.missing().to_string(),
        Err(e) => e.to_string(),
    }
}

/// Returns the hint that explains how to download a published model.
fn advice(model: &str) -> String {
    let model = named(model).unwrap();
    if cfg!(feature = "download") {
        return format!("download the model with: wingbeat pull {}; or add --yes to this command", model.name);
    }
    format!("download the model with: {}; then give -m {}", model.command(), model.file.unwrap_or(model.name))
}

#[test]
fn a_name_of_a_published_model_gets_its_command() {
    let names = ["rwkv7-g1-1.5b", "rwkv7-g1-1.5b.pth", "RWKV-7-G1:1.5B", "rwkv7-g1k-1.5b-20260930-ctx25600"];
    for name in names.into_iter().chain(["rwkv7-g1k-1.5b-20260930-ctx25600.pth"]) {
        let said = said(name);
        assert!(
            said.starts_with(&format!("{name}: no such file or folder, but this is a published model: RWKV-7, 1.5B, 3.06 GB")),
            "{said}"
        );
        assert!(said.contains(&advice("rwkv7-g1-1.5b")), "{said}");
    }
    for name in ["glm-4-9b-chat", "glm4", "zai-org/glm-4-9b-chat"] {
        assert!(said(name).contains(&advice("glm-4-9b-chat")), "{}", said(name));
    }
}

#[test]
fn other_names_are_suggested_or_told_what_runs() {
    assert!(said("rwkv7-g1-1.4b").contains("a published model is called rwkv7-g1-1.5b"), "{}", said("rwkv7-g1-1.4b"));
    for name in ["llama3", "qwen2.5-7b", "mistral", "gpt2"] {
        let said = said(name);
        assert!(said.contains("no such file or folder (wingbeat runs RWKV-4 to RWKV-7 and GLM-4, such as rwkv7-g1-1.5b;"), "{said}");
    }
    for path in [
        "rwkv7-g1-1.5b.gguf",
        "glm-4-9b-chat.pth",
        "model.pth",
        "./model",
        "/no/such/model",
        "models/mine",
        "Cargo.toml",
        "assets/models/small-world",
        "",
    ] {
        assert_eq!(said(path), "passes", "{path}");
    }
}

#[test]
fn web_addresses_get_our_form_or_a_command() {
    let of_build: &[(&str, &str)] = if cfg!(feature = "download") {
        &[
            ("https://huggingface.co/BlinkDL/rwkv-7-world/blob/main/x.pth?download=true", "write -m hf:BlinkDL/rwkv-7-world/x.pth)"),
            ("https://huggingface.co/a/b/resolve/v1/sub/x.gguf", "write -m hf:a/b/sub/x.gguf@v1)"),
            ("hf.co/me/mine", "write -m hf:me/mine)"),
            ("https://huggingface.co/me/mine/", "write -m hf:me/mine)"),
            ("https://huggingface.co/zai-org/glm-4-9b-chat/tree/main", "write -m hf:zai-org/glm-4-9b-chat)"),
            (
                "https://huggingface.co/BlinkDL/rwkv7-g1",
                "this repository has several models; docs/models.md lists them; one is -m rwkv7-g1-1.5b)",
            ),
        ]
    } else {
        &[
            (
                "https://huggingface.co/BlinkDL/rwkv-7-world/blob/main/x.pth?download=true",
                "curl -LO 'https://huggingface.co/BlinkDL/rwkv-7-world/resolve/main/x.pth'; then give -m x.pth",
            ),
            ("hf.co/me/mine", "hf download me/mine --local-dir mine; then give -m mine"),
            ("https://huggingface.co/zai-org/glm-4-9b-chat/tree/main", "hf download zai-org/glm-4-9b-chat --local-dir glm-4-9b-chat"),
            (
                "https://huggingface.co/BlinkDL/rwkv7-g1",
                "this repository has several models; docs/models.md lists them; one is rwkv7-g1-1.5b: curl",
            ),
        ]
    };
    let elsewhere = [
        ("HTTPS://example.org/a/m.gguf?token=1", "curl -LO 'HTTPS://example.org/a/m.gguf?token=1'; then give -m m.gguf"),
        ("https://ollama.com/library/llama3", "download a checkpoint (.safetensors, .st, .pth, .gguf)"),
        ("https://huggingface.co/models", "download a checkpoint (.safetensors, .st, .pth, .gguf)"),
    ];
    for (address, want) in of_build.iter().chain(&elsewhere) {
        let said = said(address);
        assert!(said.contains("found a web address") && said.contains(want), "{said}");
    }
}

#[cfg(feature = "download")]
#[test]
fn names_and_addresses_lead_to_the_hub() {
    let address = |text: &str| named_model(text).map(|found| found.address.to_string());
    let g1 = "hf:BlinkDL/rwkv7-g1/rwkv7-g1k-1.5b-20260930-ctx25600.pth";
    for text in ["rwkv7-g1-1.5b", "rwkv7-g1-1.5b.pth", g1] {
        assert_eq!(address(text).unwrap(), g1);
    }
    assert_eq!(address("glm4").unwrap(), "hf:zai-org/glm-4-9b-chat");
    assert_eq!(name_of(&Address::parse(g1).unwrap()), Some("rwkv7-g1-1.5b"));
    assert_eq!(name_of(&Address::parse("hf:a/b/c.pth").unwrap()), None);
    assert!(said("hf:a/b/c.pth").contains("download it with: wingbeat pull hf:a/b/c.pth; or add --yes"), "{}", said("hf:a/b/c.pth"));
    assert!(named_model("https://hf.co/a/b").unwrap_err().to_string().contains("write -m hf:a/b"));
    assert!(said("hf:a/../b").contains("expected the name of the repository"), "{}", said("hf:a/../b"));
    let older = named_model("hf:BlinkDL/rwkv7-g1/rwkv7-g1a-1.5b-20250901-ctx4096.pth").unwrap();
    assert_eq!((older.newer(), named_model(g1).unwrap().newer()), (Some("rwkv7-g1-1.5b"), None));
    for model in PUBLISHED {
        let found = named_model(model.name).unwrap();
        assert_eq!((found.newer(), name_of(&found.address)), (None, Some(model.name)), "{} is not the newest of its series", model.name);
    }
}

#[test]
fn names_are_unique_and_sizes_are_shapes() {
    let mut seen = HashSet::new();
    for model in PUBLISHED {
        assert!(model.names().all(|name| seen.insert(letters(name))), "{} comes twice", model.name);
        assert_eq!(named(model.name).unwrap().name, model.name);
    }
}

/// Returns how many bytes a model takes on one device with one slot. A GLM model gets the default context of `--context`.
fn bytes(shapes: &str, quant: Option<&str>) -> u64 {
    let blueprint = arch::synthetic::named(shapes).unwrap();
    let facts = blueprint.facts();
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    let parts = vec![PartOn { device: "gpu:0".parse().unwrap(), layers: 0..facts.n_layer + 1, resident: usize::MAX, experts: None }];
    let options = Options { dtype: "f16".parse().unwrap(), quant: quant.map(|plan| plan.parse().unwrap()), parts, ..Options::default() };
    let source = Synthetic { seed: MODEL_SEED };
    let (devices, _) = bytes_by_device(&mut tape, facts.n_layer, &source, &options, options.context_of(&facts)).unwrap();
    devices.iter().map(|(_, bytes)| bytes.total()).sum()
}

/// Returns the table that `docs/models.md` should contain.
fn page() -> String {
    let mut text =
        String::from("| Name | Architecture | Parameters | File | Size | f16 | i8 | i4-mixed |\n|:--|:--|--:|:--|--:|--:|--:|--:|\n");
    for m in PUBLISHED {
        let address = format!("https://huggingface.co/{}", m.repository);
        let file = m.file.map_or_else(|| format!("[{}]({address})", m.repository), |f| format!("[{f}]({address})"));
        let memory = |quant| m.shapes.map_or("–".into(), |shapes| size(bytes(shapes, quant)));
        let cells = [None, Some("i8"), Some("i4-mixed")].map(memory).join(" | ");
        text += &format!("| `{}` | {} | {} | {file} | {} | {cells} |\n", m.name, m.architecture, m.parameters, m.size.unwrap_or("–"));
    }
    text
}

#[test]
fn the_page_of_published_models_is_the_table() {
    let shown = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/models.md")).unwrap();
    assert!(shown.contains(&page()), "docs/models.md should contain\n{}", page());
    for command in [PUBLISHED[0].command(), named("glm4").unwrap().command()] {
        assert!(shown.contains(&command), "docs/models.md should contain {command}");
    }
}
