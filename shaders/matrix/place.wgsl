// The place of a matrix in a buffer of 16-byte words.
struct Place {
    // First words of the codes and of the scales.
    codes: u32,
    scales: u32,
    // Units of eight weights in a row.
    units: u32,
    rows: u32,
}
