//! Sizes that kernels of the class Groups can take, and what they are unless a tuning pass has measured better.
//!
//! Within a kernel every number is summed in the same order whatever these are: they change speed, not results.

use serde::{Deserialize, Serialize};

/// Up to so many tokens one dispatch reads weights once for all of them, from memory to registers; above, through tiles.
pub const BATCH: usize = 16;
/// Up to so many, words compute a product's input on the way.
pub const FUSED: usize = 4;

/// What a workgroup of the tiled product computes, and each of its lanes. All are multiples of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    pub rows: usize,
    pub tokens: usize,
    pub lane_rows: usize,
    pub lane_tokens: usize,
}

/// Of the width, that a tile takes at a time: `shaders/linear/tile_rows.wgsl` and `tile_columns.wgsl`.
const DEPTH: usize = 16;

impl Tile {
    pub const fn new(rows: usize, tokens: usize, lane_rows: usize, lane_tokens: usize) -> Tile {
        Tile { rows, tokens, lane_rows, lane_tokens }
    }

    /// Lanes of its workgroup.
    pub fn lanes(&self) -> usize {
        self.rows / self.lane_rows * self.tokens / self.lane_tokens
    }

    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        // Units of eight that each lane brings into workgroup memory.
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

/// What is worth measuring: tiles for each class of steps, rows of the others.
const TILES: [[Tile; 4]; 3] = [
    [Tile::new(64, 32, 8, 4), Tile::new(64, 32, 4, 4), Tile::new(32, 32, 4, 4), Tile::new(128, 32, 8, 4)],
    [Tile::new(64, 64, 8, 4), Tile::new(64, 64, 4, 4), Tile::new(64, 64, 8, 8), Tile::new(32, 64, 4, 4)],
    [Tile::new(64, 128, 8, 8), Tile::new(64, 128, 8, 4), Tile::new(64, 64, 8, 4), Tile::new(128, 128, 8, 8)],
];
const ROWS: [usize; 3] = [4, 8, 16];
const INPUT_ROWS: [usize; 3] = [8, 16, 32];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Rows that a workgroup multiplies with one token, a multiple of four.
    pub rows: usize,
    /// The same with several tokens; fewer where a lane would keep more than 64 sums.
    pub batch_rows: usize,
    /// The same where the workgroup computes its input on the way, and its rows share that work.
    pub input_rows: usize,
    /// Tiles for up to 32 tokens, up to 64, and more.
    pub tiles: [Tile; 3],
}

impl Default for Tuning {
    /// Tiles by arithmetic: of 4 x 4 sums a lane, every number read from workgroup memory meets 2 multiplications, of 8 x 4 it
    /// meets 2.7, of 8 x 8 four; 64 x 128 reads half the weights of 64 x 64. Few tokens get small tiles and small workgroups,
    /// so that there are more of them.
    fn default() -> Tuning {
        Tuning { rows: 4, batch_rows: 8, input_rows: 16, tiles: TILES.map(|[first, ..]| first) }
    }
}

impl Tuning {
    pub fn tile(&self, n: usize) -> Tile {
        self.tiles[Self::tile_class(n)]
    }

    /// Whether every choice is one of those that are measured, and so tested: a file may say anything.
    pub fn is_sound(&self) -> bool {
        let tiles = self.tiles.iter().zip(TILES).all(|(tile, known)| known.contains(tile));
        let rows = ROWS.contains(&self.rows) && ROWS.contains(&self.batch_rows) && INPUT_ROWS.contains(&self.input_rows);
        tiles && rows
    }

    fn tile_class(n: usize) -> usize {
        usize::from(n > 32) + usize::from(n > 64)
    }

    /// What is worth measuring for steps of `n` tokens: this one first, then some that differ in one choice such a step makes.
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
