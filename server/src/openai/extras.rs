//! Request fields that several endpoints share. The server itself reads these fields; the engine reads all other settings.

use crate::ServeOptions;
use crate::app::App;
use crate::body::{Body, parse};
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::fields::{Dialect, settle};
use crate::guard::Caller;
use crate::ids::new_id;
use crate::states::check_new_name;
use crate::tickets::SessionStates;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::chat::Thinking;
use wingbeat::engine::{Fields, Follows, Input, Request, Rules};
use wingbeat::low_level::front_end::{open_schema, short};

/// Options of a stream.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// If true, the stream ends with a chunk that contains the usage: the numbers of tokens.
    pub include_usage: Option<bool>,
}

/// The format that an answer must have.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// Any text. With braces, serde refuses other keys.
    Text {},
    /// A JSON object.
    JsonObject {
        /// The schema that the object must match. Without it, any object is allowed.
        #[schema(value_type = Object)]
        schema: Option<Value>,
    },
    /// JSON that matches a schema.
    JsonSchema { json_schema: NamedSchema },
}

/// The JSON schema that an answer must match, in the form of OpenAI's `json_schema`.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub struct NamedSchema {
    /// The name. Has no effect.
    pub name: Option<String>,
    /// Tells people what the schema is for. Has no effect.
    pub description: Option<String>,
    /// The schema. Without it, any JSON value is allowed.
    #[schema(value_type = Object)]
    pub schema: Option<Value>,
    /// If true (the default), objects have only the properties that the schema names, unless the schema itself allows others.
    pub strict: Option<bool>,
    #[serde(flatten)]
    #[schema(ignore)]
    rest: NothingElse,
}

/// Refuses all other keys of a [`NamedSchema`]. Otherwise, a schema in place of this wrapper would allow any JSON.
#[derive(Debug, Clone, Copy)]
struct NothingElse;

impl Serialize for NothingElse {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_map(Some(0))?.end()
    }
}

impl<'de> Deserialize<'de> for NothingElse {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<NothingElse, D::Error> {
        match HashMap::<String, IgnoredAny>::deserialize(from)?.into_keys().min() {
            None => Ok(NothingElse),
            Some(name) => {
                let expected = "expected `name`, `description`, `schema` or `strict`";
                Err(D::Error::custom(format_args!("unknown field {:?}, {expected}", short(&name, 40))))
            }
        }
    }
}

impl ResponseFormat {
    /// Returns the rules that make an answer follow this format, or `None` for `Text`.
    pub fn rules(&self) -> Option<Rules> {
        match self {
            ResponseFormat::Text {} => None,
            ResponseFormat::JsonObject { schema: None } => Some(Rules::Object),
            ResponseFormat::JsonObject { schema: Some(schema) } => Some(Rules::Schema(schema.to_string())),
            ResponseFormat::JsonSchema { json_schema } => Some(json_schema.rules()),
        }
    }
}

impl NamedSchema {
    /// Returns the rules that make an answer match the schema.
    pub fn rules(&self) -> Rules {
        let Some(schema) = &self.schema else { return Rules::Value };
        if self.strict == Some(false) {
            let mut open = schema.clone();
            open_schema(&mut open);
            return Rules::Schema(open.to_string());
        }
        Rules::Schema(schema.to_string())
    }
}

/// Sets the rules that the request's answer must follow. `field` is the field of the body that contains the rules, and `key` is the key of the schema
/// in this field. Returns the path of the schema in the body. In errors about the schema, the caller replaces the engine's name `json_schema` by this
/// path.
///
/// # Errors
/// 400 if the request also has a grammar or a schema in another field.
pub fn follow(request: &mut Request, rules: Option<Rules>, field: &str, key: &str) -> Answer<String> {
    match (rules, &request.follows) {
        (None, _) => Ok("json_schema".into()),
        (Some(_), Some(Follows::Rules(_))) => {
            Err(Failure::field(field, "the request also has a grammar or a schema in another field; use only one of them"))
        }
        (Some(rules), _) => {
            request.follows = Some(Follows::Rules(rules));
            Ok(format!("{field}.{key}"))
        }
    }
}

/// Reads the body of a request for text. Returns the parsed body, a request with the settings of the body, the warnings about fields without effect, and
/// the claim on their memory. `input` takes the input out of the parsed body.
///
/// # Errors
/// 400 with the path of the wrong field.
pub async fn read<T: DeserializeOwned + Send + 'static>(
    app: &Arc<App>,
    caller: &Caller,
    body: Body,
    at: Dialect,
    input: impl FnOnce(&mut T) -> Answer<Input> + Send + 'static,
) -> Answer<(T, Request, Vec<String>, Arc<Claim>)> {
    let (of_work, request_id) = (app.clone(), caller.request_id.clone());
    let work = move |body: &Body| {
        let mut fields = body.fields()?;
        // The sizes are checked before parsing, because a parsed schema takes many times the memory of its text.
        check_sizes(&fields, &of_work.options)?;
        let mut asked: T = parse(&fields)?;
        of_work.log_body(&request_id, &body.bytes);
        let settled = settle(at, &mut fields)?;
        let input = input(&mut asked)?;
        let request = Request::read_settings(input, &fields).map_err(|e| settled.as_sent(e.into()))?.0;
        of_work.log_warnings(&request_id, &settled.warnings);
        Ok((asked, request, settled.warnings))
    };
    let ((asked, request, warnings), claim) = body.read(app, work).await?;
    Ok((asked, request, warnings, claim))
}

/// Fields that can contain a grammar, a schema or tools.
const SIZED: [&str; 15] = [
    "grammar",
    "json_schema",
    "regex",
    "choice",
    "guided_json",
    "guided_grammar",
    "guided_regex",
    "guided_choice",
    "structured_outputs",
    "response_format",
    "text",
    "tools",
    "format",
    "options",
    "output_config",
];

/// Checks that no grammar, schema or list of tools is larger than `max_schema` bytes.
///
/// # Errors
/// 400 with the field that is too large.
pub fn check_sizes(fields: &Fields<'_>, options: &ServeOptions) -> Answer<()> {
    for (name, value) in fields.iter() {
        let is_schema = SIZED.contains(&name);
        if is_schema && value.len() > options.max_schema {
            let text = format!("expected at most {} bytes, found {}", options.max_schema, value.len());
            return Err(Failure::field(name, text));
        }
    }
    Ok(())
}

/// Sets how the model thinks. `effort` is the value of the body's field named `field`, and `kwargs` is the value of `chat_template_kwargs`. `kwargs`
/// has precedence over `effort`. The engine's own field `thinking` has precedence over both.
///
/// # Errors
/// 400 if a value is unknown.
pub fn think(request: &mut Request, field: &str, effort: Option<&str>, kwargs: Option<&Map<String, Value>>) -> Answer<()> {
    if request.thinking.is_some() {
        return Ok(());
    }
    let of_kwargs = kwargs.and_then(|kwargs| kwargs.get("enable_thinking").or_else(|| kwargs.get("thinking")));
    let name = match (of_kwargs, effort) {
        (Some(Value::Bool(true)), _) => Some("on"),
        (Some(Value::Bool(false)), _) => Some("off"),
        (Some(Value::String(name)), _) => Some(name.as_str()),
        (Some(Value::Null) | None, None) => None,
        (Some(Value::Null) | None, Some(effort)) => Some(match effort {
            "none" | "minimal" => "off",
            "low" => "short",
            "medium" => "on",
            "high" | "xhigh" => "long",
            _ => return Err(Failure::field(field, "expected none, minimal, low, medium, high or xhigh")),
        }),
        (Some(_), _) => return Err(Failure::field("chat_template_kwargs.enable_thinking", "expected true or false")),
    };
    if let Some(name) = name {
        let field = if of_kwargs.is_some() { "chat_template_kwargs" } else { field };
        request.thinking = Some(name.parse::<Thinking>().map_err(|e| e.field(field))?);
    }
    Ok(())
}

/// Returns the names of the states that a request's session continues and saves. If `return_state` is true and the request sets no name, the state
/// after the answer is saved under a new name.
///
/// # Errors
/// 400 if the session id is not valid as a name, or if a request with a session has several continuations, `state` or `save_state`.
pub fn session_states(request: &Request, caller: &Caller, session_id: Option<String>, return_state: bool) -> Answer<SessionStates> {
    let session = session_id.or_else(|| caller.session.clone());
    if let Some(name) = &session {
        check_new_name(name, "session_id")?;
        if request.n > 1 {
            return Err(Failure::field("session_id", format!("expected n = 1 together with session_id, found n = {}", request.n)));
        }
        if request.state.is_some() || request.save_state.is_some() {
            return Err(Failure::field("session_id", "expected either session_id or the fields state and save_state, found both"));
        }
    }
    let save = session.clone().or_else(|| (return_state && request.save_state.is_none()).then(|| new_id("state-")));
    Ok(SessionStates { is_conversation: session.is_some(), resume: session, save })
}
