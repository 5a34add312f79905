//! The two loops over the whole vocabulary that take most of a sampler's time. For x86-64, each loop is compiled twice: the second copy uses eight
//! lanes of AVX2 and runs if the CPU has AVX2. All results are integers, so every machine computes the same numbers.

use super::fixed::{Scale, key_of, mass};

/// Converts each logit to a key, an unsigned integer. Sets the length of `keys` to the length of `logits`.
pub(super) fn keys(logits: &[f32], keys: &mut Vec<u32>) {
    keys.resize(logits.len(), 0);
    each(logits, keys, Keys)
}

/// Computes one mass (unnormalised probability) per token from its distance (largest logit minus the token's logit). Sets the length of `masses` to
/// the length of `distances`.
pub(super) fn masses(distances: &[u32], scale: Scale, masses: &mut Vec<u32>) {
    masses.resize(distances.len(), 0);
    each(distances, masses, Masses(scale))
}

/// A function from one number to a u32. `Map` is a trait and not a closure, so that `x86::each` contains a copy of the function compiled for AVX2.
trait Map<T> {
    fn of(&self, x: T) -> u32;
}

struct Keys;
struct Masses(Scale);

impl Map<f32> for Keys {
    #[inline(always)]
    fn of(&self, x: f32) -> u32 {
        key_of(x)
    }
}

impl Map<u32> for Masses {
    #[inline(always)]
    fn of(&self, distance: u32) -> u32 {
        mass(distance, self.0)
    }
}

fn each<T: Copy>(from: &[T], to: &mut [u32], map: impl Map<T>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { x86::each(from, to, &map) };
    }
    portable(from, to, &map);
}

#[inline(always)]
fn portable<T: Copy>(from: &[T], to: &mut [u32], map: &impl Map<T>) {
    for (to, &x) in to.iter_mut().zip(from) {
        *to = map.of(x);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    // SAFETY: the caller must have checked that the CPU has AVX2. The body has no unsafe operation.
    #[target_feature(enable = "avx2")]
    pub unsafe fn each<T: Copy>(from: &[T], to: &mut [u32], map: &impl super::Map<T>) {
        super::portable(from, to, map);
    }
}
