//! A time limit for the parser's steps. A grammar can be so ambiguous that one step takes minutes.

use llguidance::CancellationHandle;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use web_time::Instant;

/// How often the watching thread checks whether a running step has exceeded its time limit.
const TICK: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Watch {
    running: Mutex<RunningSteps>,
    wake: Condvar,
}

#[derive(Default)]
struct RunningSteps {
    steps: Vec<(u64, Instant, CancellationHandle)>,
    n_begun: u64,
    /// `true` while the thread that checks the time limits sleeps, because no step runs.
    is_asleep: bool,
}

/// Runs a step of the parser and returns its result. A watching thread cancels a step that takes longer than `limit`, through `handle`. There is no
/// time limit if `handle` is `None` or the thread cannot be started.
pub fn within<T>(limit: Duration, handle: Option<CancellationHandle>, step: impl FnOnce() -> T) -> T {
    static WATCH: OnceLock<Option<&Watch>> = OnceLock::new();
    let (Some(watch), Some(handle)) = (*WATCH.get_or_init(start), handle) else { return step() };
    let number = {
        let mut running = watch.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.n_begun += 1;
        let number = running.n_begun;
        running.steps.push((number, Instant::now() + limit, handle));
        if running.is_asleep {
            watch.wake.notify_one();
        }
        number
    };
    let _end = End { watch, number };
    step()
}

struct End {
    watch: &'static Watch,
    number: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut running = self.watch.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.steps.retain(|(number, ..)| *number != self.number);
    }
}

fn start() -> Option<&'static Watch> {
    let watch: &'static Watch = Box::leak(Box::default());
    let thread = std::thread::Builder::new().name("grammar limit".into()).stack_size(64 << 10);
    thread.spawn(|| watch.run()).is_ok().then_some(watch)
}

impl Watch {
    fn run(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut was_idle = false;
        loop {
            let is_idle = running.steps.is_empty();
            running.is_asleep = is_idle && was_idle;
            let time = if running.is_asleep { Duration::from_secs(3600) } else { TICK };
            running = self.wake.wait_timeout(running, time).unwrap_or_else(PoisonError::into_inner).0;
            running.is_asleep = false;
            was_idle = is_idle;
            let now = Instant::now();
            running.steps.iter().filter(|(_, end, _)| *end <= now).for_each(|(.., handle)| handle.cancel());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_that_takes_too_long_is_cancelled() {
        let [slow, quick] = [(); 2].map(|()| CancellationHandle::default());
        within(Duration::from_secs(3600), Some(quick.clone()), || {
            within(Duration::from_millis(1), Some(slow.clone()), || {
                let begun = Instant::now();
                while !slow.is_cancelled() && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        });
        assert!(slow.is_cancelled() && !quick.is_cancelled());
        let after = CancellationHandle::default();
        within(Duration::ZERO, Some(after.clone()), || ());
        std::thread::sleep(3 * TICK);
        assert!(!after.is_cancelled(), "a step that has ended is not cancelled");
    }
}
