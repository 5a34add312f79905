// Where the numbers of a slot's tokens lie: `BLOCK` tokens a block, the blocks in any order (src/tape/cache.rs has the layout).
import package::lib::cursor::Run;
import package::constants::{UNITS, N_KV_HEADS, BLOCK};

@group(0) @binding(2) var<storage, read> blocks: array<u32>; // blocks of every slot of the step

// The block of tokens BLOCK i .. of a slot.
fn block_of(run: Run, i: u32) -> u32 { return blocks[run.blocks_at + i]; }

// Numbers 8 u .. of a token's key are at this unit of eight; those of the next token follow.
fn key_at(block: u32, head: u32, u: u32, token: u32) -> u32 { return ((block * N_KV_HEADS + head) * UNITS + u) * BLOCK + token; }

// A token's value begins at this pair.
fn value_at(block: u32, head: u32, token: u32) -> u32 { return ((block * N_KV_HEADS + head) * BLOCK + token) * UNITS * 4u; }
