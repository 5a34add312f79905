//! The memory of the CPU executor: the weights, activations, states and caches that a tape declares. Twins read and write this memory. A twin is
//! the reference implementation of a word (a fused operation) on the CPU.

use super::inputs::AllInputSums;
use super::{Cache, CacheSpec, Matrix, State, Step, TOKENS_PER_BLOCK, Tape, Var, Vector};
use crate::error::{Error, Result, filled};
use crate::quant::product::Weights;
use crate::quant::{self, Format, PAD, Scales};
use std::ops::Range;
use std::sync::Arc;

/// A range of bytes in a memory map or a vector that several holders share without a copy.
#[derive(Clone)]
pub struct Bytes {
    pub owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    pub range: Range<usize>,
}

impl Bytes {
    /// Moves a vector into a shared owner and returns the range of all its bytes.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Bytes { owner: Arc::new(bytes), range }
    }

    /// Returns the bytes of the range.
    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

/// One matrix of a stack: the stored weights (codes) and their scales.
#[derive(Clone)]
pub struct HostPart {
    pub format: &'static dyn Format,
    /// The number of weights in a stored row, including padding if the row is padded.
    pub k: usize,
    pub codes: Bytes,
    /// True if codes and scales are in the order in which products with rounded activations read them ([`stripe`](crate::quant::product::stripe)).
    pub is_striped: bool,
    pub scales: Arc<Scales>,
}

/// A stack of matrices in host memory.
#[derive(Clone, Default)]
pub struct HostMatrix {
    pub parts: Vec<HostPart>,
}

impl HostMatrix {
    /// Returns matrix `part` of the stack as the operand of a product.
    pub fn part(&self, part: usize) -> Weights<'_> {
        let p = &self.parts[part];
        Weights { format: p.format, k: p.k, codes: p.codes.as_slice(), is_striped: p.is_striped, scales: &p.scales }
    }
}

/// A cache of keys or values in host memory. A block of values is `[TOKENS_PER_BLOCK, n_heads, head_size]`. A block of keys is `[n_heads, head_size,
/// TOKENS_PER_BLOCK]`, because a query reads one channel of many keys at once.
#[derive(Default)]
pub struct HostCache {
    bytes: Vec<u8>,
    n_heads: usize,
    head_size: usize,
    is_keys: bool,
    /// The size of an element in bytes.
    element: usize,
}

impl HostCache {
    /// Returns a cache of `blocks` blocks whose bytes are zero. `format` is a float format.
    ///
    /// # Errors
    /// `Memory` if the host does not have enough memory.
    pub fn new(spec: &CacheSpec, format: &dyn Format, blocks: usize) -> Result<HostCache> {
        let element = format.size_bytes(PAD) / PAD;
        let size = blocks.saturating_mul(TOKENS_PER_BLOCK * spec.width() * element);
        let bytes =
            filled(0, size, &spec.name).map_err(|e| Error { hint: Some("use a smaller `context` or fewer texts at once".into()), ..e })?;
        Ok(HostCache { bytes, n_heads: spec.n_heads, head_size: spec.head_size, is_keys: spec.is_keys, element })
    }

    /// Returns whether the elements are in half precision.
    pub fn is_half(&self) -> bool {
        self.element == 2
    }

    /// Returns the bytes of a block.
    fn block(&self, block: u32) -> Range<usize> {
        let size = TOKENS_PER_BLOCK * self.n_heads * self.head_size * self.element;
        block as usize * size..(block as usize + 1) * size
    }

    /// Returns the keys of one head in a block, `[head_size, TOKENS_PER_BLOCK]`.
    pub fn head(&self, block: u32, head: usize) -> &[u8] {
        let size = TOKENS_PER_BLOCK * self.head_size * self.element;
        &self.bytes[self.block(block)][head * size..][..size]
    }

    /// Returns the values of a block, `[TOKENS_PER_BLOCK, n_heads, head_size]`.
    pub fn rows_of(&self, block: u32) -> &[u8] {
        &self.bytes[self.block(block)]
    }

    /// Returns the offset of element `i` of a token's row, in elements from the beginning of the block.
    fn offset(&self, token: usize, i: usize) -> usize {
        if self.is_keys { i * TOKENS_PER_BLOCK + token } else { token * self.n_heads * self.head_size + i }
    }

    /// Encodes the key or value of one token, `row`, and stores it as row `token` of block `block`. `row` is `[n_heads, head_size]`.
    pub fn write(&mut self, format: &dyn Format, block: u32, token: usize, row: &[f32]) {
        let encoded = quant::encode_within(format, row);
        let start = self.block(block).start;
        for (i, element) in encoded.chunks_exact(self.element).take(self.n_heads * self.head_size).enumerate() {
            let at = start + self.offset(token, i) * self.element;
            self.bytes[at..at + self.element].copy_from_slice(element);
        }
    }

    /// Returns the cached keys (or values) of a slot's first `n` tokens, `[n, n_heads, head_size]`. `blocks` lists the slot's blocks in order.
    pub fn rows(&self, format: &dyn Format, blocks: &[u32], n: usize) -> Vec<f32> {
        let width = self.n_heads * self.head_size;
        let mut rows = vec![0.0; n * width];
        let mut encoded = vec![0; width * self.element];
        for (t, row) in rows.chunks_exact_mut(width).enumerate() {
            let bytes = self.rows_of(blocks[t / TOKENS_PER_BLOCK]);
            for (i, element) in encoded.chunks_exact_mut(self.element).enumerate() {
                element.copy_from_slice(&bytes[self.offset(t % TOKENS_PER_BLOCK, i) * self.element..][..self.element]);
            }
            format.decode(&encoded, row);
        }
        rows
    }

    /// Copies the contents of block `from` to block `to`.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        let (from, to) = (self.block(from), self.block(to).start);
        self.bytes.copy_within(from, to);
    }
}

/// Everything that twins read and write. A handle is an index into the list of its kind: [`Var`] in `vars`, [`Matrix`] in `matrices`,
/// [`State`] in `states`.
pub struct Host {
    pub tape: Arc<Tape>,
    pub step: Step,
    pub vars: Vec<Vec<f32>>,
    pub matrices: Vec<HostMatrix>,
    pub vectors: Vec<Vec<f32>>,
    pub states: Vec<Vec<f32>>,
    pub caches: Vec<HostCache>,
    /// cos and sin of the rotary position embedding: `[positions, rotary size / 2, 2]`.
    pub angles: Vec<f32>,
    /// The number of rows in an activation with one row per token. If the activation has planes ([`VarSpec::planes`](super::VarSpec::planes)),
    /// every plane has this many rows.
    pub capacity: usize,
    /// The sums of the squares of all matrices' inputs. `None` if they are not measured. Quantisation derives the importance of weights from these
    /// sums.
    pub sums: Option<AllInputSums>,
}

impl Host {
    /// Takes an activation's elements out of the host, so that a twin can write them while it reads other activations. Then call [`Host::put`].
    pub fn take(&mut self, v: Var) -> Vec<f32> {
        std::mem::take(&mut self.vars[v.0])
    }
    /// Puts the elements back that [`Host::take`] took out.
    pub fn put(&mut self, v: Var, values: Vec<f32>) {
        self.vars[v.0] = values;
    }
    /// Takes all pages of a state out of the host, as [`Host::take`] does. Then call [`Host::put_state`], because the host has no pages until then.
    pub fn take_state(&mut self, s: State) -> Vec<f32> {
        std::mem::take(&mut self.states[s.0])
    }
    /// Puts the pages back that [`Host::take_state`] took out.
    pub fn put_state(&mut self, s: State, values: Vec<f32>) {
        self.states[s.0] = values;
    }

    /// Takes a cache out of the host, as [`Host::take`] does. Then call [`Host::put_cache`], because the host has an empty cache until then.
    pub fn take_cache(&mut self, c: Cache) -> HostCache {
        std::mem::take(&mut self.caches[c.0])
    }
    /// Puts the cache back that [`Host::take_cache`] took out.
    pub fn put_cache(&mut self, c: Cache, cache: HostCache) {
        self.caches[c.0] = cache;
    }
    /// Returns a cache.
    pub fn cache(&self, c: Cache) -> &HostCache {
        &self.caches[c.0]
    }

    /// Returns the elements of an activation, including padding.
    pub fn var(&self, v: Var) -> &[f32] {
        &self.vars[v.0]
    }
    /// Returns a stack of matrices.
    pub fn matrix(&self, m: Matrix) -> &HostMatrix {
        &self.matrices[m.0]
    }

    /// Returns vector `i` of a set of packed vectors, without padding.
    pub fn vector(&self, v: Vector, i: usize) -> &[f32] {
        let spec = self.tape.vector_spec(v);
        &self.vectors[v.0][i * spec.stride()..][..spec.width]
    }

    /// Returns the number of floats from one row of an activation to the next.
    pub fn stride(&self, v: Var) -> usize {
        self.tape.var_spec(v).stride()
    }
}
