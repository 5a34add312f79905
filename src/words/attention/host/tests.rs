//! Attention on the CPU against plain loops in f64.

use super::*;
use crate::quant::Float;
use crate::tape::{Rows, Tape};
use crate::words::attention::Attention;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The number of keys of the longest sequence: more than a chunk, and no multiple of a block.
const N_KEYS: usize = 650;

/// A model's sizes with random keys, values and queries.
struct Made {
    of: Attend,
    keys: HostCache,
    values: Option<HostCache>,
    blocks: Vec<u32>,
    queries: Vec<f32>,
}

fn made(of: Attention, (tiles, value_size): (usize, usize), limit: f32, in_keys: bool, float: Float) -> Made {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(of.head_size as u64);
    let mut numbers = |n: usize| (0..n).map(|_| random.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0).collect::<Vec<f32>>();
    let mut tape = Tape::new();
    let qkv = tape.var("qkv", Rows::Tokens, &[8, 8, 8]);
    let [keys, values] = tape.key_and_value("att", (of.n_kv_heads, of.head_size), (of.n_kv_heads * tiles, value_size));
    let n_blocks = N_KEYS.div_ceil(TOKENS_PER_BLOCK);
    // The blocks are not in the order of the tokens.
    let blocks: Vec<u32> = (0..n_blocks as u32).map(|i| (i * 5 + 3) % n_blocks as u32).collect();
    let caches = [keys, values].map(|cache| {
        let spec = tape.cache_spec(cache);
        let mut made = HostCache::new(spec, float.format(), n_blocks).unwrap();
        for token in 0..N_KEYS {
            made.write(float.format(), blocks[token / TOKENS_PER_BLOCK], token % TOKENS_PER_BLOCK, &numbers(spec.width()));
        }
        made
    });
    let queries = numbers(N_KEYS * of.n_heads * of.head_size);
    let [key_cache, value_cache] = caches;
    let of = Attend {
        of,
        tiles,
        value_size,
        scale: 1.0,
        limit,
        qkv,
        keys,
        values: (!in_keys).then_some(values),
        splits: qkv,
        y: qkv,
        adds: false,
    };
    Made { of, keys: key_cache, values: (!in_keys).then_some(value_cache), blocks, queries }
}

impl Made {
    /// Returns the outputs of `n` tokens after `before` tokens, `[tokens, heads, width]`.
    fn attend(&self, before: usize, n: usize, isa: Isa) -> Vec<f32> {
        let sequence = CachedSequence { of: &self.of, keys: &self.keys, values: self.values.as_ref(), blocks: &self.blocks, isa };
        let (heads, width, row) = (self.of.of.n_heads, sequence.width(), self.of.of.n_heads * self.of.of.head_size);
        let mut all = vec![f32::NAN; n * heads * width];
        sequence.attend(
            n,
            before,
            |i| &self.queries[(before + i) * row..][..row],
            |i, head, o| {
                all[(i * heads + head) * width..][..width].copy_from_slice(o);
            },
        );
        all
    }

    /// Returns the same outputs as [`Made::attend`], computed with plain loops in f64.
    fn plain(&self, before: usize, n: usize, float: Float) -> Vec<f64> {
        let Attention { n_heads, n_kv_heads, head_size, .. } = self.of.of;
        let width = self.of.tiles * self.of.value_size;
        let rows = |cache: &HostCache| cache.rows(float.format(), &self.blocks, before + n);
        let keys = rows(&self.keys);
        let values = match &self.values {
            Some(values) => rows(values),
            None => keys.chunks_exact(head_size).flat_map(|k| k[head_size - width..].to_vec()).collect(),
        };
        let mut all = Vec::new();
        for (i, head) in (0..n).flat_map(|i| (0..n_heads).map(move |head| (i, head))) {
            let (q, at) = (&self.queries[((before + i) * n_heads + head) * head_size..][..head_size], head / (n_heads / n_kv_heads));
            let scores = (0..=before + i).map(|j| {
                let k = &keys[(j * n_kv_heads + at) * head_size..][..head_size];
                let s: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                if self.of.limit == 0.0 { s } else { f64::from(self.of.limit) * s.tanh() }
            });
            let weights: Vec<f64> = scores.map(f64::exp).collect();
            let total: f64 = weights.iter().sum();
            all.extend((0..width).map(|c| {
                let weighted = weights.iter().enumerate().map(|(j, p)| p * f64::from(values[(j * n_kv_heads + at) * width + c]));
                weighted.sum::<f64>() / total
            }));
        }
        all
    }
}

#[test]
fn vectors_agree_with_plain_loops_and_with_each_other() {
    let of = |n_heads, n_kv_heads, head_size| Attention { n_heads, n_kv_heads, head_size, padding: 0 };
    for (of, value, limit, in_keys) in [
        (of(4, 2, 16), (1, 16), 0.0, false),
        (of(1, 1, 8), (1, 8), 0.0, false),
        (of(6, 3, 40), (1, 40), 0.0, false),
        (of(20, 1, 64), (1, 64), 0.0, false),
        (of(14, 2, 64), (1, 64), 0.0, false),
        (of(1, 1, 16), (5, 24), 3.0, false),
        (of(3, 1, 24), (1, 8), 0.0, true),
        (of(20, 1, 80), (2, 32), 0.0, true),
    ] {
        for float in Float::ALL {
            let made = made(of, value, limit, in_keys, float);
            for (before, n) in [(0, 1), (0, 70), (63, 2), (300, 5), (511, 3), (N_KEYS - 1, 1)] {
                let found = made.attend(before, n, Isa::best());
                for (i, (found, want)) in found.iter().zip(made.plain(before, n, float)).enumerate() {
                    assert!((f64::from(*found) - want).abs() < 2e-5, "{of:?} {float} {before} {n} {i}: {found} {want}");
                }
                // A token has the same bits alone and with others, and with every instruction set that has fused products.
                let alone: Vec<f32> = (0..n).flat_map(|i| made.attend(before + i, 1, Isa::best())).collect();
                assert_eq!(found, alone, "{of:?} {float} {before} {n}");
                for isa in Isa::all().into_iter().filter(|isa| *isa != Isa::Plain || crate::quant::isa::FUSED) {
                    assert_eq!(found, made.attend(before, n, isa), "{isa:?}");
                }
                let plain = made.attend(before, n, Isa::Plain);
                assert!(plain.iter().zip(&found).all(|(a, b)| (a - b).abs() < 2e-5));
            }
        }
    }
}

#[test]
fn the_exponential_is_exact_to_a_few_bits() {
    for i in 0..=87_000 {
        let x = -(i as f32) / 1000.0;
        let want = f64::from(x).exp();
        assert!((f64::from(exp(x)) / want - 1.0).abs() < 4e-7, "{x}: {} {want}", exp(x));
    }
    assert_eq!((exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
    assert!(exp(f32::NAN).is_nan());
}
