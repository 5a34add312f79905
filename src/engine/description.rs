//! The description of a model for language bindings.

use super::Engine;
use serde_json::{Value, json};

impl Engine {
    /// Describes the model, its device and the engine's slots as a JSON object, for language bindings.
    pub fn description(&self) -> Value {
        let model = self.model();
        let (facts, device) = (model.facts(), model.device());
        json!({
            "name": model.name(),
            "kind": model.kind(),
            "architecture": facts.architecture,
            "n_layer": facts.n_layer,
            "n_embd": facts.n_embd,
            "n_vocab": facts.n_vocab,
            "n_params": model.n_params(),
            "context": model.context(),
            "dtype": model.dtype(),
            "weight_bytes": model.weight_bytes(),
            "device_bytes": model.device_bytes(),
            "state_bytes": model.state_bytes(),
            "weights_hash": model.weights_hash(),
            "slots": self.stats().slots,
            "load_ms": model.load_ms(),
            "notes": model.notes(),
            "vocab_hint": model.vocab_hint(),
            "device": {
                "id": device.id, "name": device.name, "backend": device.backend, "kind": device.kind, "driver": device.driver, "why": device.why
            },
        })
    }
}
