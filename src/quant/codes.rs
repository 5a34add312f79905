//! The loop that decodes a row of any format. It decodes units of eight codes, and may multiply the values by factors.

use super::isa::{self, Body, Isa, LANES, SimdVector};
use super::units::Codes;
use super::{Factors, PAD, WEIGHTS_PER_BLOCK};
use std::marker::PhantomData;

/// The number of units whose codes fill one [`SimdVector`] of values.
pub(super) const UNITS: usize = LANES / PAD;
const _: () = assert!(UNITS == 2 && WEIGHTS_PER_BLOCK.is_multiple_of(LANES));

/// A function `(codes, factors, out, soon)` that decodes a row of codes into `out` and multiplies the values by `factors`. Elements of `out`
/// without a code are undefined. If every code is a whole number of bytes, the row may end within a unit. `soon` are codes for a later call,
/// which are prefetched into the CPU's cache.
pub type Decode = fn(&[u8], Factors<'_>, &mut [f32], &[u8]);

/// Returns the [`Decode`] function of the format whose units `C` describes, with the fastest instructions of this CPU.
pub(super) fn decode_of<C: Codes>() -> Decode {
    |bytes, factors, out, soon| decode_with::<C>(Isa::best(), bytes, factors, out, soon)
}

/// Decodes a row with the instructions of `isa`. All instruction sets give the same bits.
pub(super) fn decode_with<C: Codes>(isa: Isa, bytes: &[u8], factors: Factors<'_>, out: &mut [f32], soon: &[u8]) {
    let units = (out.len() / PAD).min(bytes.len() / C::BYTES) / UNITS * UNITS;
    let (whole, end) = out.split_at_mut(units * PAD);
    isa.with(Row::<C> { bytes: &bytes[..units * C::BYTES], factors, out: whole.as_chunks_mut().0, soon, codes: PhantomData });
    if !end.is_empty() {
        portable::<C>(&bytes[units * C::BYTES..], factors.after_units(units), end);
    }
}

/// The arguments of a loop over the part of a row that fills whole vectors.
struct Row<'a, C> {
    bytes: &'a [u8],
    factors: Factors<'a>,
    out: &'a mut [[f32; LANES]],
    soon: &'a [u8],
    codes: PhantomData<C>,
}

impl<C: Codes> Body for Row<'_, C> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        /// The number of vectors whose codes are prefetched together.
        const TOGETHER: usize = WEIGHTS_PER_BLOCK / LANES;
        for (b, out) in self.out.chunks_mut(TOGETHER).enumerate() {
            let bytes = TOGETHER * UNITS * C::BYTES;
            isa::prefetch(self.soon.as_ptr().wrapping_add(b * bytes), bytes);
            let mut first = b * TOGETHER;
            // SAFETY: the caller guarantees the CPU's instructions. `bytes` has the units of all vectors in `out`.
            unsafe {
                let units = |i: usize| self.bytes.as_ptr().add(i * UNITS * C::BYTES);
                let mut rest = out;
                if V::REGISTER >= C::SIGNED_FROM {
                    let (pairs, end) = rest.as_chunks_mut::<2>();
                    for pair in pairs {
                        let values = V::decode_pairs::<C, 1>([units(first)])[0];
                        for (i, (values, out)) in (first..).zip(values.into_iter().zip(pair)) {
                            self.factors.scaled::<C, V>(values, i).store(out);
                        }
                        first += 2;
                    }
                    rest = end;
                }
                for (i, out) in (first..).zip(rest) {
                    self.factors.scaled::<C, V>(V::decode::<C>(units(i)), i).store(out);
                }
            }
        }
    }
}

impl Factors<'_> {
    /// Converts the values of the row's vector `i` to weights.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn scaled<C: Codes, V: SimdVector>(&self, values: V, i: usize) -> V {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            match self {
                Factors::One => values,
                Factors::Blocks(subs) => {
                    let sub = i * LANES / subs.len;
                    let factor = V::splat(subs.factors[sub]);
                    // The product is exact in f32, so it does not matter whether the instruction is fused.
                    if C::HAS_MINIMA { values.mul_add(factor, V::splat(-subs.minima[sub])) } else { values.mul(factor) }
                }
                Factors::Each(scales) => values.mul(V::load(&scales.as_chunks().0[i])),
            }
        }
    }
}

/// Decodes the unit at the start of `bytes`. If a row without padding ends within the unit, zeros replace the missing bytes.
fn eight<C: Codes>(bytes: &[u8]) -> [f32; PAD] {
    if bytes.len() >= C::BYTES {
        return C::eight(bytes);
    }
    let mut unit = [0; 4 * PAD];
    unit[..bytes.len()].copy_from_slice(bytes);
    C::eight(&unit)
}

/// Decodes a row with plain arithmetic, as the reference implementation for [`decode_with`].
pub(super) fn portable<C: Codes>(bytes: &[u8], factors: Factors<'_>, out: &mut [f32]) {
    for (u, (out, unit)) in out.chunks_mut(PAD).zip(bytes.chunks(C::BYTES)).enumerate() {
        out.copy_from_slice(&eight::<C>(unit)[..out.len()]);
        match factors {
            Factors::One => {}
            Factors::Blocks(subs) => {
                let sub = u * PAD / subs.len;
                let minimum = subs.minima.get(sub).copied().unwrap_or_default();
                out.iter_mut().for_each(|x| *x = *x * subs.factors[sub] - minimum);
            }
            Factors::Each(scales) => out.iter_mut().zip(&scales[u * PAD..]).for_each(|(x, scale)| *x *= scale),
        }
    }
}
