// The functions that are applied to the results of a matrix product. The codes match `Activation` in src/words/stack.rs; a test compares them.
// The arguments of exp and tanh are clamped. exp overflows for large arguments, and some drivers compute tanh from exp.
fn sigmoid(z: f32) -> f32 { return 1.0 / (1.0 + exp(-clamp(z, -80.0, 80.0))); }

fn activate(code: u32, z: f32) -> f32 {
    switch code {
        case 1u: { return tanh(clamp(z, -15.0, 15.0)); }
        case 2u: { return sigmoid(z); }
        case 3u: { let p = max(z, 0.0); return p * p; }
        // RWKV-7 decay: exp(-e^(-1/2) sigmoid(z)), between 0.5452 and 1
        case 4u: { return exp(-0.60653066 * sigmoid(z)); }
        // silu
        case 5u: { return z * sigmoid(z); }
        // RWKV-6 decay: exp(-exp(z)), zero in f32 if z is at least 5
        case 6u: { return exp(-exp(clamp(z, -80.0, 20.0))); }
        default: { return z; }
    }
}
