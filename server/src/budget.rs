//! The memory of requests. Bounds the bytes of bodies, waiting requests and uploads, for all callers together and for each key.

use super::failure::{Answer, Failure};
use axum::http::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wingbeat::error::Error;

/// Limits the bytes that requests hold: all requests together, and the requests of each key.
pub struct Budget {
    all: usize,
    per_key: usize,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    all: usize,
    /// The bytes of each namespace. Namespaces without bytes have no entry.
    of: HashMap<String, usize>,
}

/// The bytes that one request holds. Dropping the claim returns them.
pub struct Claim {
    budget: Arc<Budget>,
    pub namespace: String,
    n_bytes: Mutex<usize>,
}

impl Budget {
    /// Returns a budget of `all` bytes. With several keys, each may use half of it.
    pub fn new(all: usize, n_keys: usize) -> Arc<Budget> {
        Arc::new(Budget { all, per_key: if n_keys > 1 { all / 2 } else { all }, used: Mutex::default() })
    }

    /// Returns a claim of no bytes.
    pub fn claim(self: &Arc<Self>, namespace: &str) -> Claim {
        Claim { budget: self.clone(), namespace: namespace.into(), n_bytes: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Returns the number of bytes.
    pub fn n_bytes(&self) -> usize {
        *self.n_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes, or fails as [`set`](Self::set) does.
    pub fn add(&self, n_bytes: usize) -> Answer<()> {
        self.set(self.n_bytes() + n_bytes)
    }

    /// Changes the number of bytes. A number above the limit of one key counts as this limit, so that a caller without other requests may send a body of
    /// any allowed size.
    ///
    /// # Errors
    /// 429 if the budget of the key or of the server has no room. The number then stays the same.
    pub fn set(&self, n_bytes: usize) -> Answer<()> {
        let Budget { all, per_key, .. } = *self.budget;
        let n_bytes = n_bytes.min(per_key);
        let mut before = self.n_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = self.budget.lock();
        let own = used.of.get(&self.namespace).copied().unwrap_or(0) - *before + n_bytes;
        let of_all = used.all - *before + n_bytes;
        if n_bytes > *before && (own > per_key || of_all > all) {
            let (whose, most) = if own > per_key { ("requests of this caller", per_key) } else { ("requests", all) };
            let e = Error::input(format!("the {whose} hold {most} bytes of the server's memory, the most that they may hold"));
            let refused =
                Failure::new(StatusCode::TOO_MANY_REQUESTS, "request_memory_full", e.hint("try again when other requests have ended"));
            return Err(Failure { retry_after: Some(1), ..refused });
        }
        used.all = of_all;
        match own {
            0 => drop(used.of.remove(&self.namespace)),
            own => drop(used.of.insert(self.namespace.clone(), own)),
        }
        *before = n_bytes;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Fewer bytes always have room.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_half_of_the_budget() {
        let budget = Budget::new(100, 3);
        let [a, b, c] = ["a", "b", "c"].map(|name| budget.claim(name));
        a.set(40).unwrap();
        let more = budget.claim("a");
        let e = more.set(20).unwrap_err();
        assert!(e.message().contains("requests of this caller hold 50 bytes") && e.status == 429, "{}", e.message());
        more.set(10).unwrap();
        b.set(45).unwrap();
        assert!(c.set(6).unwrap_err().message().starts_with("the requests hold 100 bytes"));
        // A smaller claim leaves room for others, and so does a dropped claim.
        a.set(30).unwrap();
        c.set(15).unwrap();
        drop((a, more));
        // A large body counts as the limit of one key, so it is accepted if the key holds nothing else.
        b.set(0).unwrap();
        b.set(1000).unwrap();
        assert_eq!((b.n_bytes(), budget.lock().all), (50, 65));
        drop((b, c));
        assert!(budget.lock().all == 0 && budget.lock().of.is_empty());
    }
}
