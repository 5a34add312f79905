//! The memory of the penalties: how often each id was drawn, decaying with time.

use super::fixed::{ONE, Scale};

/// The bit that marks an accepted id in the kernel's counts. The other 31 bits are the count.
pub const SEEN: u32 = 1 << 31;

/// Ids and their counts, in the order of first acceptance. Counts are in units of 2^-20 and below [`SEEN`].
///
/// The counts are a list rather than a map, because every token decays every count.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(pub Vec<(u32, u32)>);

impl Counts {
    /// Decays all counts, then adds `weight` to the count of `id`. Weight 0 also adds an entry, for the presence penalty.
    pub(super) fn accept(&mut self, id: u32, weight: f32, decay: Scale) {
        let weight = count(weight);
        let mut is_new = true;
        for (seen, count) in &mut self.0 {
            *count = decay.times(*count).min(SEEN - 1);
            if *seen == id {
                *count = (*count + weight).min(SEEN - 1);
                is_new = false;
            }
        }
        if is_new {
            self.0.push((id, weight));
        }
    }
}

/// Converts a count to units of 2^-20. Negative counts become 0; counts from 2048 become `SEEN - 1`.
pub fn count(x: f32) -> u32 {
    ((x * ONE) as u32).min(SEEN - 1)
}

/// Returns the weight of a token in the penalty counts, from the token's bytes.
///
/// The weight is 0 for a substring of `" \t0123456789"` (a space, a digit, `12`, the empty text), otherwise 1. So numbers and indentation
/// may repeat. Source: the official RWKV package.
pub fn penalty_weight(bytes: &[u8]) -> f32 {
    const EXEMPT: &[u8] = b" \t0123456789";
    let is_exempt = bytes.is_empty() || EXEMPT.windows(bytes.len()).any(|part| part == bytes);
    if is_exempt { 0.0 } else { 1.0 }
}
