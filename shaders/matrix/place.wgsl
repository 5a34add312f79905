// Where rows of one matrix lie in words of 16 bytes: first words of their codes and scales, units of eight in a row, rows.
struct Place {
    codes: u32,
    scales: u32,
    units: u32,
    rows: u32,
}
