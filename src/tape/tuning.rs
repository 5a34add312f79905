//! Sizes of the kernels for GPUs ([`Class::Groups`](super::Class::Groups)): the defaults, and the candidates that a tuning pass tries.
//!
//! The order of a kernel's additions does not depend on these sizes. So the sizes change the speed and never a result, with two exceptions:
//! [`DenseFrom`] chooses between two kernels, and [`Tuning::rounded`] determines which products round their inputs.

use super::ROUNDED_BLOCK;
use crate::quant::Format;
use serde::{Deserialize, Serialize};

/// The largest number of tokens for which lanes of a product load weights straight into registers. Steps with more tokens use the tiled product,
/// which loads weights into workgroup memory. With [`Caps::batch_invariant`](super::Caps::batch_invariant), no step uses the tiled product.
pub const BATCH: usize = 16;
/// The largest number of tokens for which one kernel computes a product together with the product's input, such as a norm and a token shift.
pub const FUSED: usize = 4;

/// The size of a tile of the tiled product. One workgroup computes `rows` x `tokens` sums, and each of its lanes computes `lane_rows` x
/// `lane_tokens` of these sums. All fields are multiples of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    pub rows: usize,
    pub tokens: usize,
    pub lane_rows: usize,
    pub lane_tokens: usize,
}

/// The number of inputs (columns of the matrix) that a workgroup multiplies at a time: the constant DEPTH of `shaders/linear/tile_rows.wgsl` and
/// `tile_columns.wgsl`.
const DEPTH: usize = 16;

impl Tile {
    /// Returns a tile of `rows` x `tokens` sums, of which each lane computes `lane_rows` x `lane_tokens`.
    pub const fn new(rows: usize, tokens: usize, lane_rows: usize, lane_tokens: usize) -> Tile {
        Tile { rows, tokens, lane_rows, lane_tokens }
    }

    /// Returns the number of lanes in a workgroup.
    pub fn lanes(&self) -> usize {
        self.rows / self.lane_rows * self.tokens / self.lane_tokens
    }

    /// Returns the constants of `shaders/linear/tiled.wgsl`.
    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        // The number of units that each lane loads into workgroup memory. A unit is eight numbers.
        let loads = |lines: usize| (lines * DEPTH / 8).div_ceil(self.lanes());
        self.with_loads(loads(self.rows), loads(self.tokens))
    }

    /// Returns the constants of `shaders/linear/tiled_rounded.wgsl`.
    pub(crate) fn rounded_constants(&self) -> Vec<(&'static str, u32)> {
        // A lane loads units of four rows together, and whole blocks of a token.
        let units = self.rows / 4 * ROUNDED_BLOCK / 8;
        self.with_loads(units.div_ceil(self.lanes()), self.tokens.div_ceil(self.lanes()))
    }

    fn with_loads(&self, w_loads: usize, x_loads: usize) -> Vec<(&'static str, u32)> {
        let sizes = [
            ("TILE_ROWS", self.rows),
            ("TILE_TOKENS", self.tokens),
            ("ROW_QUADS", self.lane_rows / 4),
            ("TOKEN_QUADS", self.lane_tokens / 4),
            ("W_LOADS", w_loads),
            ("X_LOADS", x_loads),
        ];
        sizes.map(|(name, size)| (name, size as u32)).into()
    }
}

/// The candidates for [`Tuning::tiles`]: for steps of at most 32 tokens, of 33 to 64 tokens, and of more tokens.
const TILES: [[Tile; 4]; 3] = [
    [Tile::new(64, 32, 8, 4), Tile::new(64, 32, 4, 4), Tile::new(32, 32, 4, 4), Tile::new(128, 32, 8, 4)],
    [Tile::new(64, 64, 8, 4), Tile::new(64, 64, 4, 4), Tile::new(64, 64, 8, 8), Tile::new(32, 64, 4, 4)],
    [Tile::new(64, 128, 8, 8), Tile::new(64, 128, 8, 4), Tile::new(64, 64, 8, 4), Tile::new(128, 128, 8, 8)],
];
/// The candidates for [`Tuning::rounded`]. A lane has two sums per row and token, one of whole numbers and one of floats.
const ROUNDED_TILES: [[Tile; 3]; 3] = [
    [Tile::new(64, 32, 4, 4), Tile::new(64, 32, 8, 4), Tile::new(128, 32, 8, 4)],
    [Tile::new(64, 64, 8, 4), Tile::new(64, 64, 4, 4), Tile::new(128, 64, 8, 8)],
    [Tile::new(64, 64, 8, 4), Tile::new(128, 64, 8, 8), Tile::new(128, 128, 8, 8)],
];
/// The candidates for [`Tuning::rows`] and [`Tuning::batch_rows`].
const ROWS: [usize; 3] = [4, 8, 16];
/// The candidates for [`Tuning::batch_tokens`].
const BATCH_TOKENS: [usize; 4] = [BATCH, 8, 4, 2];
/// The candidates for [`Tuning::input_rows`].
const INPUT_ROWS: [usize; 3] = [8, 16, 32];

/// The least number of tokens for which a product with mostly zero inputs is computed densely. `f16` is for weights of more than 8 bits, `i8` for 5
/// to 8 bits, `i4` for at most 4 bits. With fewer tokens, a step reads only the columns whose input is not zero. With the number 1, every step is
/// dense, and the matrix is stored row-major.
///
/// Sparse and dense products add in different orders, so their results are rounded differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenseFrom {
    pub f16: usize,
    pub i8: usize,
    pub i4: usize,
}

impl DenseFrom {
    /// The numbers of tokens that a tuning pass chooses from. If 90 % of the inputs are zeros, a sparse product reads a tenth of the weights for
    /// each token. With 16 tokens, it reads more than the dense product, which reads each weight once.
    pub const CANDIDATES: [usize; 5] = [1, 2, 4, 8, 16];

    /// Returns the number of tokens for weights of the format `format`.
    pub fn of(&self, format: &dyn Format) -> usize {
        match format.bits() {
            ..=4 => self.i4,
            5..=8 => self.i8,
            _ => self.f16,
        }
    }
}

impl Default for DenseFrom {
    /// Returns 8 tokens for every width of weights. This number was calculated, not measured: with 8 tokens and 90 % zeros, the sparse product reads
    /// about as many weights as the dense product.
    fn default() -> DenseFrom {
        DenseFrom { f16: 8, i8: 8, i4: 8 }
    }
}

/// The sizes of all kernels of the family [`Class::Groups`](super::Class::Groups).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// The number of matrix rows per workgroup in a product for one token, a multiple of four.
    pub rows: usize,
    /// The largest number of matrix rows per workgroup in a product for 2 to [`BATCH`] tokens. A workgroup has fewer rows if a lane would keep more
    /// than 64 sums.
    pub batch_rows: usize,
    /// The largest number of tokens per workgroup in a product for 2 to [`BATCH`] tokens. With fewer tokens, a lane keeps fewer sums, so GPUs with
    /// few registers per lane do not spill. But several workgroups then read the same weights.
    pub batch_tokens: usize,
    /// The number of matrix rows per workgroup if the workgroup also computes the product's input. All these rows share the input.
    pub input_rows: usize,
    /// `true` if a workgroup that computes the input of one token loads weights before it computes the input. The early loads hide the latency of the
    /// memory. But early loads take registers, so fewer workgroups run at the same time.
    pub early_weights: bool,
    /// The tiles for steps of at most 32 tokens, of 33 to 64 tokens, and of more tokens.
    pub tiles: [Tile; 3],
    /// The tiles of products with rounded inputs, for steps of at most 32 tokens, of 33 to 64 tokens, and of more tokens. `None` if products of such
    /// steps round their inputs only with [`Activations::I8`](crate::quant::Activations::I8).
    pub rounded: [Option<Tile>; 3],
    /// `true` if the GPU has few registers per lane, or if the GPU is unknown. Then only sizes that spill no register on Apple's GPUs are candidates.
    /// A tuning pass keeps this field.
    pub few_registers: bool,
    /// The smallest steps, in tokens, in which products with mostly zero inputs are dense.
    pub dense_from: DenseFrom,
}

impl Default for Tuning {
    /// Returns sizes that were calculated, not measured. The more sums a lane has, the more often it uses each value from workgroup memory: 2
    /// times with 4 x 4 sums, 2.7 times with 8 x 4, 4 times with 8 x 8. Tiles of 64 x 128 sums read each weight half as often as tiles of 64 x
    /// 64 sums. Steps of few tokens have small tiles, so that the device has more workgroups.
    fn default() -> Tuning {
        Tuning {
            rows: 4,
            batch_rows: 8,
            batch_tokens: BATCH_TOKENS[0],
            input_rows: 16,
            early_weights: false,
            tiles: TILES.map(|[first, ..]| first),
            rounded: [None; 3],
            few_registers: false,
            dense_from: DenseFrom::default(),
        }
    }
}

impl Tuning {
    /// The sizes of steps, in tokens, for which tiles are chosen. The last size also stands for all larger steps.
    pub const STEPS: [usize; 3] = [32, 64, 256];

    /// Returns the sizes for a GPU that was not measured. `backend` and `driver` are the names that the adapter reports. Apple's GPUs have few
    /// registers per lane, and in a browser the GPU is unknown. In both cases each lane keeps fewer values, so that no lane spills registers.
    pub fn unmeasured(backend: &str, driver: &str) -> Tuning {
        if !["metal", "webgpu"].contains(&backend) && !driver.contains("Honeykrisp") {
            return Tuning::default();
        }
        let tiles = [TILES[0][0], TILES[1][0], TILES[2][1]];
        Tuning { batch_tokens: 2, input_rows: 8, few_registers: true, tiles, ..Tuning::default() }
    }

    /// Returns the tile for a step of `n` tokens.
    pub fn tile(&self, n: usize) -> Tile {
        self.tiles[Self::tile_class(n)]
    }

    /// Returns the tile of products with rounded inputs for a step of `n` tokens, or `None` if such products are not faster.
    pub fn rounded(&self, n: usize) -> Option<Tile> {
        self.rounded[Self::tile_class(n)]
    }

    /// Returns the candidates for the tile of products with rounded inputs, for a step of `n` tokens. The first is the default.
    pub fn rounded_candidates(&self, n: usize) -> Vec<Tile> {
        ROUNDED_TILES[Self::tile_class(n)].into_iter().filter(|tile| self.fits_registers(tile)).collect()
    }

    /// Returns this tuning with another tile for products with rounded inputs, for steps of `n` tokens.
    pub fn with_rounded(&self, n: usize, tile: Option<Tile>) -> Tuning {
        let mut tuning = self.clone();
        tuning.rounded[Self::tile_class(n)] = tile;
        tuning
    }

    /// Returns whether every size is one of the candidates. A file of tuning results may contain any size, but only candidates are tested.
    pub fn is_sound(&self) -> bool {
        let tiles = self.tiles.iter().zip(TILES).all(|(tile, known)| known.contains(tile))
            && self.rounded.iter().zip(ROUNDED_TILES).all(|(tile, known)| tile.is_none_or(|tile| known.contains(&tile)));
        let rows = ROWS.contains(&self.rows) && ROWS.contains(&self.batch_rows) && INPUT_ROWS.contains(&self.input_rows);
        let DenseFrom { f16, i8, i4 } = self.dense_from;
        let dense_from = [f16, i8, i4].iter().all(|n| DenseFrom::CANDIDATES.contains(n));
        tiles && rows && dense_from && BATCH_TOKENS.contains(&self.batch_tokens) && self.has_registers()
    }

    /// Returns `false` if [`Tuning::few_registers`] is true and a lane would keep so many sums that kernels spill registers on Apple's GPUs.
    fn has_registers(&self) -> bool {
        let fits = self.tiles.iter().chain(self.rounded.iter().flatten()).all(|tile| self.fits_registers(tile));
        !self.few_registers || (self.batch_tokens <= 2 && self.input_rows <= 16 && fits)
    }

    fn fits_registers(&self, tile: &Tile) -> bool {
        !self.few_registers || tile.lane_rows * tile.lane_tokens <= 32
    }

    fn tile_class(n: usize) -> usize {
        usize::from(n > 32) + usize::from(n > 64)
    }

    /// Returns the candidates for steps of `n` tokens: this tuning, then tunings that differ in one size. For one token, every size of
    /// [`Tuning::input_rows`] is also combined with [`Tuning::early_weights`]. Only sizes that matter for such steps are varied.
    /// [`Tuning::dense_from`] and the tiles in `rounded` stay as they are.
    pub fn candidates(&self, n: usize) -> Vec<Tuning> {
        let mut found = vec![self.clone()];
        let mut add = |other: Tuning| {
            if !found.contains(&other) && other.has_registers() {
                found.push(other);
            }
        };
        if n > BATCH {
            let class = Self::tile_class(n);
            for tile in TILES[class] {
                let mut tiles = self.tiles;
                tiles[class] = tile;
                add(Tuning { tiles, ..self.clone() });
            }
            return found;
        }
        for rows in ROWS {
            add(if n == 1 { Tuning { rows, ..self.clone() } } else { Tuning { batch_rows: rows, ..self.clone() } });
        }
        for batch_tokens in BATCH_TOKENS.into_iter().filter(|&tokens| tokens < n) {
            add(Tuning { batch_tokens, ..self.clone() });
        }
        if n <= FUSED {
            for input_rows in INPUT_ROWS {
                add(Tuning { input_rows, ..self.clone() });
                if n == 1 {
                    add(Tuning { input_rows, early_weights: true, ..self.clone() });
                }
            }
        }
        found
    }
}
