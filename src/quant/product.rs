//! Matrix products on the CPU. The matrices have any format, the activations are f32. For a few tokens, `few` multiplies the codes directly.
//! Activations may be rounded to 8 bits; then `rounded` multiplies whole numbers.
//!
//! For more tokens, a task of the thread pool multiplies some rows of one matrix by all tokens. The task decodes each weight once for all tokens,
//! into a *panel*: a small buffer that stays in the CPU's cache. `tile` multiplies the panel. One list of tasks covers several products.
//!
//! A result depends only on its row and its token: not on the number of tokens or products.

use super::block_scales::{DEPTH, Expanded};
use super::few::{self, RowBlock};
use super::isa::Isa;
use super::rounded::{self, Dots, RoundedRows, Strip};
pub use super::rounded::{strip_bytes, stripe, stripe_items};
use super::tile::{self, LANES, STRIP};
use super::{Format, RowFactors, Scales, WEIGHTS_PER_BLOCK};
use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use std::cell::RefCell;

/// The number of rows per task of the thread pool. Blocks along a column have 64 rows, a multiple of this number, so all rows of a task are in the
/// same blocks.
pub const TASK: usize = 32;
const _: () = assert!(WEIGHTS_PER_BLOCK.is_multiple_of(TASK) && TASK.is_multiple_of(STRIP));
const _: () = assert!(DEPTH.is_multiple_of(WEIGHTS_PER_BLOCK) && DEPTH.is_multiple_of(LANES));
/// The number of rows whose codes are stored together in striped order.
pub const STRIPED_ROWS: usize = rounded::ROWS;
/// The largest number of tokens in a group. A panel is multiplied by one group after the other. With AVX-512, [`tile`] keeps the sums of a group
/// in registers.
const TOKENS: usize = 6;
/// Up to this number of tokens, a panel has only [`STRIP`] rows, and stays in the first-level cache. For more tokens, the panel has all rows of the
/// task.
const FEW: usize = 16;
/// The number of tokens whose activations are rounded together.
const ROUNDED_TOGETHER: usize = 48;
/// Products with fewer multiplications in total run on one thread, because starting other threads would take longer.
const ALONE: usize = 1 << 15;

/// A matrix in host memory, as codes and scales.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub format: &'a dyn Format,
    /// The number of codes in a stored row, including padding.
    pub k: usize,
    /// The codes, `[rows, k]`: row-major or, if `is_striped` is true, in the order of [`rounded::stripe`].
    pub codes: &'a [u8],
    /// True if codes and scales are striped. Only products with rounded activations read such weights.
    pub is_striped: bool,
    pub scales: &'a Scales,
}

impl Weights<'_> {
    /// Returns how many bytes the codes of a row take.
    fn row_bytes(&self) -> usize {
        self.format.size_bytes(self.k)
    }

    /// Returns whether the weights of a block are whole numbers times a factor. Only such weights are multiplied by rounded activations.
    pub fn are_whole(&self) -> bool {
        matches!(self.scales, Scales::Rows(..)) && self.format.loops().interleave.is_some()
    }

    /// Decodes row `i` and applies its scales.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        let size = self.row_bytes();
        self.format.decode(&self.codes[i * size..(i + 1) * size], out);
        self.scales.apply(i, out);
    }

    /// Decodes a part of row `i`, from column `first` on, a multiple of [`DEPTH`], and applies its scales. The part has at most [`DEPTH`] columns. `soon` is the row and
    /// column of a later call, whose codes are prefetched into the cache.
    fn decode(&self, i: usize, first: usize, out: &mut [f32], soon: (usize, usize)) {
        let codes = |i: usize, first: usize| &self.codes[(i * self.row_bytes() + self.format.size_bytes(first)).min(self.codes.len())..];
        let row = &codes(i, first)[..self.row_bytes() - self.format.size_bytes(first)];
        let mut expanded = Expanded::default();
        let factors = self.scales.factors(i, self.k, first..first + out.len(), &mut expanded);
        (self.format.loops().decode)(row, factors, out, codes(soon.0, soon.1));
        self.scales.apply_affine(i, first, out);
    }
}

/// The product of a matrix W and the rows of x.
pub struct Product<'a> {
    pub weights: Weights<'a>,
    /// The number of rows of W.
    pub rows: usize,
    /// One row of activations per token, all of the same length. If they are shorter than a row of W, the rest of W's row is padding.
    pub x: Vec<&'a [f32]>,
    /// True if the activations are rounded to 8 bits, in blocks of 32 with a scale each. Without effect if [`Weights::are_whole`] is false.
    pub rounded: bool,
}

impl Product<'_> {
    fn is_rounded(&self) -> bool {
        self.rounded && self.weights.are_whole()
    }
}

/// The results `Σ over k of W[row, k] x[t][k]` of a [`Product`].
pub struct Sums {
    rows: usize,
    /// The sums of each task, `[tasks, tokens, TASK]`.
    values: Vec<f32>,
}

impl Sums {
    /// Returns the sums of token `t`, in pieces of up to [`TASK`] rows.
    pub fn of(&self, t: usize) -> impl Iterator<Item = &[f32]> {
        let task = self.values.len() / self.rows.div_ceil(TASK).max(1);
        self.values.chunks_exact(task.max(1)).enumerate().map(move |(i, task)| &task[t * TASK..][..TASK.min(self.rows - i * TASK)])
    }
}

/// Sixteen floats, aligned for the widest registers.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct FloatLine([f32; LANES]);

/// Returns the first `n` floats of `lines`, which grows if it is too short. The first float is aligned to 64 bytes.
fn floats(lines: &mut Vec<FloatLine>, n: usize) -> &mut [f32] {
    if lines.len() * LANES < n {
        lines.resize(n.div_ceil(LANES), FloatLine::zeroed());
    }
    &mut bytemuck::cast_slice_mut(lines)[..n]
}

thread_local! {
    /// The panel of each thread. The tasks of a thread reuse its memory, which saves an allocation per task.
    static PANEL: RefCell<Vec<FloatLine>> = const { RefCell::new(Vec::new()) };
    static STRIP_OF_THREAD: RefCell<Option<Strip>> = const { RefCell::new(None) };
}

/// The activations of all tokens of a product.
enum Input {
    /// Rows, padded with zeros to whole [`FloatLine`]s, and the length of a padded row.
    Floats(Vec<FloatLine>, usize),
    /// Groups of [`ROUNDED_TOGETHER`] tokens.
    Rounded(Vec<RoundedRows>),
}

/// The instructions that products use.
#[derive(Clone, Copy)]
pub(super) struct Instructions {
    pub isa: Isa,
    pub dots: Dots,
}

/// A task of the thread pool: the multiplication of up to [`TASK`] rows of a product by all tokens.
struct ProductTask<'a> {
    product: &'a Product<'a>,
    x: &'a Input,
    first_row: usize,
    /// The sums `[tokens, TASK]`.
    sums: &'a mut [f32],
}

impl ProductTask<'_> {
    /// Computes the sums without a panel, and returns true. Returns false for more than [`few::most`] tokens, affine scales, incomplete strips
    /// of rows, or a width that does not fill whole vectors.
    fn run_few(&mut self, isa: Isa, x: &[f32], x_stride: usize) -> bool {
        let (tokens, n) = (self.sums.len() / TASK, TASK.min(self.product.rows - self.first_row));
        let (weights, width) = (self.product.weights, self.product.x[0].len());
        let factors = weights.scales.factors_of_rows(self.first_row, weights.k);
        let (Some(factors), Some(multiply), true) =
            (factors, weights.format.loops().multiply, tokens <= few::most(isa) && width.is_multiple_of(LANES) && n.is_multiple_of(STRIP))
        else {
            return false;
        };
        let row_bytes = weights.row_bytes();
        let codes = &weights.codes[self.first_row * row_bytes..];
        let rows = RowBlock { n, codes, row_bytes, factors, width, depth: DEPTH, x, x_stride };
        multiply(isa, rows, &mut self.sums[..(tokens - 1) * TASK + n], TASK);
        true
    }

    /// Multiplies rounded activations.
    fn run_rounded(&mut self, x: &[RoundedRows], strip: &mut Strip) {
        let (weights, width) = (self.product.weights, self.product.x[0].len());
        let (Some(interleave), Some(RowFactors::Blocks(items, per_row, _))) =
            (weights.format.loops().interleave, weights.scales.factors_of_rows(self.first_row, weights.k))
        else {
            unreachable!("only products with whole weights have rounded activations");
        };
        let n = TASK.min(self.product.rows - self.first_row);
        let (row_bytes, is_striped) = (weights.row_bytes(), weights.is_striped);
        let strip_bytes =
            if is_striped { rounded::strip_bytes(weights.format, row_bytes).expect("a striped format") } else { rounded::ROWS * row_bytes };
        for row in (0..n).step_by(rounded::ROWS) {
            let codes = &weights.codes[(self.first_row + row) / rounded::ROWS * strip_bytes..];
            let rows =
                rounded::Rows { n: rounded::ROWS.min(n - row), codes, is_striped, row_bytes, items: &items[row * per_row..], per_row };
            for first in (0..width).step_by(DEPTH) {
                let columns = DEPTH.min(width - first);
                if let (Some(multiply), [x]) = (weights.format.loops().multiply_striped, x)
                    && multiply(&rows, first, columns, strip, x, &mut self.sums[row..], TASK)
                {
                    continue;
                }
                interleave(&rows, first, columns, strip);
                for (x, sums) in x.iter().zip(self.sums.chunks_mut(ROUNDED_TOGETHER * TASK)) {
                    rounded::multiply(strip, x, &mut sums[row..], TASK);
                }
            }
        }
    }

    fn run(&mut self, with: Instructions) {
        match self.x {
            Input::Floats(x, stride) => {
                PANEL.with_borrow_mut(|panel| self.run_floats(with.isa, bytemuck::cast_slice(x), *stride, panel));
            }
            Input::Rounded(x) => STRIP_OF_THREAD.with_borrow_mut(|strip| match strip {
                Some(strip) if strip.dots() == with.dots => self.run_rounded(x, strip),
                _ => self.run_rounded(x, strip.insert(Strip::new(with.dots))),
            }),
        }
    }

    fn run_floats(&mut self, isa: Isa, x: &[f32], x_stride: usize, panel: &mut Vec<FloatLine>) {
        if self.run_few(isa, x, x_stride) {
            return;
        }
        let (n, rows) = (self.sums.len() / TASK, TASK.min(self.product.rows - self.first_row));
        let width = self.product.x[0].len();
        // The rows of a panel. They are decoded once and multiplied by all tokens. For few tokens, a small panel stays in the first-level cache.
        let group = if n > FEW { TASK } else { STRIP };
        for row in (0..rows).step_by(group) {
            for first in (0..width).step_by(DEPTH) {
                let columns = DEPTH.min(width - first);
                let depth = columns.next_multiple_of(LANES);
                let panel = floats(panel, group * depth);
                let soon = if first + DEPTH < width { (row, first + DEPTH) } else { (row + group, 0) };
                for (i, out) in panel.chunks_exact_mut(depth).enumerate() {
                    if row + i < rows {
                        let i = self.first_row + i;
                        self.product.weights.decode(i + row, first, &mut out[..columns], (i + soon.0, soon.1));
                        out[columns..].fill(0.0);
                    } else {
                        out.fill(0.0);
                    }
                }
                let tiles = n.div_ceil(TOKENS);
                for i in 0..tiles {
                    let (t, end) = (i * n / tiles, (i + 1) * n / tiles);
                    for (strip, w) in panel.chunks_exact(STRIP * depth).enumerate().take((rows - row).div_ceil(STRIP)) {
                        let at = row + strip * STRIP;
                        let sums = &mut self.sums[t * TASK + at..(end - 1) * TASK + at + STRIP];
                        tile::multiply(isa, w, &x[t * x_stride + first..], x_stride, sums, TASK);
                    }
                }
            }
        }
    }
}

/// Computes products on the thread pool. Returns the results in the order of `products`.
pub fn products(products: &[Product<'_>]) -> Vec<Sums> {
    products_with(Instructions { isa: Isa::best(), dots: Dots::best() }, products)
}

pub(super) fn products_with(with: Instructions, products: &[Product<'_>]) -> Vec<Sums> {
    let mut inputs: Vec<Input> = Vec::new();
    let input = |p: &Product<'_>| if p.is_rounded() { Input::Rounded(round(with.isa, &p.x)) } else { pack(&p.x) };
    // Products of the same activations share an input.
    let same = |a: &Product<'_>, b: &Product<'_>| {
        a.is_rounded() == b.is_rounded() && a.x.len() == b.x.len() && a.x.iter().zip(&b.x).all(|(a, b)| std::ptr::eq(*a, *b))
    };
    let mut first: Vec<usize> = Vec::new();
    for (i, product) in products.iter().enumerate() {
        let found = (0..i).find(|&j| same(&products[j], product)).map(|j| first[j]);
        first.push(found.unwrap_or_else(|| {
            inputs.push(input(product));
            inputs.len() - 1
        }));
    }
    let length = |p: &Product<'_>| p.rows.div_ceil(TASK) * p.x.len() * TASK;
    let mut sums: Vec<Sums> = products.iter().map(|p| Sums { rows: p.rows, values: vec![0.0; length(p)] }).collect();
    let mut tasks = Vec::new();
    for ((product, input), sums) in products.iter().zip(first).zip(&mut sums) {
        let x = &inputs[input];
        let pieces = sums.values.chunks_exact_mut((product.x.len() * TASK).max(1)).enumerate();
        tasks.extend(pieces.map(|(i, sums)| ProductTask { product, x, first_row: i * TASK, sums }));
    }
    let work: usize = products.iter().map(|p| p.rows * p.x.iter().map(|x| x.len()).sum::<usize>()).sum();
    let run = |mut task: ProductTask<'_>| task.run(with);
    if work < ALONE {
        tasks.into_iter().for_each(run);
    } else {
        tasks.into_par_iter().for_each(run);
    }
    sums
}

/// Rounds rows of activations, many rows on all threads.
fn round(isa: Isa, x: &[&[f32]]) -> Vec<RoundedRows> {
    if x.len() <= ROUNDED_TOGETHER {
        return vec![RoundedRows::new(isa, x)];
    }
    x.par_chunks(ROUNDED_TOGETHER).map(|x| RoundedRows::new(isa, x)).collect()
}

/// Copies rows of activations.
fn pack(x: &[&[f32]]) -> Input {
    let lines = x.first().map_or(0, |x| x.len().div_ceil(LANES));
    let mut packed = vec![FloatLine::zeroed(); lines * x.len()];
    for (row, x) in packed.chunks_exact_mut(lines.max(1)).zip(x) {
        bytemuck::cast_slice_mut(row)[..x.len()].copy_from_slice(x);
    }
    Input::Floats(packed, lines * LANES)
}
