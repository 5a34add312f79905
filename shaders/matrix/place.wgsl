// The place of a matrix in a buffer of 16-byte words.
struct Place {
    // Index of the first 16-byte word of the codes.
    codes: u32,
    // Index of the first 16-byte word of the scales.
    scales: u32,
    // The number of units of eight weights in a row.
    units: u32,
    rows: u32,
}
