// ChaCha8 random numbers, as in src/sample/stream.rs. The key is the seed, then 24 zero bytes. The nonce is zero. Number n consists of
// words 2 n (low half) and 2 n + 1 (high half) of the stream. A block of the stream has 16 words.

// Rotates each of the four numbers left by n bits, n in 1 ..= 31.
fn rotate4(x: vec4<u32>, n: u32) -> vec4<u32> { return (x << vec4(n)) | (x >> vec4(32u - n)); }

// Returns number `at` of the stream of `seed`. Both arguments and the result are 64-bit numbers (low, high).
fn random_number(seed: vec2<u32>, at: vec2<u32>) -> vec2<u32> {
    let a0 = vec4(0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u);
    let b0 = vec4(seed.x, seed.y, 0u, 0u);
    let d0 = vec4((at.x >> 3u) | (at.y << 29u), at.y >> 3u, 0u, 0u);
    var a = a0;
    var b = b0;
    var c = vec4(0u);
    var d = d0;
    // Each vector is a row of four words. Even rounds work on columns, odd rounds on diagonals. At the end of an
    // even round, the rows are rotated, so that the diagonals become columns. At the end of an odd round, the rows are rotated back.
    for (var i = 0u; i < 8u; i++) {
        a += b; d = rotate4(d ^ a, 16u);
        c += d; b = rotate4(b ^ c, 12u);
        a += b; d = rotate4(d ^ a, 8u);
        c += d; b = rotate4(b ^ c, 7u);
        if i % 2u == 0u {
            b = b.yzwx; c = c.zwxy; d = d.wxyz;
        } else {
            b = b.wxyz; c = c.zwxy; d = d.yzwx;
        }
    }
    let pair = at.x & 7u; // one of the 8 numbers of a block
    var row = a + a0;
    if pair >= 6u { row = d + d0; } else if pair >= 4u { row = c; } else if pair >= 2u { row = b + b0; }
    return select(row.xy, row.zw, pair % 2u == 1u);
}
