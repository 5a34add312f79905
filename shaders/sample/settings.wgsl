// A sampler's settings, and their effect on a logit: penalties, bias and bans.
import package::sample::fixed::{Scale, LARGEST, times, times_signed, add_saturating, subtract_saturating, quantised, is_finite};

// The settings of one sampler. `Row` in src/sample/row.rs has the same fields in the same order, and describes them.
struct Settings {
    flags: u32,
    top_p: u32,
    top_k: u32,
    min_p_distance: u32,
    n_sigma: Scale,
    filter_scale: Scale,
    draw_scale: Scale,
    repeat: Scale,
    repeat_inverse: Scale,
    decay: Scale,
    presence: i32,
    frequency: Scale,
    frequency_sign: i32,
    seed_low: u32,
    seed_high: u32,
}

const GREEDY: u32 = 1u;
const HF: u32 = 2u;
const TOP_P: u32 = 4u;
const PENALISES: u32 = 8u;
const GUARDS: u32 = 16u;
const SIGMA: u32 = 32u;

// The highest bit of a count: set if the id was seen.
const SEEN: u32 = 0x80000000u;
// The bias of an id that is never sampled.
const BANNED: u32 = 0x80000000u;

// Returns the key of an id: its adjusted logit as an unsigned integer with the same order, or 0 if the id cannot be sampled. `bits` are the
// bits of the logit as f32.
fn key_of(bits: u32, count: u32, bias: u32, s: Settings) -> u32 {
    if !is_finite(bits) || bias == BANNED { return 0u; }
    var x = quantised(bits);
    if (s.flags & PENALISES) != 0u && (count & SEEN) != 0u {
        if x > 0 { x = times_signed(x, s.repeat_inverse); } else { x = times_signed(x, s.repeat); }
        let frequency = s.frequency_sign * i32(min(times(count & ~SEEN, s.frequency), u32(LARGEST)));
        x = max(subtract_saturating(x, add_saturating(s.presence, frequency)), -LARGEST);
    }
    return u32(max(add_saturating(x, bitcast<i32>(bias)), -LARGEST)) ^ 0x80000000u;
}
