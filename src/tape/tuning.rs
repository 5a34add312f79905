//! Sizes of the kernels of the class Groups: their defaults, and the candidates of a tuning pass.
//!
//! A kernel adds in the same order for all sizes, so sizes change the speed and never a result.

use serde::{Deserialize, Serialize};

/// Up to this number of tokens, a product reads weights once for all of them, into registers. More tokens use the tiled kernels.
pub const BATCH: usize = 16;
/// Up to this number of tokens, words compute a product's input inside the product.
pub const FUSED: usize = 4;

/// The work of a workgroup of the tiled product and of each of its lanes. All numbers are multiples of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    pub rows: usize,
    pub tokens: usize,
    pub lane_rows: usize,
    pub lane_tokens: usize,
}

/// Part of the width that a tile takes at a time: DEPTH of `shaders/linear/tile_rows.wgsl` and `tile_columns.wgsl`.
const DEPTH: usize = 16;

impl Tile {
    /// Returns a tile of `rows` x `tokens` whose lanes have `lane_rows` x `lane_tokens` sums each.
    pub const fn new(rows: usize, tokens: usize, lane_rows: usize, lane_tokens: usize) -> Tile {
        Tile { rows, tokens, lane_rows, lane_tokens }
    }

    /// Returns the lanes of a workgroup.
    pub fn lanes(&self) -> usize {
        self.rows / self.lane_rows * self.tokens / self.lane_tokens
    }

    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        // Units of eight that each lane loads into workgroup memory.
        let loads = |lines: usize| (lines * DEPTH / 8).div_ceil(self.lanes()) as u32;
        vec![
            ("TILE_ROWS", self.rows as u32),
            ("TILE_TOKENS", self.tokens as u32),
            ("ROW_QUADS", self.lane_rows as u32 / 4),
            ("TOKEN_QUADS", self.lane_tokens as u32 / 4),
            ("W_LOADS", loads(self.rows)),
            ("X_LOADS", loads(self.tokens)),
        ]
    }
}

/// Candidates: tiles for steps of up to 32, up to 64 and more tokens.
const TILES: [[Tile; 4]; 3] = [
    [Tile::new(64, 32, 8, 4), Tile::new(64, 32, 4, 4), Tile::new(32, 32, 4, 4), Tile::new(128, 32, 8, 4)],
    [Tile::new(64, 64, 8, 4), Tile::new(64, 64, 4, 4), Tile::new(64, 64, 8, 8), Tile::new(32, 64, 4, 4)],
    [Tile::new(64, 128, 8, 8), Tile::new(64, 128, 8, 4), Tile::new(64, 64, 8, 4), Tile::new(128, 128, 8, 8)],
];
/// Candidates for `rows` and `batch_rows`.
const ROWS: [usize; 3] = [4, 8, 16];
/// Candidates for `input_rows`.
const INPUT_ROWS: [usize; 3] = [8, 16, 32];

/// The sizes of all kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Rows per workgroup for one token; a multiple of four.
    pub rows: usize,
    /// Rows per workgroup for several tokens; fewer if a lane would keep more than 64 sums.
    pub batch_rows: usize,
    /// Rows per workgroup if the workgroup also computes its input, which its rows share.
    pub input_rows: usize,
    /// Tiles for up to 32 tokens, up to 64, and more.
    pub tiles: [Tile; 3],
}

impl Default for Tuning {
    /// Returns sizes that were chosen by arithmetic. A number from workgroup memory is used in 2 multiplications with 4 x 4 sums per
    /// lane, in 2.7 with 8 x 4 sums, in 4 with 8 x 8 sums. A tile of 64 x 128 reads half the weights of 64 x 64. Few tokens get small tiles, so
    /// that the device has more workgroups.
    fn default() -> Tuning {
        Tuning { rows: 4, batch_rows: 8, input_rows: 16, tiles: TILES.map(|[first, ..]| first) }
    }
}

impl Tuning {
    /// Returns the tile for `n` tokens.
    pub fn tile(&self, n: usize) -> Tile {
        self.tiles[Self::tile_class(n)]
    }

    /// Returns whether every size is a candidate, and so tested. A file may have any size.
    pub fn is_sound(&self) -> bool {
        let tiles = self.tiles.iter().zip(TILES).all(|(tile, known)| known.contains(tile));
        let rows = ROWS.contains(&self.rows) && ROWS.contains(&self.batch_rows) && INPUT_ROWS.contains(&self.input_rows);
        tiles && rows
    }

    fn tile_class(n: usize) -> usize {
        usize::from(n > 32) + usize::from(n > 64)
    }

    /// Returns the candidates for steps of `n` tokens: this tuning, then tunings that differ in one size that such a step uses.
    pub fn candidates(&self, n: usize) -> Vec<Tuning> {
        let mut found = vec![self.clone()];
        let mut add = |other: Tuning| {
            if !found.contains(&other) {
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
        if n <= FUSED {
            for input_rows in INPUT_ROWS {
                add(Tuning { input_rows, ..self.clone() });
            }
        }
        found
    }
}
