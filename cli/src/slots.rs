//! Checks that the free memory has room for a session's slots, before the session is created.

use super::model_options::DeviceArgs;
use crate::report::devices;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::host_memory;
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::Model;

/// The maximum number of slots if the user gives no number. More slots gain little, because 16 tokens already share each read of the weights.
const SLOTS: usize = 16;

/// Returns the number of slots: `asked`, if that many slots fit the free memory. Without `asked`, returns as many slots as fit into half of the
/// free memory, from 1 to 16. Unknown free memory counts as enough.
///
/// # Errors
/// `Memory` if the slots do not fit. The error names `--slots`.
pub fn fitting(model: &Model, on: &DeviceArgs, asked: Option<usize>) -> Result<usize> {
    match asked {
        None => Ok(default_slots(model.slot_bytes().max(1), free_bytes(model, on)?)),
        Some(asked) => check(model, on, asked, "--slots").map(|()| asked),
    }
}

/// Returns the default number of slots if a slot takes `each` bytes. `free` is the free memory in bytes, or `None` if unknown.
fn default_slots(each: u64, free: Option<u64>) -> usize {
    free.map_or(SLOTS, |free| (free / 2 / each).clamp(1, SLOTS as u64) as usize)
}

/// Returns how many bytes are free in the memory that holds the model's slots, or `None` if unknown.
fn free_bytes(model: &Model, on: &DeviceArgs) -> Result<Option<u64>> {
    Ok(match model.device().id.as_str() {
        "cpu" => host_memory().and_then(|m| m.free),
        id => devices(on.backend()?, id).into_iter().find(|d| d.chosen).and_then(|d| d.memory_free_bytes),
    })
}

/// Returns an error if `n_slots` slots do not fit into the free memory.
///
/// # Errors
/// `Memory` if the slots do not fit. The error names `flag`, the bytes that the slots need, and the free bytes.
pub fn check(model: &Model, on: &DeviceArgs, n_slots: usize, flag: &str) -> Result<()> {
    check_bytes(model.slot_bytes(), n_slots, free_bytes(model, on)?).map_err(|e| e.at(flag))
}

fn check_bytes(each: u64, n_slots: usize, free: Option<u64>) -> Result<()> {
    let needed = each.saturating_mul(n_slots as u64);
    match free.filter(|&free| needed > free) {
        Some(free) => {
            let text = format!("{n_slots} texts at once need {} of memory, but only {} are free", size(needed), size(free));
            Err(Error::memory(text).hint("choose fewer texts at once, or a smaller --context"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_bytes, default_slots};

    #[test]
    fn slots_take_at_most_half_of_the_free_memory() {
        let found = [(10, None), (10, Some(1000)), (10, Some(200)), (10, Some(19)), (u64::MAX, Some(u64::MAX))];
        assert_eq!(found.map(|(each, free)| default_slots(each, free)), [16, 16, 10, 1, 1]);
    }

    #[test]
    fn slots_that_do_not_fit_are_refused() {
        assert!(check_bytes(10, 3, None).is_ok() && check_bytes(10, 3, Some(30)).is_ok());
        let e = check_bytes(1 << 30, 1024, Some(1 << 30)).unwrap_err();
        assert_eq!((e.kind.exit_code(), e.message.as_str()), (4, "1024 texts at once need 1.00 TiB of memory, but only 1.00 GiB are free"));
        assert!(check_bytes(u64::MAX, 2, Some(u64::MAX - 1)).is_err());
    }
}
