//! Cases of the word `attention`.

use super::{Attention, LatentAttention, LimitedAttention};
use crate::tape::{Rotary, Rows, Run, Step, TOKENS_PER_BLOCK, Tape};
use crate::words::testing::{BLOCKS, Case};

/// Returns a step with one run per pair in `runs`. A pair has two numbers of tokens: how many the slot has before the step, and how many the step
/// has. The cache blocks of a slot are not adjacent.
fn step(runs: &[(usize, usize)]) -> Step {
    let mut step = Step::default();
    for &(before, n) in runs {
        let run = Run {
            first_row: step.tokens.len() as u32,
            len: n as u32,
            shift_out: 1,
            position: before as u32,
            blocks_at: step.blocks.len() as u32,
            ..Run::default()
        };
        step.tokens.extend(vec![0; n]);
        // 5 and BLOCKS have no common divisor except 1, so all blocks differ.
        let listed = (before + n).div_ceil(TOKENS_PER_BLOCK);
        let first = step.blocks.len();
        step.blocks.extend((0..listed).map(|i| ((first + i) * 5 % BLOCKS) as u32));
        step.runs.push(run);
    }
    step.outputs = vec![0];
    step
}

/// Returns cases with the head counts and head sizes of GLM models, and cases with unusual counts and sizes. Contexts have 1 to 1001
/// tokens.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let steps = || {
        vec![
            step(&[(0, 1)]),
            step(&[(5, 1), (63, 1), (0, 2)]),
            step(&[(64, 1), (200, 1)]),
            step(&[(61, 9), (0, 3), (130, 1)]),
            step(&[(3, 70)]),
            step(&[(1000, 1)]),
            step(&[(700, 1), (1, 1), (600, 1), (257, 1)]),
            step(&[(600, 2), (700, 1), (1, 1)]),
        ]
    };
    // The last two numbers are the channels that are rotated, and the channels of padding.
    for (n_heads, n_kv_heads, head_size, rotary, padding) in [
        (1, 1, 8, 4, 0),
        (4, 2, 16, 8, 0),
        (4, 2, 16, 6, 4),
        (6, 3, 40, 20, 0),
        (32, 2, 128, 64, 0),
        (24, 1, 256, 256, 0),
        (10, 2, 64, 0, 0),
        (16, 16, 64, 32, 0),
    ] {
        let mut tape = Tape::new();
        let of = Attention { n_heads, n_kv_heads, head_size, padding };
        let columns = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * head_size);
        let qkv = tape.var("qkv", Rows::Tokens, &columns);
        tape.rotary = Some(Rotary { size: rotary, base: 5e6 });
        tape.attention("att", qkv, of);
        cases.push(Case::new(format!("attention/{n_heads}/{n_kv_heads}/{}", head_size - padding), tape, steps(), 1e-9));
    }
    // Cases with one head and limited scores. The kernels divide wide values into several tiles. The last scale makes scores that are near the limit.
    for (key_size, value_size, scale) in [(8, 8, 0.1), (16, 40, 1.0), (256, 768, 1.0 / 1024.0), (64, 320, 0.5)] {
        let mut tape = Tape::new();
        let qkv = tape.var("qkv", Rows::Tokens, &[key_size, key_size, value_size]);
        let x = tape.var("x", Rows::Tokens, &[value_size]);
        tape.attention_add("att", qkv, LimitedAttention { key_size, value_size, scale, limit: 64.0 }, x);
        cases.push(Case::new(format!("attention/limited/{key_size}/{value_size}"), tape, steps(), 1e-9));
    }
    // Cases of attention over latents: many query heads, one key head, and values of several tiles.
    for (n_heads, rotary, width) in [(3, 8, 16), (4, 16, 264), (20, 64, 512)] {
        let mut tape = Tape::new();
        let key_size = rotary + width;
        let qkv = tape.var("qkv", Rows::Tokens, &[n_heads * key_size, key_size]);
        tape.rotary = Some(Rotary { size: rotary, base: 1e6 });
        tape.latent_attention("att", qkv, LatentAttention { n_heads, key_size, value_size: width, scale: 0.0625 });
        cases.push(Case::new(format!("attention/latent/{n_heads}/{key_size}"), tape, steps(), 1e-9));
    }
    cases
}
