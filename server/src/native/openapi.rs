//! `GET /openapi.json`: a description of all endpoints. Its schemas come from the types that the endpoints read and write.

use crate::anthropic::AnthropicError;
use crate::api::Api;
use crate::app::App;
use crate::failure::ErrorBody;
use crate::fields::add_settings;
use crate::ollama::OllamaError;
use crate::openai::Choices;
use crate::openai::stream::JSON_LINES;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

const JSON: &str = "application/json";
pub const BYTES: &str = "application/octet-stream";
const EVENTS: &str = "text/event-stream";

/// An HTTP method: the filter for axum, and the name in the OpenAPI description.
type Method = (MethodFilter, &'static str);
pub const GET: Method = (MethodFilter::GET, "get");
pub const POST: Method = (MethodFilter::POST, "post");
pub const PUT: Method = (MethodFilter::PUT, "put");
pub const DELETE: Method = (MethodFilter::DELETE, "delete");

/// The schemas of the description, by name.
type Schemas = Map<String, Value>;

/// A media type, and a function that returns the schema of the content. The function also adds to `Schemas` every schema to which the returned schema
/// refers.
type MediaSchema = (&'static str, fn(&mut Schemas) -> Value);

/// An endpoint with its description.
pub struct Endpoint {
    pub path: &'static str,
    pub handler: MethodRouter<Arc<App>>,
    method: &'static str,
    summary: &'static str,
    body: Option<MediaSchema>,
    responses: Vec<MediaSchema>,
}

impl Endpoint {
    pub fn new<H: Handler<T, Arc<App>>, T: 'static>(method: Method, path: &'static str, summary: &'static str, handler: H) -> Endpoint {
        Endpoint { path, handler: on(method.0, handler), method: method.1, summary, body: None, responses: Vec::new() }
    }

    /// Sets the type of the request's body.
    pub fn takes<T: ToSchema>(self) -> Endpoint {
        Endpoint { body: Some((JSON, reference::<T>)), ..self }
    }

    /// Declares that the request's body has the fields of both types.
    pub fn takes_both<A: ToSchema, B: ToSchema>(self) -> Endpoint {
        let both: fn(&mut Schemas) -> Value = |all| json!({"allOf": [reference::<A>(all), reference::<B>(all)]});
        Endpoint { body: Some((JSON, both)), ..self }
    }

    /// Declares that the request's body is a file.
    pub fn takes_file(self) -> Endpoint {
        Endpoint { body: Some((BYTES, |_| json!({"type": "string", "format": "binary"}))), ..self }
    }

    /// Adds the type of a successful response.
    pub fn returns<T: ToSchema>(self) -> Endpoint {
        self.with((JSON, reference::<T>))
    }

    /// Adds a text of this media type to the successful responses.
    pub fn returns_text(self, kind: &'static str) -> Endpoint {
        self.with((kind, |_| json!({"type": "string"})))
    }

    /// Adds a stream to the successful responses. Each event has this type.
    pub fn streams<T: ToSchema>(self) -> Endpoint {
        self.with((EVENTS, reference::<T>))
    }

    /// Adds two successful responses: an object of this type, and a stream of such objects, one per line. The last line can be an error.
    pub fn answers_in_lines<T: ToSchema>(self) -> Endpoint {
        let line: fn(&mut Schemas) -> Value = |all| json!({"anyOf": [reference::<T>(all), reference::<OllamaError>(all)]});
        self.with((JSON, reference::<T>)).with((JSON_LINES, line))
    }

    /// Adds two successful responses: an answer whose choices have the type `C`, and a stream of chunks whose choices have the type `Piece`. The last
    /// event of the stream can be an error.
    pub fn answers<C: ToSchema, Piece: ToSchema>(self) -> Endpoint {
        self.with((JSON, choices::<C>)).chunks::<Piece>()
    }

    /// Adds a stream of chunks whose choices have the type `Piece`. The last event can be an error.
    pub fn chunks<Piece: ToSchema>(self) -> Endpoint {
        let chunk: fn(&mut Schemas) -> Value = |all| json!({"anyOf": [choices::<Piece>(all), reference::<ErrorBody>(all)]});
        self.with((EVENTS, chunk))
    }

    fn with(mut self, content: MediaSchema) -> Endpoint {
        self.responses.push(content);
        self
    }

    /// Returns the description of the endpoint. Adds to `all` the schemas to which the description refers.
    fn json(&self, all: &mut Schemas) -> Value {
        let Endpoint { path, method, summary, body, responses, .. } = self;
        let ok: Map<String, Value> = responses.iter().map(|(kind, schema)| ((*kind).into(), json!({"schema": schema(all)}))).collect();
        let error = match Api::of(path) {
            Api::OpenAi => reference::<ErrorBody>(all),
            Api::Ollama => reference::<OllamaError>(all),
            Api::Anthropic => reference::<AnthropicError>(all),
        };
        let error = json!({JSON: {"schema": error}});
        let mut responses = json!({if *method == "put" { "201" } else { "200" }: {"description": "Done", "content": ok}});
        for (status, description) in FAILURES {
            // `/health` has its own body when the server is not ready.
            let content = if *path == "/health" && status == "503" { ok.clone().into() } else { error.clone() };
            responses[status] = json!({"description": description, "content": content});
        }
        let mut parameters: Vec<Value> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}))
            .collect();
        if path.starts_with("/v1/states") && *method != "post" {
            parameters.push(json!({"name": "model", "in": "query", "required": false, "schema": {"type": "string"}}));
        }
        let id = format!("{method}{}", path.replace(['/', '{', '}', '-'], "_"));
        let mut operation = json!({"summary": summary, "operationId": id, "parameters": parameters, "responses": responses});
        if let Some((kind, schema)) = body {
            operation["requestBody"] = json!({"required": true, "content": {*kind: {"schema": schema(all)}}});
        }
        operation
    }
}

/// Returns a reference to the schema of the type `T`. Adds to `all` this schema and all schemas to which it refers.
fn reference<T: ToSchema>(all: &mut Schemas) -> Value {
    named::<T>(T::name().into(), all)
}

/// Returns a reference to the schema of an answer with choices of the type `C`, as `reference` does. utoipa gives all types of a generic struct one
/// name and collects no schemas of type arguments, so this function makes the name from `C` and collects the schema of `C`.
fn choices<C: ToSchema>(all: &mut Schemas) -> Value {
    reference::<C>(all);
    named::<Choices<C>>(format!("{}s", C::name()), all)
}

fn named<T: ToSchema>(name: String, all: &mut Schemas) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    let mut found = vec![(name, T::schema())];
    T::schemas(&mut found);
    all.extend(found.into_iter().map(|(name, schema)| (name, json!(schema))));
    reference
}

/// Statuses of errors, with descriptions.
const FAILURES: [(&str, &str); 11] = [
    ("400", "The request is wrong; `param` names the field"),
    ("401", "The API key is missing or unknown"),
    ("403", "The host name or the web page may not use this server"),
    ("404", "The model, the state or the response is unknown"),
    ("408", "The body arrived too slowly"),
    ("413", "The body, or the caller's states, are too large"),
    ("429", "The queue or the memory of requests is full, for all callers or for this caller"),
    ("431", "The header is too large"),
    ("500", "A fault of the server; its log has more"),
    ("503", "The model is being loaded, or the server is shutting down"),
    ("507", "The server cannot store the file"),
];

/// Returns the content of `/openapi.json`, which describes `endpoints`.
pub fn document(endpoints: &[Endpoint]) -> Value {
    let (mut paths, mut schemas) = (json!({}), Schemas::new());
    for endpoint in endpoints {
        paths[endpoint.path][endpoint.method] = endpoint.json(&mut schemas);
    }
    add_settings(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "wingbeat", "version": env!("CARGO_PKG_VERSION"), "description": "RWKV and GLM-4 models behind OpenAI's API, with states as objects.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    })
}
