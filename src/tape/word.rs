//! What a word is: a formula with two ways to compute it, dispatches on a device and a twin on the host.

use super::{Cache, Host, Matrix, MatrixSpec, Rows, State, Tape, Tuning, Var, Vector};
use std::ops::Range;

/// One fused step of a layer.
pub trait Word: Send + Sync {
    /// Name in profiles, tests and errors.
    fn name(&self) -> &'static str;

    /// Dispatches for a step of at most that many tokens, slots and outputs.
    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch>;

    /// The same on the host, written as the plainest loop that could be right.
    fn twin(&self, host: &mut Host);

    /// What it reads that is mostly zeros: an activation, and where in its rows.
    fn sparse_input(&self, _tape: &Tape) -> Option<(Var, Range<usize>)> {
        None
    }

    /// Whether it makes logits, and is skipped where none are wanted.
    fn is_head(&self) -> bool {
        false
    }
}

/// Which family of kernels suits an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Many lanes that share a workgroup's memory: real GPUs.
    Groups,
    /// A CPU that plays GPU: one lane a row, no barriers in products.
    Lanes,
}

/// What lowering may count on.
#[derive(Debug, Clone)]
pub struct Caps {
    pub class: Class,
    /// Bytes of one storage binding.
    pub max_binding: usize,
    /// One kernel class for every batch size, so that no result depends on the batch.
    pub batch_invariant: bool,
    /// The adapter adds within subgroups.
    pub subgroups: bool,
    /// Rows and columns of the matrices that subgroups multiply together, 16 or 8, where the adapter has units for it.
    pub cooperative: Option<usize>,
    /// Sizes of the kernels.
    pub tuning: Tuning,
    /// Matrices whose input is mostly zeros are read where it is not.
    pub sparse: bool,
}

impl Caps {
    /// What every adapter of a class offers.
    pub fn plain(class: Class, max_binding: usize) -> Caps {
        Caps { class, max_binding, batch_invariant: false, subgroups: false, cooperative: None, tuning: Tuning::default(), sparse: true }
    }

    /// The reduction that suits the adapter, for the slot `reduce`. Not by subgroups where batches may not matter: some
    /// drivers choose their size by kernel, and kernels differ by batch.
    pub fn reduce(&self) -> (&'static str, String) {
        let module = match self.class {
            Class::Lanes => "lib::reduce_lanes",
            Class::Groups if self.subgroups && !self.batch_invariant => "lib::reduce_subgroup",
            Class::Groups => "lib::reduce",
        };
        ("reduce", module.to_string())
    }

    /// Whether a matrix is laid out in blocks for this adapter.
    pub fn in_blocks(&self, matrix: &MatrixSpec) -> bool {
        self.class == Class::Lanes && matrix.fits_windows()
    }

    /// Whether a matrix is stored by columns, and read only where its input is not zero. Lanes read windows of rows many times faster
    /// than they could read columns.
    pub fn by_columns(&self, matrix: &MatrixSpec) -> bool {
        self.sparse && matrix.has_sparse_input && self.class == Class::Groups && !self.batch_invariant
    }
}

/// What a lowering is for.
pub struct Lowering<'a> {
    pub tape: &'a Tape,
    pub caps: &'a Caps,
    /// Upper bounds of the step.
    pub tokens: usize,
    pub runs: usize,
    pub outputs: usize,
    /// Rows of tokens that activations have room for: the distance of planes.
    pub capacity: usize,
    /// Tokens that a slot has read after the step.
    pub context: usize,
}

impl Lowering<'_> {
    /// Whether activations keep every bit on their way through products: where a result may not depend on the batch, and where
    /// logits are an end in themselves, of more rows than there are slots.
    pub fn is_exact(&self) -> bool {
        self.caps.batch_invariant || self.outputs > self.runs
    }

    pub fn n_rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}

/// One dispatch, as plain data. Names are those of the shader; its file alone knows binding numbers and offsets.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// Path below `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// The modules that fill the shader's slots: `("weight", "weight::f32")`.
    pub modules: Vec<(&'static str, String)>,
    /// Constants of the generated module `constants`.
    pub constants: Vec<(&'static str, u32)>,
    /// Fields of `Params`.
    pub params: Vec<(&'static str, Param)>,
    pub bindings: Vec<(&'static str, Binding)>,
    /// Workgroups.
    pub grid: [u32; 3],
}

#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    U32(u32),
    F32(f32),
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

/// What is bound to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    Var(Var),
    Vector(Vector),
    State(State),
    Cache(Cache),
    /// The step's blocks.
    Blocks,
    /// cos and sin for every position.
    Angles,
    /// A piece of a matrix.
    Piece(Matrix, usize),
    /// 64 KiB of one of a matrix's buffers, from that byte on, as a uniform.
    Window(Matrix, usize, usize),
    /// 64 KiB of an activation, from that byte on, as a uniform.
    VarWindow(Var, usize),
    /// A few zeros, for what a kernel names and this use of it does not read.
    Nothing,
    /// The same for what it would write.
    Spare,
}
