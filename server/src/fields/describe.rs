//! The properties that the settings of a body have in `/openapi.json`.

use super::{Dialect, Fate, own, table};
use serde_json::{Value, json};
use wingbeat::low_level::sample::Setting;

/// Adds to the schemas of the bodies the fields that the endpoints' types do not have: sampler settings, rules, names of states.
pub fn add_settings(schemas: &mut serde_json::Map<String, Value>) {
    for (body, at) in [
        ("ChatBody", Dialect::Chat),
        ("CompletionBody", Dialect::Text),
        ("ResponseBody", Dialect::Responses),
        ("MessagesBody", Dialect::Messages),
        ("LlamaBody", Dialect::Llama),
        ("InfillBody", Dialect::Llama),
    ] {
        let Some(schema) = schemas.get_mut(body) else { continue };
        // utoipa describes a type with a flattened part as `allOf`.
        let schema = if schema["allOf"].is_array() { &mut schema["allOf"][0] } else { schema };
        add(at, &mut schema["properties"]);
    }
}

fn add(at: Dialect, properties: &mut Value) {
    let with_null = |kinds: &[&'static str]| kinds.iter().copied().chain(["null"]).collect::<Vec<_>>();
    for setting in Setting::all() {
        let kinds: &[&'static str] = if setting.is_list() { &["array", "object", "string", "number"] } else { &["number", "string"] };
        properties[setting.name.replace('-', "_")] = json!({"type": with_null(kinds), "description": setting.meaning});
    }
    for row in table::ROWS.iter().filter(|row| row.is_at(at) && !own(at).contains(row.name)) {
        match row.fate {
            Fate::Done(kinds, about) => {
                properties[row.name] = json!({"type": with_null(kinds), "description": about});
                if kinds.contains(&"array") {
                    properties[row.name]["items"] = json!({});
                }
            }
            Fate::Named(ours) => properties[row.name] = json!({"description": format!("Another name of `{ours}`")}),
            Fate::Together(about) => properties[row.name] = json!({"description": about}),
            Fate::Harmless(_) | Fate::Ignored(_) | Fate::Refused(..) => {}
        }
    }
}
