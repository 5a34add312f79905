//! `GET /openapi.json`: a description of all endpoints.

use crate::sample::Setting;
use crate::serve::native::{states, tokens};
use crate::serve::openai::chat::ChatBody;
use crate::serve::openai::completions::CompletionBody;
use crate::serve::openai::embeddings::EmbeddingBody;
use crate::serve::openai::rerank::RerankBody;
use crate::serve::openai::responses::ResponseBody;
use axum::Json;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use utoipa::OpenApi;

/// The schemas of all request bodies.
#[derive(OpenApi)]
#[openapi(components(schemas(
    ChatBody,
    CompletionBody,
    ResponseBody,
    EmbeddingBody,
    RerankBody,
    tokens::TextBody,
    tokens::TokensBody,
    states::StateBody
)))]
struct Schemas;

static DOCUMENT: LazyLock<Value> = LazyLock::new(make);

pub async fn document() -> Json<Value> {
    Json(DOCUMENT.clone())
}

/// An endpoint: method, path, summary, the name of the schema of the request body (or its media type), and the media type of the response.
struct Endpoint(&'static str, &'static str, &'static str, Option<&'static str>, &'static str);

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

const ENDPOINTS: &[Endpoint] = &[
    Endpoint("get", "/v1/models", "Lists the models", None, JSON),
    Endpoint("get", "/v1/models/{name}", "Describes a model", None, JSON),
    Endpoint("post", "/v1/chat/completions", "Answers messages", Some("ChatBody"), JSON),
    Endpoint("post", "/v1/completions", "Continues texts or tokens", Some("CompletionBody"), JSON),
    Endpoint("post", "/v1/responses", "Answers an input, and keeps the conversation", Some("ResponseBody"), JSON),
    Endpoint("get", "/v1/responses/{id}", "Returns a kept response", None, JSON),
    Endpoint("delete", "/v1/responses/{id}", "Deletes a kept response and its state", None, JSON),
    Endpoint("post", "/v1/embeddings", "Computes vectors", Some("EmbeddingBody"), JSON),
    Endpoint("post", "/v1/rerank", "Scores documents for a query", Some("RerankBody"), JSON),
    Endpoint("post", "/tokenize", "Converts a text or messages to token ids", Some("TextBody"), JSON),
    Endpoint("post", "/detokenize", "Converts token ids to a text", Some("TokensBody"), JSON),
    Endpoint("get", "/tokenizer_info", "Describes the tokenizer, as vLLM does", None, JSON),
    Endpoint("post", "/apply-template", "Renders messages as a prompt", Some("TextBody"), JSON),
    Endpoint("post", "/v1/tokens/count", "Counts the tokens of a text or of messages", Some("TextBody"), JSON),
    Endpoint("get", "/v1/states", "Lists saved states", None, JSON),
    Endpoint("post", "/v1/states", "Saves, copies, renames or deletes a state", Some("StateBody"), JSON),
    Endpoint("get", "/v1/states/{name}", "Describes a saved state", None, JSON),
    Endpoint("delete", "/v1/states/{name}", "Deletes a saved state", None, JSON),
    Endpoint("get", "/v1/states/{name}/content", "Downloads a saved state", None, BYTES),
    Endpoint("put", "/v1/states/{name}/content", "Uploads a state file, or a tuned state", Some(BYTES), JSON),
    Endpoint("get", "/health", "Reports whether the server is ready", None, JSON),
    Endpoint("get", "/slots", "Lists slots and open requests", None, JSON),
    Endpoint("get", "/metrics", "Returns metrics in the text format of OpenMetrics", None, "application/openmetrics-text"),
];

/// Statuses of errors, with descriptions.
const FAILURES: [(&str, &str); 10] = [
    ("400", "The request is wrong; `param` names the field"),
    ("401", "The API key is missing or unknown"),
    ("403", "The host name or the web page may not use this server"),
    ("404", "The model, the state or the response is unknown"),
    ("408", "The body arrived too slowly"),
    ("413", "The body, or the caller's states, are too large"),
    ("429", "The queue is full"),
    ("431", "The header is too large"),
    ("503", "The model is being loaded, or the server is shutting down"),
    ("507", "The server cannot store the file"),
];

fn make() -> Value {
    let mut document = serde_json::to_value(Schemas::openapi()).unwrap_or_default();
    document["info"] = json!({
        "title": "wingbeat", "version": env!("CARGO_PKG_VERSION"), "description": "RWKV and GLM-4 models behind OpenAI's API, with states as objects.",
        "license": {"name": "MIT OR Apache-2.0"},
    });
    for body in ["ChatBody", "CompletionBody", "ResponseBody"] {
        add_settings(&mut document["components"]["schemas"][body]["properties"]);
    }
    document["components"]["schemas"]["Error"] = json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {
            "type": "object", "required": ["message", "type", "param", "code", "request_id"],
            "properties": {
                "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]}, "request_id": {"type": "string"},
            },
        }},
    });
    document["components"]["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
    document["security"] = json!([{}, {"key": []}]);
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        paths.entry(endpoint.1).or_insert_with(|| json!({}))[endpoint.0] = endpoint.json();
    }
    document["paths"] = paths.into();
    document
}

impl Endpoint {
    fn json(&self) -> Value {
        let Endpoint(method, path, summary, body, kind) = self;
        let content = match *kind {
            JSON => json!({JSON: {"schema": {"type": ["object", "array"]}}}),
            kind => json!({kind: {"schema": {"type": "string"}}}),
        };
        let status = if *method == "put" { "201" } else { "200" };
        let mut responses = json!({status: {"description": "Done", "content": content}});
        let error = json!({JSON: {"schema": {"$ref": "#/components/schemas/Error"}}});
        for (status, description) in FAILURES {
            // `/health` has its own body when the server is not ready.
            let content = if *path == "/health" && status == "503" { json!({JSON: {"schema": {"type": "object"}}}) } else { error.clone() };
            responses[status] = json!({"description": description, "content": content});
        }
        let id = format!("{method}{}", path.replace(['/', '{', '}', '-'], "_"));
        let mut operation = json!({"summary": summary, "operationId": id, "responses": responses});
        let mut parameters: Vec<Value> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}))
            .collect();
        if path.starts_with("/v1/states") && *method != "post" {
            parameters.push(json!({"name": "model", "in": "query", "required": false, "schema": {"type": "string"}}));
        }
        operation["parameters"] = parameters.into();
        if let Some(body) = body {
            let content = match *body {
                BYTES => json!({BYTES: {"schema": {"type": "string", "format": "binary"}}}),
                schema => json!({JSON: {"schema": {"$ref": format!("#/components/schemas/{schema}")}}}),
            };
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        operation
    }
}

/// Adds the engine's fields to the properties of a body: sampler settings, rules, states.
fn add_settings(properties: &mut Value) {
    for setting in Setting::all() {
        let kind =
            if setting.is_list() { json!(["array", "object", "string", "number", "null"]) } else { json!(["number", "string", "null"]) };
        properties[setting.name.replace('-', "_")] = json!({"type": kind, "description": setting.meaning});
    }
    let more = [
        ("max_tokens", "integer", "The most tokens of the answer; -1 sets no limit"),
        ("n", "integer", "The number of answers"),
        ("ignore_eos", "boolean", "If true, the model's stop tokens do not end the text"),
        ("grammar", "string", "A GBNF grammar for the text"),
        ("json_object", "boolean", "If true, the text is a JSON object"),
        ("json_value", "boolean", "If true, the text is a JSON value"),
        ("thinking", "string", "How much the model thinks: off, fast, on, short or long"),
        ("format", "string", "The name of a chat format"),
        ("add_bos", "boolean", "If true, the prompt begins with token 0 (RWKV-7 G1)"),
        ("state", "string", "The name of the saved state from which the prompt continues"),
        ("save_state", "string", "The name under which the state after the text is saved"),
        ("no_cache", "boolean", "If true, the prefix cache is neither used nor filled"),
        ("priority", "integer", "Requests with a higher priority leave the queue first"),
    ];
    for (name, kind, about) in more {
        if properties[name].is_null() {
            properties[name] = json!({"type": [kind, "null"], "description": about});
        }
    }
    properties["stop"] =
        json!({"type": ["string", "array", "null"], "items": {"type": "string"}, "description": "Texts that end the answer"});
    properties["json_schema"] = json!({"type": ["object", "string", "null"], "description": "A JSON schema for the text"});
    if properties["tools"].is_null() {
        properties["tools"] =
            json!({"type": ["array", "null"], "items": {"type": "object"}, "description": "Functions that the answer may call"});
        properties["tool_choice"] =
            json!({"type": ["string", "object", "null"], "description": "auto, none, required, or the name of a function"});
    }
}
