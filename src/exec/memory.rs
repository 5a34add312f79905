//! Asks the system how much memory is free, before anything is allocated.

/// Memory of an adapter or of the host, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// The number of bytes that this process can still allocate, or `None` if unknown.
    pub free: Option<u64>,
}

/// Returns the memory of the host, or `None` if the system does not report its memory. The free memory includes the cache of files, because the
/// system can drop this cache without swapping. A limit of the container or of the process (`ulimit -v`) lowers the result.
pub fn host_memory() -> Option<Memory> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let host = (system.total_memory() > 0).then(|| Memory { total: system.total_memory(), free: Some(system.available_memory()) })?;
    // The system drops a container's cached files when it needs memory. So only the memory of the container's processes counts as used.
    let limit = system.cgroup_limits().map(|c| Memory { total: c.total_memory, free: Some(c.total_memory.saturating_sub(c.rss)) });
    let own = of_process();
    Some([limit, own].into_iter().flatten().fold(host, Memory::within))
}

/// Returns the limit on the address space of this process, and how much of the limit is free. Returns `None` if the process has no limit.
#[cfg(target_os = "linux")]
fn of_process() -> Option<Memory> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let total = address_limit(&limits)?;
    let used = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| addresses(&status));
    Some(Memory { total, free: used.map(|used| total.saturating_sub(used)) })
}

/// Returns `None`: only Linux reports how much address space a process uses.
#[cfg(not(target_os = "linux"))]
fn of_process() -> Option<Memory> {
    None
}

/// Returns the soft limit on the address space in bytes, from the text of `/proc/self/limits`. Returns `None` if there is no limit.
#[cfg(target_os = "linux")]
fn address_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the number of bytes of address space that this process uses, from the text of `/proc/self/status`.
#[cfg(target_os = "linux")]
fn addresses(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl Memory {
    /// Limits the memory `self` by `limit`. Returns the lower of the two totals and the lower of the two free memories. If only one free memory is
    /// known, returns the known free memory.
    fn within(self, limit: Memory) -> Memory {
        let free = match (self.free, limit.free) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Memory { total: self.total.min(limit.total), free }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_some() {
        let host = host_memory().unwrap();
        assert!(host.total > 1 << 27 && host.free.unwrap() <= host.total, "{host:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_says_what_it_uses() {
        assert_eq!(addresses("VmPeak:\t    9000 kB\nVmSize:\t    1234 kB\nVmLck: 0 kB\n"), Some(1234 << 10));
        assert_eq!([addresses(""), addresses("VmSize: many kB"), addresses("VmSize: 1 MB")], [None; 3]);
        let limits = |soft: &str| {
            format!("Limit  Soft Limit  Hard Limit  Units\nMax address space         {soft}   unlimited   bytes\nMax file locks 1 1 locks")
        };
        assert_eq!([address_limit(&limits("4096")), address_limit(&limits("unlimited")), address_limit("")], [Some(4096), None, None]);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(addresses(&status).unwrap() > 1 << 20, "{status}");
    }

    #[test]
    fn a_container_has_no_more_than_its_limit() {
        let memory = |total, free| Memory { total, free };
        assert_eq!(memory(100, Some(60)).within(memory(40, Some(30))), memory(40, Some(30)));
        assert_eq!(memory(100, Some(20)).within(memory(40, Some(30))), memory(40, Some(20)));
        assert_eq!(memory(100, Some(60)).within(memory(400, None)), memory(100, Some(60)));
    }
}
