//! Helpers for the tests of this module: small vocabularies, templates and conversations.

use super::{Message, Role, Tool};
use crate::vocab::{Vocab, testing};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

pub const MERGES: [&[u8]; 4] = [b"he", b"hello", "你好".as_bytes(), b"\n\n"];

/// Returns a vocabulary of all bytes, [`MERGES`] and the special tokens. The vocabulary has fewer ids than the embedded model has embeddings.
pub fn small() -> Vocab {
    testing::small_glm4(&MERGES)
}

/// Returns a vocabulary like [`small`] with the special tokens of a newer model: `<think>`, `</think>`, `<answer>` and `</answer>`.
pub fn newer() -> Vocab {
    testing::newer_glm4(&MERGES, &["<think>", "</think>", "<answer>", "</answer>"])
}

/// Returns a vocabulary in which special tokens have their real ids.
pub fn full() -> &'static Vocab {
    static FULL: OnceLock<Vocab> = OnceLock::new();
    FULL.get_or_init(testing::full_glm4)
}

/// Returns a template with the behaviour of the template in glm-4-9b-chat's `tokenizer_config.json`.
pub fn chat_template() -> String {
    let text = include_str!("testing/glm-4-9b-chat.jinja");
    let builtin = [
        ("@SELF@", include_str!("glm4/self.txt")),
        ("@PYTHON@", include_str!("glm4/python.txt")),
        ("@SIMPLE_BROWSER@", include_str!("glm4/simple_browser.txt")),
        ("@COGVIEW@", include_str!("glm4/cogview.txt")),
    ];
    builtin.iter().fold(text.to_string(), |text, (mark, is)| text.replace(mark, &is.replacen("一个名为 GLM-4", "一个名为 ChatGLM", 1)))
}

pub fn weather() -> Tool {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string", "description": "查 <b>&'\"x\""}, "days": {"type": "integer"}}, "required": ["city"]});
    Tool::function(json!({"name": "get_weather", "description": "Weather | of a [city]", "parameters": parameters})).unwrap()
}

/// Returns conversations that cover every rule of the format.
pub fn conversations() -> Vec<Vec<Message>> {
    let tools = vec![weather(), Tool::Python, Tool::SimpleBrowser, Tool::Cogview];
    let call = Message::call("get_weather", "{\"city\": \"北京\"}");
    vec![
        vec![Message::user("你好")],
        vec![Message::system("Be brief."), Message::user("hello"), Message::assistant("hello"), Message::user("a\n\nb ")],
        vec![Message::system("").with_tools(vec![weather()]), Message::user("?"), call, Message::observation("{\"t\": 7}")],
        vec![Message::system("Also this.").with_tools(tools), Message::user("x"), Message::assistant(""), Message::user("y")],
        vec![Message::user("x"), Message::system("late").with_tools(vec![weather(), weather()]), Message::user("y")],
        vec![],
        vec![
            Message::user("a | b ] <|assistant|>[gMASK]<sop> {{ 7 }}"),
            Message { metadata: "x|y".into(), ..Message::new(Role::Assistant, "z") },
        ],
    ]
}

pub fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}
