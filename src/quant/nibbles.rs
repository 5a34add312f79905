//! Packing of 4-bit codes. A little-endian u32 holds eight codes, the first code in the lowest bits.

use super::PAD;

/// The number of bytes per unit of eight codes.
pub const BYTES: usize = PAD / 2;

/// Reads a unit of eight codes as one u32.
pub fn word(unit: &[u8]) -> u32 {
    u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])
}

/// Returns code `i` of the unit that `word` holds.
pub fn code(word: u32, i: usize) -> u32 {
    word >> (4 * i) & 15
}

/// Packs codes into units and appends the units to `out`. The number of codes must be a multiple of [`PAD`].
pub fn pack(codes: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    let mut word = 0;
    for (i, code) in codes.enumerate() {
        word |= code << (4 * (i % PAD));
        if i % PAD == PAD - 1 {
            out.extend(u32::to_le_bytes(word));
            word = 0;
        }
    }
}

/// Loads the eight codes of a unit, one per 32-bit lane.
///
/// # Safety
/// The CPU has AVX2, and `unit` points to a whole unit.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn lanes(unit: *const u8) -> std::arch::x86_64::__m256i {
    use std::arch::x86_64::*;
    // SAFETY: the caller guarantees AVX2 and a whole unit.
    unsafe {
        let word = _mm256_set1_epi32(unit.cast::<i32>().read_unaligned());
        let shifted = _mm256_srlv_epi32(word, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        _mm256_and_si256(shifted, _mm256_set1_epi32(15))
    }
}

/// Loads the values of the eight codes of a unit. Code c has the value `table[c]`.
///
/// # Safety
/// The CPU has AVX2, and `unit` points to a whole unit.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn look_up(unit: *const u8, table: &[f32; 16]) -> std::arch::x86_64::__m256 {
    use std::arch::x86_64::*;
    // SAFETY: the caller guarantees AVX2 and a whole unit. The 16 table entries fill two registers of eight.
    unsafe {
        let codes = lanes(unit);
        let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), codes);
        let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(PAD)), codes);
        // Bit 3 of a code selects the register. The shift moves this bit to the sign bit, which the blend reads.
        _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)))
    }
}

/// Loads the values of the sixteen codes of two units. Code c has the value `table[c]`.
///
/// # Safety
/// The CPU has AVX-512 F, and `units` points to two whole units.
#[cfg(all(target_arch = "x86_64", has_avx512))]
#[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
#[inline(always)]
pub unsafe fn look_up_two(units: *const u8, table: std::arch::x86_64::__m512) -> std::arch::x86_64::__m512 {
    use std::arch::x86_64::*;
    // SAFETY: the caller guarantees AVX-512 and two whole units.
    unsafe {
        let words = _mm512_castsi128_si512(_mm_loadl_epi64(units.cast()));
        let words = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1), words);
        let shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        // The look-up reads only the lowest four bits of each lane, so the other bits need not be cleared.
        _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), table)
    }
}

/// Loads the sixteen codes of two units, one per byte.
///
/// # Safety
/// `units` points to two whole units.
#[cfg(has_neon)]
#[inline(always)]
pub unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t {
    use std::arch::aarch64::*;
    // SAFETY: the caller guarantees two whole units.
    unsafe {
        let pairs = vld1_u8(units);
        let (even, odd) = (vand_u8(pairs, vdup_n_u8(15)), vshr_n_u8::<4>(pairs));
        vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd))
    }
}

/// Loads the sixteen codes of two units, one per byte.
///
/// # Safety
/// `units` points to two whole units.
#[cfg(has_simd128)]
#[inline(always)]
pub unsafe fn bytes_simd128(units: *const u8) -> std::arch::wasm32::v128 {
    use std::arch::wasm32::*;
    // SAFETY: the caller guarantees two whole units.
    let pairs = unsafe { v128_load64_zero(units.cast()) };
    let (even, odd) = (v128_and(pairs, u8x16_splat(15)), u8x16_shr(pairs, 4));
    i8x16_shuffle::<0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23>(even, odd)
}
