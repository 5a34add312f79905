//! Sets the number of threads that compute on the CPU: `--threads`, else `WINGBEAT_THREADS`, else one thread per core.

use super::values::{DEVICE_HEADING, within};
use rayon::ThreadPoolBuilder;
use wingbeat::error::{Error, Result};

/// The environment variable that sets the number of threads if `--threads` is not given.
pub const THREADS: &str = "WINGBEAT_THREADS";

/// The maximum number of threads. No host has more cores, so a larger number is a mistake.
pub const MOST: u32 = 4096;

#[derive(clap::Args)]
pub struct ThreadArgs {
    /// Number of CPU threads, at most 4096. This flag does not choose the device [default: the environment variable WINGBEAT_THREADS, else one per core]
    #[arg(short, long, value_name = "N", value_parser = within(1..=MOST), help_heading = DEVICE_HEADING)]
    pub threads: Option<u32>,
}

/// Starts the threads that all computations on the CPU share. Must be called once, before the first computation, because that computation would
/// start rayon's default threads.
///
/// # Errors
/// `Usage` if the environment variable is not a valid number of threads. `Memory` if the system cannot start more threads.
pub fn start(flag: Option<u32>) -> Result<()> {
    let n = match flag {
        Some(n) => Some(n),
        None => from_environment(std::env::var(THREADS).ok().as_deref())?,
    };
    let builder = ThreadPoolBuilder::new().num_threads(n.unwrap_or(0) as usize).thread_name(|i| format!("wingbeat-{i}"));
    builder.build_global().map_err(|e| {
        let hint = format!("ask for fewer threads with --threads or {THREADS}, or raise the limit (ulimit -u)");
        Error::memory(format!("cannot start more threads: {e}")).hint(hint)
    })
}

/// Parses the value of the environment variable. Returns `None` if the variable is unset or empty.
fn from_environment(value: Option<&str>) -> Result<Option<u32>> {
    let Some(value) = value.map(str::trim).filter(|v| !v.is_empty()) else { return Ok(None) };
    match value.parse() {
        Ok(n) if (1..=MOST).contains(&n) => Ok(Some(n)),
        _ => Err(Error::usage(format!("expected a number of threads from 1 to {MOST}, found {value:?}")).at(THREADS)),
    }
}

#[cfg(test)]
mod tests {
    use super::from_environment;

    #[test]
    fn the_variable_holds_a_number_or_is_empty() {
        assert_eq!(from_environment(None).unwrap(), None);
        assert_eq!(from_environment(Some(" ")).unwrap(), None);
        assert_eq!(from_environment(Some(" 3\n")).unwrap(), Some(3));
        for wrong in ["0", "-1", "all", "5000"] {
            let e = from_environment(Some(wrong)).unwrap_err().to_string();
            assert!(e.starts_with("WINGBEAT_THREADS: expected a number of threads"), "{e}");
        }
    }
}
