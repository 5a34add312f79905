//! Words. A word is a formula with two implementations: dispatches on a device, and a reference implementation on the CPU, its *twin*.

use super::{Cache, Host, Matrix, MatrixSpec, Rows, State, Tape, Tuning, Var, Vector};
use std::ops::Range;

/// One fused step of a layer.
pub trait Word: Send + Sync {
    /// Returns the name in profiles, tests and errors.
    fn name(&self) -> &'static str;

    /// Encodes the word as dispatches that are correct for all steps within the bounds of `cx`.
    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch>;

    /// Computes the word on the host, with loops that are as simple as possible.
    fn twin(&self, host: &mut Host);

    /// Returns the input that is mostly zeros: an activation, and the range of floats in each row. Returns `None` if the word has no such input.
    fn sparse_input(&self, _tape: &Tape) -> Option<(Var, Range<usize>)> {
        None
    }

    /// Returns whether the word computes logits. Steps without outputs skip such words.
    fn is_head(&self) -> bool {
        false
    }
}

/// The family of kernels that suits an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Kernels for GPUs. The lanes of a workgroup cooperate through workgroup memory.
    Groups,
    /// Kernels for software adapters. Products have one lane per row or group of rows, and no barriers.
    Lanes,
}

/// The capabilities of an adapter, and options that kernels depend on.
#[derive(Debug, Clone)]
pub struct Caps {
    pub class: Class,
    /// The size of the largest storage binding, in bytes.
    pub max_binding: usize,
    /// `true` if steps of all sizes use the same kernels, so that no result depends on the batch.
    pub batch_invariant: bool,
    /// `true` if the adapter can add within subgroups.
    pub subgroups: bool,
    /// The number of rows and of columns of a cooperative matrix, 16 or 8, or `None` if the adapter has no cooperative matrices.
    pub cooperative: Option<usize>,
    /// The sizes of the kernels.
    pub tuning: Tuning,
    /// `true` if kernels read only the columns of non-zero inputs of a matrix with sparse inputs.
    pub sparse: bool,
}

impl Caps {
    /// Returns the capabilities that every adapter of a class has.
    pub fn plain(class: Class, max_binding: usize) -> Caps {
        Caps { class, max_binding, batch_invariant: false, subgroups: false, cooperative: None, tuning: Tuning::default(), sparse: true }
    }

    /// Returns the module for the slot `reduce`. Under batch invariance, this module does not use subgroups: some drivers choose a different
    /// subgroup size for each kernel, and the kernel depends on the batch size.
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

    /// Returns whether this adapter stores a matrix column-major and reads only the columns of non-zero inputs. Software adapters never do: they
    /// read windows of rows many times faster than storage buffers.
    pub fn by_columns(&self, matrix: &MatrixSpec) -> bool {
        self.sparse && matrix.has_sparse_input && self.class == Class::Groups && !self.batch_invariant
    }
}

/// The context of [`Word::lower`]: tape, adapter and upper bounds of a step.
pub struct Lowering<'a> {
    pub tape: &'a Tape,
    pub caps: &'a Caps,
    /// The largest number of tokens in the step.
    pub tokens: usize,
    /// The largest number of runs in the step.
    pub runs: usize,
    /// The largest number of outputs in the step.
    pub outputs: usize,
    /// The number of rows in an activation that has one row per token, or in one plane of it.
    pub capacity: usize,
    /// The largest number of tokens that a slot has read after the step.
    pub context: usize,
}

impl Lowering<'_> {
    /// Returns whether products must not round activations to f16. This is so under batch invariance, and if a step has more outputs than runs:
    /// then the logits themselves are the result.
    pub fn is_exact(&self) -> bool {
        self.caps.batch_invariant || self.outputs > self.runs
    }

    /// Returns the largest number of rows of an activation in the step.
    pub fn n_rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}

/// One dispatch, as plain data. Constants, parameters and bindings have the same names as in the shader. Only the shader has binding numbers
/// and offsets.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The path within `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// The modules for the shader's slots: `("weight", "weight::f32")`.
    pub modules: Vec<(&'static str, String)>,
    /// The constants of the generated module `constants`.
    pub constants: Vec<(&'static str, u32)>,
    /// The values for the fields of `Params`.
    pub params: Vec<(&'static str, Param)>,
    /// The bindings, by the names of the shader's variables.
    pub bindings: Vec<(&'static str, Binding)>,
    /// The numbers of workgroups in x, y and z.
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

/// The resource that a variable of a shader is bound to.
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
    /// A piece of a matrix: the matrix, and the index of the piece in [`MatrixSpec::pieces`] or [`MatrixSpec::column_pieces`].
    Piece(Matrix, usize),
    /// A uniform binding of 64 KiB: the matrix, the index of one of its buffers, and the first byte in this buffer.
    Window(Matrix, usize, usize),
    /// A uniform binding of 64 KiB: the activation, and the first byte in it.
    VarWindow(Var, usize),
    /// Some zeros, for a variable that the kernel does not read in this dispatch.
    Nothing,
    /// Some writable bytes, for a variable that the kernel does not write in this dispatch.
    Spare,
}
