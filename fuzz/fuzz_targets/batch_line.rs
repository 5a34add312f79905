//! Reads a line of the input of `batch`, without a model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat_fuzz::count;

fuzz_target!(|bytes: &[u8]| count(wingbeat_cli::fuzzing::batch_line(bytes)));
