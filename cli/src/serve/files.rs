//! The limit on open files, which also counts connections.

/// The number of files that a server needs beside its connections: the model, states, the prefix cache, libraries of the GPU's driver.
#[cfg(unix)]
const OTHERS: u64 = 128;

/// Raises the process's limit on open files as far as the system allows. Returns how many connections then fit, at most `most`.
#[cfg(unix)]
pub fn connections(most: usize) -> usize {
    use crate::output::say;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // macOS reports an infinite hard limit, but allows at most this many open files.
    const MOST: u64 = 10_240;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return most };
    let set = |to: u64| setrlimit(Resource::RLIMIT_NOFILE, to, hard).is_ok().then_some(to);
    let limit = set(hard).or_else(|| set(hard.min(MOST).max(soft))).unwrap_or(soft);
    let fit = usize::try_from(limit.saturating_sub(OTHERS)).unwrap_or(usize::MAX).clamp(1, most);
    if fit < most {
        say(format_args!("note: the limit on open files, {limit}, allows {fit} connections at a time; raise it with ulimit -n"));
    }
    fit
}

/// Returns `most`: this system has no such limit.
#[cfg(not(unix))]
pub fn connections(most: usize) -> usize {
    most
}
