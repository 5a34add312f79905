// One token of one channel of RWKV-4. w is the logarithm of the decay, u the bonus of the current token. The numerator a and the denominator b
// of the state are stored multiplied by exp(-p), so that nothing overflows:
//   q = max(p, u + k)   wkv = (exp(p - q) a + exp(u + k - q) v) / (exp(p - q) b + exp(u + k - q))
//   q = max(p + w, k)   a = exp(p + w - q) a + exp(k - q) v   b = exp(p + w - q) b + exp(k - q)   p = q

// Computes one token. s is the state (a, b, p). Returns the new a, b and p, then wkv.
fn wkv4_step(s: vec3<f32>, w: f32, u: f32, k: f32, v: f32) -> vec4<f32> {
    var q = max(s.z, u + k);
    var before = exp(s.z - q);
    var now = exp(u + k - q);
    let wkv = (before * s.x + now * v) / (before * s.y + now);
    q = max(s.z + w, k);
    before = exp(s.z + w - q);
    now = exp(k - q);
    return vec4(before * s.x + now * v, before * s.y + now, q, wkv);
}
