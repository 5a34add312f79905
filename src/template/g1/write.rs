//! Writes prompts in the built-in styles. Tests compare the prompts with the output of Python's `jinja2`.

use super::super::json::{JsonStyle, dumps};
use super::super::{Role, Tool};
use super::clean::CleanTurn;
use super::{Opening, Style};
use serde_json::{Value, json};

/// The instructions after the descriptions of the tools.
const HOW: &str = "To call one of these tools, write exactly this format:\n**Tool Call:**\n```json\n\
                   {\"name\": \"tool_name\", \"arguments\": {\"key\": \"value\"}}\n```\nDo not invent tool call IDs or write tool outputs yourself.";

/// Returns the prompt of a conversation. The model continues at the end of the prompt.
pub fn prompt(style: Style, opening: Opening, turns: &[CleanTurn], tools: &[&Tool]) -> String {
    match style {
        Style::Assistant => paragraphs(opening, turns, String::new()),
        Style::Short => paragraphs(opening, turns, signatures(tools)),
        Style::Bot => {
            let name = |role: Role| if role == Role::Assistant { "Bot" } else { title(role) };
            let lines = turns.iter().map(|turn| format!("{}✿{}✿\n", name(turn.role), turn.content));
            lines.collect::<String>() + "Bot✿" + opening.text()
        }
        Style::Tools => sections(opening, turns, tools),
    }
}

fn title(role: Role) -> &'static str {
    match role {
        Role::System => "System",
        Role::User | Role::Observation => "User",
        Role::Assistant => "Assistant",
    }
}

/// Returns one paragraph per turn. A paragraph begins with the name of the role. The text `tools` follows the first system message, or becomes a
/// system message itself if the conversation begins without one.
fn paragraphs(opening: Opening, turns: &[CleanTurn], mut tools: String) -> String {
    let mut all = Vec::new();
    if !tools.is_empty() && turns.first().is_none_or(|first| first.role != Role::System) {
        all.push(named(Role::System, &std::mem::take(&mut tools)));
    }
    for turn in turns {
        let calls = turn.calls.iter().map(|call| format!("```json\n{}\n```", dumps(&written(call), &JsonStyle::default())));
        let content = match turn.role {
            Role::System => [turn.content.clone(), std::mem::take(&mut tools)].into_iter().filter(|text| !text.is_empty()).collect(),
            Role::Observation => vec![format!("Function output: {}", turn.content)],
            Role::User | Role::Assistant => [turn.content.clone()].into_iter().filter(|text| !text.is_empty()).chain(calls).collect(),
        };
        all.push(named(turn.role, &content.join("\n")));
    }
    all.push(named(Role::Assistant, opening.text()));
    all.join("\n\n")
}

fn named(role: Role, content: &str) -> String {
    let space = if content.is_empty() { "" } else { " " };
    format!("{}:{space}{content}", title(role))
}

/// Returns a heading, one line per tool with its signature, such as `- f(a: string, b: integer)`, and a line that asks for a call in JSON. Returns an
/// empty text if there are no tools.
fn signatures(tools: &[&Tool]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let mut lines = vec!["Tools:".to_string()];
    for (name, description, parameters) in tools.iter().map(|tool| parts(tool)) {
        let properties = parameters["properties"].as_object().into_iter().flatten();
        let typed = properties.map(|(name, schema)| format!("{name}: {}", schema["type"].as_str().unwrap_or("any")));
        let about = if description.is_empty() { String::new() } else { format!(": {}", description.replace('\n', " ")) };
        lines.push(format!("- {name}({}){about}", typed.collect::<Vec<_>>().join(", ")));
    }
    lines.push("Return only a JSON function call.".into());
    lines.join("\n")
}

/// Returns sections with headings. The tools are described after each run of system messages, or first if the conversation does not begin with a
/// system message.
fn sections(opening: Opening, turns: &[CleanTurn], tools: &[&Tool]) -> String {
    let (mut lines, mut waiting): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    let system = |lines: &mut Vec<String>, waiting: &mut Vec<&str>| {
        lines.push("### System".into());
        lines.extend(waiting.drain(..).filter(|text| !text.is_empty()).map(String::from));
        lines.extend(described(tools));
    };
    for turn in turns {
        if turn.role == Role::System {
            waiting.push(&turn.content);
            continue;
        }
        if !waiting.is_empty() || lines.is_empty() && !tools.is_empty() {
            system(&mut lines, &mut waiting);
        }
        match turn.role {
            Role::User => lines.extend(["### User".into(), turn.content.clone()]),
            Role::Observation => lines.extend(["### Tool Output".into(), fenced(&turn.result())]),
            _ => {
                lines.push("### Assistant".into());
                lines.extend(Some(turn.content.clone()).filter(|text| !text.is_empty()));
                lines.extend(turn.calls.iter().map(|call| format!("**Tool Call:**\n{}", fenced(&written(call)))));
            }
        }
    }
    if !waiting.is_empty() {
        system(&mut lines, &mut waiting);
    }
    lines.push("### Assistant".into());
    lines.extend(Some(opening.text().to_string()).filter(|text| !text.is_empty()));
    lines.join("\n")
}

/// Returns lines that describe the tools, then the instructions for calls. Returns no line if there are no tools.
fn described(tools: &[&Tool]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, description, parameters) in tools.iter().map(|tool| parts(tool)) {
        lines.push(format!("### `{name}`"));
        lines.extend((!description.is_empty()).then(|| format!("**Description:** {description}")));
        lines.extend(["**Parameters:**".into(), fenced(&parameters)]);
    }
    lines.extend((!tools.is_empty()).then(|| HOW.to_string()));
    lines
}

/// Returns a tool's name, description and parameters. A missing description is an empty text; missing parameters are `{}`.
fn parts(tool: &Tool) -> (String, String, Value) {
    let Tool::Function(function) = tool else { return (tool.name().into(), String::new(), json!({})) };
    let object = function.object();
    let parameters = object.get("parameters").filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!({}));
    (function.name().into(), object["description"].as_str().unwrap_or_default().into(), parameters)
}

fn written((name, arguments): &(String, Value)) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn fenced(value: &Value) -> String {
    format!("```json\n{}\n```", dumps(value, &JsonStyle { indent: Some(2), ..JsonStyle::default() }))
}
