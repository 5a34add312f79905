//! The tape: the recorded program of a model. It lists the model's words (fused operations) in order, and declares the weights, activations
//! and states that they use.
//!
//! An architecture records the words, and an executor plays them. A tape holds no weight values and depends on no device or file, so one
//! tape serves every token. A word's *twin* is its reference implementation on the CPU.

mod cache;
mod cells;
mod checkpoint;
mod heads;
mod host;
mod inputs;
mod matrix;
mod region;
mod section;
mod source;
mod state;
mod step;
mod tuning;
mod word;

pub use cache::{Cache, CacheSpec, Capacity, Rotary, TOKENS_PER_BLOCK};
pub use cells::WORD_BYTES;
pub use heads::Heads;
pub use host::{Bytes, Host, HostCache, HostMatrix, HostPart};
pub use inputs::{AllInputSums, InputSums};
pub use matrix::{Block, MatrixKind, MatrixPart, MatrixPiece, MatrixSpec, PieceSegment, Slice, WINDOW_ALIGN, WINDOW_BYTES, WINDOWS};
pub use region::Region;
pub use section::{Extent, Held, PerHandle, Section};
pub use source::Source;
pub use state::{Initial, State, StateSpec};
pub use step::{CURSOR_WORDS, Run, Step};
pub use tuning::{BATCH, DenseFrom, FUSED, Tile, Tuning};
pub use word::{Binding, Caps, Class, Dispatch, Exchange, Lowering, Param, Word, row_grid};

use crate::error::{Error, Result};
use crate::quant::{self, Activations, Format, padded};

/// The handle of an activation, an f32 array `[rows, stride]`: its index in [`Tape::vars`]. A row consists of one or more vectors, called
/// columns, each padded with zeros to a multiple of [`quant::PAD`] floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Var(pub(crate) usize);

/// The handle of a stack of one or more weight matrices: its index in [`Tape::matrices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matrix(pub(crate) usize);

/// The handle of n weight vectors that are packed into one f32 buffer, `[n, stride]`: its index in [`Tape::vectors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vector(pub(crate) usize);

/// How many rows an activation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// One row per token of the step.
    Tokens,
    /// One row per output: a token whose logits are requested.
    Outputs,
    /// A fixed number of rows in every step.
    Fixed(usize),
}

impl Rows {
    /// Returns how many rows the activation has in a step of `tokens` tokens and `outputs` outputs.
    pub fn count(self, tokens: usize, outputs: usize) -> usize {
        match self {
            Rows::Tokens => tokens,
            Rows::Outputs => outputs,
            Rows::Fixed(n) => n,
        }
    }
}

/// The declaration of an activation.
#[derive(Debug, Clone)]
pub struct VarSpec {
    /// The name in tests and errors. Scratch activations ([`Tape::scratch`]) of the same name, rows and columns are one activation.
    pub name: &'static str,
    pub rows: Rows,
    /// The widths of the columns, the vectors of a row, in floats. Each starts at a multiple of [`quant::PAD`] floats.
    pub columns: Vec<usize>,
    /// The number of planes: arrays of rows, stored one after another. An activation with several planes is `[planes, capacity, stride]`,
    /// where `capacity` is the number of rows of each.
    pub planes: usize,
    /// `true` if only kernels use the activation, and no twin reads or writes it.
    pub device_only: bool,
    /// `true` if only the word that writes the activation reads it. Some kernels of that word do not write the activation, so tests do not compare it
    /// with the twin's activation.
    pub is_internal: bool,
}

/// The alignment of rows, in floats, in activations and packed vectors. A uniform binding must begin at a multiple of [`WINDOW_ALIGN`] bytes, and
/// with this alignment it can begin at every row. An activation and a packed vector of the same width also have the same stride.
const ROW_PAD: usize = WINDOW_ALIGN / 4;

/// The number of inputs that are rounded together.
pub const ROUNDED_BLOCK: usize = 32;
/// The number of words of 16 bytes that a block of rounded inputs takes.
pub const ROUNDED_WORDS: usize = 3;

impl VarSpec {
    /// Returns the number of floats from one row to the next.
    pub fn stride(&self) -> usize {
        self.columns.iter().map(|&w| padded(w)).sum::<usize>().next_multiple_of(ROW_PAD)
    }

    /// Returns the index, within a row, of the first float of column `i`.
    pub fn column(&self, i: usize) -> usize {
        self.columns[..i].iter().map(|&w| padded(w)).sum()
    }

    /// Returns the distance from one column to the next, if all columns have the same width. Returns 0 if there is only one column.
    pub fn column_step(&self) -> usize {
        if self.columns.len() > 1 { self.column(1) } else { 0 }
    }
}

/// The declaration of one of several packed vectors, and of its form in the checkpoint.
#[derive(Debug, Clone)]
pub struct VectorPart {
    /// The name of the vector's tensor in the checkpoint.
    pub tensor: String,
    /// `true` if the checkpoint may lack the tensor. The vector is then zero.
    pub optional: bool,
    /// The shape of the tensor if the checkpoint stores the vector as a matrix. `None` if the checkpoint stores a plain vector.
    pub shape: Option<[usize; 2]>,
    /// The number of elements if the vector is shorter than [`VectorSpec::width`]; the rest is zero. `None` if it has the full width.
    pub len: Option<usize>,
    /// The head sizes, if the elements are the channels of padded heads, whose padding the checkpoint lacks. `None` if the checkpoint has
    /// all elements.
    pub heads: Option<Heads>,
    /// How many times each element of the checkpoint's tensor is repeated, as consecutive elements of the vector.
    pub repeat: usize,
    /// A function that is applied to every element while loading, if any.
    pub map: Option<fn(f32) -> f32>,
}

impl VectorPart {
    /// Returns the same declaration for a vector of `len` elements. The remainder of the width is zero.
    pub fn short(self, len: usize) -> Self {
        VectorPart { len: Some(len), ..self }
    }

    /// Returns the same declaration for a vector of the channels of padded heads. Does not change the declaration if `heads` is `None`.
    pub fn heads(self, heads: Option<Heads>) -> Self {
        VectorPart { heads, ..self }
    }

    /// Returns the same declaration for a vector that the checkpoint stores as a matrix `[rows, columns]`.
    pub fn shaped(self, rows: usize, columns: usize) -> Self {
        VectorPart { shape: Some([rows, columns]), ..self }
    }

    /// Returns the same declaration for a vector that repeats every element of the checkpoint's tensor `n` times.
    pub fn repeated(self, n: usize) -> Self {
        VectorPart { repeat: n, ..self }
    }

    /// Returns the same declaration for a vector whose elements are changed by `map` in f32 while loading.
    pub fn map(self, map: fn(f32) -> f32) -> Self {
        VectorPart { map: Some(map), ..self }
    }
}

/// The declaration of vectors that are packed into one buffer: `[parts, stride]`.
#[derive(Debug, Clone)]
pub struct VectorSpec {
    /// The number of elements of a vector, without padding.
    pub width: usize,
    pub parts: Vec<VectorPart>,
}

impl VectorSpec {
    /// Returns the shape of the tensor of vector `part` in the checkpoint.
    pub fn shape(&self, part: &VectorPart) -> Vec<usize> {
        let len = part.heads.map_or(self.len(part), |heads| heads.stored(self.len(part)));
        part.shape.map_or_else(|| vec![len / part.repeat], |s| s.to_vec())
    }

    /// Returns the number of elements of vector `part`, without padding.
    pub fn len(&self, part: &VectorPart) -> usize {
        part.len.unwrap_or(self.width)
    }

    /// Returns the number of floats from one vector to the next.
    pub fn stride(&self) -> usize {
        self.width.next_multiple_of(ROW_PAD)
    }
}

/// The recorded program of a model, or of a test: words in order, and the declarations of everything that the words use.
pub struct Tape {
    pub vars: Vec<VarSpec>,
    pub matrices: Vec<MatrixSpec>,
    pub vectors: Vec<VectorSpec>,
    pub states: Vec<StateSpec>,
    pub caches: Vec<CacheSpec>,
    /// The format of all caches, chosen when the model is opened.
    pub cache_format: &'static dyn Format,
    /// Rounding of activations, chosen when the model is opened.
    pub activations: Activations,
    /// The inputs of a product on a GPU, rounded to 8 bits: blocks of [`ROUNDED_BLOCK`] inputs, each of [`ROUNDED_WORDS`] words of 16 bytes. `None`
    /// before [`Tape::keep_rounded`] is called, or if no product rounds its inputs.
    pub rounded: Option<Var>,
    /// The rotary position embedding of all attention words. `None` if the model has no such embedding.
    pub rotary: Option<Rotary>,
    pub words: Vec<Box<dyn Word>>,
    /// The activation that the last word writes: the logits, `[outputs, vocab]`. `None` until [`Tape::head`] is called.
    pub logits: Option<Var>,
    /// The input of the matrix that computes logits: the residual stream after the last norm, `[outputs, width]`. `None` until [`Tape::head`] is
    /// called.
    pub hidden: Option<Var>,
    /// `true` if the tape ends with the last norm. [`Tape::head`] then records no matrix, and `logits` is the same activation as `hidden`.
    /// Set this field before calling [`Tape::head`].
    pub ends_hidden: bool,
    /// Activations that one layer writes and later layers read.
    pub carried: Vec<Var>,
    /// For each layer, how much of the tape was recorded before the layer.
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
            activations: Activations::Float,
            rounded: None,
            rotary: None,
            words: Vec::new(),
            logits: None,
            hidden: None,
            ends_hidden: false,
            carried: Vec::new(),
            marks: Vec::new(),
        }
    }
}

impl Tape {
    /// Returns an empty tape.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a new activation, even if an activation of the same name exists.
    pub fn var(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        self.vars.push(VarSpec { name, rows, columns: columns.to_vec(), planes: 1, device_only: false, is_internal: false });
        Var(self.vars.len() - 1)
    }

    /// Declares scratch ([`Tape::scratch`]) that passes data from one dispatch of a word to a later one. The word's twin does not use it.
    pub fn device_scratch(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        let v = self.scratch(name, rows, columns);
        self.vars[v.0].device_only = true;
        v
    }

    /// Declares scratch ([`Tape::scratch`]) that only one word writes and reads. The twin uses it, but some kernels of the word do not.
    pub fn internal(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        let v = self.scratch(name, rows, columns);
        self.vars[v.0].is_internal = true;
        v
    }

    /// Declares scratch that only one word uses, like [`Tape::internal`], with at least `planes` planes ([`VarSpec::planes`]). Each plane has one row
    /// of `width` floats per token.
    pub fn planes(&mut self, name: &'static str, width: usize, planes: usize) -> Var {
        let v = self.internal(name, Rows::Tokens, &[width]);
        self.vars[v.0].planes = self.vars[v.0].planes.max(planes);
        v
    }

    /// Declares scratch: an activation that later words may overwrite. Calls with the same name, rows and columns return the same activation.
    pub fn scratch(&mut self, name: &'static str, rows: Rows, columns: &[usize]) -> Var {
        match self.vars.iter().position(|v| v.name == name && v.rows == rows && v.columns == columns) {
            Some(i) => Var(i),
            None => self.var(name, rows, columns),
        }
    }

    /// Declares a stack of matrices. One dispatch can read several consecutive matrices if they have the same format.
    pub fn matrix(&mut self, parts: Vec<MatrixPart>) -> Matrix {
        self.matrices.push(MatrixSpec { parts, has_sparse_input: false, n_used: None });
        Matrix(self.matrices.len() - 1)
    }

    /// Declares a matrix of the role [`MatrixKind::Value`] whose inputs are mostly zeros.
    pub fn matrix_of_sparse_input(&mut self, part: MatrixPart) -> Matrix {
        let m = self.matrix(vec![part.of(MatrixKind::Value)]);
        self.matrices[m.0].has_sparse_input = true;
        m
    }

    /// Declares the matrices of experts, of which each token uses `n_used`.
    pub fn matrix_of_experts(&mut self, parts: Vec<MatrixPart>, n_used: usize) -> Matrix {
        let m = self.matrix(parts);
        self.matrices[m.0].n_used = Some(n_used);
        m
    }

    /// Declares a matrix whose rows are looked up and never multiplied.
    pub fn table(&mut self, part: MatrixPart) -> Matrix {
        self.matrix(vec![part.of(MatrixKind::Embedding)])
    }

    /// Declares vectors that have the same width and are packed into one buffer.
    pub fn vectors(&mut self, width: usize, parts: Vec<VectorPart>) -> Vector {
        self.vectors.push(VectorSpec { width, parts });
        Vector(self.vectors.len() - 1)
    }

    /// Declares a recurrent state in f32 that is zero before the first token. `name` is its tensor's name in state files, and `shape` its
    /// shape for one slot. [`StateSpec::halves`] explains `halves`.
    pub fn state(&mut self, name: String, shape: &[usize], halves: bool) -> State {
        let format = quant::find("f32").expect("a format of the list");
        self.states.push(StateSpec { name, shape: shape.to_vec(), halves, initial: Initial::Zeros, format });
        State(self.states.len() - 1)
    }

    /// Sets the format of the recurrent states that consist of one matrix per head. The format must be f16 or f32. All other states stay f32.
    ///
    /// # Errors
    /// `Usage` for another format, or for f16 if no state of the tape consists of one matrix per head.
    pub fn store_states(&mut self, format: &'static dyn Format) -> Result<()> {
        match format.name() {
            "f32" => (),
            "f16" if self.states.iter().any(StateSpec::is_matrices) => (),
            "f16" => {
                return Err(Error::usage("only RWKV-5, 6 and 7 have a state that can be stored as f16").hint("leave out `state_dtype`"));
            }
            other => return Err(Error::usage(format!("expected f16 or f32, found {other:?}")).field("state_dtype")),
        }
        self.states.iter_mut().filter(|s| s.is_matrices()).for_each(|s| s.format = format);
        Ok(())
    }

    /// Declares a cache of keys or values.
    pub fn cache(&mut self, spec: CacheSpec) -> Cache {
        self.caches.push(spec);
        Cache(self.caches.len() - 1)
    }

    /// Declares [`Tape::rounded`], with room for the inputs of each product. Call this function if a part of the tape runs on a GPU. Call it after
    /// all matrices have their formats, because the formats determine which products round.
    pub fn keep_rounded(&mut self) {
        let blocks = |m: &MatrixSpec| {
            m.parts.iter().filter(|p| m.may_round(p, self.activations)).map(|p| p.k.div_ceil(ROUNDED_BLOCK)).sum::<usize>()
        };
        let most = self.matrices.iter().map(blocks).max().unwrap_or(0);
        if most > 0 {
            self.rounded = Some(self.device_scratch("rounded", Rows::Tokens, &[most * ROUNDED_WORDS * WORD_BYTES / 4]));
        }
    }

    /// Sets the format of all matrices.
    pub fn store_as(&mut self, format: &'static dyn Format) {
        self.matrices.iter_mut().flat_map(|m| &mut m.parts).for_each(|p| p.format = format);
    }

    /// Returns the names of the formats of all matrices, sorted and without duplicates.
    pub fn formats(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.matrices.iter().flat_map(|m| &m.parts).map(|p| p.format.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Sets the value that a state has before the first token.
    pub fn begin_with(&mut self, state: State, initial: Initial) {
        self.states[state.0].initial = initial;
    }

    /// Appends a word.
    pub fn record(&mut self, word: impl Word + 'static) {
        self.words.push(Box::new(word));
    }

    /// Returns the declaration of an activation.
    pub fn var_spec(&self, v: Var) -> &VarSpec {
        &self.vars[v.0]
    }
    /// Returns the declaration of a stack of matrices.
    pub fn matrix_spec(&self, m: Matrix) -> &MatrixSpec {
        &self.matrices[m.0]
    }
    /// Returns the declaration of packed vectors.
    pub fn vector_spec(&self, v: Vector) -> &VectorSpec {
        &self.vectors[v.0]
    }
    /// Returns the declaration of a state.
    pub fn state_spec(&self, s: State) -> &StateSpec {
        &self.states[s.0]
    }

    /// Returns the declaration of a cache.
    pub fn cache_spec(&self, c: Cache) -> &CacheSpec {
        &self.caches[c.0]
    }

    /// Returns how many bytes one block takes in all caches together. A block holds the keys or values of [`TOKENS_PER_BLOCK`] tokens in each cache.
    pub fn block_bytes(&self) -> usize {
        self.caches.iter().map(|c| self.cache_format.size_bytes(c.block_len())).sum()
    }

    /// Returns the first activation of this name, or `None` if no activation has this name.
    pub fn find_var(&self, name: &str) -> Option<Var> {
        self.vars.iter().position(|v| v.name == name).map(Var)
    }

    /// Returns the state that has this name in state files, or `None` if the name is unknown.
    pub fn find_state(&self, name: &str) -> Option<State> {
        self.states.iter().position(|s| s.name == name).map(State)
    }

    /// Returns the cache that has this name in state files, or `None` if the name is unknown.
    pub fn find_cache(&self, name: &str) -> Option<Cache> {
        self.caches.iter().position(|c| c.name == name).map(Cache)
    }

    /// Returns every tensor that the tape reads, without duplicates: its name, its shape in the checkpoint, and whether it is optional.
    pub fn tensors(&self) -> Vec<(&str, Vec<usize>, bool)> {
        let matrices = self.matrices.iter().flat_map(|m| &m.parts).map(|p| (p.tensor.as_str(), p.shape(), p.optional));
        let vectors = self.vectors.iter().flat_map(|v| v.parts.iter().map(|p| (p.tensor.as_str(), v.shape(p), p.optional)));
        let states = self.states.iter().filter_map(|s| match &s.initial {
            Initial::Tensor(name) => Some((name.as_str(), s.shape.clone(), false)),
            _ => None,
        });
        // Several declarations may name one tensor. Each name is returned once.
        let mut seen = std::collections::HashSet::new();
        matrices.chain(vectors).chain(states).filter(|(name, ..)| seen.insert(*name)).collect()
    }
}

/// Returns the declaration of a vector whose tensor the checkpoint must have.
pub fn vector(tensor: impl Into<String>) -> VectorPart {
    VectorPart { tensor: tensor.into(), optional: false, shape: None, len: None, heads: None, repeat: 1, map: None }
}

/// Returns the declaration of a vector that is zero if the checkpoint lacks its tensor.
pub fn optional_vector(tensor: impl Into<String>) -> VectorPart {
    VectorPart { optional: true, ..vector(tensor) }
}
