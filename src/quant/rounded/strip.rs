//! Weights as the inner loop reads them: a register has four columns of each of several rows.

use super::super::PAD;
use super::super::block_scales::{BlockScales, DEPTH, Expanded, MOST, PerRow, STRIP_ROWS};
#[cfg(target_arch = "x86_64")]
use super::super::isa;
use super::super::isa::{Body, Isa, SimdVector};
use super::super::units::Codes;
use super::stored::{self, Columns, HIGHEST};
use super::{BLOCK, Dots, PER_LANE};
use bytemuck::Zeroable;
use half::f16;
use std::marker::PhantomData;

/// The number of rows in a strip.
pub const ROWS: usize = STRIP_ROWS;
/// The number of units per block.
const UNITS: usize = BLOCK / PAD;
/// Codes are prefetched at least this many bytes ahead.
const AHEAD: usize = 12 << 10;

/// Encoded rows of a matrix with scales of blocks along rows.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The number of rows, from 1 to [`ROWS`].
    pub n: usize,
    /// The codes of the rows, row by row or, if `is_striped` is true, in the order of [`stored`]. Codes of later rows may follow; they
    /// are only prefetched into the cache.
    pub codes: &'a [u8],
    pub is_striped: bool,
    pub row_bytes: usize,
    /// The items of the scales, `[n, per_row]` or, if `is_striped` is true, `[per_row, ROWS]`.
    pub items: &'a [f16],
    pub per_row: usize,
}

/// At most [`DEPTH`] columns of [`ROWS`] rows. Rows that the matrix lacks have the weights of its last row.
pub struct Strip {
    pub(super) dots: Dots,
    /// The weights divided by their factors. Plus 128, if the instructions take numbers from 0 to 255.
    columns: Vec<Columns>,
    /// The factors of each sub-block.
    pub(super) factors: Vec<PerRow>,
    /// The minima of each sub-block. Undefined if the format has no minima.
    pub(super) minima: Vec<PerRow>,
    pub(super) has_minima: bool,
    /// The number of columns per sub-block.
    pub(super) sub: usize,
    /// The first block of the activations that the strip is multiplied by.
    pub(super) first_block: usize,
    /// The number of blocks of columns.
    pub(super) blocks: usize,
    /// True if the columns have the order of [`RoundedRows::split`](super::RoundedRows::split).
    pub(super) is_split: bool,
    /// Memory for the factors of each row.
    expanded: Vec<Expanded>,
}

/// A function `(rows, first, columns, strip)` that makes a strip of `columns` columns of `rows`, from column `first` on, where a block begins.
pub type Interleave = fn(&Rows<'_>, usize, usize, &mut Strip);

/// Returns the function for the format whose units `C` describes. Returns `None` in a build for browsers, or if `Codes::IS_WHOLE` is false.
pub fn interleave_of<C: Codes, S: BlockScales>() -> Option<Interleave> {
    if !C::IS_WHOLE || cfg!(target_family = "wasm") {
        return None;
    }
    Some(|rows, first, columns, strip| fill::<C, S>(rows, first, columns, strip, true))
}

/// Writes the factors and minima of a strip, and also its weights if `with_codes` is true. Panics if the rows have too few codes or items.
pub(super) fn fill<C: Codes, S: BlockScales>(rows: &Rows<'_>, first: usize, columns: usize, strip: &mut Strip, with_codes: bool) {
    assert!(first.is_multiple_of(S::LEN) && first.is_multiple_of(BLOCK) && columns <= DEPTH && (1..=ROWS).contains(&rows.n));
    let units = columns.div_ceil(PAD);
    let stored = if rows.is_striped { stored::bytes_of(rows.row_bytes / C::BYTES, C::BYTES) } else { rows.n * rows.row_bytes };
    assert!((first / PAD + units) * C::BYTES <= rows.row_bytes && rows.codes.len() >= stored);
    let items = rows.per_row * if rows.is_striped { ROWS } else { rows.n };
    assert!(rows.per_row >= (first + columns).div_ceil(S::LEN) * S::ITEMS && rows.items.len() >= items);
    (strip.sub, strip.has_minima) = (C::SUB, C::HAS_MINIMA);
    (strip.first_block, strip.blocks) = (first / BLOCK, columns.div_ceil(BLOCK));
    Isa::best().with(Filling::<C, S> { rows, first, columns, strip, with_codes, format: PhantomData });
}

impl Strip {
    pub fn new(dots: Dots) -> Strip {
        Strip {
            dots,
            columns: vec![Columns::zeroed(); DEPTH / PER_LANE],
            factors: vec![PerRow::zeroed(); MOST],
            minima: vec![PerRow::zeroed(); MOST],
            has_minima: false,
            sub: BLOCK,
            first_block: 0,
            blocks: 0,
            is_split: false,
            expanded: (0..ROWS).map(|_| Expanded::default()).collect(),
        }
    }

    /// Returns the instructions that multiply the strip.
    pub fn dots(&self) -> Dots {
        self.dots
    }

    /// Returns the weights, `[columns / PER_LANE, ROWS, PER_LANE]`.
    pub(super) fn codes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.columns)
    }
}

/// The arguments of an [`Interleave`] function.
struct Filling<'a, 'r, C, S> {
    rows: &'a Rows<'r>,
    first: usize,
    columns: usize,
    strip: &'a mut Strip,
    with_codes: bool,
    format: PhantomData<(C, S)>,
}

impl<C: Codes, S: BlockScales> Body for Filling<'_, '_, C, S> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let (rows, strip) = (self.rows, self.strip);
        let unsigned = strip.dots.takes_unsigned();
        strip.is_split = rows.is_striped || C::NIBBLES && cfg!(target_arch = "x86_64") && V::REGISTER > 0;
        let subs = (strip.blocks * BLOCK).div_ceil(C::SUB);
        let n = self.columns.div_ceil(C::SUB);
        if rows.is_striped {
            let items = &rows.items.as_chunks().0[self.first / S::LEN * S::ITEMS..rows.per_row];
            S::expand_rows::<V>(items, n, &mut strip.factors, &mut strip.minima);
            if C::STEP != 1.0 {
                strip.factors[..n].iter_mut().flat_map(|factors| &mut factors.0).for_each(|factor| *factor *= C::STEP);
            }
            // Half of the last block may be after the end of the row.
            strip.factors[n..subs].fill(PerRow::zeroed());
            strip.minima[n..subs].fill(PerRow::zeroed());
            if self.with_codes {
                let codes = &rows.codes[stored::bytes_of(self.first / PAD, C::BYTES)..];
                let to = &mut strip.columns[..strip.blocks * (BLOCK / PER_LANE)];
                for i in (0..ROWS).step_by(TOGETHER) {
                    // SAFETY: registers of eight numbers come with AVX2, and `fill` has checked the codes.
                    unsafe { if unsigned { stored::arrange::<C, true>(codes, i, to) } else { stored::arrange::<C, false>(codes, i, to) } }
                }
            }
            return;
        }
        for (i, own) in strip.expanded[..rows.n].iter_mut().enumerate() {
            let items = &rows.items[i * rows.per_row..][self.first / S::LEN * S::ITEMS..rows.per_row];
            S::expand::<V>(items, n, own);
            // Half of the last block may be after the end of the row.
            own.factors[n..subs].fill(0.0);
            own.minima[n..subs].fill(0.0);
        }
        let units = self.columns.div_ceil(PAD);
        let (whole, rest) = (units / UNITS, units % UNITS);
        for i in (0..ROWS).step_by(TOGETHER) {
            // Rows that the matrix lacks get the weights of its last row.
            let mut own = [&strip.expanded[0]; TOGETHER];
            let mut codes = [rows.codes.as_ptr(); TOGETHER];
            for j in 0..TOGETHER {
                let row = (i + j).min(rows.n - 1);
                own[j] = &strip.expanded[row];
                codes[j] = rows.codes[row * rows.row_bytes + self.first / PAD * C::BYTES..].as_ptr();
            }
            // A later strip is prefetched in the order of its bytes, even if the loop reads them in another order.
            let done = self.first / PAD * C::BYTES * ROWS + i * units * C::BYTES;
            let soon = rows.codes.as_ptr().wrapping_add(AHEAD.next_multiple_of(ROWS * rows.row_bytes) + done);
            // SAFETY: the caller guarantees the CPU's instructions. The codes have `units` units, as the caller has checked.
            unsafe {
                for sub in (0..subs).step_by(TOGETHER) {
                    transposed_factors::<V>(
                        own.map(|own| own.factors[sub..].first_chunk().expect("eight factors")),
                        C::STEP,
                        &mut strip.factors[sub..],
                        i,
                    );
                    if C::HAS_MINIMA {
                        transposed_factors::<V>(
                            own.map(|own| own.minima[sub..].first_chunk().expect("eight minima")),
                            1.0,
                            &mut strip.minima[sub..],
                            i,
                        );
                    }
                }
                let (to, last_to) = strip.columns.split_at_mut(whole * (BLOCK / PER_LANE));
                if unsigned {
                    arrange::<V, C, true>(codes, soon, i, to)
                } else {
                    arrange::<V, C, false>(codes, soon, i, to)
                }
                if rest > 0 {
                    let mut last = [[0u8; MOST_BYTES]; TOGETHER];
                    for (last, codes) in last.iter_mut().zip(codes) {
                        std::ptr::copy_nonoverlapping(codes.add(whole * UNITS * C::BYTES), last.as_mut_ptr(), rest * C::BYTES);
                    }
                    let (codes, to) = (last.each_ref().map(|last| last.as_ptr()), &mut last_to[..BLOCK / PER_LANE]);
                    if unsigned { arrange::<V, C, true>(codes, soon, i, to) } else { arrange::<V, C, false>(codes, soon, i, to) }
                }
            }
        }
    }
}

/// The number of rows that are arranged together.
const TOGETHER: usize = 8;
/// The largest number of bytes that the codes of a block take.
const MOST_BYTES: usize = BLOCK;

/// Writes the factors or minima of eight sub-blocks of the rows from `i` on, each times `step`.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
unsafe fn transposed_factors<V: SimdVector>(from: [&[f32; TOGETHER]; TOGETHER], step: f32, to: &mut [PerRow], i: usize) {
    let to = &mut to[..TOGETHER];
    #[cfg(target_arch = "x86_64")]
    if V::REGISTER > 0 {
        // SAFETY: registers of eight numbers and more come with AVX2.
        unsafe { x86::transposed_factors(from, step, to, i) };
        return;
    }
    for (s, to) in to.iter_mut().enumerate() {
        for (j, from) in from.iter().enumerate() {
            to.0[i + j] = from[s] * step;
        }
    }
}

/// Writes the blocks in `to` of the rows from `i` on. `codes` are the codes of these rows. With `UNSIGNED`, adds 128.
///
/// # Safety
/// The CPU has the instructions of `V`, and each row has the codes of all blocks.
#[inline(always)]
unsafe fn arrange<V: SimdVector, C: Codes, const UNSIGNED: bool>(
    codes: [*const u8; TOGETHER],
    soon: *const u8,
    i: usize,
    to: &mut [Columns],
) {
    // Only the loops for x86-64 prefetch.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = soon;
    #[cfg(target_arch = "x86_64")]
    if V::REGISTER > 0 {
        // SAFETY: registers of eight numbers and more come with AVX2.
        unsafe {
            if C::NIBBLES {
                x86::arrange_nibbles::<C, UNSIGNED>(codes, soon, i, to)
            } else {
                x86::arrange::<C, UNSIGNED>(codes, soon, i, to)
            }
        };
        return;
    }
    #[cfg(has_neon)]
    {
        // SAFETY: every CPU of the target has NEON.
        unsafe { arm::arrange::<C>(codes, i, to) };
        return;
    }
    #[allow(unreachable_code)]
    for (j, codes) in codes.into_iter().enumerate() {
        // SAFETY: the caller guarantees the codes.
        let codes = unsafe { std::slice::from_raw_parts(codes, to.len() * PER_LANE / PAD * C::BYTES) };
        for (unit, to) in codes.chunks_exact(C::BYTES).zip(to.chunks_exact_mut(PAD / PER_LANE)) {
            let values = C::eight(unit).map(|value| (value / C::STEP) as i8 as u8 ^ if UNSIGNED { HIGHEST } else { 0 });
            for (lane, to) in values.as_chunks().0.iter().zip(to) {
                to.0[i + j] = *lane;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    // SAFETY of all functions: the caller guarantees AVX2.

    /// Does what [`super::transposed_factors`] does.
    #[inline(always)]
    pub unsafe fn transposed_factors(from: [&[f32; TOGETHER]; TOGETHER], step: f32, to: &mut [PerRow], i: usize) {
        unsafe {
            let mut rows = [_mm256_setzero_si256(); TOGETHER];
            for (row, from) in rows.iter_mut().zip(from) {
                *row = _mm256_castps_si256(_mm256_mul_ps(_mm256_loadu_ps(from.as_ptr()), _mm256_set1_ps(step)));
            }
            for (to, row) in to.iter_mut().zip(transposed(rows)) {
                _mm256_storeu_ps(to.0[i..].as_mut_ptr(), _mm256_castsi256_ps(row));
            }
        }
    }

    /// Does what [`super::arrange`] does.
    #[inline(always)]
    pub unsafe fn arrange<C: Codes, const UNSIGNED: bool>(codes: [*const u8; TOGETHER], soon: *const u8, i: usize, to: &mut [Columns]) {
        let size = UNITS * C::BYTES;
        // SAFETY: the caller guarantees the codes of all blocks. Fetches may be of any address.
        unsafe {
            let highest = _mm256_set1_epi8(if UNSIGNED { HIGHEST as i8 } else { 0 });
            for (b, to) in to.as_chunks_mut::<{ BLOCK / PER_LANE }>().0.iter_mut().enumerate() {
                isa::prefetch(soon.wrapping_add(b * TOGETHER * size), TOGETHER * size);
                let mut rows = [highest; TOGETHER];
                for (row, codes) in rows.iter_mut().zip(codes) {
                    *row = _mm256_xor_si256(C::signed(codes.add(b * size)), highest);
                }
                for (columns, row) in to.iter_mut().zip(transposed(rows)) {
                    _mm256_storeu_si256(columns.0.as_mut_ptr().add(i).cast(), row);
                }
            }
        }
    }

    /// Does what [`super::arrange`] does, for codes of four bits. Transposes whole units before it separates their codes. So the even columns of a unit come
    /// first, then the odd columns.
    #[inline(always)]
    pub unsafe fn arrange_nibbles<C: Codes, const UNSIGNED: bool>(
        codes: [*const u8; TOGETHER],
        soon: *const u8,
        i: usize,
        to: &mut [Columns],
    ) {
        const LANES: usize = 2 * UNITS;
        // SAFETY: the caller guarantees the codes of all blocks. Fetches may be of any address.
        unsafe {
            let highest = _mm256_set1_epi8(if UNSIGNED { HIGHEST as i8 } else { 0 });
            let low = _mm256_set1_epi8(15);
            for (b, to) in to.chunks_mut(2 * LANES).enumerate() {
                let at = b * 2 * UNITS * C::BYTES;
                let mut rows = [highest; TOGETHER];
                isa::prefetch(soon.wrapping_add(TOGETHER * at), TOGETHER * 2 * UNITS * C::BYTES);
                if to.len() == 2 * LANES {
                    for (row, codes) in rows.iter_mut().zip(codes) {
                        *row = _mm256_loadu_si256(codes.add(at).cast());
                    }
                } else {
                    for (row, codes) in rows.iter_mut().zip(codes) {
                        *row = _mm256_castsi128_si256(_mm_loadu_si128(codes.add(at).cast()));
                    }
                }
                for (two, units) in to.chunks_exact_mut(2).zip(transposed(rows)) {
                    let (even, odd) = (_mm256_and_si256(units, low), _mm256_and_si256(_mm256_srli_epi16::<4>(units), low));
                    for (columns, codes) in two.iter_mut().zip([even, odd]) {
                        let values = _mm256_xor_si256(C::values(codes), highest);
                        _mm256_storeu_si256(columns.0.as_mut_ptr().add(i).cast(), values);
                    }
                }
            }
        }
    }

    /// Transposes eight rows of eight lanes.
    #[inline(always)]
    unsafe fn transposed(r: [__m256i; 8]) -> [__m256i; 8] {
        unsafe {
            // Pairs of rows: columns 0 and 1 (4 and 5 in the high half), then 2 and 3.
            let mut two = [[_mm256_setzero_si256(); 2]; 4];
            for (i, two) in two.iter_mut().enumerate() {
                *two = [_mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]), _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1])];
            }
            // Groups of four rows: one column each (in the high half, the column after four more).
            let mut four = [[_mm256_setzero_si256(); 4]; 2];
            for (i, four) in four.iter_mut().enumerate() {
                for h in 0..2 {
                    four[2 * h] = _mm256_unpacklo_epi64(two[2 * i][h], two[2 * i + 1][h]);
                    four[2 * h + 1] = _mm256_unpackhi_epi64(two[2 * i][h], two[2 * i + 1][h]);
                }
            }
            let mut columns = [_mm256_setzero_si256(); 8];
            for c in 0..4 {
                columns[c] = _mm256_permute2x128_si256::<0x20>(four[0][c], four[1][c]);
                columns[c + 4] = _mm256_permute2x128_si256::<0x31>(four[0][c], four[1][c]);
            }
            columns
        }
    }
}

#[cfg(has_neon)]
mod arm {
    use super::super::HALF;
    use super::*;
    use std::arch::aarch64::*;

    /// Does what [`super::arrange`] does.
    ///
    /// # Safety
    /// Each row has the codes of all blocks.
    #[inline(always)]
    pub unsafe fn arrange<C: Codes>(codes: [*const u8; TOGETHER], i: usize, to: &mut [Columns]) {
        for (u, to) in to.as_chunks_mut::<{ HALF / PER_LANE }>().0.iter_mut().enumerate() {
            for (j, codes) in codes.into_iter().enumerate() {
                let mut bytes = [0u8; HALF];
                // SAFETY: the caller guarantees the codes, and `bytes` has room for the codes of two units.
                unsafe { vst1q_s8(bytes.as_mut_ptr().cast(), C::signed_neon(codes.add(u * 2 * C::BYTES))) };
                for (lane, to) in bytes.as_chunks().0.iter().zip(to.iter_mut()) {
                    to.0[i + j] = *lane;
                }
            }
        }
    }
}
