//! Reads an importance matrix in either format, and the mean squares of its matrices.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::Calibration;
use wingbeat::error::Result;
use wingbeat_fuzz::count;

fn read(bytes: &[u8]) -> Result<()> {
    let found = Calibration::parse(bytes)?;
    for name in found.names() {
        found.mean_squares(name);
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| count(read(bytes)));
