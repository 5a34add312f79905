// Finds the keys and values of a slot in the caches. A cache block holds BLOCK tokens. The blocks of a slot may be in any order (layout:
// src/tape/cache.rs).
import package::lib::cursor::Run;
import package::constants::{UNITS, VALUE_UNITS, VALUE_TILES, N_KV_HEADS, IN_KEYS, BLOCK};

@group(0) @binding(2) var<storage, read> blocks: array<u32>; // block indices of every slot of the step

// Returns the index of the block that holds tokens i * BLOCK to (i + 1) * BLOCK - 1 of a slot.
fn block_of(run: Run, i: u32) -> u32 { return blocks[run.blocks_at + i]; }

// Returns the index in `keys` of a token's unit u: channels 8 u ..= 8 u + 7 of the token's key. `token` is the token's index in the block. The
// next element of `keys` has the same channels of the next token.
fn key_at(block: u32, head: u32, u: u32, token: u32) -> u32 { return ((block * N_KV_HEADS + head) * UNITS + u) * BLOCK + token; }

// The distance in `values` from a pair of channels of a token to the same pair of the next token.
const VALUE_STEP: u32 = select(4u * VALUE_UNITS, 4u, IN_KEYS == 1u);

// Returns the index in `values` of a pair of channels, for the block's first token. `tile` is the tile of the key head `head`, `pair` the pair's
// index in the tile. One element of `values` has two channels. If IN_KEYS is 1, `values` is the same buffer as `keys`, and a value is the last part
// of a key.
fn value_at(block: u32, head: u32, tile: u32, pair: u32) -> u32 {
    if IN_KEYS == 1u {
        let unit = UNITS - VALUE_TILES * VALUE_UNITS + tile * VALUE_UNITS + pair / 4u;
        return 4u * key_at(block, head, unit, 0u) + pair % 4u;
    }
    return ((block * N_KV_HEADS + head) * VALUE_TILES + tile) * BLOCK * VALUE_STEP + pair;
}
