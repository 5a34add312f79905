//! What the penalties remember: how often each drawn id came, fading with time.

/// Counts by id, in the order in which the ids first came.
///
/// A plain list: every step decays every count, so it is walked once a token anyway.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(pub Vec<(u32, f32)>);

impl Counts {
    /// Decays all counts, then adds `weight` to that of `id`. An entry is made even for weight 0: presence needs it.
    pub(super) fn accept(&mut self, id: u32, weight: f32, decay: f32) {
        let mut is_new = true;
        for (seen, count) in &mut self.0 {
            *count *= decay;
            if *seen == id {
                *count += weight;
                is_new = false;
            }
        }
        if is_new {
            self.0.push((id, weight));
        }
    }
}

/// What one token of this text adds to its count: 0 where the text is a part of `" \t0123456789"` (a space, a digit, `12`,
/// nothing at all), else 1. So numbers and indentation may repeat; source: the official RWKV package.
pub fn penalty_weight(bytes: &[u8]) -> f32 {
    const EXEMPT: &[u8] = b" \t0123456789";
    let is_exempt = bytes.is_empty() || EXEMPT.windows(bytes.len()).any(|part| part == bytes);
    if is_exempt { 0.0 } else { 1.0 }
}
