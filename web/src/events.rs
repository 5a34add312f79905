//! Events of a request as JSON.

use serde_json::{Value, json};
use wingbeat::{Completion, Event, Logprobs, Model};

/// Returns the JSON of an event.
pub fn json(model: &Model, event: &Event) -> Value {
    match event {
        Event::Started { prompt_tokens, cached_tokens } => {
            json!({"type": "started", "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens})
        }
        Event::Progress { processed_tokens, prompt_tokens, cached_tokens } => json!({
            "type": "progress", "processed_tokens": processed_tokens, "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens
        }),
        Event::Prompt { first, logprobs } => {
            json!({"type": "prompt", "first": first, "logprobs": logprobs.iter().map(|at| position(model, at)).collect::<Vec<_>>()})
        }
        Event::Text { index, text, .. } => json!({"type": "text", "index": index, "text": text}),
        Event::Thought { index, text } => json!({"type": "thought", "index": index, "text": text}),
        Event::Call { index, call, name } => json!({"type": "call", "index": index, "call": call, "name": name}),
        Event::Arguments { index, call, text } => json!({"type": "arguments", "index": index, "call": call, "text": text}),
        Event::Logprobs { index, logprobs } => {
            let mut at = position(model, logprobs);
            at["type"] = "logprobs".into();
            at["index"] = (*index).into();
            at
        }
        Event::Vector { index, vector } => json!({"type": "vector", "index": index, "vector": vector}),
        Event::Score { index, logit } => json!({"type": "score", "index": index, "logit": logit}),
        Event::Done(done) => completion(done),
        _ => json!({"type": "other"}),
    }
}

fn completion(done: &Completion) -> Value {
    let state = done.state.as_ref().map(|saved| match saved {
        Ok(state) => json!({"name": state.name, "n_tokens": state.n_tokens, "bytes": state.bytes}),
        Err(e) => json!({"error": e.to_string()}),
    });
    json!({
        "type": "done",
        "index": done.index,
        "text": done.text,
        "thought": done.thought,
        "calls": done.calls.iter().map(|call| json!({"name": call.name, "arguments": call.arguments})).collect::<Vec<_>>(),
        "tokens": done.tokens,
        "finish_reason": done.finish_reason().name(),
        "complete": done.complete,
        "seed": done.seed,
        "state": state,
        "usage": {
            "prompt_tokens": done.usage.prompt_tokens,
            "cached_tokens": done.usage.cached_tokens,
            "completion_tokens": done.usage.completion_tokens,
            "reasoning_tokens": done.usage.reasoning_tokens,
        },
        "timings": {
            "queue_ms": done.timings.queue_ms,
            "prefill_ms": done.timings.prefill_ms,
            "decode_ms": done.timings.decode_ms,
            "drafted": done.timings.drafted_tokens,
            "accepted": done.timings.accepted_tokens,
        },
    })
}

/// Returns the log-probabilities at one position. JSON has no infinity, so an impossible token has -9999.
fn position(model: &Model, at: &Logprobs) -> Value {
    let token = |id: u32, logprob: f32| {
        let bytes = model.vocab().map_or(&[] as &[u8], |vocab| vocab.token(id));
        json!({"id": id, "token": String::from_utf8_lossy(bytes), "logprob": logprob.max(-9999.0), "bytes": bytes})
    };
    let mut entry = token(at.token, at.logprob);
    entry["top_logprobs"] = at.top.iter().map(|&(id, logprob)| token(id, logprob)).collect();
    entry
}
