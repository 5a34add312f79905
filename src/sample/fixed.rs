//! The sampler's arithmetic: integers, so that the host and every GPU compute the same bits and choose the same token. Floats would differ by
//! rounding mode, fused multiply-adds and order. They are used only to convert logits and settings to integers.
//!
//! `shaders/sample/fixed.wgsl` has the same functions.

/// The number 1 in fixed point: 2^20. Logits and penalties (both in nats) and counts are stored in units of 2^-20.
pub const ONE: f32 = (1 << 20) as f32;

/// The bound of logits in nats. Logits are clamped to `-LARGEST ..= LARGEST`.
const LARGEST: f32 = 2000.0;

/// The key of a token that cannot be drawn: the smallest key. A key is a logit as an unsigned integer.
pub const EXCLUDED: u32 = 0;

/// The mass (unnormalised probability) of the most likely token.
pub const FULL_MASS: u32 = 1 << 31;

/// Converts nats to units of 2^-20 nats. Clamps to -2000 ..= 2000 nats, then truncates. NaN becomes -2000 nats.
#[inline(always)]
pub fn quantised(x: f32) -> i32 {
    // a product with a power of two is exact, so the rounding mode does not matter
    let at_least = if x > -LARGEST { x } else { -LARGEST };
    let scaled = at_least.min(LARGEST) * ONE;
    // SAFETY: `at_least` is never NaN, so `scaled` is within +-2000 * 2^20. A checked conversion takes eight times as long.
    unsafe { scaled.to_int_unchecked() }
}

/// Converts a fixed-point logit to a key. Keys are unsigned integers, have the same order as the logits, and are never `EXCLUDED`.
#[inline(always)]
pub fn key(x: i32) -> u32 {
    x.max(-i32::MAX) as u32 ^ 1 << 31
}

/// Converts a key that is not `EXCLUDED` back to the fixed-point logit.
#[inline(always)]
pub fn unkey(key: u32) -> i32 {
    (key ^ 1 << 31) as i32
}

/// Converts a logit to a key, an unsigned integer. The key is `EXCLUDED` if the logit is not finite.
#[inline(always)]
pub fn key_of(logit: f32) -> u32 {
    if logit.is_finite() { key(quantised(logit)) } else { EXCLUDED }
}

/// Converts a float to an integer, so that integers have the same order as the floats. Both zeros become the same integer. The greedy sampler uses
/// this order for logits whose keys are equal.
pub fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// A non-negative factor in integers: `mantissa / 2^shift`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Scale {
    /// The mantissa: 0, or a number with the highest bit set.
    pub mantissa: u32,
    /// The shift, 0 to 63.
    pub shift: u32,
}

impl Scale {
    /// The factor 0.
    pub const ZERO: Scale = Scale { mantissa: 0, shift: 0 };

    /// Converts a factor, rounding down to 32 significant bits. NaN and factors below 2^-32 become 0. Factors of 2^32 or more become 2^32 - 1.
    pub fn of(factor: f64) -> Scale {
        let bits = factor.to_bits();
        let shift = 31 - ((bits >> 52 & 0x7ff) as i32 - 1023);
        if factor.is_nan() || factor <= 0.0 || shift > 63 {
            Scale::ZERO
        } else if shift < 0 {
            Scale { mantissa: u32::MAX, shift: 0 }
        } else {
            Scale { mantissa: (bits >> 21) as u32 | 1 << 31, shift: shift as u32 }
        }
    }

    /// Returns the factor for a temperature. The factor converts a distance (largest logit minus logit) to the exponent y of [`mass`]. Distances are
    /// in units of 2^-20 nats, and exponents in units of 2^-26.
    pub fn of_temperature(temperature: f32) -> Scale {
        Scale::of(std::f64::consts::LOG2_E * 64.0 / f64::from(temperature))
    }

    /// Multiplies `x` by the factor and truncates. The result is at most `u32::MAX`.
    #[inline(always)]
    pub fn times(self, x: u32) -> u32 {
        let product = (u64::from(x) * u64::from(self.mantissa)) >> self.shift;
        product.min(u64::from(u32::MAX)) as u32
    }

    /// Multiplies the magnitude of `x` by the factor and truncates. The result has the sign of `x`, and its magnitude is at most `i32::MAX`.
    pub fn times_signed(self, x: i32) -> i32 {
        let magnitude = self.times(x.unsigned_abs()).min(i32::MAX as u32) as i32;
        if x < 0 { -magnitude } else { magnitude }
    }
}

/// Returns the mass (unnormalised probability) of a token: 2^(31 - y), truncated, or 0 if y is 32 or more. `distance` is the largest logit minus the
/// token's logit. The exponent y is `scale * distance` in units of 2^-26.
///
/// The relative error is at most 2e-9 before the mass is shifted by the integer part of y.
#[inline(always)]
pub fn mass(distance: u32, scale: Scale) -> u32 {
    // 2^-x = 1 - x (c0 - x (c1 - x (c2 - …))), interpolated at the Chebyshev points of [0, 1]; x and c in units of 2^-32
    const C: [u32; 7] = [0xb172_17f7, 0x3d7f_7bcb, 0x0e35_8127, 0x0276_41a9, 0x0057_28b0, 0x0009_c200, 0x0000_bda6];
    let high = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    let y = scale.times(distance);
    let x = y << 6;
    let q = C[5] - high(C[6], x);
    let q = C[4] - high(q, x);
    let q = C[3] - high(q, x);
    let q = C[2] - high(q, x);
    let q = C[1] - high(q, x);
    let q = C[0] - high(q, x);
    let mantissa = FULL_MASS - ((high(q, x) + 1) >> 1);
    (u64::from(mantissa) >> (y >> 26)) as u32
}

/// Returns `total * share / 2^32`, rounded up. Returns at least 1.
pub fn share_of(total: u64, share: u32) -> u64 {
    (u128::from(total) * u128::from(share)).div_ceil(1 << 32).max(1) as u64
}

/// Converts a share to units of 2^-32. NaN and negative shares become 0. Shares of 1 or more become `u32::MAX`.
pub(super) fn share(x: f32) -> u32 {
    (f64::from(x) * 4_294_967_296.0) as u32
}

/// Returns the base-2 logarithm of `x` in units of 2^-20, truncated. Returns 0 if `x` is 0.
pub(super) fn log2(x: u64) -> u32 {
    let whole = 63 - x.max(1).leading_zeros();
    let (mut mantissa, mut fraction) = (x.max(1) << (63 - whole), 0);
    for _ in 0..20 {
        // the next bit is 1 if the square of the mantissa, a number in 1 .. 2, is at least 2
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let bit = (square >> 64) as u32;
        mantissa = (square >> bit) as u64;
        fraction = fraction << 1 | bit;
    }
    whole << 20 | fraction
}

/// Maps a random 64-bit number to the range `0 .. total`.
pub fn uniform_below(random: u64, total: u64) -> u64 {
    ((u128::from(random) * u128::from(total)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_logits_keep_their_order() {
        let sorted = [f32::MIN, -2000.5, -2000.0, -1.5, -0.3, -1e-8, 0.0, 1e-30, 0.7, 1.0, 1999.9, 2000.0, 1e30];
        let keys: Vec<u32> = sorted.iter().map(|&x| key_of(x)).collect();
        assert!(keys.is_sorted() && keys[0] > EXCLUDED);
        assert!(sorted.iter().map(|&x| ordered(x)).is_sorted_by(|a, b| a < b));
        assert_eq!(ordered(-0.0), ordered(0.0));
        assert_eq!((quantised(-0.3), quantised(1.0), quantised(-1e9)), (-314_572, 1 << 20, -(2000 << 20)));
        assert_eq!([f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(key_of), [EXCLUDED; 3]);
        assert_eq!((key(i32::MIN), key(i32::MAX)), (1, u32::MAX));
    }

    #[test]
    fn a_scale_multiplies() {
        for factor in [1.0, 0.5, 2.0, 0.996, 92.332, 1e-5, 3e9] {
            for x in [0, 1, 17, 1 << 20, 123_456_789, u32::MAX] {
                let want = (f64::from(x) * factor).min(f64::from(u32::MAX));
                let got = f64::from(Scale::of(factor).times(x));
                assert!(got <= want && want - got <= 1.0 + want * 2.4e-10, "{factor} {x}");
            }
        }
        assert_eq!([0.0, -1.0, f64::NAN, 1e-30].map(Scale::of), [Scale::ZERO; 4]);
        assert_eq!((Scale::of(1e30).times(1), Scale::of(f64::INFINITY).times(0)), (u32::MAX, 0));
        assert_eq!((Scale::of(0.5).times_signed(-7), Scale::of(2.0).times_signed(-(1 << 30))), (-3, -i32::MAX));
    }

    #[test]
    fn masses_are_powers_of_two() {
        for temperature in [1.0, 0.3, 5.0] {
            let scale = Scale::of_temperature(temperature);
            let mut last = FULL_MASS;
            for d in (0..400 << 20).step_by(997) {
                let got = mass(d, scale);
                let want = (-f64::from(d) / f64::from(ONE) / f64::from(temperature)).exp() * f64::from(FULL_MASS);
                assert!((f64::from(got) - want).abs() <= 1.0 + want * 1.5e-8, "{d} at {temperature}: {got} for {want}");
                assert!(got <= last, "{d} at {temperature}");
                last = got;
            }
        }
        assert_eq!((mass(0, Scale::of_temperature(1e-30)), mass(1, Scale::of_temperature(1e-30))), (FULL_MASS, 0));
        assert_eq!((mass(u32::MAX, Scale::ZERO), mass(u32::MAX, Scale::of_temperature(1e-3))), (FULL_MASS, 0));
    }

    #[test]
    fn logarithms_match_the_float_library() {
        assert_eq!([0, 1, 2, 3, 1 << 63].map(log2), [0, 0, 1 << 20, 1_661_953, 63 << 20]);
        for i in 0..2000u64 {
            let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64) | 1;
            let (got, want) = (f64::from(log2(x)), (x as f64).log2() * f64::from(ONE));
            assert!(got <= want + 0.01 && want < got + 1.01, "{x}: {got} for {want}");
        }
    }

    #[test]
    fn shares_round_up_and_random_numbers_stay_below() {
        assert_eq!([0, 1, 1 << 31, u32::MAX].map(|p| share_of(1000, p)), [1, 1, 500, 1000]);
        assert_eq!(share_of(1 << 49, 1 << 31), 1 << 48);
        assert_eq!((uniform_below(0, 77), uniform_below(u64::MAX, 77), uniform_below(1 << 63, 77)), (0, 76, 38));
    }
}
