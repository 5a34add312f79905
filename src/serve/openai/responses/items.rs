//! The response object and the items of its output.

use crate::engine::Completion;
use crate::serve::ids::new_id;
use crate::serve::openai::answer::{add_end, finish_reason, merge};
use serde_json::{Value, json};

/// The fields of a response that are known before the model writes its output.
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
    /// Fields of the request that the response repeats.
    pub echoed: Value,
}

impl Head {
    /// Returns the response object with this status and output.
    pub fn object(&self, status: &str, output: Vec<Value>) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": null, "incomplete_details": null,
            "model": self.model, "output": output, "parallel_tool_calls": true, "temperature": null, "top_p": null, "truncation": "disabled",
            "usage": null, "background": false, "user": null,
        });
        merge(&mut response, &self.echoed);
        response
    }

    /// Returns the response object of a complete answer, with new ids for its items.
    pub fn response(&self, done: &Completion) -> Value {
        let thought = done.thought.iter().map(|thought| reasoning(&new_id("rs_"), thought));
        let text = (!done.text.is_empty() || done.calls.is_empty()).then(|| message(&new_id("msg_"), &done.text, "completed"));
        let calls = done.calls.iter().map(|call| function_call(&new_id("fc_"), &new_id("call_"), &call.name, &call.arguments, "completed"));
        let mut output: Vec<Value> = thought.chain(text).chain(calls).collect();
        if let Some(last) = output.last_mut().filter(|last| last["status"].is_string()) {
            last["status"] = last_status(done).into();
        }
        self.complete(done, output)
    }

    /// Returns the response object of a complete answer with these items.
    pub fn complete(&self, done: &Completion, output: Vec<Value>) -> Value {
        let is_cut = finish_reason(done) == "length";
        let mut response = self.object(if is_cut { "incomplete" } else { "completed" }, output);
        if is_cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        let usage = &done.usage;
        response["usage"] = json!({
            "input_tokens": usage.prompt_tokens, "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens, "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        add_end(&mut response, done);
        response["seed"] = done.seed.into();
        response
    }
}

/// Returns the status of the last item of a complete answer. A client must not run a call that was cut.
pub fn last_status(done: &Completion) -> &'static str {
    if finish_reason(done) == "length" { "incomplete" } else { "completed" }
}

pub fn reasoning(id: &str, thought: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
}

pub fn message(id: &str, text: &str, status: &str) -> Value {
    json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": [output_text(text)]})
}

pub fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub fn function_call(id: &str, call_id: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, "status": status})
}
