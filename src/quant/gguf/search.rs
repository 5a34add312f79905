//! Searches the scales of blocks that minimise the sum of squared errors, each multiplied by the importance of its weight.
//!
//! For given codes the best scale and minimum follow from least squares, and for given scales the best codes are the nearest ones. The search tries
//! several scales, rounds the weights to codes, and takes the least-squares solution with the smallest error.

use super::BlockType;
use half::f16;

/// How many scales are tried above and below the scale that maps the largest weight to the largest code.
const TRIED: i32 = 9;

/// The codes of a type, and their values.
pub struct Table<'a> {
    /// Returns the code whose value is nearest.
    pub nearest: fn(f32) -> u8,
    pub value: &'a dyn Fn(u8) -> f32,
    /// The magnitude of the values to which a search maps the largest weight.
    pub large: f32,
}

impl Table<'_> {
    /// Returns the table of a type whose values are whole numbers.
    pub fn whole<T: BlockType>() -> Table<'static> {
        Table { nearest: T::nearest, value: &|code| f32::from(code) - T::ZERO as f32, large: T::ZERO as f32 }
    }
}

/// Writes the nearest code of each weight, for weights `factor * v - minimum` of values v.
pub fn codes(x: &[f32], factor: f32, minimum: f32, nearest: fn(f32) -> u8, codes: &mut [u8]) {
    let inverse = if factor == 0.0 { 0.0 } else { 1.0 / factor };
    codes.iter_mut().zip(x).for_each(|(code, x)| *code = nearest((x + minimum) * inverse));
}

/// Appends the scale of a block, and writes its codes.
pub fn with_scale(x: &[f32], scale: f16, nearest: fn(f32) -> u8, out: &mut [u8], items: &mut Vec<f16>) {
    items.push(scale);
    codes(x, scale.to_f32(), 0.0, nearest, out);
}

/// Returns the weighted squared error of the weights with the nearest codes.
fn error(x: &[f32], w: &[f32], factor: f32, minimum: f32, table: &Table<'_>) -> f32 {
    let inverse = if factor == 0.0 { 0.0 } else { 1.0 / factor };
    let of = |x: f32| x + minimum - factor * (table.value)((table.nearest)((x + minimum) * inverse));
    x.iter().zip(w).map(|(&x, w)| w * of(x) * of(x)).sum()
}

/// Returns the scale, of either sign, for which `scale * q` is nearest to `x`. q are values of codes, and `w` weighs the squared errors.
///
/// For codes with the values q, the scale Σ w x q / Σ w q² leaves the error Σ w x² − (Σ w x q)² / Σ w q².
pub fn scale(x: &[f32], w: &[f32], nearest: fn(f32) -> u8, large: f32, value: &dyn Fn(u8) -> f32) -> f32 {
    let most = x.iter().copied().fold(0f32, |most, x| if x.abs() > most.abs() { x } else { most });
    let (mut best, mut taken_off) = (0.0, 0.0);
    let mut attempt = |inverse: f32| {
        let (mut xq, mut qq) = (0f32, 0f32);
        for (&x, w) in x.iter().zip(w) {
            let q = value(nearest(x * inverse));
            xq += w * x * q;
            qq += w * q * q;
        }
        if xq * xq > taken_off * qq {
            (best, taken_off) = (xq / qq, xq * xq / qq);
        }
    };
    let step = 0.1 * (large / 16.0).max(1.0);
    if most != 0.0 {
        (-TRIED..=TRIED).flat_map(|i| [1.0, -1.0].map(|sign| sign * (large + step * i as f32) / most)).for_each(&mut attempt);
    }
    if best == 0.0 { 0.0 } else { best }
}

/// Returns the best scale and minimum for weights `scale * q - minimum` of codes q from 0 to `last`. The minimum is at least `least`, which is 0 or
/// minus infinity.
pub fn scale_and_minimum(x: &[f32], w: &[f32], last: f32, least: f32) -> (f32, f32) {
    let lowest = x.iter().copied().fold(f32::INFINITY, f32::min).min(-least);
    let highest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest <= lowest {
        return (0.0, -lowest);
    }
    let sum_w: f32 = w.iter().sum();
    let sum_x: f32 = x.iter().zip(w).map(|(x, w)| w * x).sum();
    let (mut best, mut smallest) = ((0.0, 0.0), f32::INFINITY);
    for i in -TRIED..=TRIED {
        let inverse = (last + 0.1 * i as f32) / (highest - lowest);
        let code = |x: f32| ((x - lowest) * inverse).round().clamp(0.0, last);
        let (mut q1, mut q2, mut xq) = (0f32, 0f32, 0f32);
        for (&x, w) in x.iter().zip(w) {
            let q = code(x);
            q1 += w * q;
            q2 += w * q * q;
            xq += w * x * q;
        }
        let determinant = sum_w * q2 - q1 * q1;
        if determinant <= 0.0 {
            continue;
        }
        let (mut scale, mut minimum) = ((sum_w * xq - sum_x * q1) / determinant, (q1 * xq - q2 * sum_x) / determinant);
        if minimum < least {
            (scale, minimum) = (xq / q2, least);
        }
        let error: f32 = x.iter().zip(w).map(|(&x, w)| w * (scale * code(x) - minimum - x).powi(2)).sum();
        if error < smallest && scale > 0.0 {
            (best, smallest) = ((scale, minimum), error);
        }
    }
    if smallest == f32::INFINITY { ((highest - lowest) / last, -lowest) } else { best }
}

/// Encodes a block whose sub-blocks of `sub` weights have small signed scales, from −`limit` to `limit` − 1. Appends the scale of the small scales to
/// `items`, and returns the small scales.
pub fn signed(x: &[f32], w: &[f32], sub: usize, limit: f32, table: &Table<'_>, out: &mut [u8], items: &mut Vec<f16>) -> Vec<i8> {
    let subs = || x.chunks_exact(sub).zip(w.chunks_exact(sub));
    let scales: Vec<f32> = subs().map(|(x, w)| scale(x, w, table.nearest, table.large, table.value)).collect();
    let most = scales.iter().copied().fold(0f32, |most, x| if x.abs() > most.abs() { x } else { most });
    let mut d = f16::from_f32(-most / limit);
    let small = |d: f16| -> Vec<f32> {
        let d = d.to_f32();
        let one = |(scale, (x, w)): (&f32, (&[f32], &[f32]))| {
            let near = if d == 0.0 { 0.0 } else { (scale / d).round() };
            best([near, near - 1.0, near + 1.0].map(|s| s.clamp(-limit, limit - 1.0)), |s| error(x, w, d * s, 0.0, table))
        };
        scales.iter().zip(subs()).map(one).collect()
    };
    let mut s = small(d);
    // Fits the scale of the small scales to the codes, and keeps it if the error falls.
    let total = |d: f16, s: &[f32]| -> f32 { subs().zip(s).map(|((x, w), s)| error(x, w, d.to_f32() * s, 0.0, table)).sum() };
    let (mut xq, mut qq) = (0f32, 0f32);
    for ((x, w), s) in subs().zip(&s) {
        codes(x, d.to_f32() * s, 0.0, table.nearest, &mut out[..sub]);
        for ((x, w), &code) in x.iter().zip(w).zip(&out[..sub]) {
            let q = s * (table.value)(code);
            xq += w * x * q;
            qq += w * q * q;
        }
    }
    if qq > 0.0 && f16::from_f32(xq / qq).is_finite() {
        let fitted = f16::from_f32(xq / qq);
        let own = small(fitted);
        if total(fitted, &own) < total(d, &s) {
            (d, s) = (fitted, own);
        }
    }
    for (((x, _), s), out) in subs().zip(&s).zip(out.chunks_exact_mut(sub)) {
        codes(x, d.to_f32() * s, 0.0, table.nearest, out);
    }
    items.push(d);
    s.into_iter().map(|s| s as i8).collect()
}

/// Returns items with two signed bytes each.
pub fn pairs(s: &[i8]) -> impl Iterator<Item = f16> {
    s.as_chunks().0.iter().map(|[a, b]| super::item(*a as u8, *b as u8))
}

/// Encodes a block of sub-blocks of `sub` weights with small scales and minima, from 0 to `limit`. Codes are from 0 to `last`. Appends the scales of
/// the small scales and of the small minima, and returns both small numbers of each sub-block.
pub fn with_minima(x: &[f32], w: &[f32], sub: usize, last: f32, limit: f32, out: &mut [u8], items: &mut Vec<f16>) -> Vec<(u8, u8)> {
    let subs = || x.chunks_exact(sub).zip(w.chunks_exact(sub));
    let found: Vec<(f32, f32)> = subs().map(|(x, w)| scale_and_minimum(x, w, last, 0.0)).collect();
    let most = |of: fn(&(f32, f32)) -> f32| f16::from_f32(found.iter().map(of).fold(0f32, f32::max) / limit);
    let (mut d, mut e) = (most(|found| found.0), most(|found| found.1));
    let code = |x: f32, factor: f32, minimum: f32| if factor == 0.0 { 0.0 } else { ((x + minimum) / factor).round().clamp(0.0, last) };
    let error = |x: &[f32], w: &[f32], factor: f32, minimum: f32| -> f32 {
        x.iter().zip(w).map(|(&x, w)| w * (x + minimum - factor * code(x, factor, minimum)).powi(2)).sum()
    };
    let small = |d: f16, e: f16| -> Vec<(f32, f32)> {
        let (d, e) = (d.to_f32(), e.to_f32());
        let near = |x: f32, unit: f32| {
            let near = if unit == 0.0 { 0.0 } else { (x / unit).round() };
            [near, near - 1.0, near + 1.0].map(|x| x.clamp(0.0, limit))
        };
        let one = |j: usize| {
            let ((scale, minimum), (x, w)) = (found[j], (&x[j * sub..][..sub], &w[j * sub..][..sub]));
            let pairs: Vec<(f32, f32)> = near(scale, d).into_iter().flat_map(|s| near(minimum, e).map(|t| (s, t))).collect();
            best(pairs, |(s, t)| error(x, w, d * s, e * t))
        };
        (0..found.len()).map(one).collect()
    };
    let mut own = small(d, e);
    // Fits both scales to the codes by least squares, and keeps them if the error falls.
    let total = |d: f16, e: f16, own: &[(f32, f32)]| -> f32 {
        subs().zip(own).map(|((x, w), (s, t))| error(x, w, d.to_f32() * s, e.to_f32() * t)).sum()
    };
    let (mut ss, mut st, mut tt, mut xs, mut xt) = (0f32, 0f32, 0f32, 0f32, 0f32);
    for ((x, w), &(s, t)) in subs().zip(&own) {
        for (&x, w) in x.iter().zip(w) {
            let q = s * code(x, d.to_f32() * s, e.to_f32() * t);
            (ss, st, tt) = (ss + w * q * q, st + w * q * t, tt + w * t * t);
            (xs, xt) = (xs + w * x * q, xt + w * x * t);
        }
    }
    let determinant = ss * tt - st * st;
    let fitted = [(xs * tt - st * xt) / determinant, (st * xs - ss * xt) / determinant].map(f16::from_f32);
    if determinant > 0.0 && fitted.iter().all(|x| x.is_finite() && x.is_sign_positive()) {
        let other = small(fitted[0], fitted[1]);
        if total(fitted[0], fitted[1], &other) < total(d, e, &own) {
            (d, e, own) = (fitted[0], fitted[1], other);
        }
    }
    for (((x, _), (s, t)), out) in subs().zip(&own).zip(out.chunks_exact_mut(sub)) {
        let (factor, minimum) = (d.to_f32() * s, e.to_f32() * t);
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = code(x, factor, minimum) as u8);
    }
    items.extend([d, e]);
    own.into_iter().map(|(s, t)| (s as u8, t as u8)).collect()
}

/// Returns the candidate with the smallest error, the first one among equals.
fn best<C: Copy>(candidates: impl IntoIterator<Item = C>, error: impl Fn(C) -> f32) -> C {
    let mut candidates = candidates.into_iter().map(|c| (c, error(c)));
    let first = candidates.next().expect("there is a candidate");
    candidates.fold(first, |best, next| if next.1 < best.1 { next } else { best }).0
}
