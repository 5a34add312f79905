//! What the penalties remember: how often each drawn id came, fading with time.

use super::fixed::{ONE, Scale};

/// Set in the kernel's plane of counts where the id was seen at all; the other bits are the count.
pub const SEEN: u32 = 1 << 31;

/// Counts by id, in the order in which the ids first came; in units of 2^-20, below [`SEEN`].
///
/// A plain list: every step decays every count, so it is walked once a token anyway.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(pub Vec<(u32, u32)>);

impl Counts {
    /// Decays all counts, then adds `weight` to that of `id`. An entry is made even for weight 0: presence needs it.
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

/// A count as a fixed-point number: from 0 up to 2048, in units of 2^-20.
pub fn count(x: f32) -> u32 {
    ((x * ONE) as u32).min(SEEN - 1)
}

/// What one token of this text adds to its count: 0 where the text is a part of `" \t0123456789"` (a space, a digit, `12`,
/// nothing at all), else 1. So numbers and indentation may repeat; source: the official RWKV package.
pub fn penalty_weight(bytes: &[u8]) -> f32 {
    const EXEMPT: &[u8] = b" \t0123456789";
    let is_exempt = bytes.is_empty() || EXEMPT.windows(bytes.len()).any(|part| part == bytes);
    if is_exempt { 0.0 } else { 1.0 }
}
