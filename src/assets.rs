//! Files of `assets/` that are compiled in: the model of the small world with its golden logits, and first prompts of chats.

/// The embedded model as a safetensors file: an RWKV-7 with 2 million parameters, which knows a small world of stories, sums, colours and animals.
#[cfg(feature = "embedded-model")]
pub static MODEL: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/models/small-world.safetensors"));

/// The golden logits and greedy tokens of [`MODEL`] as a safetensors file, made with the official RWKV code.
#[cfg(feature = "embedded-model")]
pub static GOLDEN: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/golden/small-world.golden.safetensors"));

/// The names and texts of prompt files in ChatRWKV's form. As in ChatRWKV, a file whose name ends with `-1` contains questions and answers. A file
/// whose name ends with `-2` contains a conversation of two people.
pub const PROMPTS: [(&str, &str); 6] = [
    ("English-1", include_str!("../assets/prompts/English-1.toml")),
    ("English-2", ENGLISH_2),
    ("Chinese-1", include_str!("../assets/prompts/Chinese-1.toml")),
    ("Chinese-2", include_str!("../assets/prompts/Chinese-2.toml")),
    ("Japanese-1", include_str!("../assets/prompts/Japanese-1.toml")),
    ("Japanese-2", include_str!("../assets/prompts/Japanese-2.toml")),
];

/// The text of the prompt file `English-2`: a conversation of two people in English.
pub const ENGLISH_2: &str = include_str!("../assets/prompts/English-2.toml");
