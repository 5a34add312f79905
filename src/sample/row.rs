//! The settings as the sampling kernel reads them: one row of 32-bit numbers. The host computes the row once, with the same bits on every machine.

use super::fixed::{FULL_MASS, Scale, mass, quantised, share};
use super::settings::{Order, Sampling};

/// The bias that marks a banned id.
pub const BANNED: i32 = i32::MIN;

/// The bits of [`Row::flags`].
pub mod flag {
    /// Sampling is greedy: the largest logit wins.
    pub const GREEDY: u32 = 1;
    /// The filters and the temperature apply in the order of transformers ([`Order::Hf`](crate::sample::Order::Hf)).
    pub const HF: u32 = 2;
    /// `top_p` is on.
    pub const TOP_P: u32 = 4;
    /// A presence, frequency or repeat penalty is on.
    pub const PENALISES: u32 = 8;
    /// The guard against logits that are not finite is on. If a row of logits has such a logit, the kernel samples no token, and the host draws the
    /// guard's id.
    pub const GUARDS: u32 = 16;
    /// `top_n_sigma` is on.
    pub const SIGMA: u32 = 32;
}

/// The settings of one sampler in the form that the kernel reads. `Settings` in `shaders/sample/settings.wgsl` has the same fields in the same
/// order. A test checks this. `min_p_distance` and `presence` are in units of 2^-20. The repeat and frequency penalties are factors.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Row {
    /// A sum of bits from [`flag`].
    pub flags: u32,
    /// The smallest share of the total probability that `top_p` keeps, in units of 2^-32.
    pub top_p: u32,
    /// The number of tokens that `top_k` keeps. 0 means that `top_k` is off.
    pub top_k: u32,
    /// The largest distance (largest logit minus logit) of the tokens that `min_p` keeps. `u32::MAX` means that `min_p` is off.
    pub min_p_distance: u32,
    /// The largest distance (largest logit minus logit) of the tokens that `top_n_sigma` keeps, in standard deviations of the logits.
    pub n_sigma: Scale,
    /// The factor of [`mass`](super::fixed::mass) while filters apply: converts a distance (largest logit minus logit) to an exponent.
    pub filter_scale: Scale,
    /// The factor of [`mass`](super::fixed::mass) when a token is drawn: converts a distance (largest logit minus logit) to an exponent.
    pub draw_scale: Scale,
    /// `repeat_penalty`, which multiplies negative logits.
    pub repeat: Scale,
    /// 1 / `repeat_penalty`, which multiplies positive logits.
    pub repeat_inverse: Scale,
    /// `penalty_decay`, which multiplies all penalty counts after each token.
    pub decay: Scale,
    /// `presence_penalty`.
    pub presence: i32,
    /// The magnitude of `frequency_penalty`.
    pub frequency: Scale,
    /// The sign of `frequency_penalty`: 1 or -1.
    pub frequency_sign: i32,
    /// The seed of the random stream: the low 32 bits, then the high 32 bits.
    pub seed: [u32; 2],
}

impl Row {
    /// Converts settings to a row. Never panics, even if the settings are unchecked.
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

    /// Returns whether a flag is set.
    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the logit `x` of an accepted token after the repeat, presence and frequency penalties. `count` is the token's penalty count.
    pub(super) fn penalised(&self, x: i32, count: u32) -> i32 {
        self.counted(self.repeated(x), count)
    }

    /// Returns the logit `x` after the repeat penalty.
    pub(super) fn repeated(&self, x: i32) -> i32 {
        if x > 0 { self.repeat_inverse.times_signed(x) } else { self.repeat.times_signed(x) }
    }

    /// Returns the logit `x` of an accepted token after the presence and frequency penalties. `count` is the token's penalty count.
    pub(super) fn counted(&self, x: i32, count: u32) -> i32 {
        let frequency = self.frequency_sign * self.frequency.times(count).min(i32::MAX as u32) as i32;
        x.saturating_sub(self.presence.saturating_add(frequency)).max(-i32::MAX)
    }
}

/// Returns the largest distance (largest logit minus logit) at which a token is at least `p` times as likely as the most likely token. Returns
/// `u32::MAX` if `p` is 0, negative or NaN. Uses bisection, because the results of `log` differ between C libraries.
fn last_as_likely(p: f32, scale: Scale) -> u32 {
    // `min_p` is off
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

/// Returns each id in `logit_bias` and `ban` once, with its bias in units of 2^-20, sorted by id. Several biases of one id are added. A banned id
/// has the bias [`BANNED`].
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
