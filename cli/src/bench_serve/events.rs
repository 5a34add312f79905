//! Reads server-sent events of a completion.

use serde::Deserialize;

/// The maximum length of a line, in bytes. Events of a completion are far shorter, so a longer line is an error.
const MAX_LINE: usize = 4 << 20;

/// An event of a streamed completion.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chunk {
    /// True if the chunk has text.
    pub has_text: bool,
    /// True if the chunk ends its answer.
    pub is_last: bool,
    /// The numbers of prompt tokens and completion tokens, or `None` if the chunk has no usage.
    pub usage: Option<(usize, usize)>,
}

/// An event of a stream, or the line that ends the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    Chunk(Chunk),
    /// The line `data: [DONE]`, which ends a stream.
    Done,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    choices: Vec<ChunkChoice>,
    #[serde(default)]
    usage: Option<ReportedUsage>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ReportedUsage {
    #[serde(default)]
    prompt_tokens: usize,
    #[serde(default)]
    completion_tokens: usize,
}

/// Splits the bytes of a stream into events.
#[derive(Default)]
pub struct EventSplitter {
    line: Vec<u8>,
}

impl EventSplitter {
    /// Adds bytes of the stream. Returns the events that are complete.
    ///
    /// # Errors
    /// The message of an error event, or a description of a line that is not an event of a completion.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Vec<StreamEvent>, String> {
        let mut events = Vec::new();
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(event(line.strip_suffix(b"\r").unwrap_or(&line))?);
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > MAX_LINE {
            return Err(format!("expected lines of at most {MAX_LINE} bytes in the stream"));
        }
        Ok(events)
    }
}

/// Converts a line of the stream to an event. Returns `None` for comments, empty lines and fields other than `data`.
fn event(line: &[u8]) -> Result<Option<StreamEvent>, String> {
    let Some(data) = line.strip_prefix(b"data:") else { return Ok(None) };
    let data = data.trim_ascii();
    if data == b"[DONE]" {
        return Ok(Some(StreamEvent::Done));
    }
    let wire: Wire = serde_json::from_slice(data).map_err(|_| {
        let found = wingbeat::low_level::front_end::short(&String::from_utf8_lossy(data), 80);
        format!("expected a chunk of a completion, found {found:?}")
    })?;
    if let Some(error) = wire.error.filter(|error| !error.is_null()) {
        return Err(message(&error));
    }
    let choice = wire.choices.first();
    Ok(Some(StreamEvent::Chunk(Chunk {
        has_text: choice.and_then(|choice| choice.text.as_deref()).is_some_and(|text| !text.is_empty()),
        is_last: choice.is_some_and(|choice| choice.finish_reason.is_some()),
        usage: wire.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens)),
    })))
}

/// Returns the message of an error object, shortened to 300 characters: the field `message`, or the whole object as text.
pub fn message(error: &serde_json::Value) -> String {
    let text = error.get("message").unwrap_or(error);
    wingbeat::low_level::front_end::short(&text.as_str().map_or_else(|| text.to_string(), str::to_owned), 300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_any_pieces() {
        let stream = ": comment\r\nevent: x\n\ndata: {\"choices\":[{\"index\":0,\"text\":\"é\",\"finish_reason\":null}],\"usage\":null}\r\n\n\
            data:{\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        let want = [
            StreamEvent::Chunk(Chunk { has_text: true, ..Chunk::default() }),
            StreamEvent::Chunk(Chunk { is_last: true, ..Chunk::default() }),
            StreamEvent::Chunk(Chunk { usage: Some((3, 2)), ..Chunk::default() }),
            StreamEvent::Done,
        ];
        for size in [1, 7, stream.len()] {
            let mut events = EventSplitter::default();
            let found: Vec<StreamEvent> = stream.as_bytes().chunks(size).flat_map(|bytes| events.read(bytes).unwrap()).collect();
            assert_eq!(found, want, "{size}");
        }
    }

    #[test]
    fn errors_in_a_stream_are_reported() {
        let failed = |line: &str| EventSplitter::default().read(format!("data: {line}\n").as_bytes()).unwrap_err();
        assert_eq!(failed(r#"{"error":{"message":"the device was lost"}}"#), "the device was lost");
        assert_eq!(failed(r#"{"error":"gone"}"#), "gone");
        assert!(failed("<html>").contains("found \"<html>\""));
        assert!(EventSplitter::default().read(&vec![b'x'; MAX_LINE + 1]).is_err());
    }
}
