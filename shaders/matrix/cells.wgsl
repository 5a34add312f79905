// The place of codes of 2, 3, 5 and 6 bits. A cell is four units of each of four rows. It takes CELL_WORDS words: as many as a code has bits. The low
// bits of all codes come first: in word u % 4 for four bits, in word u / 2 % 2 for two bits, where u is the unit. The high bits follow: two words for
// two bits, one word for one bit.
// Slot weight: weight/*
import package::matrix::place::Place;
import package::slot::weight::CELL_WORDS;

// The sizes of a code's parts are the bits of CELL_WORDS: 5 is four bits and one bit, 6 is four bits and two bits, 3 is two bits and one bit.
const HAS_FOUR: bool = (CELL_WORDS & 4u) != 0u;
const HAS_TWO: bool = (CELL_WORDS & 2u) != 0u;
const HAS_ONE: bool = (CELL_WORDS & 1u) != 0u;

// Returns the index of the first word of the cell of unit k.
fn cell(p: Place, row: u32, k: u32) -> u32 { return p.codes + (row / 4u * ((p.units + 3u) / 4u) + k / 4u) * CELL_WORDS; }

// Returns the index of the word with the two-bit parts of unit k.
fn two(cell: u32, k: u32) -> u32 { return cell + (CELL_WORDS & 4u) + k / 2u % 2u; }

// Returns the index of the word with the one-bit parts.
fn one(cell: u32) -> u32 { return cell + (CELL_WORDS & 6u); }

// Returns the numbers of unit k: two numbers with two-bit parts, then one number with one-bit parts. A number has four bits per code. The two-bit
// part of row r is in number r / 2, at bits 2 (r % 2) and 2 (r % 2) + 1 of these four bits. The one-bit part of row r is bit r of the four.
fn parts(two: vec4<u32>, one: u32, k: u32) -> vec4<u32> { return vec4(select(two.xy, two.zw, (k & 1u) != 0u), one, 0u); }
