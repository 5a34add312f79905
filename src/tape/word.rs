//! Words: a word is a formula with two implementations, dispatches on a device and a reference implementation on the CPU, its *twin*.

use super::{Cache, Host, Matrix, MatrixSpec, Rows, State, Tape, Tuning, Var, Vector};
use std::ops::Range;

/// One fused step of a layer.
pub trait Word: Send + Sync {
    /// Name in profiles, tests and errors.
    fn name(&self) -> &'static str;

    /// Encodes the word as dispatches, for steps within the bounds of `cx`.
    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch>;

    /// Computes the word on the host, with loops that are as simple as possible.
    fn twin(&self, host: &mut Host);

    /// Returns the input that is mostly zeros: an activation and a range of its rows' floats. `None` if the word has no such input.
    fn sparse_input(&self, _tape: &Tape) -> Option<(Var, Range<usize>)> {
        None
    }

    /// Returns whether the word makes logits. Steps without outputs skip such words.
    fn is_head(&self) -> bool {
        false
    }
}

/// The family of kernels that suits an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Workgroups whose lanes cooperate through workgroup memory: for GPUs.
    Groups,
    /// One lane per row and no barriers in products: for software adapters.
    Lanes,
}

/// The capabilities of an adapter, and options that kernels depend on.
#[derive(Debug, Clone)]
pub struct Caps {
    pub class: Class,
    /// Bytes of one storage binding.
    pub max_binding: usize,
    /// One kernel class for every batch size, so that no result depends on the batch.
    pub batch_invariant: bool,
    /// The adapter has subgroup additions.
    pub subgroups: bool,
    /// Rows and columns of cooperative matrices, 16 or 8; `None` if the adapter has none.
    pub cooperative: Option<usize>,
    /// Sizes of the kernels.
    pub tuning: Tuning,
    /// Kernels read only the columns of non-zero inputs, in matrices with sparse inputs.
    pub sparse: bool,
}

impl Caps {
    /// Returns the capabilities that every adapter of a class has.
    pub fn plain(class: Class, max_binding: usize) -> Caps {
        Caps { class, max_binding, batch_invariant: false, subgroups: false, cooperative: None, tuning: Tuning::default(), sparse: true }
    }

    /// Returns the module for the slot `reduce`. Under batch invariance it does not use subgroups: some drivers choose another subgroup size
    /// for another kernel, and kernels differ by batch size.
    pub fn reduce(&self) -> (&'static str, String) {
        let module = match self.class {
            Class::Lanes => "lib::reduce_lanes",
            Class::Groups if self.subgroups && !self.batch_invariant => "lib::reduce_subgroup",
            Class::Groups => "lib::reduce",
        };
        ("reduce", module.to_string())
    }

    /// Returns whether a matrix is laid out in blocks on this adapter.
    pub fn in_blocks(&self, matrix: &MatrixSpec) -> bool {
        self.class == Class::Lanes && matrix.fits_windows()
    }

    /// Returns whether a matrix is stored column-major, so that only columns of non-zero inputs are read. Not on software adapters: they read
    /// windows of rows many times faster than storage buffers.
    pub fn by_columns(&self, matrix: &MatrixSpec) -> bool {
        self.sparse && matrix.has_sparse_input && self.class == Class::Groups && !self.batch_invariant
    }
}

/// The context of [`Word::lower`]: tape, adapter and upper bounds of a step.
pub struct Lowering<'a> {
    pub tape: &'a Tape,
    pub caps: &'a Caps,
    /// Upper bounds of the step.
    pub tokens: usize,
    pub runs: usize,
    pub outputs: usize,
    /// Rows of tokens in an activation, or in a plane of it.
    pub capacity: usize,
    /// Tokens that the longest slot has read after the step.
    pub context: usize,
}

impl Lowering<'_> {
    /// Returns whether products must not round activations to f16: under batch invariance, and if a step has more outputs than runs, because
    /// then the logits themselves are the result.
    pub fn is_exact(&self) -> bool {
        self.caps.batch_invariant || self.outputs > self.runs
    }

    /// Returns the upper bound of an activation's rows.
    pub fn n_rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}

/// One dispatch, as plain data. It names constants, parameters and bindings as the shader does; only the shader has binding numbers and
/// offsets.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// Path within `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// Modules for the shader's slots: `("weight", "weight::f32")`.
    pub modules: Vec<(&'static str, String)>,
    /// Constants for the generated module `constants`.
    pub constants: Vec<(&'static str, u32)>,
    /// Fields of `Params`.
    pub params: Vec<(&'static str, Param)>,
    /// Bindings by the names of the shader's variables.
    pub bindings: Vec<(&'static str, Binding)>,
    /// Workgroups in x, y and z.
    pub grid: [u32; 3],
}

/// The value of a field of `Params`.
#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    U32(u32),
    F32(f32),
    /// An array of `vec4<u32>`.
    Rows(Vec<[u32; 4]>),
}

impl From<u32> for Param {
    fn from(v: u32) -> Self {
        Param::U32(v)
    }
}
impl From<usize> for Param {
    fn from(v: usize) -> Self {
        Param::U32(u32::try_from(v).expect("sizes in shaders are below 2^32"))
    }
}
impl From<bool> for Param {
    fn from(v: bool) -> Self {
        Param::U32(u32::from(v))
    }
}
impl From<f32> for Param {
    fn from(v: f32) -> Self {
        Param::F32(v)
    }
}

/// The resource that is bound to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    Var(Var),
    Vector(Vector),
    State(State),
    Cache(Cache),
    /// The block lists of a step, [`Step::blocks`](super::Step::blocks).
    Blocks,
    /// cos and sin of every position, [`Rotary::angles`](super::Rotary::angles).
    Angles,
    /// A piece of a matrix: its index in [`MatrixSpec::pieces`] or [`MatrixSpec::column_pieces`].
    Piece(Matrix, usize),
    /// A uniform of 64 KiB: matrix, index of one of its buffers, first byte.
    Window(Matrix, usize, usize),
    /// A uniform of 64 KiB: activation, first byte.
    VarWindow(Var, usize),
    /// Some zeros, for a binding that this use of the kernel does not read.
    Nothing,
    /// Some writable bytes, for a binding that this use of the kernel does not write.
    Spare,
}
