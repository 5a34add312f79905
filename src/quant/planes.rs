//! Codes of two to eight bits in units of eight codes. A unit has one or two *planes*: first the low bits of all eight codes, then their high bits.
//!
//! A plane of n bits per code takes n bytes. It is one little-endian number, with the first code in the lowest bits.

use super::PAD;

/// A way to store whole numbers from 0 on.
pub trait Bits {
    /// The number of bits per code, and of bytes per unit.
    const BITS: usize;

    /// The numbers of bits of the low and the high part of a code.
    const PLANES: [usize; 2];

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

    /// Loads the codes of four units, one per byte.
    ///
    /// # Safety
    /// The CPU has AVX2, and `units` points to four whole units.
    #[cfg(target_arch = "x86_64")]
    unsafe fn bytes_of_four(units: *const u8) -> std::arch::x86_64::__m256i;

    /// Loads the codes of two units, one per byte.
    ///
    /// # Safety
    /// `units` points to two whole units.
    #[cfg(has_neon)]
    unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t;
}

/// Codes of `LOW + HIGH` bits. `LOW` is 2 or 4, `HIGH` is 0 or 1, or 2 if `LOW` is 4.
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

    const PLANES: [usize; 2] = [LOW, HIGH];

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

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn bytes_of_four(units: *const u8) -> std::arch::x86_64::__m256i {
        // SAFETY: the caller guarantees AVX2 and four whole units.
        unsafe {
            const { assert!(HIGH < 2 || LOW == 4) };
            let units = four::load(units, Self::BITS);
            let low = match LOW {
                4 => four::nibbles(units, const { four::places(Self::BITS, 0, 4, 0) }),
                _ => four::pairs(units, const { four::places(Self::BITS, 0, 2, 1) }),
            };
            let high = match HIGH {
                0 => return low,
                1 => four::bits::<LOW>(units, const { four::places(Self::BITS, LOW, 1, 2) }),
                _ => four::high_pairs(units, const { four::places(Self::BITS, LOW, 2, 0) }),
            };
            std::arch::x86_64::_mm256_or_si256(low, high)
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

/// Moves the codes of four units to a byte each. A register has two lanes of 16 bytes: the first has the codes of units 0 and 1, the second the codes
/// of units 2 and 3.
#[cfg(target_arch = "x86_64")]
mod four {
    use super::PAD;
    use std::arch::x86_64::*;

    // SAFETY of all functions: the caller guarantees AVX2.

    /// Returns how many bytes a lane has of four units with `bits` bytes each.
    const fn lane(bits: usize) -> usize {
        if 4 * bits < 16 { 8 } else { 16 }
    }

    /// Loads four units of `bits` bytes. The first lane begins with unit 0, the second lane ends with unit 3.
    ///
    /// # Safety
    /// `units` points to four whole units.
    #[inline(always)]
    pub unsafe fn load(units: *const u8, bits: usize) -> __m256i {
        // SAFETY: each lane has a part of the four units.
        unsafe {
            let end = units.add(4 * bits - lane(bits));
            if lane(bits) == 8 {
                _mm256_set_m128i(_mm_loadl_epi64(end.cast()), _mm_loadl_epi64(units.cast()))
            } else {
                _mm256_set_m128i(_mm_loadu_si128(end.cast()), _mm_loadu_si128(units.cast()))
            }
        }
    }

    /// Returns for each code the place of its bits in the lane. The plane of `n` bits begins at byte `plane` of a unit. Of each pair of codes, code
    /// `only` gets the place and the other code 128, for which the shuffle returns 0. With `only` = 2, each code gets its place.
    pub const fn places(bits: usize, plane: usize, n: usize, only: usize) -> [u8; 32] {
        let (mut places, mut i) = ([0x80; 32], 0);
        while i < 32 {
            if only == 2 || i % 2 == only {
                let begin = if i < 16 { 0 } else { 4 * bits - lane(bits) };
                places[i] = (i / PAD * bits + plane + i % PAD * n / 8 - begin) as u8;
            }
            i += 1;
        }
        places
    }

    #[inline(always)]
    unsafe fn shuffled(units: __m256i, places: [u8; 32]) -> __m256i {
        unsafe { _mm256_shuffle_epi8(units, _mm256_loadu_si256(places.as_ptr().cast())) }
    }

    /// Returns codes of four bits. In `places`, the first code of each pair has the place of the pair's byte.
    #[inline(always)]
    pub unsafe fn nibbles(units: __m256i, places: [u8; 32]) -> __m256i {
        unsafe {
            let two = shuffled(units, places);
            _mm256_and_si256(_mm256_or_si256(two, _mm256_slli_epi16::<4>(two)), _mm256_set1_epi8(15))
        }
    }

    /// Returns codes of two bits. In `places`, the second code of each pair has the place of the pair's byte, which holds four codes. A mask keeps
    /// the pair. The product with 65 = 1 + 2^6 moves the second code to a byte of its own, and the power of two moves both codes to the right.
    #[inline(always)]
    pub unsafe fn pairs(units: __m256i, places: [u8; 32]) -> __m256i {
        unsafe {
            let two = _mm256_and_si256(shuffled(units, places), _mm256_set1_epi32(0xf000_0f00_u32 as i32));
            _mm256_and_si256(_mm256_mulhi_epu16(two, _mm256_set1_epi32(65 << (16 + 4) | 65 << 8)), _mm256_set1_epi8(3))
        }
    }

    /// Returns codes of two bits, times 16. Works as [`pairs`], but in `places` the first code of each pair has the place of the pair's byte.
    #[inline(always)]
    pub unsafe fn high_pairs(units: __m256i, places: [u8; 32]) -> __m256i {
        unsafe {
            let two = _mm256_and_si256(shuffled(units, places), _mm256_set1_epi32(0x00f0_000f));
            _mm256_and_si256(_mm256_mullo_epi16(two, _mm256_set1_epi32(65 << 16 | 65 << 4)), _mm256_set1_epi8(0x30))
        }
    }

    /// Returns codes of one bit, times 2^`TO`. In `places`, each code has the place of its byte, of which `own` selects the code's bit. The bytes of
    /// `set` are 0 or 255, so the minimum equals an `and`, for which the compiler would choose more instructions.
    #[inline(always)]
    pub unsafe fn bits<const TO: usize>(units: __m256i, places: [u8; 32]) -> __m256i {
        unsafe {
            let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(shuffled(units, places), own), own);
            _mm256_min_epu8(set, _mm256_set1_epi8(1 << TO))
        }
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

    const PLANES: [usize; 2] = [8, 0];

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

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn bytes_of_four(units: *const u8) -> std::arch::x86_64::__m256i {
        // SAFETY: the caller guarantees AVX2 and four whole units.
        unsafe { std::arch::x86_64::_mm256_loadu_si256(units.cast()) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn bytes(units: *const u8) -> std::arch::aarch64::uint8x16_t {
        // SAFETY: the caller guarantees two whole units.
        unsafe { std::arch::aarch64::vld1q_u8(units) }
    }
}
