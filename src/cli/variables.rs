//! The names of environment variables that replace flags.

/// The environment variable for the device, used without `--device`.
pub const DEVICE: &str = "WINGBEAT_DEVICE";
/// The environment variable for the folder of measurements.
pub const CACHE: &str = "WINGBEAT_CACHE";
