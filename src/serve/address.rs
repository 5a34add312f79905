//! Reads the address of a request: the name in the path, and the model in the query. A wrong address gets an error object. The extractors of axum
//! would return plain text.

use super::app::App;
use super::failure::{Answer, Failure};
use super::hosted::Hosted;
use crate::error::short;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use std::sync::Arc;

/// The only name in a request's path: `{name}`, `{id}` or `{file}` of the route.
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Name> {
        let named = Path::<String>::from_request_parts(parts, state).await;
        let wrong = |_| Failure::field("path", format!("expected a name in UTF-8 in the path, found {:?}", short(parts.uri.path(), 100)));
        named.map(|Path(name)| Name(name)).map_err(wrong)
    }
}

/// The model that the query selects with `?model=NAME`. Without `model`, the server's first model.
pub struct OfQuery(pub Arc<Hosted>);

impl FromRequestParts<Arc<App>> for OfQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Answer<OfQuery> {
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let names: Vec<_> = query.filter(|(key, _)| key == "model").map(|(_, name)| name).collect();
        match names.as_slice() {
            [] => app.model(None).map(OfQuery),
            [name] => app.model(Some(name)).map(OfQuery),
            _ => Err(Failure::field("model", format!("expected at most one model in the query, found {}", names.len()))),
        }
    }
}
