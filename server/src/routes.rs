//! All routes of the server.

use super::anthropic;
use super::app::App;
use super::failure::Failure;
use super::llama::{self, completion, infill, props};
use super::middleware::{check_and_log, panicked};
use super::native::openapi::{BYTES, DELETE, Endpoint, GET, POST, PUT, document};
use super::native::{operation, page, states, tokens};
use super::ollama;
use super::openai::{chat, completions, embeddings, models, rerank, responses, score};
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use wingbeat::error::Error;
use wingbeat::low_level::front_end::short;

/// Returns the endpoints that `/openapi.json` describes.
fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(GET, "/v1/models", "Lists the models", models::list).returns::<models::ModelList>(),
        Endpoint::new(GET, "/v1/models/{name}", "Describes a model", models::one).returns::<models::ModelEntry>(),
        Endpoint::new(POST, "/v1/chat/completions", "Answers messages", chat::create)
            .takes::<chat::ChatBody>()
            .answers::<chat::ChatChoice, chat::ChatPiece>(),
        Endpoint::new(GET, "/v1/chat/completions/{id}/events", "Continues the stream of a resumable answer", chat::events)
            .chunks::<chat::ChatPiece>(),
        Endpoint::new(DELETE, "/v1/chat/completions/{id}", "Stops a resumable answer and deletes its events", chat::delete)
            .returns::<chat::DeletedCompletion>(),
        Endpoint::new(POST, "/v1/completions", "Continues texts or tokens", completions::create)
            .takes::<completions::CompletionBody>()
            .answers::<completions::TextChoice, completions::TextChoice>(),
        Endpoint::new(POST, "/v1/responses", "Answers an input, and keeps the conversation", responses::create)
            .takes::<responses::ResponseBody>()
            .returns::<responses::ResponseObject>()
            .streams::<responses::ResponseEvent>(),
        Endpoint::new(GET, "/v1/responses/{id}", "Returns a kept response", responses::one).returns::<responses::ResponseObject>(),
        Endpoint::new(GET, "/v1/responses/{id}/input_items", "Lists the messages before a kept response", responses::input_items)
            .returns::<responses::InputItems>(),
        Endpoint::new(POST, "/v1/responses/{id}/cancel", "Refused: no response runs in the background", responses::cancel),
        Endpoint::new(DELETE, "/v1/responses/{id}", "Deletes a kept response and its state", responses::delete)
            .returns::<responses::DeletedResponse>(),
        Endpoint::new(POST, "/v1/embeddings", "Computes vectors", embeddings::create)
            .takes::<embeddings::EmbeddingBody>()
            .returns::<embeddings::EmbeddingList>(),
        Endpoint::new(POST, "/v1/rerank", "Scores documents for a query", rerank::create)
            .takes::<rerank::RerankBody>()
            .returns::<rerank::Ranking>(),
        Endpoint::new(POST, "/v1/score", "Scores pairs of texts, as vLLM does", score::create)
            .takes::<score::ScoreBody>()
            .returns::<score::Scores>(),
        Endpoint::new(POST, "/v1/messages", "Answers messages, as Anthropic does", anthropic::create)
            .takes::<anthropic::MessagesBody>()
            .returns::<anthropic::MessageObject>()
            .streams::<anthropic::MessageEvent>(),
        Endpoint::new(POST, "/v1/messages/count_tokens", "Counts the tokens of a prompt, as Anthropic does", anthropic::count)
            .takes::<anthropic::MessagesBody>()
            .returns::<anthropic::InputTokens>(),
        Endpoint::new(POST, "/api/chat", "Answers messages, as Ollama does", ollama::chat::create)
            .takes_both::<ollama::chat::OllamaChatBody, ollama::Settings>()
            .answers_in_lines::<ollama::chat::ChatObject>(),
        Endpoint::new(POST, "/api/generate", "Answers a prompt or continues a text, as Ollama does", ollama::generate::create)
            .takes_both::<ollama::generate::GenerateBody, ollama::Settings>()
            .answers_in_lines::<ollama::generate::GenerateObject>(),
        Endpoint::new(POST, "/api/embed", "Computes vectors, as Ollama does", ollama::embed::create)
            .takes::<ollama::embed::EmbedBody>()
            .returns::<ollama::embed::Embedded>(),
        Endpoint::new(POST, "/api/embeddings", "Computes a vector, as Ollama did before `/api/embed`", ollama::embed::create_one)
            .takes::<ollama::embed::OldEmbedBody>()
            .returns::<ollama::embed::OldEmbedded>(),
        Endpoint::new(GET, "/api/tags", "Lists the models, as Ollama does", ollama::models::tags).returns::<ollama::models::Tags>(),
        Endpoint::new(GET, "/api/ps", "Lists the models in memory, as Ollama does", ollama::models::processes)
            .returns::<ollama::models::Processes>(),
        Endpoint::new(POST, "/api/show", "Describes a model, as Ollama does", ollama::models::show)
            .takes::<ollama::models::ShowBody>()
            .returns::<ollama::models::Shown>(),
        Endpoint::new(GET, "/api/version", "Returns the version of Ollama's API", ollama::models::version)
            .returns::<ollama::models::Version>(),
        Endpoint::new(POST, "/completion", "Continues a text or tokens, as llama-server does", completion::create)
            .takes::<completion::LlamaBody>()
            .returns::<llama::LlamaText>()
            .streams::<llama::LlamaText>(),
        Endpoint::new(POST, "/infill", "Writes the text between two texts, as llama-server does", infill::create)
            .takes::<infill::InfillBody>()
            .returns::<llama::LlamaText>()
            .streams::<llama::LlamaText>(),
        Endpoint::new(GET, "/props", "Describes the first model, as llama-server does", props::get).returns::<props::Props>(),
        Endpoint::new(POST, "/tokenize", "Converts a text or messages to token ids", tokens::tokenize)
            .takes::<tokens::TextBody>()
            .returns::<tokens::Tokens>(),
        Endpoint::new(POST, "/detokenize", "Converts token ids to a text", tokens::detokenize)
            .takes::<tokens::TokensBody>()
            .returns::<tokens::Detokenized>(),
        Endpoint::new(GET, "/tokenizer_info", "Describes the tokenizer, as vLLM does", tokens::info).returns::<tokens::TokenizerInfo>(),
        Endpoint::new(POST, "/apply-template", "Renders messages as a prompt", tokens::apply_template)
            .takes::<tokens::TextBody>()
            .returns::<tokens::RenderedPrompt>(),
        Endpoint::new(POST, "/v1/tokens/count", "Counts the tokens of a text or of messages", tokens::count)
            .takes::<tokens::TextBody>()
            .returns::<tokens::TokenCount>(),
        Endpoint::new(GET, "/v1/states", "Lists saved states", states::list).returns::<states::StateList>(),
        Endpoint::new(POST, "/v1/states", "Saves, copies, renames or deletes a state", states::act)
            .takes::<states::StateBody>()
            .returns::<states::Acted>(),
        Endpoint::new(GET, "/v1/states/{name}", "Describes a saved state", states::one).returns::<states::StateEntry>(),
        Endpoint::new(DELETE, "/v1/states/{name}", "Deletes a saved state", states::delete).returns::<states::DeletedState>(),
        Endpoint::new(GET, "/v1/states/{name}/content", "Downloads a saved state", states::download).returns_text(BYTES),
        Endpoint::new(PUT, "/v1/states/{name}/content", "Uploads a state file, or a tuned state", states::upload)
            .takes_file()
            .returns::<states::StateEntry>(),
        Endpoint::new(GET, "/health", "Reports whether the server is ready", operation::health).returns::<operation::Health>(),
        Endpoint::new(GET, "/slots", "Lists slots and open requests", operation::slots).returns::<operation::Slots>(),
        Endpoint::new(GET, "/metrics", "Returns metrics in the text format of OpenMetrics", operation::metrics)
            .returns_text(operation::METRICS),
    ]
}

/// Returns the router of a server.
pub fn router(app: &Arc<App>) -> Router {
    let endpoints = endpoints();
    // Built once: any client can request the description, even without a key.
    let description = Bytes::from(document(&endpoints).to_string());
    let routes = endpoints.into_iter().fold(Router::new(), |routes, endpoint| routes.route(endpoint.path, endpoint.handler));
    let routes = routes
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], description) }))
        .route("/", get(page::index))
        .route("/page/{*file}", get(page::file))
        .merge(aliases())
        .merge(refused())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed);
    let mut routes = routes
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(app.clone(), check_and_log));
    if !app.options.origins.is_empty() {
        routes = routes.layer(cors(&app.options.origins));
    }
    routes.with_state(app.clone())
}

/// Returns further paths of endpoints that the OpenAPI document describes: the paths that Cohere's client, llama-server and vLLM use.
fn aliases() -> Router<Arc<App>> {
    Router::new()
        .route("/rerank", post(rerank::create))
        .route("/v2/rerank", post(rerank::create))
        .route("/score", post(score::create))
        .route("/chat/completions", post(chat::create))
        .route("/completions", post(completions::create))
        .route("/embeddings", post(embeddings::create))
        .route("/models", get(models::list))
        .route("/v1/health", get(operation::health))
}

/// Removes slashes at the end of the path and additional slashes at its beginning, or returns `None` if the path has neither. Clients send such paths
/// if the server's address in their settings ends with a slash.
pub fn meant(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let meant = format!("/{}", path.trim_matches('/'));
    if meant == path {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{meant}{query}").parse().ok();
    Uri::from_parts(parts).ok()
}

/// Returns the routes of Ollama's API that the server refuses.
fn refused() -> Router<Arc<App>> {
    let paths = ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/{file}"];
    paths.into_iter().fold(Router::new(), |routes, path| routes.route(path, any(ollama::refuse)))
}

async fn unknown(uri: Uri) -> Failure {
    let e = Error::input(format!("unknown path {:?}", short(uri.path(), 100)));
    Failure::new(StatusCode::NOT_FOUND, "not_found", e.hint("GET /openapi.json lists all paths"))
}

async fn not_allowed(method: Method) -> Failure {
    let e = Error::input(format!("this path does not support the method {:?}", short(method.as_str(), 40)));
    let hint = "most paths without GET take POST; the header Allow of this response lists the methods";
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", e.hint(hint))
}

/// Returns the layer that tells browsers which origins (pages of other sites) may use the server. `*` in `origins` allows all.
fn cors(origins: &[String]) -> CorsLayer {
    let origins = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Client libraries in web pages send headers of their own, such as `x-stainless-lang`. So every header is allowed.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([super::middleware::REQUEST_ID, header::RETRY_AFTER])
}
