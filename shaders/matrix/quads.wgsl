// Loads one unit (eight weights) of each of four rows at once. A 16-byte word has the units of SHARERS rows. SHARERS is 1 if a unit fills
// one word or more. matrix/cells describes the order of codes whose CELL_WORDS is not 0.
// Slot matrix: matrix/rows, matrix/windows, matrix/windows_scaled
// Slot weight: weight/*
import package::matrix::dots::Quad;
import package::matrix::cells::{HAS_FOUR, HAS_ONE, HAS_TWO, cell, one, parts, two};
import package::matrix::place::Place;
import package::slot::matrix::{w0};
import package::slot::weight::{CELL_WORDS, SHARERS, WORDS, decode};
import package::constants::TILES;

// The 16-byte words of a unit in four rows: the first word in each row and, if WORDS is 2, the second word in each row.
struct Words {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    a2: vec4<u32>,
    b2: vec4<u32>,
    c2: vec4<u32>,
    d2: vec4<u32>,
}

// words<i>(p, row, k) returns the words of unit k of rows row ..= row + 3 in tile i, the binding w<i>. quad<i>(p, row, k) returns the codes in
// these words. `row` is a multiple of four. The buffer is padded to whole groups of four rows, and the padding is not used.
unroll i in TILES {
    fn words$i(p: Place, row: u32, k: u32) -> Words {
        if CELL_WORDS != 0u {
            let c = cell(p, row, k);
            var low = vec4(0u);
            var pairs = vec4(0u);
            var bits = 0u;
            if HAS_FOUR { low = w$i[c + k % 4u]; }
            if HAS_TWO { pairs = w$i[two(c, k)]; }
            if HAS_ONE { bits = w$i[one(c)][k % 4u]; }
            let high = parts(pairs, bits, k);
            return Words(low, low, low, low, high, high, high, high);
        }
        let at = p.codes + (row / SHARERS * p.units + k) * WORDS;
        let next = p.units * WORDS;
        let a = w$i[at];
        var b = a;
        var c = a;
        var d = a;
        if SHARERS == 1u { b = w$i[at + next]; }
        if SHARERS <= 2u {
            c = w$i[at + 2u / SHARERS * next];
            d = c;
        }
        if SHARERS == 1u { d = w$i[at + 3u * next]; }
        if WORDS == 1u { return Words(a, b, c, d, a, b, c, d); }
        let e = at + 1u;
        return Words(a, b, c, d, w$i[e], w$i[e + next], w$i[e + 2u * next], w$i[e + 3u * next]);
    }

    fn quad$i(p: Place, row: u32, k: u32) -> Quad { return quad(words$i(p, row, k)); }
}

// Returns the codes in the words of one unit of each of four rows.
fn quad(w: Words) -> Quad {
    return Quad(decode(w.a, w.a2, 0u), decode(w.b, w.b2, 1u % SHARERS), decode(w.c, w.c2, 2u % SHARERS), decode(w.d, w.d2, 3u % SHARERS));
}
