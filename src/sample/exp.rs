//! `e^x` for x <= 0, the same bits on every machine.
//!
//! The C library's differs between systems, and a sampled text would with it. Plain multiplies and adds, which Rust never
//! fuses, and no branches: the compiler makes SIMD of a loop over it.

/// `e^x` for x in -infinity ..= 0, within 2e-7 of itself; below -87, where f32 loses digits, it is 0. `exp(0)` is exactly 1.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the high one short enough that n * LN_2_HIGH is exact
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // adding and subtracting 1.5 * 2^23 rounds to the nearest integer
    const ROUND: f32 = 12_582_912.0;

    let x_in = x.max(-88.0);
    let n = x_in * std::f32::consts::LOG2_E + ROUND;
    let exponent = (n.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32); // the integer stands in the low bits
    let n = n - ROUND;
    let r = (x_in - n * LN_2_HIGH) - n * LN_2_LOW;
    // Taylor up to r^7: the next term is below 6e-9
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    let scale = f32::from_bits((exponent.wrapping_add(127) as u32) << 23);
    if x < -87.0 { 0.0 } else { p * scale }
}
