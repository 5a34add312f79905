//! Endpoints that would change the models of the server: `/api/pull`, `/api/push`, `/api/create`, `/api/copy`, `/api/delete` and `/api/blobs`.

use crate::body::discard;
use crate::failure::Failure;
use axum::extract::Request;
use axum::http::StatusCode;
use wingbeat::error::Error;

/// The maximum number of bytes that are drained from a refused body.
const MAX_REFUSED: usize = 64 << 10;

/// Refuses a request that would change the models.
pub async fn refuse(request: Request) -> Failure {
    let action = request.uri().path().split('/').nth(2).unwrap_or_default().to_owned();
    discard(request, MAX_REFUSED).await;
    let e = Error::input(format!("{action} is not supported: the server's operator chooses the models when the server starts"));
    Failure::new(StatusCode::FORBIDDEN, "not_supported", e.hint("GET /api/tags lists the models"))
}
