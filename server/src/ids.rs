//! Makes ids for requests, answers and tool calls, and returns the current time.

use std::time::SystemTime;

/// Returns the current time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns a new id that begins with `prefix`, such as `chatcmpl-4f1f…`.
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}{:013x}{:013x}", wingbeat::low_level::sample::random_seed(), wingbeat::low_level::sample::random_seed())
}
