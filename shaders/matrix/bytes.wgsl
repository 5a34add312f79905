// The whole numbers of one unit (eight weights) of each of four rows, as signed bytes.
// Slot weight: weight/i4, weight/i8, weight/iq4, weight/q4_0, weight/q8_0, weight/s3, weight/s5, weight/s6, weight/u2, weight/u4, weight/u5
import package::matrix::quads::Words;
import package::slot::weight::{SHARERS, bytes8};

// An element has four weights of one row. For codes of eight bits, `low` has the first four weights of each row, and `high` the last four. For codes
// of fewer bits, `low` has the weights with even indices, and `high` the weights with odd indices.
struct Bytes {
    low: vec4<u32>,
    high: vec4<u32>,
}

// Returns the numbers in the words of one unit of each of four rows.
fn bytes(w: Words) -> Bytes {
    let a = bytes8(w.a, w.a2, 0u);
    let b = bytes8(w.b, w.b2, 1u % SHARERS);
    let c = bytes8(w.c, w.c2, 2u % SHARERS);
    let d = bytes8(w.d, w.d2, 3u % SHARERS);
    return Bytes(vec4(a.x, b.x, c.x, d.x), vec4(a.y, b.y, c.y, d.y));
}
