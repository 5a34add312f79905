//! Detection of the CPU's vector instructions, and vectors of sixteen numbers for inner loops.

use super::limit::{self, Limit};
use super::units::Codes;
use half::f16;

#[cfg(has_neon)]
mod arm;
#[cfg(has_simd128)]
mod simd128;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::incompatible_msrv, reason = "AVX-512 is compiled only if the standard library has it")]
mod x86;

/// A set of instructions for vectors of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512, with registers of 16 numbers. The compiler supports AVX-512 since Rust 1.89.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    Avx512,
    /// Registers of 8 numbers, with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Registers of 4 numbers. Every CPU of a target with `has_neon` has these registers.
    #[cfg(has_neon)]
    Neon,
    /// Registers of 4 numbers in WebAssembly, without FMA. The module is compiled for them, so every browser that starts it has them.
    #[cfg(has_simd128)]
    Simd128,
    /// Plain loops, which the compiler may vectorise. WebAssembly with [`Isa::Simd128`] leaves them out, because every byte of its module is downloaded.
    #[cfg(not(has_simd128))]
    Plain,
}

impl Isa {
    /// An instruction set that every CPU of the target has.
    #[cfg(not(has_simd128))]
    const LEAST: Isa = Isa::Plain;
    #[cfg(has_simd128)]
    const LEAST: Isa = Isa::Simd128;

    /// Returns all instruction sets that this CPU has, the fastest first.
    pub fn all() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            #[cfg(has_avx512)]
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                all.push(Isa::Avx512);
            }
            all.push(Isa::Avx2);
        }
        #[cfg(has_neon)]
        all.push(Isa::Neon);
        all.push(Isa::LEAST);
        all
    }

    /// Returns the fastest instruction set of this CPU within the [limit](limit::limit).
    pub fn best() -> Isa {
        static BEST: std::sync::OnceLock<Isa> = std::sync::OnceLock::new();
        *BEST.get_or_init(|| Isa::all().into_iter().find(|isa| isa.is_within(limit::chosen())).unwrap_or(Isa::LEAST))
    }

    fn is_within(self, limit: Limit) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Isa::Avx512 => limit == Limit::All,
            other => other == Isa::LEAST || limit != Limit::Plain,
        }
    }

    /// Runs a loop that is compiled for registers of 16 numbers only.
    ///
    /// # Panics
    /// If this instruction set has narrower registers.
    pub fn with_wide(self, body: impl Body) {
        match self {
            // SAFETY: the CPU has these instructions.
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Isa::Avx512 => unsafe { x86::run512(body) },
            other => {
                drop(body);
                panic!("{other:?} has no registers of 16 numbers")
            }
        }
    }

    /// Runs the loop `body`, compiled for the vectors of this instruction set.
    pub fn with(self, body: impl Body) {
        match self {
            // SAFETY: the CPU has these instructions.
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Isa::Avx512 => unsafe { x86::run512(body) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { x86::run256(body) },
            // SAFETY: every CPU of the target has NEON.
            #[cfg(has_neon)]
            Isa::Neon => unsafe { body.call::<super::units::neon::Neon>() },
            // SAFETY: the module is compiled for these registers.
            #[cfg(has_simd128)]
            Isa::Simd128 => unsafe { body.call::<super::units::simd128::Simd128>() },
            // SAFETY: plain vectors need no instructions of their own.
            #[cfg(not(has_simd128))]
            Isa::Plain => unsafe { body.call::<[f32; LANES]>() },
        }
    }
}

/// The number of floats in a [`SimdVector`].
pub const LANES: usize = 16;

/// A loop over vectors, which is compiled once per instruction set.
pub trait Body {
    /// Runs the loop. This function and all that it calls must be `#[inline(always)]`, or the compiler would not use the instructions of `V` in
    /// them.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    unsafe fn call<V: SimdVector>(self);
}

/// Sixteen floats in registers.
///
/// # Safety of all functions
/// The CPU has the instructions of the vector, and pointers point to whole units.
pub trait SimdVector: Copy {
    unsafe fn load(from: &[f32; LANES]) -> Self;
    unsafe fn store(self, to: &mut [f32; LANES]);
    unsafe fn splat(x: f32) -> Self;
    /// Decodes the two units at `units` (16 codes) to their unscaled values.
    unsafe fn decode<C: Codes>(units: *const u8) -> Self;
    /// The number of floats in a register, or 0 if [`decode_pairs`](Self::decode_pairs) is not faster than [`decode`](Self::decode).
    const REGISTER: usize = 0;
    /// Decodes the four units (32 codes) at each pointer to their unscaled values. The format has the function [`Codes::signed`].
    ///
    /// With registers of 16 numbers, each step runs for all pointers before the next step, because the steps for one pointer wait for each other. The
    /// loops call no closures: the compiler may leave closures in functions without the instructions of the vector.
    #[inline(always)]
    unsafe fn decode_pairs<C: Codes, const R: usize>(units: [*const u8; R]) -> [[Self; 2]; R] {
        // SAFETY: the caller guarantees four whole units.
        units.map(|units| unsafe { [Self::decode::<C>(units), Self::decode::<C>(units.add(2 * C::BYTES))] })
    }
    /// Converts eight f16. Numbers that are not finite may become any number.
    #[inline(always)]
    unsafe fn widened(halves: &[f16; 8]) -> [f32; 8] {
        halves.map(widened)
    }
    unsafe fn mul(self, b: Self) -> Self;
    /// Returns `self * b + c`. Rounds once if the CPU can.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Returns the sum of the sixteen numbers. Adds pairs at distance 8 first, then the sums at distance 4, 2 and 1.
    unsafe fn total(self) -> f32;
}

/// Prefetches `n` bytes at `address` into the first-level cache, on x86-64 only. The address may be invalid.
#[inline(always)]
pub fn prefetch(address: *const u8, n: usize) {
    const LINE_BYTES: usize = 64;
    for line in (0..n).step_by(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has this instruction, and it ignores addresses that cannot be read.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.wrapping_add(line).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (address, line);
    }
}

/// Converts a finite f16. Has no branches, so that several conversions can share vector registers. Unlike a multiplication by a
/// power of two, this conversion is fast for subnormal numbers, which the scales of large blocks often are.
#[inline(always)]
pub fn widened(half: f16) -> f32 {
    const REBIAS: u32 = (127 - 15) << 23;
    let bits = u32::from(half.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    let normal = f32::from_bits(magnitude + REBIAS);
    let subnormal = f32::from_bits(magnitude + REBIAS + (1 << 23)) - f32::from_bits(REBIAS + (1 << 23));
    let magnitude = if magnitude < 1 << 23 { subnormal } else { normal };
    f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
}

/// True if every CPU of the target has a fused instruction for `a * b + c`. Then the plain loop gives the same bits as the other loops.
pub const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Returns `a * b + c`. Rounds once if [`FUSED`]. Otherwise rounds twice, because `f32::mul_add` would call a slow function.
#[inline(always)]
pub fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

impl SimdVector for [f32; LANES] {
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        *from
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        *to = self;
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn decode<C: Codes>(units: *const u8) -> Self {
        // SAFETY: the caller guarantees two whole units.
        let (low, high) = unsafe { std::slice::from_raw_parts(units, 2 * C::BYTES) }.split_at(C::BYTES);
        let (low, high) = (C::eight(low), C::eight(high));
        std::array::from_fn(|i| if i < low.len() { low[i] } else { high[i - low.len()] })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        std::array::from_fn(|l| self[l] * b[l])
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        std::array::from_fn(|l| mul_add(self[l], b[l], c[l]))
    }
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        total(self)
    }
}

/// Returns Σ over i of a[i] b[i]. Lane l of sixteen partial sums adds the products l, l + 16, l + 32, …; then the lanes are added up.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    let ((a, a_end), (b, b_end)) = (a.as_chunks::<LANES>(), b[..a.len()].as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    if !a_end.is_empty() {
        let (a, b) = (whole(a_end), whole(b_end));
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    total(sums)
}

/// Returns Σ over i of f(a[i]), in the same order as [`dot`].
#[inline(always)]
pub fn sum(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; LANES];
    let (chunks, end) = a.as_chunks::<LANES>();
    for a in chunks {
        for l in 0..LANES {
            sums[l] += f(a[l]);
        }
    }
    let mut rest = [0f32; LANES];
    rest.iter_mut().zip(end).for_each(|(rest, a)| *rest = f(*a));
    for l in 0..LANES {
        sums[l] += rest[l];
    }
    total(sums)
}

/// Pads `end`, at most [`LANES`] numbers, with zeros. The result has a constant length, so a loop over it can keep its sums in registers.
#[inline(always)]
pub fn whole(end: &[f32]) -> [f32; LANES] {
    let mut whole = [0f32; LANES];
    whole[..end.len()].copy_from_slice(end);
    whole
}

/// Adds up sixteen numbers, in the order of [`SimdVector::total`].
#[inline(always)]
fn total(sums: [f32; LANES]) -> f32 {
    let half = |i: usize| sums[i] + sums[i + 8];
    let eight = [half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)];
    let four = [eight[0] + eight[4], eight[1] + eight[5], eight[2] + eight[6], eight[3] + eight[7]];
    (four[0] + four[2]) + (four[1] + four[3])
}
