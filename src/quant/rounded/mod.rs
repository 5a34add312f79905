//! Products of whole numbers: the values of weights times activations that are rounded to eight bits.
//!
//! A block has [`BLOCK`] columns of a row. v are the values of its weights, and x = d q are the rounded activations. If all weights of the block
//! share a factor f and a minimum m:
//!
//! ```text
//! Σ (f v − m) x = (f d) Σ v q − m (d Σ q)
//! ```
//!
//! The sums of whole numbers are exact on every CPU. Blocks are added one after the other, from left to right, and each of the two products is added with
//! one rounding. So a result depends only on its row and its token, and all instruction sets give the same bits.
//!
//! [`strip`] arranges weights so that a register has the same columns of several rows, and [`tile`] multiplies them.

use super::limit::{self, Limit};

mod few;
mod rows;
mod stored;
mod strip;
mod tile;

pub use few::{MultiplyFew, few_of};
pub use rows::RoundedRows;
pub use stored::{Stripe, strip_bytes, stripe, stripe_items, stripe_of};
pub use strip::{Interleave, ROWS, Rows, Strip, interleave_of};
pub use tile::multiply;

/// The number of columns that share a scale of the activations.
pub const BLOCK: usize = 32;
/// The number of columns in half a block. Weights of some formats have a factor per half.
const HALF: usize = BLOCK / 2;
/// The number of columns that a 32-bit lane has.
const PER_LANE: usize = 4;
/// The number of lanes that a row of a block fills.
const LANES_PER_BLOCK: usize = BLOCK / PER_LANE;

/// Instructions that multiply whole numbers of eight bits and add the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dots {
    /// `vpdpbusd` with registers of 16 lanes.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    Avx512Vnni,
    /// `vpdpbusd` with registers of 8 lanes.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    AvxVnni,
    /// `vpmaddubsw` and `vpmaddwd`.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// `sdot`.
    #[cfg(has_neon)]
    Neon,
    /// Plain loops.
    Plain,
}

impl Dots {
    /// Returns all sets of instructions that this CPU has, the fastest first.
    pub fn all() -> Vec<Dots> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            #[cfg(has_avx512)]
            if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512vnni") {
                all.push(Dots::Avx512Vnni);
            }
            #[cfg(has_avx512)]
            if is_x86_feature_detected!("avxvnni") {
                all.push(Dots::AvxVnni);
            }
            all.push(Dots::Avx2);
        }
        #[cfg(has_neon)]
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            all.push(Dots::Neon);
        }
        all.push(Dots::Plain);
        all
    }

    /// Returns the fastest instructions of this CPU within the [limit](limit::limit).
    pub fn best() -> Dots {
        static BEST: std::sync::OnceLock<Dots> = std::sync::OnceLock::new();
        *BEST.get_or_init(|| Dots::all().into_iter().find(|dots| dots.is_within(limit::chosen())).unwrap_or(Dots::Plain))
    }

    fn is_within(self, limit: Limit) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Dots::Avx512Vnni => limit == Limit::All,
            other => other == Dots::Plain || limit != Limit::Plain,
        }
    }

    /// Returns whether the loops that arrange weights for these instructions read codes in the order of [`stored`].
    fn reads_stripes(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Dots::Avx512Vnni | Dots::AvxVnni => true,
            #[cfg(target_arch = "x86_64")]
            Dots::Avx2 => true,
            _ => false,
        }
    }

    /// Returns whether weights are stored plus 128, as numbers from 0 to 255. Otherwise they are stored in two's complement.
    fn takes_unsigned(self) -> bool {
        match self {
            #[cfg(all(target_arch = "x86_64", has_avx512))]
            Dots::Avx512Vnni | Dots::AvxVnni => true,
            _ => false,
        }
    }
}
