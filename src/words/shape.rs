//! Chooses the kernel of a product of a stacked matrix: which shader, and how many rows and tokens one workgroup computes.

use crate::tape::{BATCH, Caps, Class, Lowering, MatrixPiece, MatrixSpec};

/// The number of tokens whose inputs linear/matvec holds in registers at a time.
const TOKENS_IN_REGISTERS: usize = 4;
/// The largest number of sums that a lane of linear/matvec keeps.
const MAX_LANE_SUMS: usize = 64;

/// A kernel, and the number of rows and tokens that one of its workgroups computes.
#[derive(Clone)]
pub struct Shape {
    pub shader: &'static str,
    /// The number of rows of W per workgroup.
    pub block_rows: usize,
    /// The number of tokens per workgroup.
    pub tokens: usize,
    pub constants: Vec<(&'static str, u32)>,
    /// The shader slots that only this shader has, each with the module that fills the slot.
    pub modules: Vec<(&'static str, &'static str)>,
}

/// The shader slot `tile`, and the module that fills it for a row-major matrix.
const BY_ROWS: (&str, &str) = ("tile", "linear::tile_rows");
/// The shader slot `tile`, and the module that fills it for a column-major matrix.
pub const BY_COLUMNS: (&str, &str) = ("tile", "linear::tile_columns");

impl Shape {
    /// Chooses the kernel for the product of a piece and `n` rows of x. A piece is the rows of W that fit one binding.
    pub fn choose(cx: &Lowering<'_>, matrix: &MatrixSpec, piece: &MatrixPiece, n: usize) -> Shape {
        let tuning = &cx.caps.tuning;
        if cx.caps.class == Class::Lanes {
            return Self::matvec(cx.caps, 4, 1, false);
        }
        if n <= BATCH || cx.caps.batch_invariant {
            // Codes of three bits with scales on two levels take the most registers.
            let few_rows = tuning.few_registers && piece.format.bits() == 3;
            let batch_rows = if few_rows { tuning.batch_rows.min(8) } else { tuning.batch_rows };
            return Self::matvec(cx.caps, if n == 1 { tuning.rows } else { batch_rows }, n, false);
        }
        Self::tiled(cx, matrix, piece, n)
    }

    /// Returns a kernel for many tokens. The kernel decodes weights into workgroup memory once for all tokens of a tile.
    pub fn tiled(cx: &Lowering<'_>, matrix: &MatrixSpec, piece: &MatrixPiece, n: usize) -> Shape {
        // Cooperative matrices are f16: weights of more than 16 bits would lose bits, and inputs beyond the range of f16 would be clipped.
        let fits = piece.format.bits() <= 16 && !piece.segments.iter().any(|s| matrix.parts[s.part].is_wide);
        if let Some(size) = cx.caps.cooperative.filter(|_| n > BATCH && !cx.is_exact() && fits) {
            return Self::cooperative(size);
        }
        let tile = cx.caps.tuning.tile(n);
        Shape { shader: "linear/tiled", block_rows: tile.rows, tokens: tile.tokens, constants: tile.constants(), modules: vec![BY_ROWS] }
    }

    /// Returns the kernel linear/tiled_cooperative for cooperative matrices of `size` x `size`. A subgroup computes a strip of 64 rows x 32
    /// tokens, and takes 16 inputs at a time.
    fn cooperative(size: usize) -> Shape {
        let blocks = |n: usize| (n / size) as u32;
        let constants = vec![("ROW_BLOCKS", blocks(64)), ("TOKEN_BLOCKS", blocks(32)), ("DEPTH_BLOCKS", blocks(16))];
        let matrices = if size == 8 { "lib::cooperative8" } else { "lib::cooperative16" };
        Shape {
            shader: "linear/tiled_cooperative",
            block_rows: 128,
            tokens: 64,
            constants,
            modules: vec![BY_ROWS, ("cooperative", matrices)],
        }
    }

    /// Returns the kernel linear/matvec for a product of `n` tokens. A workgroup computes at most `rows` rows, but at least 4 rows. If
    /// `is_early`, the kernel loads weights before it computes its input.
    pub fn matvec(caps: &Caps, rows: usize, n: usize, is_early: bool) -> Shape {
        let tokens = n.next_power_of_two().min(BATCH).min(caps.tuning.batch_tokens);
        let groups = (rows.min(MAX_LANE_SUMS / tokens) / 4).max(1);
        let (blocks, held) = (tokens.div_ceil(TOKENS_IN_REGISTERS), tokens.min(TOKENS_IN_REGISTERS));
        let sizes = [("GROUPS", groups), ("BLOCKS", blocks), ("TOKENS", held), ("SUMS", groups * blocks * held)];
        let flags = [("EARLY", u32::from(is_early)), ("TILES", 1)];
        let constants = sizes.into_iter().map(|(name, size)| (name, size as u32)).chain(flags).collect();
        Shape { shader: "linear/matvec", block_rows: 4 * groups, tokens, constants, modules: vec![caps.sums()] }
    }
}
