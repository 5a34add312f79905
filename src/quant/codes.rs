//! The inner loops that all formats share. The loops decode units of eight codes, and may multiply the values by scales.
//!
//! On x86-64, the AVX2 code is used if the CPU has AVX2. In all other cases, the compiler vectorises the portable code. Both give the same bits.

#[cfg(all(target_arch = "x86_64", has_avx512))]
use super::isa::Isa;
use super::{Factors, PAD, WEIGHTS_PER_BLOCK};

/// Decodes the units of a format. A unit is the bytes of eight consecutive codes.
pub trait Codes {
    /// The number of bytes per unit.
    const BYTES: usize;

    /// Returns the unscaled values of a unit's codes.
    fn eight(unit: &[u8]) -> [f32; PAD];

    /// Loads the unscaled values of a unit into a register.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C, and `unit` points to a whole unit.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256;

    /// Loads the unscaled values of two consecutive units into a register.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA, F16C and AVX-512 (F and VL), and `units` points to two whole units.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[inline(always)]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            let (low, high) = (_mm256_castps_pd(Self::load(units)), _mm256_castps_pd(Self::load(units.add(Self::BYTES))));
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high))
        }
    }
}

/// Decodes a row of codes of one format. The row may end within a unit if its codes are whole bytes. Missing codes decode to any value. The
/// last argument is the codes that will be decoded soon, which are fetched from memory meanwhile.
pub type Decode = fn(&[u8], Factors<'_>, &mut [f32], &[u8]);

/// Returns the loop that decodes codes of the units `C`.
pub(super) fn decode_of<C: Codes>() -> Decode {
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    if avx2() && Isa::best() == Isa::Avx512 {
        // SAFETY: the CPU has AVX-512, AVX2, FMA and F16C.
        return |bytes, factors, out, soon| unsafe { x86::decode512::<C>(bytes, factors, out, soon) };
    }
    decode_of_fewer::<C>()
}

/// Returns the loop for a CPU without AVX-512.
pub(super) fn decode_of_fewer<C: Codes>() -> Decode {
    #[cfg(target_arch = "x86_64")]
    if avx2() {
        // SAFETY: the CPU has AVX2, FMA and F16C.
        return |bytes, factors, out, soon| unsafe { x86::decode::<C>(bytes, factors, out, soon) };
    }
    portable::<C>
}

/// Returns the portable loop, the reference of all other loops.
#[cfg(test)]
pub(super) fn portable_of<C: Codes>() -> Decode {
    portable::<C>
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

fn portable<C: Codes>(bytes: &[u8], factors: Factors<'_>, out: &mut [f32], _soon: &[u8]) {
    for (u, (out, unit)) in out.chunks_mut(PAD).zip(bytes.chunks(C::BYTES)).enumerate() {
        out.copy_from_slice(&eight::<C>(unit)[..out.len()]);
        match factors {
            Factors::One => {}
            Factors::Blocks(scales) => out.iter_mut().for_each(|x| *x *= scales[u * PAD / WEIGHTS_PER_BLOCK]),
            Factors::Each(scales) => out.iter_mut().zip(&scales[u * PAD..]).for_each(|(x, scale)| *x *= scale),
        }
    }
}

/// Returns true if the CPU has the features that the AVX2 code needs.
#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Codes, Factors, PAD, WEIGHTS_PER_BLOCK};
    use std::arch::x86_64::*;

    /// The number of units in a block of weights that may share a factor.
    const UNITS: usize = WEIGHTS_PER_BLOCK / PAD;
    /// The size of a cache line.
    const LINE_BYTES: usize = 64;

    // Callers of the function in this module must have checked that the CPU has AVX2, FMA and F16C.

    /// Fetches the lines of memory in which the codes of the block after unit `first` begin. A prefetch may be of any address.
    #[inline(always)]
    fn fetch<C: Codes>(soon: &[u8], first: usize) {
        for line in (0..UNITS * C::BYTES).step_by(LINE_BYTES) {
            // SAFETY: every x86-64 has this instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(soon.as_ptr().wrapping_add(first * C::BYTES + line).cast()) };
        }
    }

    #[cfg(has_avx512)]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma,f16c")]
    pub unsafe fn decode512<C: Codes>(bytes: &[u8], factors: Factors<'_>, out: &mut [f32], soon: &[u8]) {
        let units = (out.len() / PAD).min(bytes.len() / C::BYTES) / 2 * 2;
        let (from, to) = (bytes.as_ptr(), out.as_mut_ptr());
        for first in (0..units).step_by(UNITS) {
            fetch::<C>(soon, first);
            let block = (first..units.min(first + UNITS)).step_by(2);
            // SAFETY: the caller has checked the CPU's features. Loads and stores are within pairs of whole units.
            unsafe {
                match factors {
                    Factors::One => {
                        for u in block {
                            _mm512_storeu_ps(to.add(u * PAD), C::load_two(from.add(u * C::BYTES)));
                        }
                    }
                    Factors::Blocks(scales) => {
                        let scale = _mm512_set1_ps(scales[first / UNITS]);
                        for u in block {
                            _mm512_storeu_ps(to.add(u * PAD), _mm512_mul_ps(C::load_two(from.add(u * C::BYTES)), scale));
                        }
                    }
                    Factors::Each(scales) => {
                        for u in block {
                            let scale = _mm512_loadu_ps(scales[u * PAD..][..2 * PAD].as_ptr());
                            _mm512_storeu_ps(to.add(u * PAD), _mm512_mul_ps(C::load_two(from.add(u * C::BYTES)), scale));
                        }
                    }
                }
            }
        }
        if out.len() > units * PAD {
            super::portable::<C>(&bytes[units * C::BYTES..], factors.after_units(units), &mut out[units * PAD..], &[]);
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn decode<C: Codes>(bytes: &[u8], factors: Factors<'_>, out: &mut [f32], soon: &[u8]) {
        let units = (out.len() / PAD).min(bytes.len() / C::BYTES);
        let (from, to) = (bytes.as_ptr(), out.as_mut_ptr());
        // SAFETY: the caller has checked the CPU's features. Loads and stores are within whole units of `bytes`, `out` and the factors, whose
        // lengths are checked here.
        unsafe {
            let blocks = (0..units).step_by(UNITS).map(|first| {
                fetch::<C>(soon, first);
                (first / UNITS, first..units.min(first + UNITS))
            });
            match factors {
                Factors::One => {
                    for (_, block) in blocks {
                        for u in block {
                            _mm256_storeu_ps(to.add(u * PAD), C::load(from.add(u * C::BYTES)));
                        }
                    }
                }
                Factors::Blocks(scales) => {
                    for (b, block) in blocks {
                        let scale = _mm256_set1_ps(scales[b]);
                        for u in block {
                            _mm256_storeu_ps(to.add(u * PAD), _mm256_mul_ps(C::load(from.add(u * C::BYTES)), scale));
                        }
                    }
                }
                Factors::Each(scales) => {
                    let scales = scales[..units * PAD].as_ptr();
                    for (_, block) in blocks {
                        for u in block {
                            let scale = _mm256_loadu_ps(scales.add(u * PAD));
                            _mm256_storeu_ps(to.add(u * PAD), _mm256_mul_ps(C::load(from.add(u * C::BYTES)), scale));
                        }
                    }
                }
            }
        }
        if out.len() > units * PAD {
            super::portable::<C>(&bytes[units * C::BYTES..], factors.after_units(units), &mut out[units * PAD..], &[]);
        }
    }
}
