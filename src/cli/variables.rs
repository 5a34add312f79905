//! Names of environment variables that stand for flags.

/// Environment variable for the device, where `--device` is not given.
pub const DEVICE: &str = "WINGBEAT_DEVICE";
/// Environment variable that names the folder for what was measured.
pub const CACHE: &str = "WINGBEAT_CACHE";
