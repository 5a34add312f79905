//! The log of requests on stderr: one line per response and one line per complete continuation. The log contains no answers and no keys. It
//! contains prompts only if `log_prompts` is set.

use super::LogFormat;
use super::app::App;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::PoisonError;
use wingbeat::engine::Completion;
use wingbeat::low_level::front_end::escaped;

/// A line of the log about a response.
#[derive(Debug, Serialize)]
pub struct AccessLogEntry<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    /// The route, such as `/v1/states/{name}`.
    pub route: &'a str,
    pub status: u16,
    /// The name of the caller's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    /// The time from the arrival of the request to the beginning of the response. A streamed answer continues after this time.
    pub milliseconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
}

impl App {
    /// Writes a line about a complete continuation.
    pub fn log_done(&self, request_id: &str, model: &str, done: &Completion) {
        let (index, finish, usage, timings) = (done.index, done.finish.name(), &done.usage, &done.timings);
        let record = json!({
            "request_id": request_id, "model": model, "index": index, "finish": finish, "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens, "completion_tokens": usage.completion_tokens, "queue_ms": timings.queue_ms,
            "prefill_ms": timings.prefill_ms, "decode_ms": timings.decode_ms,
        });
        self.write(record, || {
            format!(
                "{request_id} done: {model} [{index}] {finish}, {} prompt tokens ({} cached) in {:.1} ms after {:.1} ms in the queue, {} tokens in {:.1} ms",
                usage.prompt_tokens,
                usage.cached_tokens,
                timings.prefill_ms,
                timings.queue_ms,
                usage.completion_tokens,
                timings.decode_ms
            )
        });
    }

    /// Writes a line about a response.
    pub fn log(&self, record: &AccessLogEntry<'_>) {
        self.write(json!(record), || {
            let AccessLogEntry { request_id, method, route, status, key, milliseconds, error } = record;
            let key = key.map(|key| format!(" {key}")).unwrap_or_default();
            let error = error.map(|error| format!(" {error}")).unwrap_or_default();
            format!("{method} {route} {status} {milliseconds:.1} ms {request_id}{key}{error}")
        });
    }

    /// Writes a line of the log: `record` as JSON, or `text`, depending on the option `log`. Adds the current time.
    fn write(&self, mut record: Value, text: impl FnOnce() -> String) {
        let time = jiff::Timestamp::now();
        record["time"] = time.to_string().into();
        write_line(&match self.options.log {
            LogFormat::Json => record.to_string(),
            LogFormat::Text => format!("{time:.0} {}", text()),
        });
    }

    /// Writes a line for each warning that the log does not have yet, at most 64 in all: a client sends the same fields with every request.
    pub fn log_warnings(&self, request_id: &str, warnings: &[String]) {
        const MOST: usize = 64;
        let mut logged = self.logged_warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            if logged.len() < MOST && logged.insert(warning.clone()) {
                self.write(json!({"request_id": request_id, "warning": warning}), || format!("{request_id} warning: {warning}"));
            }
        }
    }

    /// Writes a request's body to the log if the option `log_prompts` is set.
    pub fn log_body(&self, request_id: &str, body: &[u8]) {
        if self.options.log_prompts {
            let text = String::from_utf8_lossy(body);
            write_line(&json!({"request_id": request_id, "body": text}).to_string());
        }
    }
}

/// Writes a line with one call, so that lines of several threads do not mix. An error is ignored: a message about it would go to the same stderr.
fn write_line(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{}\n", escaped(line)).as_bytes());
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_has_no_control_characters() {
        let text = "a\u{9b}31m\u{7f}\u{1b}é\n";
        let json = serde_json::json!({ "body": text }).to_string();
        let line = super::escaped(&json);
        assert_eq!(line, r#"{"body":"a\u009b31m\u007f\u001bé\n"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["body"], text);
    }
}
