// f16 weights. A unit of eight weights takes one 16-byte word. No f16 arithmetic is used, because the adapter may lack it.
// Fills the shader slot `weight`; every module of this shader slot defines the same names.
import package::lib::halves::halves;

// The number of units in a 16-byte word.
const SHARERS: u32 = 1u;
// The number of 16-byte words in a unit.
const WORDS: u32 = 1u;

// Returns the values of the eight codes of unit i in word a. If WORDS is 2, the unit consists of the words a and b.
fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return halves(a); }
