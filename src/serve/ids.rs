//! Ids of requests, answers and calls.

/// Returns a new id that begins with `prefix`, such as `chatcmpl-4f1f…`.
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}{:013x}{:013x}", crate::sample::random_seed(), crate::sample::random_seed())
}
