//! All routes of the server.

use super::app::App;
use super::around::{around, panicked};
use super::failure::Failure;
use super::native::{health, metrics, openapi, page, slots, states, tokens};
use super::openai::{chat, completions, embeddings, models, rerank, responses};
use crate::error::{Error, short};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Returns the router of a server.
pub fn router(app: &Arc<App>) -> Router {
    let routes = Router::new()
        .route("/v1/models", get(models::list))
        .route("/v1/models/{name}", get(models::one))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::one).delete(responses::delete))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/v1/rerank", post(rerank::create))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/v1/tokens/count", post(tokens::count))
        .route("/v1/states", get(states::list).post(states::act))
        .route("/v1/states/{name}", get(states::one).delete(states::delete))
        .route("/v1/states/{name}/content", get(states::download).put(states::upload))
        .route("/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .route("/slots", get(slots::slots))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::index))
        .route("/page/{file}", get(page::file))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed);
    let mut routes =
        routes.layer(DefaultBodyLimit::disable()).layer(CatchPanicLayer::custom(panicked)).layer(from_fn_with_state(app.clone(), around));
    if !app.options.origins.is_empty() {
        routes = routes.layer(cors(&app.options.origins));
    }
    routes.with_state(app.clone())
}

async fn unknown(uri: Uri) -> Failure {
    let e = Error::input(format!("unknown path {:?}", short(uri.path(), 100)));
    Failure::new(StatusCode::NOT_FOUND, "not_found", e.hint("GET /openapi.json lists all paths"))
}

async fn not_allowed(method: Method) -> Failure {
    let e = Error::input(format!("this path does not support the method {:?}", short(method.as_str(), 40)));
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", e.hint("the header Allow of this response lists the methods"))
}

/// Returns the layer that tells browsers which pages of other sites may use the server.
fn cors(origins: &[String]) -> CorsLayer {
    let origins = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        // Clients in pages send headers of their own, such as `x-stainless-lang`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([super::around::REQUEST_ID, header::RETRY_AFTER])
}
