//! Words, the fused operations of a layer. A word has two implementations: dispatches on a device, and its *twin*, the reference implementation on
//! the CPU.

use super::{BATCH, Cache, Host, Matrix, MatrixSpec, Region, Rows, State, Tape, Tuning, Var, Vector};
use crate::quant::{Activations, Axis, Format};
use std::ops::Range;

/// One fused operation of a layer.
pub trait Word: Send + Sync {
    /// Returns the word's name in profiles, tests and errors.
    fn name(&self) -> &'static str;

    /// Returns the dispatches that compute the word on a device. The dispatches are correct for every step within the upper bounds in `cx`.
    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch>;

    /// Computes the word on the CPU. This function is the word's reference implementation, so the loops are as simple as possible.
    fn twin(&self, host: &mut Host);

    /// Returns the input that is mostly zeros: an activation, and the range of floats in each of its rows. Returns `None` if the word has no
    /// such input.
    fn sparse_input(&self, _tape: &Tape) -> Option<(Var, Range<usize>)> {
        None
    }

    /// Returns the activations that cross between two devices if the word runs on another device than the rest of its layer. Returns `None` if the
    /// word always runs on its layer's device. A word with an exchange reads only matrices of experts, and no vectors, states or caches.
    fn exchange(&self) -> Option<Exchange> {
        None
    }

    /// Returns whether the word computes only rows for outputs: the logits, or the hidden state if the tape ends with the hidden state. A step
    /// without outputs skips such a word.
    fn is_head(&self) -> bool {
        false
    }
}

/// The activations of a word that may run on another device than the rest of its layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The activations that the word reads. The device of the layer computes them.
    pub reads: Vec<Var>,
    /// The activations that the word writes for later words.
    pub writes: Vec<Var>,
}

/// A family of kernels. Each family suits one kind of adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Kernels for GPUs. The lanes of a workgroup cooperate through workgroup memory.
    Groups,
    /// Kernels for software adapters, which run shaders on the CPU. Products have one lane per row or group of rows, and no barriers.
    Lanes,
}

/// The capabilities of an adapter, and the options that kernels depend on.
#[derive(Debug, Clone)]
pub struct Caps {
    pub class: Class,
    /// The size of the largest storage binding, in bytes.
    pub max_binding: usize,
    /// `true` if steps of all sizes use the same kernels, so that no result depends on the other slots of the batch.
    pub batch_invariant: bool,
    /// `true` if kernels may use subgroup operations to add the values of several lanes.
    pub subgroups: bool,
    /// The size of a cooperative matrix: 16 for 16 x 16, or 8 for 8 x 8. `None` if the adapter has no cooperative matrices.
    pub cooperative: Option<usize>,
    /// How many rows and tokens the workgroups and lanes of the kernels compute.
    pub tuning: Tuning,
    /// `true` if a matrix whose inputs are mostly zeros may be stored column-major. Kernels then read only the columns of non-zero inputs.
    pub sparse: bool,
    /// `true` if kernels for GPUs may compute the recurrence of RWKV-5, 6 and 7 in spans of 16 tokens. Steps that need exact results
    /// ([`Lowering::is_exact`]) never use spans.
    pub spans: bool,
}

impl Caps {
    /// Returns the capabilities that every adapter of the kernel family `class` has. `max_binding` is the size of the adapter's largest storage
    /// binding, in bytes.
    pub fn plain(class: Class, max_binding: usize) -> Caps {
        Caps {
            class,
            max_binding,
            batch_invariant: false,
            subgroups: false,
            cooperative: None,
            tuning: Tuning::default(),
            sparse: true,
            spans: true,
        }
    }

    /// Returns the shader slot `reduce` and its module, which adds a value over the lanes of a workgroup. Subgroups are not used if
    /// `batch_invariant` is true: their size determines the order of the additions, and some drivers choose another size for each kernel.
    pub fn reduce(&self) -> (&'static str, String) {
        let module = match self.class {
            Class::Lanes => "lib::reduce_lanes",
            Class::Groups if self.adds_by_subgroups() => "lib::reduce_subgroup",
            Class::Groups => "lib::reduce",
        };
        ("reduce", module.to_string())
    }

    /// Returns the shader slot `sums` and its module, which adds several values at once, in the same order as [`reduce`](Self::reduce).
    pub fn sums(&self) -> (&'static str, &'static str) {
        ("sums", if self.adds_by_subgroups() { "lib::sums_subgroup" } else { "lib::sums" })
    }

    /// Returns [`Region::modules`], adapted to products: on GPUs they decode nf4 with a table in workgroup memory. `lines` is the number of rows plus
    /// tokens per workgroup. From 256 lines on, workgroup memory has no room for the table, and nf4 is decoded without the table.
    pub fn product_modules(&self, region: &Region, lines: usize) -> Vec<(&'static str, String)> {
        let mut modules = region.modules();
        if self.class == Class::Groups && lines < 256 {
            modules.iter_mut().filter(|(_, module)| module == "weight::nf4").for_each(|(_, module)| module.push_str("_table"));
        }
        modules
    }

    fn adds_by_subgroups(&self) -> bool {
        self.class == Class::Groups && self.subgroups && !self.batch_invariant
    }

    /// Returns whether products of `n` tokens may round their inputs. Only GPUs round, for more than [`BATCH`] tokens, and never under
    /// `batch_invariant`. With [`Activations::Auto`], tuning must also have found rounding faster, and the adapter must not have cooperative
    /// matrices.
    pub fn rounds(&self, activations: Activations, n: usize) -> bool {
        let is_chosen = match activations {
            Activations::Auto => self.cooperative.is_none() && self.tuning.rounded(n).is_some(),
            Activations::I8 => true,
            Activations::Float => false,
        };
        is_chosen && self.class == Class::Groups && !self.batch_invariant && n > BATCH
    }

    /// Returns whether this adapter stores a matrix in blocks of rows, which kernels read through uniform bindings of 64 KiB.
    pub fn in_blocks(&self, matrix: &MatrixSpec) -> bool {
        self.class == Class::Lanes && matrix.fits_windows()
    }

    /// Returns whether this adapter stores a matrix column-major and reads only the columns of non-zero inputs. Returns `false` if the tuning found
    /// dense products faster even for one token. Always returns `false` for software adapters, which read rows from uniform buffers many times
    /// faster than columns from storage buffers.
    pub fn by_columns(&self, matrix: &MatrixSpec) -> bool {
        let is_allowed = self.sparse && self.class == Class::Groups && !self.batch_invariant;
        is_allowed && matrix.axis() == Axis::Column && matrix.parts.iter().all(|p| self.tuning.dense_from.of(p.format) > 1)
    }
}

/// The input of [`Word::lower`]: a tape, an adapter and the upper bounds of a step.
pub struct Lowering<'a> {
    pub tape: &'a Tape,
    pub caps: &'a Caps,
    /// An upper bound on the number of tokens in a step.
    pub tokens: usize,
    /// An upper bound on the number of runs in a step. A run is consecutive tokens of one slot.
    pub runs: usize,
    /// An upper bound on the number of outputs in a step. An output is a token whose logits are requested.
    pub outputs: usize,
    /// The number of rows in an activation with one row per token. If the activation has planes ([`VarSpec::planes`](super::VarSpec::planes)),
    /// every plane has this many rows.
    pub capacity: usize,
    /// An upper bound on the number of tokens that a slot has read after a step.
    pub context: usize,
}

impl Lowering<'_> {
    /// Returns whether results must be exact: products must not round activations to f16, and recurrences must take one token after the other.
    ///
    /// Results must be exact under `batch_invariant`. They must also be exact if a step has more outputs than runs, because the caller then wants the
    /// logits of many tokens, not only the next token.
    pub fn is_exact(&self) -> bool {
        self.caps.batch_invariant || self.outputs > self.runs
    }

    /// Returns the activation with the rounded inputs of a product of `n` rows, or `None` if the product does not round its inputs. `format` is the
    /// format of the weights. Only products of more than [`BATCH`] tokens round their inputs.
    pub fn rounded(&self, format: &dyn Format, n: usize) -> Option<Var> {
        let is_rounded = !self.is_exact() && self.caps.rounds(self.tape.activations, n) && self.tape.activations.are_rounded(format);
        self.tape.rounded.filter(|_| is_rounded)
    }

    /// Returns an upper bound on the number of rows of an activation. `rows` says whether the activation has one row per token, one row per output,
    /// or a fixed number.
    pub fn n_rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}

/// One dispatch as plain data. Constants, parameters and bindings have the names that the shader gives them. Binding numbers and offsets are known
/// only to the shader.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The path within `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// The modules for the shader's slots, as pairs of slot and module: `("weight", "weight::f32")`.
    pub modules: Vec<(&'static str, String)>,
    /// The constants of the generated shader module `constants`: names and values.
    pub constants: Vec<(&'static str, u32)>,
    /// The fields of the shader's struct `Params`: names and values.
    pub params: Vec<(&'static str, Param)>,
    /// The resources that the shader's variables are bound to, by the names of the variables.
    pub bindings: Vec<(&'static str, Binding)>,
    /// How many workgroups the dispatch has in x, y and z.
    pub grid: [u32; 3],
}

/// The largest number of workgroups in x if a grid has one workgroup per row. Further rows are in y.
const ROW_FOLD: usize = 32768;

/// Returns the grid of a kernel with one workgroup per row: workgroup (x, y) computes row x + y * 32768.
pub fn row_grid(n: usize) -> [u32; 3] {
    [n.min(ROW_FOLD) as u32, n.div_ceil(ROW_FOLD) as u32, 1]
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
    /// The lists of cache blocks of all slots in a step, [`Step::blocks`](super::Step::blocks).
    Blocks,
    /// cos and sin of every position, [`Rotary::angles`](super::Rotary::angles).
    Angles,
    /// A piece of a matrix: the matrix, and the index of the piece in [`MatrixSpec::pieces`] or [`MatrixSpec::column_pieces`].
    Piece(Matrix, usize),
    /// A window of 64 KiB into a matrix: the matrix, the index of one of the matrix's buffers, and the window's first byte in this buffer.
    Window(Matrix, usize, usize),
    /// A window of 64 KiB into an activation: the activation, and the window's first byte.
    VarWindow(Var, usize),
    /// A buffer of zeros, for a variable that the kernel does not read in this dispatch.
    Nothing,
    /// A writable buffer, for a variable that the kernel does not write in this dispatch.
    Spare,
}
