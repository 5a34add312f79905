// Finds the keys and values of a slot in the caches. A cache block holds BLOCK tokens. The blocks of a slot may be in any order (layout:
// src/tape/cache.rs).
import package::lib::cursor::Run;
import package::constants::{UNITS, VALUE_UNITS, VALUE_TILES, N_KV_HEADS, BLOCK};

@group(0) @binding(2) var<storage, read> blocks: array<u32>; // block indices of every slot of the step

// Returns the index of the block that holds tokens i * BLOCK to (i + 1) * BLOCK - 1 of a slot.
fn block_of(run: Run, i: u32) -> u32 { return blocks[run.blocks_at + i]; }

// Returns the index in `keys` of a token's unit u: channels 8 u ..= 8 u + 7 of the token's key. `token` is the token's index in the block. The
// next element of `keys` has the same channels of the next token.
fn key_at(block: u32, head: u32, u: u32, token: u32) -> u32 { return ((block * N_KV_HEADS + head) * UNITS + u) * BLOCK + token; }

// Returns the index in `values` of the first element of a token's values. `head` counts tiles: tile i of key head h has the number h * VALUE_TILES
// + i. `token` is the token's index in the block. One element of `values` has two channels.
fn value_at(block: u32, head: u32, token: u32) -> u32 {
    return ((block * N_KV_HEADS * VALUE_TILES + head) * BLOCK + token) * VALUE_UNITS * 4u;
}
