//! Codes of two to eight bits in units of eight codes. A unit has one or two *planes*: first the low bits of all eight codes, then their high bits.
//!
//! A plane of n bits per code takes n bytes. It is one little-endian number, with the first code in the lowest bits.

use super::PAD;

/// A way to store whole numbers from 0 on.
pub trait Bits {
    /// The number of bits per code, and of bytes per unit.
    const BITS: usize;

    /// Returns the codes of a unit.
    fn eight(unit: &[u8]) -> [u8; PAD];

    /// Appends a unit of codes.
    fn pack(codes: &[u8; PAD], out: &mut Vec<u8>);

    /// Loads the codes of a unit, one per 32-bit lane.
    ///
    /// # Safety
    /// The CPU has AVX2, and `unit` points to a whole unit.
    #[cfg(target_arch = "x86_64")]
    unsafe fn lanes(unit: *const u8) -> std::arch::x86_64::__m256i;

    /// Loads the codes of two units, one per 32-bit lane.
    ///
    /// # Safety
    /// The CPU has AVX-512 F, and `units` points to two whole units.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    unsafe fn lanes_of_two(units: *const u8) -> std::arch::x86_64::__m512i;

    /// Loads the codes of two units, one per byte.
    ///
    /// # Safety
    /// `units` points to two whole units.
    #[cfg(has_neon)]
    unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t;
}

/// Codes of `LOW + HIGH` bits. `LOW` is 2 or 4, `HIGH` is 0, 1 or 2.
pub struct Planes<const LOW: usize, const HIGH: usize>;

/// Returns the number that is stored in the first `N` bytes.
///
/// # Safety
/// `from` points to `N` bytes.
#[cfg(any(target_arch = "x86_64", has_neon))]
#[inline(always)]
unsafe fn number<const N: usize>(from: *const u8) -> u32 {
    // SAFETY: the caller guarantees the bytes.
    unsafe {
        match N {
            1 => u32::from(*from),
            2 => u32::from(u16::from_le_bytes(*from.cast())),
            4 => u32::from_le_bytes(*from.cast()),
            _ => 0,
        }
    }
}

/// Reads code `i` of a plane of `n` bits.
fn code(plane: &[u8], n: usize, i: usize) -> u8 {
    if n == 0 { 0 } else { plane[i * n / 8] >> (i * n % 8) & ((1 << n) - 1) }
}

impl<const LOW: usize, const HIGH: usize> Bits for Planes<LOW, HIGH> {
    const BITS: usize = LOW + HIGH;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [u8; PAD] {
        std::array::from_fn(|i| code(unit, LOW, i) | code(&unit[LOW..], HIGH, i) << LOW)
    }

    fn pack(codes: &[u8; PAD], out: &mut Vec<u8>) {
        for (n, shift) in [(LOW, 0), (HIGH, LOW)] {
            let plane = codes.iter().rev().fold(0u32, |plane, code| plane << n | u32::from(code >> shift) & ((1 << n) - 1));
            out.extend_from_slice(&plane.to_le_bytes()[..n]);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn lanes(unit: *const u8) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees AVX2 and a whole unit.
        unsafe {
            let low = plane::<LOW>(number::<LOW>(unit));
            if HIGH == 0 {
                low
            } else {
                _mm256_or_si256(low, _mm256_sll_epi32(plane::<HIGH>(number::<HIGH>(unit.add(LOW))), _mm_cvtsi32_si128(LOW as i32)))
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn lanes_of_two(units: *const u8) -> std::arch::x86_64::__m512i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees AVX-512 and two whole units.
        unsafe {
            let next = units.add(Self::BITS);
            let low = plane_of_two::<LOW>(number::<LOW>(units), number::<LOW>(next));
            match HIGH {
                0 => low,
                1 => {
                    let set = (number::<1>(units.add(LOW)) | number::<1>(next.add(LOW)) << PAD) as __mmask16;
                    _mm512_mask_or_epi32(low, set, low, _mm512_set1_epi32(1 << LOW))
                }
                _ => {
                    let high = plane_of_two::<HIGH>(number::<HIGH>(units.add(LOW)), number::<HIGH>(next.add(LOW)));
                    _mm512_or_si512(low, _mm512_sll_epi32(high, _mm_cvtsi32_si128(LOW as i32)))
                }
            }
        }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units.
        unsafe {
            let next = units.add(Self::BITS);
            let low = plane_in_bytes::<LOW>(number::<LOW>(units), number::<LOW>(next));
            if HIGH == 0 {
                return low;
            }
            let high = plane_in_bytes::<HIGH>(number::<HIGH>(units.add(LOW)), number::<HIGH>(next.add(LOW)));
            vorrq_u8(low, vshlq_u8(high, vdupq_n_s8(LOW as i8)))
        }
    }
}

/// Returns the eight codes of a plane of `N` bits, one per lane.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn plane<const N: usize>(plane: u32) -> std::arch::x86_64::__m256i {
    use std::arch::x86_64::*;
    let n = N as i32;
    // SAFETY: the caller guarantees AVX2.
    unsafe {
        let shifts = _mm256_setr_epi32(0, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n);
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(plane as i32), shifts), _mm256_set1_epi32((1 << N) - 1))
    }
}

/// Returns the sixteen codes of two planes of `N` bits, one per lane.
///
/// # Safety
/// The CPU has AVX-512 F.
#[cfg(all(target_arch = "x86_64", has_avx512))]
#[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
#[inline(always)]
unsafe fn plane_of_two<const N: usize>(first: u32, second: u32) -> std::arch::x86_64::__m512i {
    use std::arch::x86_64::*;
    let n = N as i32;
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let planes = _mm512_mask_set1_epi32(_mm512_set1_epi32(first as i32), 0xff00, second as i32);
        let shifts = _mm512_setr_epi32(0, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n, 0, n, 2 * n, 3 * n, 4 * n, 5 * n, 6 * n, 7 * n);
        _mm512_and_si512(_mm512_srlv_epi32(planes, shifts), _mm512_set1_epi32((1 << N) - 1))
    }
}

/// Returns the sixteen codes of two planes of `N` bits, one per byte.
#[cfg(has_neon)]
#[inline(always)]
unsafe fn plane_in_bytes<const N: usize>(first: u32, second: u32) -> std::arch::aarch64::uint8x16_t {
    use std::arch::aarch64::*;
    // SAFETY: every CPU of the target has NEON, and the arrays have sixteen bytes.
    unsafe {
        let planes = vcombine_u8(vcreate_u8(u64::from(first) | u64::from(second) << (8 * N)), vdup_n_u8(0));
        let places: [u8; 16] = std::array::from_fn(|i| (i * N / 8) as u8);
        let shifts: [i8; 16] = std::array::from_fn(|i| -((i * N % 8) as i8));
        let own = vqtbl1q_u8(planes, vld1q_u8(places.as_ptr()));
        vandq_u8(vshlq_u8(own, vld1q_s8(shifts.as_ptr())), vdupq_n_u8((1 << N) - 1))
    }
}

/// Codes of eight bits: a byte per code.
pub struct Byte;

impl Bits for Byte {
    const BITS: usize = 8;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [u8; PAD] {
        std::array::from_fn(|i| unit[i])
    }

    fn pack(codes: &[u8; PAD], out: &mut Vec<u8>) {
        out.extend_from_slice(codes);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn lanes(unit: *const u8) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees AVX2 and a whole unit.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(unit.cast())) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn lanes_of_two(units: *const u8) -> std::arch::x86_64::__m512i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees AVX-512 and two whole units.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(units.cast())) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t {
        // SAFETY: the caller guarantees two whole units.
        unsafe { std::arch::aarch64::vld1q_u8(units) }
    }
}
