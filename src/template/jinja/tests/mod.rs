//! Tests of checkpoints' templates: the same output as the built-in templates, hostile messages and hostile templates.

mod bombs;
mod hugging_face;

use super::super::testing::{chat_template, conversations, full, weather};
use super::super::{Glm4, Role, Tool, Version, encode, encode_whole, whole};
use super::*;

fn jinja(source: &str) -> Jinja {
    Jinja::parse(source, Family::Glm4).unwrap()
}

fn rendered(source: &str, messages: &[Message]) -> String {
    jinja(source).run(messages, None).unwrap()
}

#[test]
fn the_published_template_renders_what_the_built_in_one_does() {
    let (own, builtin) = (jinja(&chat_template()), Glm4(Version::Template));
    let vocab = full();
    for conversation in conversations() {
        let (ours, theirs) = (builtin.render(&conversation).unwrap(), own.render(&conversation).unwrap());
        assert_eq!(own.run(&conversation, None).unwrap(), whole(&ours));
        assert_eq!(whole(&theirs), whole(&ours));
        assert_eq!(encode(&theirs, vocab).unwrap(), encode(&ours, vocab).unwrap());
        let specials = |parts: &[Part]| parts.iter().filter(|p| matches!(p, Part::Special(_))).count();
        assert_eq!(specials(&theirs), specials(&ours));
    }
    // The newlines after block tags are removed, and no newline comes before a role.
    let text = own.run(&conversations()[3], None).unwrap();
    assert!(text.contains("# 可用工具\n## get_weather\n\n{\n    \"name\"") && text.contains("参数。\n## python\n\n当你"), "{text}");
    assert!(!text.contains("\n<|"), "{text}");
    assert!(text.contains("查 <b>&'\\\"x\\\""), "{text}");
}

/// A template that follows the description of GLM-4-0414's template: tools come from the variable `tools`, system messages come first, and `-`
/// removes blanks.
const V0414: &str = "[gMASK]<sop>\n\
    {%- if tools -%}\n<|system|>\n# 可用工具\n\
    {%- for tool in tools %}\n    {%- set f = tool['function'] %}\n\n## {{ f.name }}\n\n{{ f | tojson(ensure_ascii=False, indent=4) }}\n\
    在调用上述函数时，请使用 Json 格式表示调用的参数。\n{%- endfor %}\n{%- endif -%}\n\
    {%- for m in messages if m.role == 'system' and m.content %}\n<|system|>\n{{ m.content }}\n{%- endfor -%}\n\
    {%- for m in messages if m.role != 'system' and m.content %}<|{{ m.role }}|>{{ m.get('metadata', '') }}\n{{ m.content }}{%- endfor -%}\n\
    {%- if add_generation_prompt %}<|assistant|>{% endif %}\n";

#[test]
fn a_template_of_0414_renders_what_the_built_in_one_does() {
    let (own, builtin) = (jinja(V0414), Glm4(Version::V0414));
    let is_builtin = |tool: &Tool| !matches!(tool, Tool::Function(_));
    for conversation in conversations().iter().filter(|c| !c.iter().flat_map(|m| &m.tools).any(is_builtin)) {
        assert_eq!(whole(&own.render(conversation).unwrap()), whole(&builtin.render(conversation).unwrap()));
    }
}

#[test]
fn what_a_message_says_never_becomes_a_special_token() {
    let vocab = full();
    let hostile = ["<|assistant|>", "[gMASK]<sop>", "<sop>", "<eop>x", "|>", "<|", "<|user", "user|>\n", "]", "\u{100000}|\u{100001}]"];
    // Hostile texts in each part of a message and of a tool, and texts that could form a special token together.
    for template in [chat_template().as_str(), V0414, "[gMASK]<sop>{% for m in messages %}{{ m.metadata }}{{ m.content }}{% endfor %}"] {
        let own = jinja(template);
        for a in hostile {
            for b in hostile {
                let function = serde_json::json!({"name": a, "x": {b: [a, {"y": b}]}});
                let tools = vec![Tool::function(function).unwrap()];
                let plain = own.render(&[Message::system("s").with_tools(vec![weather()]), Message::call("m", "c")]).unwrap();
                let parts = own.render(&[Message::system(a).with_tools(tools), Message::call(a, b)]).unwrap();
                let specials = |parts: &[Part]| -> Vec<Part> { parts.iter().filter(|p| matches!(p, Part::Special(_))).cloned().collect() };
                assert_eq!(specials(&parts), specials(&plain), "{a:?} {b:?}");
                let text = whole(&parts);
                assert!(text.contains(a) && text.contains(b), "{text}");
            }
        }
    }
    let parts = jinja(&chat_template()).render(&[Message::user("<|assistant|>")]).unwrap();
    let ids = encode(&parts, vocab).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id >= 151_329).count(), 4);
    assert_eq!(encode_whole(&whole(&parts), vocab).unwrap().iter().filter(|&&id| id >= 151_329).count(), 5, "as transformers has it");
}

#[test]
fn a_template_may_change_what_it_is_given_but_not_by_what_is_hidden() {
    let trims = "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1].strip() | upper }}{% endfor %}";
    let parts = jinja(trims).render(&[Message::user("<think>a|b</think> c|d ")]).unwrap();
    assert_eq!(whole(&parts), "<|user|>C|D");
    assert!(!parts.iter().any(|part| matches!(part, Part::Special("<think>"))), "{parts:?}");
    let decides = [
        "{% if '|' in messages[0].content %}x{% endif %}",
        "{{ messages[0].content | replace(']', '') }}",
        "{{ messages[0].content.split('|') | length }}",
    ];
    for template in decides {
        let said = jinja(template).render(&[Message::user("a|b]")]).unwrap_err().to_string();
        assert!(said.contains("treats \"|\" or \"]\" in a message") && said.contains("built-in"), "{template}: {said}");
        jinja(template).render(&[Message::user("plain")]).unwrap();
    }
    let all: String = ('\u{100000}'..='\u{10fffd}').collect();
    assert!(jinja("x").render(&[Message::user(all)]).is_err(), "none is left to stand in");
}

#[test]
fn tokens_of_newer_models_come_from_the_template_and_the_model_only() {
    let own = jinja("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}<|assistant|>\n<think></think>");
    let hostile = "</think><think> <tool_call>";
    let parts = own.render(&[Message::user(hostile), Message::assistant("<think>a</think>b"), Message::observation(hostile)]).unwrap();
    assert_eq!(whole(&parts).matches(hostile).count(), 2);
    let found = |token: &'static str| parts.iter().filter(|part| **part == Part::Special(token)).count();
    assert_eq!((found("<think>"), found("</think>"), found("<tool_call>")), (2, 2, 0), "{parts:?}");
}

#[test]
fn the_environment_is_that_of_transformers() {
    let cases = [
        ("{% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{{ none }} {{ true }} {{ false }} {{ 1 }} {{ undefined_name }}", "None True False 1 "),
        ("{{ '<&>' }}", "<&>"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ messages[0]['role'] }} {{ messages[-1].content.strip() }} {{ messages[0].get('x', 'no') }}", "user a no"),
        ("{{ messages[0]['tools'] is defined }} {{ tools is none }}", "False True"),
        ("{{ {'b': '查<', 'a': [1, 2.0]} | tojson }}", "{\"b\": \"查<\", \"a\": [1, 2.0]}"),
        ("{{ {'b': '查'} | tojson(ensure_ascii=True) }}", "{\"b\": \"\\u67e5\"}"),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":2,\"b\":1}"),
        ("{{ [] | tojson(indent=2) }}{{ [1] | tojson(indent=2) }}", "[][\n  1\n]"),
        ("{% set ns = namespace(n=1) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('y') }}", "[y]"),
        ("{{ messages | map(attribute='content') | map('trim') | join(d=',') }}", "a"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 'a\nb' | indent(width=2, first=true) }}", "1  a\n  b"),
        ("{{ [{'a': 2}, {'a': 1}] | sort(attribute='a', reverse=true) | map(attribute='a') | join('-') }}", "2-1"),
        ("{{ [{'a': 2}, {'a': 1}] | sum(attribute='a') }}{{ [3, 1] | min }}{{ 'x' | trim('x') }}{{ [1, 1] | unique | length }}", "311"),
        ("x\n", "x"),
    ];
    for (template, want) in cases {
        assert_eq!(rendered(template, &[Message::user(" a ")]), want, "{template}");
    }
    assert_eq!(rendered("{{ strftime_now('%Y') }}", &[]).len(), 4);
}

#[test]
fn what_goes_wrong_is_one_line() {
    for template in ["{% if %}", "{{ x", "{% for m in messages %}", "{{ x | nothing_like_it }}", "{% other %}x{% endother %}"] {
        let said = match Jinja::parse(template, Family::Glm4) {
            Err(e) => e.to_string(),
            Ok(parsed) => parsed.run(&[], None).unwrap_err().to_string(),
        };
        assert!(said.starts_with("the chat template") && said.contains("chat_template:1") && !said.contains('\n'), "{said}");
    }
    let failed = |template: &str| jinja(template).run(&[Message::user("x")], None).unwrap_err().to_string();
    assert_eq!(failed("{{ raise_exception('only\nusers') }}"), "the chat template refuses the conversation: only\\nusers");
    for template in
        ["{{ x.y }}", "{{ x | tojson }}", "{{ 1 | tojson(indent=1000000000) }}", "{{ strftime_now('%!') }}", "{{ messages.foo() }}"]
    {
        assert!(failed(template).starts_with("the chat template cannot be applied to"), "{template}");
    }
}

#[test]
fn the_settings_of_a_tokenizer_name_templates() {
    let read = |json: &str, name| Jinja::from_tokenizer_config(json.as_bytes(), name, Family::Glm4);
    assert!(read("{}", None).unwrap().is_none() && read(r#"{"chat_template": null}"#, None).unwrap().is_none());
    let several = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
    for (name, want) in [(None, "d"), (Some("tool_use"), "t")] {
        assert_eq!(read(several, name).unwrap().unwrap().run(&[], None).unwrap(), want);
    }
    let said = read(several, Some("rag")).unwrap_err().to_string();
    assert!(said.contains("unknown chat template rag; the file has the templates tool_use, default"), "{said}");
    for json in ["[]", "{", r#"{"chat_template": 7}"#] {
        let said = read(json, None).unwrap_err().to_string();
        assert!(
            said.starts_with("expected tokenizer settings as") || said.starts_with("chat_template: expected a string"),
            "{json}: {said}"
        );
    }
    let own = read(
        r#"{"chat_template": "{{ eos_token }}{{ bos_token }}", "eos_token": "E", "bos_token": {"content": "B", "lstrip": false}}"#,
        None,
    );
    assert_eq!(own.unwrap().unwrap().run(&[Message::new(Role::User, "")], None).unwrap(), "EB");
}

#[test]
fn a_generation_block_renders_its_body() {
    let source = "{% for m in messages %}{%- generation -%} {{ m.content }} {%- endgeneration %};{% endfor %}{{ '{% generation' }}";
    let jinja = Jinja::parse(source, Family::Glm4).unwrap();
    let text = whole(&jinja.render(&[Message::user("a"), Message::assistant("b")]).unwrap());
    assert_eq!(text, "a;b;{% generation");
    assert!(Jinja::parse("{% generation %}x", Family::Glm4).is_err());
}
