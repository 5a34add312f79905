//! The memory of the twins: what the tape declares, as plain vectors on the host.

use super::{Matrix, State, Step, Tape, Var, Vector};
use crate::quant::{Format, product};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that somebody keeps: a memory map, or a vector.
#[derive(Clone)]
pub struct Bytes {
    pub owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    pub range: Range<usize>,
}

impl Bytes {
    pub fn owned(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Bytes { owner: Arc::new(bytes), range }
    }

    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

/// One matrix of a stack.
pub struct HostPart {
    pub rows: usize,
    /// Elements of a stored row; at least the width, padded or not.
    pub k: usize,
    pub bytes: Bytes,
}

pub struct HostMatrix {
    pub format: &'static dyn Format,
    pub parts: Vec<HostPart>,
}

impl HostMatrix {
    /// For each token t: `out(t, rows of that token)`, Σ over k of W[row, k] x[t, k].
    pub fn product(&self, part: usize, x: &[&[f32]], out: &mut [&mut [f32]], batch_invariant: bool) {
        let p = &self.parts[part];
        product::product(self.format, p.bytes.as_slice(), p.k, x, out, batch_invariant);
    }

    /// One row, decoded.
    pub fn row(&self, part: usize, row: usize, out: &mut [f32]) {
        let p = &self.parts[part];
        let size = p.bytes.as_slice().len() / p.rows.max(1);
        self.format.decode(&p.bytes.as_slice()[row * size..(row + 1) * size], out);
    }
}

/// Everything a twin may touch.
pub struct Host {
    pub tape: Arc<Tape>,
    pub step: Step,
    pub vars: Vec<Vec<f32>>,
    pub matrices: Vec<HostMatrix>,
    pub vectors: Vec<Vec<f32>>,
    pub states: Vec<Vec<f32>>,
    pub batch_invariant: bool,
    /// Rows of tokens that activations have room for: the distance of planes.
    pub capacity: usize,
}

impl Host {
    /// Takes an activation out, so that others can be read while it is written. Put it back with [`Host::put`].
    pub fn take(&mut self, v: Var) -> Vec<f32> {
        std::mem::take(&mut self.vars[v.0])
    }
    pub fn put(&mut self, v: Var, values: Vec<f32>) {
        self.vars[v.0] = values;
    }
    pub fn take_state(&mut self, s: State) -> Vec<f32> {
        std::mem::take(&mut self.states[s.0])
    }
    pub fn put_state(&mut self, s: State, values: Vec<f32>) {
        self.states[s.0] = values;
    }

    pub fn var(&self, v: Var) -> &[f32] {
        &self.vars[v.0]
    }
    pub fn matrix(&self, m: Matrix) -> &HostMatrix {
        &self.matrices[m.0]
    }

    /// Row `i` of packed vectors, without its padding.
    pub fn vector(&self, v: Vector, i: usize) -> &[f32] {
        let spec = self.tape.vector_spec(v);
        &self.vectors[v.0][i * spec.stride()..][..spec.width]
    }

    pub fn stride(&self, v: Var) -> usize {
        self.tape.var_spec(v).stride()
    }
}
