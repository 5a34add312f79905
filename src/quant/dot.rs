//! Dot products of a stored row with f32 activations: the inner loop of decoding on the CPU.
//!
//! Thirty-two partial sums, combined in a fixed order, so that a result never depends on who else is in the batch. On x86-64
//! the AVX2 body is chosen at run time; elsewhere the compiler vectorises the portable one.

/// Partial sums kept apart: four registers of eight lanes hide the latency of the multiply-add.
const LANES: usize = 32;

/// Σ row·x over f32 rows (little-endian bytes).
pub fn f32(row: &[u8], x: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if avx2() {
        // SAFETY: the CPU has AVX2, FMA and F16C.
        return unsafe { x86::dot_f32(row, x) };
    }
    portable(x, row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
}

/// Σ row·x over f16 rows (little-endian bytes).
pub fn f16(row: &[u8], x: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if avx2() {
        // SAFETY: the CPU has AVX2, FMA and F16C.
        return unsafe { x86::dot_f16(row, x) };
    }
    portable(x, row.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()))
}

fn portable(x: &[f32], row: impl Iterator<Item = f32>) -> f32 {
    let mut sums = [0f32; LANES];
    for (i, (w, x)) in row.zip(x).enumerate() {
        sums[i % LANES] += w * x;
    }
    sums.iter().sum()
}

#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::LANES;
    use std::arch::x86_64::*;

    // SAFETY of both: callers have checked the CPU's features; all loads stay below `n`, which both slices hold.

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn dot_f32(row: &[u8], x: &[f32]) -> f32 {
        let n = x.len().min(row.len() / 4);
        let w = row.as_ptr().cast::<f32>();
        // SAFETY: `at + 8 <= n`.
        let sum = unsafe { body(n, x, |at| _mm256_loadu_ps(w.add(at))) };
        let tail = n / 8 * 8..n;
        tail.fold(sum, |sum, i| sum + f32::from_le_bytes([row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]]) * x[i])
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn dot_f16(row: &[u8], x: &[f32]) -> f32 {
        let n = x.len().min(row.len() / 2);
        let w = row.as_ptr();
        // SAFETY: `at + 8 <= n`.
        let sum = unsafe { body(n, x, |at| _mm256_cvtph_ps(_mm_loadu_si128(w.add(2 * at).cast()))) };
        let tail = n / 8 * 8..n;
        tail.fold(sum, |sum, i| sum + half::f16::from_le_bytes([row[2 * i], row[2 * i + 1]]).to_f32() * x[i])
    }

    /// Whole groups of eight; `load(at)` gives eight weights from `at` on.
    #[inline(always)]
    unsafe fn body(n: usize, x: &[f32], load: impl Fn(usize) -> __m256) -> f32 {
        // SAFETY: as above.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); LANES / 8];
            let mut at = 0;
            while at + LANES <= n {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_fmadd_ps(load(at + 8 * i), _mm256_loadu_ps(x.as_ptr().add(at + 8 * i)), *sum);
                }
                at += LANES;
            }
            while at + 8 <= n {
                sums[0] = _mm256_fmadd_ps(load(at), _mm256_loadu_ps(x.as_ptr().add(at)), sums[0]);
                at += 8;
            }
            let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            let mut lanes = [0f32; 8];
            _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
            lanes.iter().sum()
        }
    }
}
