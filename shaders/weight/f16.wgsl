// Half-precision weights, a unit of eight in a word. No f16 arithmetic: the adapter need not have it.
import package::lib::halves::halves;

// Units that a word holds, and words that a unit takes. Every module in the place of this one has both, and `decode`.
const SHARERS: u32 = 1u;
const WORDS: u32 = 1u;

// Unit i of a word, or of two.
fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return halves(a); }
