//! The settings as the kernel takes them: one row of 32-bit words, computed once, by the same arithmetic on every machine.

use super::fixed::{FULL_MASS, Scale, mass, quantised, share};
use super::settings::{Order, Sampling};

/// The bias of an id that is never drawn.
pub const BANNED: i32 = i32::MIN;

/// What [`Row::flags`] may hold.
pub mod flag {
    /// The largest logit always wins.
    pub const GREEDY: u32 = 1;
    /// The order of filters is transformers'.
    pub const HF: u32 = 2;
    /// `top_p` is not off.
    pub const TOP_P: u32 = 4;
    /// Tokens that were seen are penalised.
    pub const PENALISES: u32 = 8;
    /// Nothing is drawn while a logit is not finite: the host draws what its guard says.
    pub const GUARDS: u32 = 16;
    /// `top_n_sigma` is not off.
    pub const SIGMA: u32 = 32;
}

/// One sampler's settings for `shaders/sample/draw.wgsl`, where `struct Settings` has the same fields in the same order; a test
/// compares them. Distances, penalties and counts are in units of 2^-20.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Row {
    /// Of [`flag`].
    pub flags: u32,
    /// The share of the mass to keep, in units of 2^-32.
    pub top_p: u32,
    /// How many tokens to keep; 0 is off.
    pub top_k: u32,
    /// The largest distance from the maximum that `min_p` keeps; `u32::MAX` is off.
    pub min_p_distance: u32,
    /// How many standard deviations from the maximum `top_n_sigma` keeps.
    pub n_sigma: Scale,
    /// From a distance to the exponent of its mass, for `top_p`.
    pub filter_scale: Scale,
    /// The same for the draw.
    pub draw_scale: Scale,
    /// `repeat_penalty`, for negative logits.
    pub repeat: Scale,
    /// Its inverse, for positive logits.
    pub repeat_inverse: Scale,
    /// What is left of all counts after one more token.
    pub decay: Scale,
    /// Taken from what was seen.
    pub presence: i32,
    /// The magnitude of what is taken per count.
    pub frequency: Scale,
    /// Its sign: 1 or -1.
    pub frequency_sign: i32,
    /// Names the random stream: low and high word.
    pub seed: [u32; 2],
}

impl Row {
    /// The row of these settings. Unchecked settings never panic.
    pub fn of(s: &Sampling) -> Row {
        let is_greedy = s.temperature.is_nan() || s.temperature <= 0.0;
        let penalises = s.presence_penalty != 0.0 || s.frequency_penalty != 0.0 || s.repeat_penalty != 1.0;
        let flags = [
            (is_greedy, flag::GREEDY),
            (s.order == Order::Hf, flag::HF),
            (s.top_p < 1.0, flag::TOP_P),
            (penalises, flag::PENALISES),
            (s.guard.is_some(), flag::GUARDS),
            (s.top_n_sigma > 0.0, flag::SIGMA),
        ];
        let draw = Scale::of_temperature(if is_greedy { 1.0 } else { s.temperature });
        let filter = if s.order == Order::Hf { draw } else { Scale::of_temperature(1.0) };
        let repeat = f64::from(s.repeat_penalty);
        Row {
            flags: flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum(),
            top_p: share(s.top_p),
            top_k: u32::try_from(s.top_k).unwrap_or(0),
            min_p_distance: last_as_likely(s.min_p, filter),
            n_sigma: Scale::of(f64::from(s.top_n_sigma)),
            filter_scale: filter,
            draw_scale: draw,
            repeat: Scale::of(repeat),
            repeat_inverse: Scale::of(1.0 / repeat),
            decay: Scale::of(f64::from(s.penalty_decay)),
            presence: quantised(s.presence_penalty),
            frequency: Scale::of(f64::from(s.frequency_penalty.abs())),
            frequency_sign: if s.frequency_penalty < 0.0 { -1 } else { 1 },
            seed: [s.seed as u32, (s.seed >> 32) as u32],
        }
    }

    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// A logit after the penalties of a token that was seen, with this count.
    pub(super) fn penalised(&self, x: i32, count: u32) -> i32 {
        self.counted(self.repeated(x), count)
    }

    /// The repeat penalty alone. A factor of 1 changes nothing.
    pub(super) fn repeated(&self, x: i32) -> i32 {
        if x > 0 { self.repeat_inverse.times_signed(x) } else { self.repeat.times_signed(x) }
    }

    /// Those of presence and frequency.
    pub(super) fn counted(&self, x: i32, count: u32) -> i32 {
        let frequency = self.frequency_sign * self.frequency.times(count).min(i32::MAX as u32) as i32;
        x.saturating_sub(self.presence.saturating_add(frequency)).max(-i32::MAX)
    }
}

/// The largest distance whose mass is at least `p` of the full one, found by halving: no logarithm of some C library decides.
fn last_as_likely(p: f32, scale: Scale) -> u32 {
    // not above 0, and what is no number, is off
    if p.is_nan() || p <= 0.0 {
        return u32::MAX;
    }
    let least = (f64::from(p.min(1.0)) * f64::from(FULL_MASS)).ceil() as u32;
    let (mut kept, mut dropped) = (0, u32::MAX);
    while dropped - kept > 1 {
        let middle = kept + (dropped - kept) / 2;
        if mass(middle, scale) >= least { kept = middle } else { dropped = middle }
    }
    kept
}

/// The biases of these settings, ascending by id: in units of 2^-20, those of one id added up, [`BANNED`] where banned.
pub(super) fn biases(s: &Sampling) -> Vec<(u32, i32)> {
    let biased = s.logit_bias.iter().map(|&(id, x)| (id, if x == f32::NEG_INFINITY { BANNED } else { quantised(x) }));
    let mut all: Vec<(u32, i32)> = biased.chain(s.ban.iter().map(|&id| (id, BANNED))).collect();
    all.sort_by_key(|(id, _)| *id);
    all.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = if next.1 == BANNED || kept.1 == BANNED { BANNED } else { kept.1.saturating_add(next.1).max(-i32::MAX) };
        }
        is_same
    });
    all
}
