// Loads one unit (eight weights) of each of four rows at once. A 16-byte word has the units of SHARERS rows. SHARERS is 1 if a unit fills
// one word or more.
import package::matrix::dots::Quad;
import package::matrix::place::Place;
import package::slot::matrix::{w0};
import package::slot::weight::{SHARERS, WORDS, decode};
import package::constants::TILES;

// quad<i>(p, row, k) returns the codes of unit k of rows row ..= row + 3 in tile i. `row` is a multiple of four. The buffer is padded to
// whole groups of four rows; the codes of padding rows are not used.
unroll i in TILES {
fn quad$i(p: Place, row: u32, k: u32) -> Quad {
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
    if WORDS == 1u { return Quad(decode(a, a, 0u), decode(b, b, 1u % SHARERS), decode(c, c, 2u % SHARERS), decode(d, d, 3u % SHARERS)); }
    let e = at + 1u;
    return Quad(decode(a, w$i[e], 0u), decode(b, w$i[e + next], 0u), decode(c, w$i[e + 2u * next], 0u), decode(d, w$i[e + 3u * next], 0u));
}
}
