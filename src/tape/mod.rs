//! The recorded program: words in order, and the plain data they speak of.
//!
//! An architecture declares its weights and states and records words; an executor plays them. A tape holds no numbers, knows
//! no device and no file, and is the same for every token.

mod cache;
mod checkpoint;
mod host;
mod matrix;
mod region;
mod section;
mod source;
mod state;
mod step;
mod tuning;
mod word;

pub use cache::{Cache, CacheSpec, Room, Rotary, TOKENS_PER_BLOCK};
pub use host::{Bytes, Host, HostCache, HostMatrix, HostPart};
pub use matrix::{Block, Kind, MatrixPart, MatrixPiece, MatrixSpec, PieceSegment, Slice, WINDOW_ALIGN, WINDOW_BYTES, WINDOWS};
pub use region::{Region, WORD_BYTES};
pub use section::{Extent, Held, Section};
pub use source::Source;
pub use state::{Initial, State, StateSpec};
pub use step::{CURSOR_WORDS, Run, Step};
pub use tuning::{BATCH, FUSED, Tile, Tuning};
pub use word::{Binding, Caps, Class, Dispatch, Lowering, Param, Word};

use crate::error::{Error, Result};
use crate::quant::{self, Format, padded};

/// An activation: rows of padded columns, f32. `[rows, stride]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Var(pub(crate) usize);

/// A matrix of weights, or several stacked under one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matrix(pub(crate) usize);

/// Vectors of weights packed into one f32 buffer. `[n, stride]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vector(pub(crate) usize);

/// What the rows of an activation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// One a token of the step.
    Tokens,
    /// One a token whose logits are wanted.
    Outputs,
    /// So many, whatever the step.
    Fixed(usize),
}

impl Rows {
    /// How many these are in a step.
    pub fn count(self, tokens: usize, outputs: usize) -> usize {
        match self {
            Rows::Tokens => tokens,
            Rows::Outputs => outputs,
            Rows::Fixed(n) => n,
        }
    }
}

#[derive(Debug, Clone)]
pub struct VarSpec {
    pub name: &'static str,
    pub rows: Rows,
    /// Widths of the columns; each starts at a multiple of [`quant::PAD`].
    pub columns: Vec<usize>,
    /// Copies of the whole, one behind the other: `[planes, capacity, stride]`.
    pub planes: usize,
    /// Only the kernels write it; the twin has no such intermediate.
    pub device_only: bool,
    /// Lives within a word: a lowering need not write it.
    pub is_internal: bool,
}

/// Rows of activations and of packed vectors are a multiple of this many floats apart: each may begin a uniform binding
/// (256 bytes), and one stride serves both.
const ROW_PAD: usize = WINDOW_ALIGN / 4;

impl VarSpec {
    /// Floats from one row to the next.
    pub fn stride(&self) -> usize {
        self.columns.iter().map(|&w| padded(w)).sum::<usize>().next_multiple_of(ROW_PAD)
    }

    /// First float of a column within a row.
    pub fn column(&self, i: usize) -> usize {
        self.columns[..i].iter().map(|&w| padded(w)).sum()
    }
}

/// One vector of a packed set.
#[derive(Debug, Clone)]
pub struct VectorPart {
    pub tensor: String,
    /// Zeros where the file has no such tensor.
    pub optional: bool,
    /// Shape in the file, where it is not `[width]`.
    pub shape: Option<[usize; 2]>,
    /// How many numbers it has, where fewer than the width.
    pub len: Option<usize>,
    /// So many numbers of the vector share one of the file.
    pub repeat: usize,
    /// What is done to every number once, while loading.
    pub map: Option<fn(f32) -> f32>,
}

impl VectorPart {
    /// Shorter than the others: the rest is zeros.
    pub fn short(self, len: usize) -> Self {
        VectorPart { len: Some(len), ..self }
    }

    /// Stored as a matrix of that shape.
    pub fn shaped(self, rows: usize, columns: usize) -> Self {
        VectorPart { shape: Some([rows, columns]), ..self }
    }

    /// Stored as one number for `n` of the vector.
    pub fn repeated(self, n: usize) -> Self {
        VectorPart { repeat: n, ..self }
    }

    /// Mapped while loading, in f32.
    pub fn map(self, map: fn(f32) -> f32) -> Self {
        VectorPart { map: Some(map), ..self }
    }
}

#[derive(Debug, Clone)]
pub struct VectorSpec {
    pub width: usize,
    pub parts: Vec<VectorPart>,
}

impl VectorSpec {
    /// Shape of a part's tensor in the file.
    pub fn shape(&self, part: &VectorPart) -> Vec<usize> {
        part.shape.map_or_else(|| vec![self.len(part) / part.repeat], |s| s.to_vec())
    }

    /// Numbers of a part that are no padding.
    pub fn len(&self, part: &VectorPart) -> usize {
        part.len.unwrap_or(self.width)
    }

    pub fn stride(&self) -> usize {
        self.width.next_multiple_of(ROW_PAD)
    }
}

/// The program of a model, or of a test.
pub struct Tape {
    pub vars: Vec<VarSpec>,
    pub matrices: Vec<MatrixSpec>,
    pub vectors: Vec<VectorSpec>,
    pub states: Vec<StateSpec>,
    pub caches: Vec<CacheSpec>,
    /// How all caches are stored. Chosen when the model is opened.
    pub cache_format: &'static dyn Format,
    /// How tokens are rotated by their position; all words share it.
    pub rotary: Option<Rotary>,
    pub words: Vec<Box<dyn Word>>,
    /// The last word's output. `[outputs, vocab]`.
    pub logits: Option<Var>,
    /// What the head multiplies: the normalised last activation. `[outputs, width]`.
    pub hidden: Option<Var>,
    /// What later layers read of earlier ones.
    pub carried: Vec<Var>,
    /// Where each layer begins.
    marks: Vec<section::Mark>,
}

impl Default for Tape {
    fn default() -> Self {
        Tape {
            vars: Vec::new(),
            matrices: Vec::new(),
            vectors: Vec::new(),
            states: Vec::new(),
            caches: Vec::new(),
            cache_format: quant::FORMATS[0],
            rotary: None,
            words: Vec::new(),
            logits: None,
            hidden: None,
            carried: Vec::new(),
            marks: Vec::new(),
        }
    }
}

impl Tape {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn var(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        self.vars.push(VarSpec { name, rows, columns: columns.to_vec(), planes: 1, device_only: false, is_internal: false });
        Var(self.vars.len() - 1)
    }

    /// Scratch between the dispatches of one word, which its twin does without.
    pub fn device_scratch(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        let v = self.scratch(name, rows, columns);
        self.vars[v.0].device_only = true;
        v
    }

    /// Scratch within one word that its twin has too, but not every lowering.
    pub fn internal(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        let v = self.scratch(name, rows, columns);
        self.vars[v.0].is_internal = true;
        v
    }

    /// The same in several planes of one width.
    pub fn planes(&mut self, name: &'static str, width: usize, planes: usize) -> Var {
        let v = self.internal(name, Rows::Tokens, &[width]);
        self.vars[v.0].planes = self.vars[v.0].planes.max(planes);
        v
    }

    /// An activation that lives within one word: words of the same name and shape share it.
    pub fn scratch(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        match self.vars.iter().position(|v| v.name == name && v.rows == rows && v.columns == columns) {
            Some(i) => Var(i),
            None => self.var(name, rows, columns),
        }
    }

    /// A stack of matrices, read by one dispatch where they have one format.
    pub fn matrix(&mut self, parts: Vec<MatrixPart>) -> Matrix {
        self.matrices.push(MatrixSpec { parts, has_sparse_input: false });
        Matrix(self.matrices.len() - 1)
    }

    /// A matrix that multiplies mostly zeros.
    pub fn matrix_of_sparse_input(&mut self, part: MatrixPart) -> Matrix {
        let m = self.matrix(vec![part.of(Kind::Value)]);
        self.matrices[m.0].has_sparse_input = true;
        m
    }

    /// A matrix whose rows are looked up, not multiplied.
    pub fn table(&mut self, part: MatrixPart) -> Matrix {
        self.matrix(vec![part.of(Kind::Embedding)])
    }

    /// Vectors of one width, packed.
    pub fn vectors(&mut self, width: usize, parts: Vec<VectorPart>) -> Vector {
        self.vectors.push(VectorSpec { width, parts });
        Vector(self.vectors.len() - 1)
    }

    pub fn state(&mut self, name: String, shape: &[usize], halves: bool) -> State {
        let format = quant::find("f32").expect("a format of the list");
        self.states.push(StateSpec { name, shape: shape.to_vec(), halves, initial: Initial::Zeros, format });
        State(self.states.len() - 1)
    }

    /// Says how the matrices of heads are stored, as f16 or f32; the other states stay f32. Refuses f16 where there are none.
    pub fn store_states(&mut self, format: &'static dyn Format) -> Result<()> {
        match format.name() {
            "f32" => (),
            "f16" if self.states.iter().any(StateSpec::is_matrices) => (),
            "f16" => return Err(Error::usage("only RWKV-5, 6 and 7 have a state that f16 can hold").hint("leave out `state_dtype`")),
            other => return Err(Error::usage(format!("expected f16 or f32, found {other:?}")).field("state_dtype")),
        }
        self.states.iter_mut().filter(|s| s.is_matrices()).for_each(|s| s.format = format);
        Ok(())
    }

    /// Keys or values of every token of a slot.
    pub fn cache(&mut self, spec: CacheSpec) -> Cache {
        self.caches.push(spec);
        Cache(self.caches.len() - 1)
    }

    /// Keeps all matrices in one format.
    pub fn store_as(&mut self, format: &'static dyn Format) {
        self.matrices.iter_mut().flat_map(|m| &mut m.parts).for_each(|p| p.format = format);
    }

    /// Names of the formats of all matrices, each once.
    pub fn formats(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.matrices.iter().flat_map(|m| &m.parts).map(|p| p.format.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Says what a state is before the first token.
    pub fn begin_with(&mut self, state: State, initial: Initial) {
        self.states[state.0].initial = initial;
    }

    pub fn record(&mut self, word: impl Word + 'static) {
        self.words.push(Box::new(word));
    }

    pub fn var_spec(&self, v: Var) -> &VarSpec {
        &self.vars[v.0]
    }
    pub fn matrix_spec(&self, m: Matrix) -> &MatrixSpec {
        &self.matrices[m.0]
    }
    pub fn vector_spec(&self, v: Vector) -> &VectorSpec {
        &self.vectors[v.0]
    }
    pub fn state_spec(&self, s: State) -> &StateSpec {
        &self.states[s.0]
    }

    pub fn cache_spec(&self, c: Cache) -> &CacheSpec {
        &self.caches[c.0]
    }

    /// Bytes of a block of all caches.
    pub fn block_bytes(&self) -> usize {
        self.caches.iter().map(|c| self.cache_format.size_bytes(c.block_len())).sum()
    }

    /// The first activation of that name.
    pub fn find_var(&self, name: &str) -> Option<Var> {
        self.vars.iter().position(|v| v.name == name).map(Var)
    }

    /// The state of that name in state files.
    pub fn find_state(&self, name: &str) -> Option<State> {
        self.states.iter().position(|s| s.name == name).map(State)
    }

    /// The cache of that name in state files.
    pub fn find_cache(&self, name: &str) -> Option<Cache> {
        self.caches.iter().position(|c| c.name == name).map(Cache)
    }

    /// Every tensor that the tape reads, once: name, shape in the file, whether it may be absent.
    pub fn tensors(&self) -> Vec<(&str, Vec<usize>, bool)> {
        let matrices = self.matrices.iter().flat_map(|m| &m.parts).map(|p| (p.tensor.as_str(), p.shape(), p.optional));
        let vectors = self.vectors.iter().flat_map(|v| v.parts.iter().map(|p| (p.tensor.as_str(), v.shape(p), p.optional)));
        let states = self.states.iter().filter_map(|s| match &s.initial {
            Initial::Tensor(name) => Some((name.as_str(), s.shape.clone(), false)),
            _ => None,
        });
        // Several parts may read one tensor.
        let mut seen = std::collections::HashSet::new();
        matrices.chain(vectors).chain(states).filter(|(name, ..)| seen.insert(*name)).collect()
    }
}

/// A vector that must be there.
pub fn vector(tensor: impl Into<String>) -> VectorPart {
    VectorPart { tensor: tensor.into(), optional: false, shape: None, len: None, repeat: 1, map: None }
}

/// A vector of zeros where the file has none.
pub fn optional_vector(tensor: impl Into<String>) -> VectorPart {
    VectorPart { optional: true, ..vector(tensor) }
}
