//! The log of requests on stderr: one line per response and one line per complete continuation. The log contains no answers and no keys. It
//! contains prompts only if `log_prompts` is set.

use super::LogFormat;
use super::app::App;
use serde::Serialize;
use std::io::Write;

/// A line of the log about a response.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    /// The route, such as `/v1/states/{name}`.
    pub route: &'a str,
    pub status: u16,
    /// The name of the caller's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
    /// The time until the response began. A streamed answer continues after this time.
    pub milliseconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
}

/// A line of the log about a complete continuation.
#[derive(Debug, Serialize)]
pub struct DoneRecord<'a> {
    pub request_id: &'a str,
    pub model: &'a str,
    pub index: usize,
    pub finish: &'a str,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
    pub queue_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
}

impl App {
    /// Writes a line about a complete continuation.
    pub fn log_done(&self, record: &DoneRecord<'_>) {
        let time = jiff::Timestamp::now();
        write_line(&match self.options.log {
            LogFormat::Json => with_time(record, time),
            LogFormat::Text => {
                let DoneRecord {
                    request_id,
                    model,
                    index,
                    finish,
                    prompt_tokens,
                    cached_tokens,
                    completion_tokens,
                    queue_ms,
                    prefill_ms,
                    decode_ms,
                } = record;
                format!(
                    "{time:.0} {request_id} done: {model} [{index}] {finish}, {prompt_tokens} prompt tokens ({cached_tokens} cached) in {prefill_ms:.1} ms \
                     after {queue_ms:.1} ms in the queue, {completion_tokens} tokens in {decode_ms:.1} ms"
                )
            }
        });
    }

    /// Writes a line about a response.
    pub fn log(&self, record: &Record<'_>) {
        let time = jiff::Timestamp::now();
        let line = match self.options.log {
            LogFormat::Json => with_time(record, time),
            LogFormat::Text => {
                let Record { request_id, method, route, status, key, milliseconds, error } = record;
                let key = key.map(|key| format!(" {key}")).unwrap_or_default();
                let error = error.map(|error| format!(" {error}")).unwrap_or_default();
                format!("{time:.0} {method} {route} {status} {milliseconds:.1} ms {request_id}{key}{error}")
            }
        };
        write_line(&line);
    }

    /// Writes a request's body to the log, if the operator asked for this.
    pub fn log_body(&self, request_id: &str, body: &[u8]) {
        if self.options.log_prompts {
            let text = String::from_utf8_lossy(body);
            write_line(&serde_json::json!({"request_id": request_id, "body": text}).to_string());
        }
    }
}

/// Returns a record as JSON, with the time.
fn with_time(record: &impl Serialize, time: jiff::Timestamp) -> String {
    let mut fields = serde_json::to_value(record).unwrap_or_default();
    fields["time"] = time.to_string().into();
    fields.to_string()
}

/// Writes a line in one piece, so that lines of several threads do not mix. An error is ignored: nobody could read a message about it.
fn write_line(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
