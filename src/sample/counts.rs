//! The penalty counts: how often each id was drawn. A count decays with every further token.

use super::fixed::{ONE, Scale};

/// The bit that marks an accepted id in the kernel's penalty counts. The low 31 bits are the count.
pub const SEEN: u32 = 1 << 31;

/// The accepted ids and their penalty counts, in the order in which the ids were first accepted. Counts are in units of 2^-20 and below [`SEEN`].
///
/// The counts are a list rather than a map, because every token decays every count.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(pub Vec<(u32, u32)>);

impl Counts {
    /// Decays all counts, then adds `weight` to the count of `id`. A weight of 0 still adds `id` to the list, because the presence penalty applies
    /// to all ids in the list.
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

/// Converts a count to units of 2^-20. Negative counts and NaN become 0. Counts of 2048 or more become `SEEN - 1`.
pub fn count(x: f32) -> u32 {
    ((x * ONE) as u32).min(SEEN - 1)
}

/// Returns the weight of a token, 0 or 1: a draw adds this weight to the token's penalty count. `bytes` is the token's text.
///
/// The weight is 0 if the text is a substring of `" \t0123456789"`, such as a space, a digit, `12` or the empty text. So numbers and indentation
/// may repeat. The official RWKV package uses the same rule.
pub fn penalty_weight(bytes: &[u8]) -> f32 {
    const EXEMPT: &[u8] = b" \t0123456789";
    let is_exempt = bytes.is_empty() || EXEMPT.windows(bytes.len()).any(|part| part == bytes);
    if is_exempt { 0.0 } else { 1.0 }
}
