//! The form in which a checkpoint's template reads messages: Hugging Face's, or GLM-4's own.

use super::super::{Family, Message, Role};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// The form of the messages that a template reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The form of Hugging Face's `apply_chat_template`. An answer lists its calls in `tool_calls`, with the arguments as JSON. A result has the role
    /// `tool` and the key `tool_call_id`.
    HuggingFace,
    /// The form of GLM-4's code. A call is an answer of its own, whose `metadata` is the name of the tool. A result has the role `observation`.
    Glm,
}

impl Form {
    /// Returns the form that a template reads. The first of these texts in the source decides:
    ///
    /// * `tool_calls`: Hugging Face's form;
    /// * `metadata`: GLM-4's form;
    /// * the quoted role `tool`: Hugging Face's form;
    /// * the quoted role `observation`, or a role token that is made from the role's name: GLM-4's form. From Hugging Face's role, the template would
    ///   make `<|tool|>`, which no model knows.
    ///
    /// The default is Hugging Face's form.
    pub fn of(source: &str) -> Form {
        let has = |texts: &[&str]| texts.iter().any(|text| source.contains(text));
        match () {
            () if has(&["tool_calls"]) => Form::HuggingFace,
            () if has(&["metadata"]) => Form::Glm,
            () if has(&["'tool'", "\"tool\""]) => Form::HuggingFace,
            () if has(&["'observation'", "\"observation\"", "<|{{", "<|'", "<|\""]) => Form::Glm,
            () => Form::HuggingFace,
        }
    }

    /// Returns the variables `messages` and `tools` of a template, as one object.
    pub fn variables(self, messages: &[Message], family: Family) -> Value {
        let tools: Vec<_> = messages.iter().flat_map(|message| &message.tools).collect();
        let tools = if tools.is_empty() { Value::Null } else { json!(tools) };
        let messages = match self {
            Form::Glm => json!(messages),
            Form::HuggingFace => hugging_face(messages, family).into(),
        };
        json!({"messages": messages, "tools": tools})
    }
}

/// A call of the current turn that has no result yet: its id and the name of its tool.
type OpenCall = (String, String);

/// Returns messages in Hugging Face's form.
fn hugging_face(messages: &[Message], family: Family) -> Vec<Value> {
    let (mut all, mut open, mut n_calls): (Vec<Value>, VecDeque<OpenCall>, usize) = (Vec::new(), VecDeque::new(), 0);
    for message in messages {
        match message.role {
            Role::Assistant if !message.metadata.is_empty() => {
                let name = message.metadata.trim();
                let id = message.id.clone().unwrap_or_else(|| format!("call_{n_calls}"));
                n_calls += 1;
                open.push_back((id.clone(), name.into()));
                let function = json!({"name": name, "arguments": arguments(&message.content, family)});
                let call = json!({"type": "function", "id": id, "function": function});
                add_call(&mut all, call);
            }
            Role::Observation => {
                let at = open.iter().position(|(id, _)| Some(id) == message.id.as_ref());
                let of_call = if at.is_none() && message.id.is_some() { None } else { open.remove(at.unwrap_or(0)) };
                let mut result = Map::from_iter([("role".into(), "tool".into()), ("content".into(), message.content.as_str().into())]);
                if let Some((_, name)) = &of_call {
                    result.insert("name".into(), name.as_str().into());
                }
                if let Some(id) = of_call.map(|(id, _)| id).or_else(|| message.id.clone()) {
                    result.insert("tool_call_id".into(), id.into());
                }
                all.push(result.into());
            }
            // This message only carries the tools, which are a variable of their own.
            Role::System if message.content.is_empty() && !message.tools.is_empty() => {}
            role => {
                open.clear();
                all.push(json!({"role": role.name(), "content": message.content}));
            }
        }
    }
    all
}

/// Adds a call to the last message if it is an answer, otherwise to a new answer. The content of an answer without text is an empty text: most
/// templates would write `null` as the word `None`.
fn add_call(all: &mut Vec<Value>, call: Value) {
    if all.last().is_none_or(|last| last["role"] != Role::Assistant.name()) {
        all.push(json!({"role": Role::Assistant.name(), "content": ""}));
    }
    let calls = &mut all.last_mut().expect("just added")["tool_calls"];
    match calls.as_array_mut() {
        Some(calls) => calls.push(call),
        None => *calls = json!([call]),
    }
}

/// Returns the arguments of a call as JSON, as most templates need them. Arguments that cannot be parsed stay a text.
fn arguments(text: &str, family: Family) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).or_else(|_| family.arguments(text)).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{chat_template, weather};
    use super::*;

    #[test]
    fn the_form_is_what_the_template_reads() {
        for (source, form) in [
            ("{{ m.role }}: {{ m.content }}", Form::HuggingFace),
            ("{% for c in m.tool_calls %}<|observation|>{{ c }}{% endfor %}", Form::HuggingFace),
            ("{% if m.role == 'tool' %}<|observation|>{% endif %}", Form::HuggingFace),
            ("<|observation|>", Form::HuggingFace),
            ("<|{{ m['role'] }}|>{{ m['metadata'] }}\n{{ m['content'] }}", Form::Glm),
            ("{% if m.role == 'observation' %}x{% endif %}", Form::Glm),
            ("<|{{ m['role'] }}|>\n{{ m['content'] }}", Form::Glm),
            ("{{ '<|' + m['role'] + '|>\n' + m['content'] }}", Form::Glm),
            (&chat_template(), Form::Glm),
        ] {
            assert_eq!(Form::of(source), form, "{source}");
        }
    }

    fn with_id(message: Message, id: &str) -> Message {
        Message { id: Some(id.into()), ..message }
    }

    #[test]
    fn calls_and_results_have_hugging_faces_form() {
        let messages = [
            Message::system("").with_tools(vec![weather()]),
            Message::user("x"),
            Message::assistant("Let me look."),
            with_id(Message::call("f", "{\"b\": [1], \"a\": \"|\"}"), "one"),
            with_id(Message::call(" g ", ""), "two"),
            with_id(Message::observation("of g"), "two"),
            with_id(Message::observation("of f"), "one"),
            Message::call("f", "print(1)"),
            Message::observation("of print"),
            with_id(Message::observation("of none"), "z"),
            Message::assistant("Done."),
        ];
        let call = |name: &str, arguments: Value, id: &str| json!({"type": "function", "id": id, "function": {"name": name, "arguments": arguments}});
        let result = |content: &str, name: &str, id: &str| json!({"role": "tool", "content": content, "name": name, "tool_call_id": id});
        let first = [call("f", json!({"b": [1], "a": "|"}), "one"), call("g", json!({}), "two")];
        let want = json!([
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "Let me look.", "tool_calls": first},
            result("of g", "g", "two"),
            result("of f", "f", "one"),
            {"role": "assistant", "content": "", "tool_calls": [call("f", json!("print(1)"), "call_2")]},
            result("of print", "f", "call_2"),
            {"role": "tool", "content": "of none", "tool_call_id": "z"},
            {"role": "assistant", "content": "Done."},
        ]);
        let variables = Form::HuggingFace.variables(&messages, Family::Glm4);
        assert_eq!(variables, json!({"messages": want, "tools": [weather()]}));
        // The keys keep their order, because templates write arguments in this order.
        assert!(variables.to_string().contains(r#"{"b":[1],"a":"|"}"#));
        let of_chatglm3 = [Message::call("f", "```python\ntool_call(x=1)\n```")];
        let variables = Form::HuggingFace.variables(&of_chatglm3, Family::ChatGlm3);
        assert_eq!(variables["messages"][0]["tool_calls"][0]["function"]["arguments"], json!({"x": 1}));
        assert_eq!(variables["tools"], Value::Null);
    }

    #[test]
    fn glm_4s_form_has_no_key_that_its_templates_do_not_know() {
        let messages = [with_id(Message::call("f", "{}"), "one"), with_id(Message::observation("x"), "one")];
        let want = json!([{"role": "assistant", "metadata": "f", "content": "{}"}, {"role": "observation", "content": "x"}]);
        assert_eq!(Form::Glm.variables(&messages, Family::Glm4), json!({"messages": want, "tools": null}));
    }
}
