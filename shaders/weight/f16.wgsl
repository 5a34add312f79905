// f16 weights. A unit, which is eight consecutive weights, takes one 16-byte word. No f16 arithmetic is used, because the adapter may lack f16.
// This module fills the shader slot `weight`. Every module of this shader slot defines SHARERS, WORDS, CELL_WORDS, decode and
// begin_weights.
import package::lib::halves::halves;

// The number of units that share a 16-byte word.
const SHARERS: u32 = 1u;
// The number of 16-byte words that a unit takes.
const WORDS: u32 = 1u;
// The number of bits of a code if the codes are in cells (matrix/cells), otherwise 0.
const CELL_WORDS: u32 = 0u;

// Returns the eight values of unit i of the 16-byte word a, before scales are applied. If WORDS is 2, the unit takes the words a and b. Codes in
// cells are in the numbers that matrix/cells describes.
fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return halves(a); }

// Formats with scales of blocks along rows also define SCALE_UNITS, the number of units of a row that share a scale. Formats with small scales
// (scale/levels) define MINIMUM_BITS: 8 or 4, the bits of a small minimum, or 0 without minima. They define SIX_BITS, which is true if small scales
// have six bits.
// If the value of a code is CODE_STEP times a whole number, the format defines CODE_STEP and `bytes8`. `bytes8` returns the eight whole numbers of a
// unit as signed bytes, four per word. For codes of fewer than eight bits, the first word has the numbers with even indices, the second word the
// numbers with odd indices.
// Every lane of a workgroup calls `begin_weights` before it decodes. This format needs no preparation.
fn begin_weights(lane: u32) {}
