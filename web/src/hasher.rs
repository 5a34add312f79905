//! SHA-256 for files that are too large for `crypto.subtle`, which needs all bytes in memory at once.

use sha2::{Digest, Sha256};
use wasm_bindgen::prelude::*;

/// A hash of bytes that arrive in parts.
#[wasm_bindgen]
#[derive(Default)]
pub struct Hasher(Sha256);

#[wasm_bindgen]
impl Hasher {
    #[wasm_bindgen(constructor)]
    pub fn new() -> Hasher {
        Hasher::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes so far, as hexadecimal digits.
    pub fn digest(&self) -> String {
        self.0.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
