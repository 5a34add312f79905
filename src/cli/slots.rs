//! Whether memory has room for as many slots as a user asks for, before any is made.

use super::model_options::DeviceArgs;
use crate::error::{Error, Result, size};
use crate::exec::host_memory;
use crate::report::devices;
use crate::session::Model;

/// Bytes that are free where a model's slots are kept; `None` if nobody says.
pub fn free_bytes(model: &Model, on: &DeviceArgs) -> Result<Option<u64>> {
    Ok(match model.device().id.as_str() {
        "cpu" => host_memory().and_then(|m| m.free),
        id => devices(on.backend()?, id).into_iter().find(|d| d.chosen).and_then(|d| d.memory_free_bytes),
    })
}

/// Refuses more slots than memory has room for.
///
/// # Errors
/// `Memory` at `flag`, with what the slots need and what is free.
pub fn check(model: &Model, on: &DeviceArgs, n_slots: usize, flag: &str) -> Result<()> {
    check_bytes(model.slot_bytes(), n_slots, free_bytes(model, on)?).map_err(|e| e.at(flag))
}

fn check_bytes(each: u64, n_slots: usize, free: Option<u64>) -> Result<()> {
    let needed = each.saturating_mul(n_slots as u64);
    match free.filter(|&free| needed > free) {
        Some(free) => {
            let text = format!("{n_slots} slots need {} for what they remember, {} are free", size(needed), size(free));
            Err(Error::memory(text).hint("give fewer, or a smaller --context"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check_bytes;

    #[test]
    fn slots_that_do_not_fit_are_refused() {
        assert!(check_bytes(10, 3, None).is_ok() && check_bytes(10, 3, Some(30)).is_ok());
        let e = check_bytes(1 << 30, 1024, Some(1 << 30)).unwrap_err();
        assert_eq!((e.kind.exit_code(), e.message.as_str()), (4, "1024 slots need 1.00 TiB for what they remember, 1.00 GiB are free"));
        assert!(check_bytes(u64::MAX, 2, Some(u64::MAX - 1)).is_err());
    }
}
