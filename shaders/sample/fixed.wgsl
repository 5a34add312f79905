// The sampler's integer arithmetic. src/sample/fixed.rs has the same functions. A 64-bit number is a vector (low half, high half).

// A factor of at least 0: mantissa / 2^shift, with shift in 0 ..= 63.
struct Scale { mantissa: u32, shift: u32 }

// The mass of the most likely token.
const FULL_MASS: u32 = 0x80000000u;
// The factor 0. With this scale, every token has the mass FULL_MASS. A function and not a constant: naga writes a constant struct as a call,
// which HLSL compilers refuse in a constant.
fn zero_scale() -> Scale {
    return Scale(0u, 0u);
}
const LARGEST: i32 = 2147483647;

// Returns a times b, in 64 bits.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let mid = ah * bl + ((al * bl) >> 16u);
    let mid2 = al * bh + (mid & 0xffffu);
    return vec2(a * b, ah * bh + (mid >> 16u) + (mid2 >> 16u));
}

fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn less(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }

// Returns x times the factor s, truncated. The result is at most 2^32 - 1.
fn times(x: u32, s: Scale) -> u32 {
    let p = multiply(x, s.mantissa);
    if s.shift >= 32u { return p.y >> (s.shift - 32u); }
    if s.shift == 0u { return select(p.x, 0xffffffffu, p.y != 0u); }
    return select((p.x >> s.shift) | (p.y << (32u - s.shift)), 0xffffffffu, (p.y >> s.shift) != 0u);
}

fn times_signed(x: i32, s: Scale) -> i32 {
    let magnitude = i32(min(times(select(u32(x), 0u - u32(x), x < 0), s), u32(LARGEST)));
    return select(magnitude, -magnitude, x < 0);
}

// Returns a + b, clamped to the range of i32.
fn add_saturating(a: i32, b: i32) -> i32 {
    let sum = a + b;
    return select(sum, select(LARGEST, -LARGEST - 1, a < 0), ((a ^ sum) & (b ^ sum)) < 0);
}

// Returns a - b, clamped to the range of i32.
fn subtract_saturating(a: i32, b: i32) -> i32 {
    let difference = a - b;
    return select(difference, select(LARGEST, -LARGEST - 1, a < 0), ((a ^ b) & (a ^ difference)) < 0);
}

// Returns the mass 2^(31 - y), truncated. y is `distance` times the scale s, an integer in units of 2^-26.
fn mass(distance: u32, s: Scale) -> u32 {
    let y = times(distance, s);
    let n = y >> 26u;
    if n >= 32u { return 0u; }
    let x = y << 6u;
    var q = 0x009c200u - multiply(0x0000bda6u, x).y;
    q = 0x005728b0u - multiply(q, x).y;
    q = 0x027641a9u - multiply(q, x).y;
    q = 0x0e358127u - multiply(q, x).y;
    q = 0x3d7f7bcbu - multiply(q, x).y;
    q = 0xb17217f7u - multiply(q, x).y;
    return (FULL_MASS - ((multiply(q, x).y + 1u) >> 1u)) >> n;
}

// Returns a finite logit in units of 2^-20 nats, truncated, and clamped to +-2000 nats. `bits` are the bits of the logit as f32.
fn quantised(bits: u32) -> i32 {
    let exponent = (bits >> 23u) & 0xffu;
    let mantissa = (bits & 0x7fffffu) | 0x800000u; // the logit is mantissa 2^(exponent - 150); in units of 2^-20: mantissa 2^(exponent - 130)
    var magnitude = 0u;
    if exponent >= 138u {
        magnitude = 0xffffffffu;
    } else if exponent >= 130u {
        magnitude = mantissa << (exponent - 130u);
    } else if exponent > 106u {
        magnitude = mantissa >> (130u - exponent);
    }
    let value = i32(min(magnitude, 2000u << 20u));
    return select(value, -value, (bits >> 31u) == 1u);
}

fn is_finite(bits: u32) -> bool { return (bits & 0x7f800000u) != 0x7f800000u; }

// Returns an integer with the same order as the float whose bits are `bits`. Both zeros return the same integer.
fn ordered(bits: u32) -> u32 {
    if (bits << 1u) == 0u { return 0x80000000u; }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// Returns share / 2^32 of the mass `total`, rounded up, and at least 1.
fn share_of(total: vec2<u32>, share: u32) -> vec2<u32> {
    let low = multiply(total.x, share);
    let sum = add(multiply(total.y, share), vec2(low.y, 0u));
    return add(sum, vec2(select(0u, 1u, low.x != 0u || (sum.x | sum.y) == 0u), 0u));
}

// Returns a random number below `total`: the high half of `random` times `total`. `random` has 64 random bits.
fn uniform_below(random: vec2<u32>, total: vec2<u32>) -> vec2<u32> {
    let a = add(multiply(random.y, total.x), vec2(multiply(random.x, total.x).y, 0u));
    let b = add(multiply(random.x, total.y), vec2(a.x, 0u));
    return add(add(multiply(random.y, total.y), vec2(a.y, 0u)), vec2(b.y, 0u));
}
