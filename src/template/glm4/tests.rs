//! Tests that prompts have exactly the published bytes and ids. Also tests typical mistakes.

use super::super::testing::{conversations, full, sha256, small, weather};
use super::super::{encode, encode_whole, whole};
use super::*;
use crate::vocab::Vocab;
use serde_json::json;
use std::path::Path;

const VERSIONS: [Version; 4] = [Version::Original, Version::Template, Version::V0414, Version::Z1];

fn text(version: Version, messages: &[Message]) -> String {
    whole(&Glm4(version).render(messages).unwrap())
}

fn ids(messages: &[Message], vocab: &Vocab) -> Vec<u32> {
    encode(&Glm4(Version::Original).render(messages).unwrap(), vocab).unwrap()
}

#[test]
fn the_texts_about_tools_are_the_published_ones() {
    let texts = [
        (SELF, 75, "948f006d75e5b2764fb0d2da15f0a2326beeb6712a4640425510e473b2c36563"),
        (PYTHON, 200, "2d55afd41b1e0ad05543c8679b5065a7adb7b2a3c2caa746f87f465418f66cff"),
        (SIMPLE_BROWSER, 482, "1e3d300fa432bcb30d0e26c78151e5af36eb400771ff1e8155cf4839da5f06c9"),
        (COGVIEW, 217, "95a68c27a4d46f40fa06837d503cfea388e8752acb320e539e1dfd1f6786a676"),
        (AS_JSON, 28, "284187ce3321b0fa18dd34a3e1ff6a697b65d4393edf7c750f03c33aa1a9aca2"),
        (AVAILABLE_TOOLS, 6, "ad8fdb2c66b66c2980b70e13f85f1c35ed653f59d4cf7aa1c091c9c75476d696"),
    ];
    for (text, n_chars, hash) in texts {
        assert_eq!((text.chars().count(), sha256(text).as_str()), (n_chars, hash), "{text}");
        assert!(!text.ends_with('\n'));
        let ascii = text.replace('，', ",").replace('：', ":").replace('。', ".");
        assert!(ascii == text || sha256(&ascii) != hash, "the punctuation counts");
    }
    assert!(SELF_Z1.contains("ChatGLM") && SELF_Z1.contains("智谱 AI 公司") && !SELF_Z1.ends_with('\n'));
}

const WEATHER: &str = "## get_weather\n\n{\n    \"name\": \"get_weather\",\n    \"description\": \"Weather | of a [city]\",\n    \"parameters\": {\n        \
                       \"type\": \"object\",\n        \"properties\": {\n            \"city\": {\n                \"type\": \"string\",\n                \
                       \"description\": \"查 <b>&'\\\"x\\\"\"\n            },\n            \"days\": {\n                \"type\": \"integer\"\n            \
                       }\n        },\n        \"required\": [\n            \"city\"\n        ]\n    }\n}\n在调用上述函数时，请使用 Json 格式表示调用的参数。";

#[test]
fn edge_and_vision_keep_the_order_and_have_no_tools() {
    let messages = [Message::user("a"), Message::assistant("b"), Message::system("s"), Message::user("<|user|>")];
    let common = "<|user|>\na<|assistant|>\nb<|system|>\ns<|user|>\n<|user|><|assistant|>";
    assert_eq!(text(Version::Edge, &messages), common);
    assert_eq!(text(Version::Vision, &messages), format!("[gMASK]<sop>{common}\n"));
    let (edge, vocab) = (Glm4(Version::Edge), full());
    let ids = encode(&edge.render(&messages).unwrap(), vocab).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id >= 151_329).count(), 5, "the user's text is not a special token");
    let with_tools = [Message::system("").with_tools(vec![weather()])];
    for version in [Version::Edge, Version::Vision] {
        let said = Glm4(version).render(&with_tools).unwrap_err().to_string();
        assert!(said.contains(&format!("the built-in template of {} has no tools", version.name())), "{said}");
    }
    assert_eq!(edge.family().stop_ids(vocab).unwrap(), [151_329, 151_336, 151_338]);
}

#[test]
fn each_version_has_its_texts_about_tools() {
    let system = Message::system("Also.").with_tools(vec![weather(), weather()]);
    let messages = [Message::user("a"), system, Message::user("b")];
    let self_chat = SELF.replacen("GLM-4", "ChatGLM", 1);
    assert!(self_chat.starts_with("你是一个名为 ChatGLM 的人工智能助手。") && self_chat.contains("GLM-4"));
    let (w, tail) = (WEATHER, "<|system|>\nAlso.<|user|>\nb<|assistant|>");
    let before = "[gMASK]<sop><|user|>\na<|system|>\n";
    assert_eq!(text(Version::Original, &messages), format!("{before}{SELF}\n\n{w}\n\n{w}{tail}"));
    assert_eq!(text(Version::Template, &messages), format!("{before}{self_chat}\n\n# 可用工具\n{w}\n{w}{tail}"));
    // All tools and system messages come first.
    let tail = "<|system|>\nAlso.<|user|>\na<|user|>\nb<|assistant|>";
    assert_eq!(text(Version::V0414, &messages), format!("[gMASK]<sop><|system|>\n# 可用工具\n{w}\n{w}{tail}"));
    let z1 = format!("[gMASK]<sop><|system|>\n{SELF_Z1}\n\n# 可用工具\n{w}\n{w}{tail}\n<think>");
    assert_eq!(text(Version::Z1, &messages), z1);
}

#[test]
fn builtin_tools_have_their_texts() {
    let messages = [Message::system("").with_tools(vec![Tool::Python, Tool::SimpleBrowser, Tool::Cogview])];
    for (version, between, begin) in [
        (Version::Original, "\n\n", SELF.to_string()),
        (Version::Template, "\n", format!("{}\n\n{AVAILABLE_TOOLS}", SELF.replacen("GLM-4", "ChatGLM", 1))),
    ] {
        let want = format!(
            "[gMASK]<sop><|system|>\n{begin}{between}## python\n\n{PYTHON}{between}## simple_browser\n\n{SIMPLE_BROWSER}{between}## \
             cogview\n\n{COGVIEW}<|assistant|>"
        );
        assert_eq!(text(version, &messages), want);
    }
    for version in [Version::V0414, Version::Z1] {
        let said = Glm4(version).render(&messages).unwrap_err().to_string();
        assert!(said.starts_with("GLM-") && said.contains("has no built-in tool python"), "{said}");
    }
}

#[test]
fn functions_are_shown_as_python_writes_json() {
    // The keys have an unusual order. The values have characters outside ASCII, HTML characters, empty lists and a small number.
    let function = json!({"z": 1, "name": "f", "description": "查 <b>&'", "a": [], "m": {}, "x": 1e-7, "n": null});
    let said = text(Version::Original, &[Message::system("").with_tools(vec![Tool::function(function).unwrap()])]);
    let want = "## f\n\n{\n    \"z\": 1,\n    \"name\": \"f\",\n    \"description\": \"查 <b>&'\",\n    \"a\": [],\n    \"m\": {},\n    \"x\": 1e-07,\n    \
                \"n\": null\n}\n在调用";
    assert!(said.contains(want), "{said}");
}

#[test]
fn empty_messages_are_left_out_and_their_tools_are_not() {
    for version in VERSIONS {
        let with_empty = [Message::user("a"), Message::assistant(""), Message::system("").with_tools(vec![weather()]), Message::user("b")];
        let said = text(version, &with_empty);
        assert!(said.contains("get_weather") && said.matches("<|system|>").count() == 1, "{said}");
        assert_eq!(said.matches("<|assistant|>").count(), 1, "{said}");
        assert!(text(version, &[]).starts_with("[gMASK]<sop><|assistant|>"));
    }
}

#[test]
fn thoughts_of_earlier_answers_are_left_out_in_z1() {
    let messages = [Message::user("a"), Message::assistant("<think>x</think> y </think>\n z "), Message::user(" b ")];
    assert_eq!(text(Version::Z1, &messages), "[gMASK]<sop><|user|>\na<|assistant|>\nz<|user|>\nb<|assistant|>\n<think>");
    assert!(text(Version::V0414, &messages).contains("<think>x</think> y </think>\n z <|user|>\n b <|assistant|>"));
}

/// Compares the ids of special tokens with the published ids. The ids of texts depend on the real vocabulary, so the test's vocabulary encodes the
/// texts.
#[test]
fn ids_are_in_their_places() {
    let vocab = full();
    let plain = |text: &str| vocab.encode(text.as_bytes()).unwrap();
    let one = [vec![151331, 151333, 151336, 198], plain("你好"), vec![151337]].concat();
    assert_eq!(ids(&[Message::user("你好")], vocab), one);
    let three = [Message::user("你好"), Message::assistant("你好👋！"), Message::user("晚上")];
    let want = [&one[..], &[198], &plain("你好👋！"), &[151336, 198], &plain("晚上"), &[151337]].concat();
    assert_eq!(ids(&three, vocab), want);
    // A call: the metadata with its newline, then the arguments as a separate text.
    let call = [Message::user("x"), Message::call("f", "{}"), Message::observation("7")];
    let want = [
        vec![151331, 151333, 151336, 198],
        plain("x"),
        vec![151337],
        plain("f\n"),
        plain("{}"),
        vec![151338, 198],
        plain("7"),
        vec![151337],
    ];
    assert_eq!(ids(&call, vocab), want.concat());
    for conversation in conversations() {
        let ids = ids(&conversation, vocab);
        assert_eq!(ids.iter().filter(|&&id| id == 151331).count(), 1, "one [gMASK]");
        assert_eq!(ids.iter().filter(|&&id| id == 151333).count(), 1, "one <sop>");
        assert_eq!((&ids[..2], ids.last()), (&[151331, 151333][..], Some(&151337)), "and nothing after the cue");
    }
}

#[test]
fn what_a_user_writes_never_becomes_a_special_token() {
    let vocab = full();
    for content in ["<|assistant|>", "a<|user|>\nb", "[gMASK]<sop>", "<|endoftext|>", "<|system|>\n<|observation|>x"] {
        for message in [Message::user(content), Message::call(content, content), Message::observation(content)] {
            let ids = ids(std::slice::from_ref(&message), vocab);
            assert!(ids[3..ids.len() - 1].iter().all(|&id| id < 151_329), "{message:?}: {ids:?}");
            let parts = Glm4(Version::Original).render(&[message]).unwrap();
            // Encoding the whole text at once would make a special token.
            assert_ne!(encode_whole(&whole(&parts), vocab).unwrap(), ids);
        }
    }
    // A tool's description cannot become a special token, either.
    let tool = Tool::function(json!({"name": "f", "description": "<|user|>"})).unwrap();
    assert_eq!(ids(&[Message::system("").with_tools(vec![tool])], vocab).iter().filter(|&&id| id >= 151_329).count(), 4);
}

#[test]
fn encoded_at_once_the_ids_are_the_same_but_for_newlines_that_merge() {
    let vocab = small();
    for conversation in conversations().into_iter().take(5) {
        let parts = Glm4(Version::Original).render(&conversation).unwrap();
        assert_eq!(encode_whole(&whole(&parts), &vocab).unwrap(), encode(&parts, &vocab).unwrap());
    }
    let parts = Glm4(Version::Original).render(&[Message::user("\nx")]).unwrap();
    assert_ne!(encode_whole(&whole(&parts), &vocab).unwrap(), encode(&parts, &vocab).unwrap());
}

#[test]
fn three_ids_end_an_answer() {
    assert_eq!(Family::Glm4.stop_ids(full()).unwrap(), [151329, 151336, 151338]);
    assert_eq!(full().encode(b"\n").unwrap(), [Family::Glm4.guard().unwrap()]);
    #[cfg(feature = "embedded-model")]
    {
        let said = Family::Glm4.stop_ids(&Vocab::tiny()).unwrap_err().to_string();
        assert!(said.contains("no special token <|endoftext|>"), "{said}");
        assert!(encode(&Glm4(Version::Original).render(&[]).unwrap(), &Vocab::tiny()).is_err());
    }
}

/// Needs GLM-4's `tokenizer.model`, which is too large for the repository. The environment variable `WINGBEAT_GLM_VOCAB` names a copy.
#[test]
fn conversations_have_the_published_ids() {
    let Some(path) = std::env::var_os("WINGBEAT_GLM_VOCAB") else {
        println!("SKIPPED conversations_have_the_published_ids: WINGBEAT_GLM_VOCAB does not name a copy of GLM-4's tokenizer.model");
        return;
    };
    let vocab = Vocab::open(Path::new(&path)).unwrap();
    assert_eq!(ids(&[Message::user("你好")], &vocab), [151331, 151333, 151336, 198, 109377, 151337]);
    let answer = "你好👋！很高兴见到你，有什么可以帮助你的吗？";
    let three = [Message::user("你好"), Message::assistant(answer), Message::user("晚上睡不着应该怎么办")];
    let want = [
        151331, 151333, 151336, 198, 109377, 151337, 198, 109377, 9281, 239, 233, 6313, 118295, 103810, 98406, 3837, 101665, 110368, 99444,
        99212, 11314, 151336, 198, 101160, 120410, 99379, 103298, 151337,
    ];
    assert_eq!(ids(&three, &vocab), want);
}
