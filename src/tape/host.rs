//! The memory of the CPU executor: the weights, activations, states and caches that a tape declares. Twins read and write this memory. A twin is
//! the reference implementation of a word (a fused operation) on the CPU.

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
        Weights { format: p.format, k: p.k, codes: p.codes.as_slice(), scales: &p.scales }
    }
}

/// A cache of keys or values in host memory, `[blocks, TOKENS_PER_BLOCK, n_heads, head_size]`. A row of the cache holds one token.
#[derive(Default)]
pub struct HostCache {
    bytes: Vec<u8>,
    /// The size of a row in bytes.
    row: usize,
}

impl HostCache {
    /// Returns a cache of `blocks` blocks whose bytes are zero.
    ///
    /// # Errors
    /// `Memory` if the host does not have enough memory.
    pub fn new(spec: &CacheSpec, format: &dyn Format, blocks: usize) -> Result<HostCache> {
        let row = format.size_bytes(spec.width());
        let size = blocks.saturating_mul(TOKENS_PER_BLOCK * row);
        let bytes =
            filled(0, size, &spec.name).map_err(|e| Error { hint: Some("use a smaller `context` or fewer texts at once".into()), ..e })?;
        Ok(HostCache { bytes, row })
    }

    fn place(&self, block: u32, token: usize) -> Range<usize> {
        let at = (block as usize * TOKENS_PER_BLOCK + token) * self.row;
        at..at + self.row
    }

    /// Encodes the key or value of one token, `row`, and stores it as row `token` of block `block`. `row` is `[n_heads, head_size]`.
    pub fn write(&mut self, format: &dyn Format, block: u32, token: usize, row: &[f32]) {
        let encoded = quant::encode_within(format, row);
        let place = self.place(block, token);
        self.bytes[place].copy_from_slice(&encoded);
    }

    /// Decodes the keys or values of the first `n` tokens of a block into `rows`, `[n, n_heads, head_size]`. Sets the length of `rows` to fit.
    fn read(&self, format: &dyn Format, block: u32, n: usize, rows: &mut Vec<f32>) {
        let at = self.place(block, 0).start;
        let bytes = &self.bytes[at..at + n * self.row];
        rows.resize(bytes.len() / format.size_bytes(PAD) * PAD, 0.0);
        format.decode(bytes, rows);
    }

    /// Returns the cached keys (or values) of a slot's first `n` tokens, `[n, n_heads, head_size]`. `blocks` lists the slot's blocks in order.
    pub fn rows(&self, format: &dyn Format, blocks: &[u32], n: usize) -> Vec<f32> {
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        for (first, &block) in (0..n).step_by(TOKENS_PER_BLOCK).zip(blocks) {
            self.read(format, block, TOKENS_PER_BLOCK.min(n - first), &mut rows);
            all.extend_from_slice(&rows);
        }
        all
    }

    /// Copies the contents of block `from` to block `to`.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        let (from, to) = (self.place(from, 0).start, self.place(to, 0).start);
        self.bytes.copy_within(from..from + TOKENS_PER_BLOCK * self.row, to);
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
    /// Takes all pages of a state out of the host. Then call [`Host::put_state`].
    pub fn take_state(&mut self, s: State) -> Vec<f32> {
        std::mem::take(&mut self.states[s.0])
    }
    /// Puts the pages back that [`Host::take_state`] took out.
    pub fn put_state(&mut self, s: State, values: Vec<f32>) {
        self.states[s.0] = values;
    }

    /// Takes a cache out of the host. Then call [`Host::put_cache`].
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
