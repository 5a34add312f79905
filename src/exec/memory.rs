//! How much memory there is, before anything is allocated.

/// Memory of an adapter, or of the host. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// What this process can still take; none where nobody says.
    pub free: Option<u64>,
}

/// What a program can take of the host's memory without swapping: what is free or is a cache of files. In a container whose limit is
/// lower, that limit. None where the system does not say.
#[cfg(not(target_arch = "wasm32"))]
pub fn host_memory() -> Option<Memory> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let host = (system.total_memory() > 0).then(|| Memory { total: system.total_memory(), free: Some(system.available_memory()) })?;
    // What a container's files fill is given back when it is needed, so only what its processes hold counts as used.
    let limit = system.cgroup_limits().map(|c| Memory { total: c.total_memory, free: Some(c.total_memory.saturating_sub(c.rss)) });
    Some(limit.map_or(host, |limit| host.within(limit)))
}

/// A browser does not tell.
#[cfg(target_arch = "wasm32")]
pub fn host_memory() -> Option<Memory> {
    None
}

#[cfg(not(target_arch = "wasm32"))]
impl Memory {
    /// The lower of both, where both say.
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

    #[test]
    fn a_container_has_no_more_than_its_limit() {
        let memory = |total, free| Memory { total, free };
        assert_eq!(memory(100, Some(60)).within(memory(40, Some(30))), memory(40, Some(30)));
        assert_eq!(memory(100, Some(20)).within(memory(40, Some(30))), memory(40, Some(20)));
        assert_eq!(memory(100, Some(60)).within(memory(400, None)), memory(100, Some(60)));
    }
}
