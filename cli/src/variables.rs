//! The names of environment variables that are used if a flag is not given.

/// The environment variable that names the device if `--device` is not given.
pub const DEVICE: &str = "WINGBEAT_DEVICE";
/// The environment variable that names the folder for measurements and compiled kernels of GPUs.
pub const CACHE: &str = "WINGBEAT_CACHE";
