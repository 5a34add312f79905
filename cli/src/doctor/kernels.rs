//! Compares the kernels of every word (fused operation) with the word's twin, the reference implementation on the CPU. Checks the family of
//! kernels that models use on this adapter, or every family.

use super::progress::Checks;
use crate::flags;
use crate::model_options::cache_folder;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wingbeat::error::Result;
use wingbeat::low_level::exec::draws_on_device;
use wingbeat::low_level::exec::gpu::{Adapter, Device};
use wingbeat::low_level::exec::selftest::{self, CaseOutcome, Extent};
use wingbeat::low_level::exec::tune;
use wingbeat::low_level::quant::{Activations, FORMATS, Format};
use wingbeat::low_level::tape::{Caps, Class, Tuning};
use wingbeat::low_level::words::WORDS;

/// The kernels that are chosen for one combination of the capabilities below, and the results of their check.
#[derive(Debug, Serialize)]
pub struct KernelFamily {
    /// `groups` (kernels for GPUs) or `lanes` (kernels for software adapters).
    pub class: &'static str,
    /// True for kernels whose results do not depend on the other texts in the batch.
    pub deterministic: bool,
    /// True if sums use subgroup operations.
    pub subgroups: bool,
    /// True if matrix products over many tokens at once (as in prefill) use cooperative matrices.
    pub cooperative: bool,
    /// True if matrix products over many tokens at once round their activations to 8 bits, for weights of at most 6 bits. Models do this only if a
    /// measurement of this adapter found such products faster.
    pub rounded: bool,
    /// True if models use this family on this adapter.
    pub is_default: bool,
    /// The number of test cases that ran.
    pub n_cases: usize,
    /// The number of test cases of the family. Larger than `n_cases` if the user stopped the check.
    pub n_planned: usize,
    /// The passed test case with the largest error relative to its bound, and this error. `None` if all errors are 0.
    pub worst: Option<String>,
    pub wrong: Vec<String>,
}

impl fmt::Display for KernelFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = [
            (self.subgroups, ", subgroups"),
            (self.cooperative, ", cooperative"),
            (self.rounded, ", rounded"),
            (self.deterministic, ", deterministic"),
        ];
        let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
        let name = format!("{}{marks}", self.class);
        let right = self.n_cases - self.wrong.len();
        write!(f, "{name:<30} {right} of {} cases right", self.n_cases)?;
        if self.n_cases < self.n_planned {
            write!(f, ", {} not checked", self.n_planned - self.n_cases)?;
        }
        if let Some(worst) = &self.worst {
            write!(f, ", nearest to its bound {worst}")?;
        }
        Ok(())
    }
}

/// An open adapter, and the families of kernels to check on it.
pub struct Kernels {
    adapter: Adapter,
    opened: Device,
    /// The capabilities of each family, and whether models use the family on this adapter.
    families: Vec<(Caps, bool)>,
    extent: Extent,
    /// True if the kernel that samples tokens is checked. The quick check omits this kernel if models sample on the host.
    with_draws: bool,
}

/// A job for one thread. If `format` is a weight format, the job runs the test cases of all words (fused operations) in this format. If `format` is
/// `None`, the job checks the kernel that samples tokens.
#[derive(Clone, Copy)]
struct KernelCheck {
    family: usize,
    format: Option<&'static dyn Format>,
}

/// The maximum number of threads. Each thread has its own device. The driver's compiler takes most of the time and uses one core.
const MAX_THREADS: usize = 4;

/// Returns the number of threads for an adapter. Threads that use OpenGL share one context. wgpu panics in a thread that waits longer than six
/// seconds (one second on Windows) for this context.
fn n_threads(adapter: &Adapter) -> usize {
    if adapter.backend == "gl" { 1 } else { std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) }
}

impl Kernels {
    /// Opens the adapter and determines the families to check.
    ///
    /// # Errors
    /// `Device` if the adapter cannot be opened.
    pub fn open(adapter: &Adapter, extent: Extent) -> Result<Kernels> {
        // Use the kernel sizes that were measured on this adapter, as models do.
        let tuning = tune::open(adapter, false, cache_folder().as_deref())?.caps.tuning;
        let own = Caps { tuning, ..adapter.caps(false)? };
        let opened = Device::open(adapter, false)?;
        // If cooperative matrices give wrong results on this adapter, models do not use them, and the quick check leaves them out. The full check
        // still reports them.
        let settled = selftest::settle(opened.with_caps(opened.caps.clone()))?.caps.cooperative;
        let with_draws = extent == Extent::Full || draws_on_device(own.class == Class::Groups)?;
        let families = match extent {
            Extent::Quick => vec![(Caps { cooperative: settled, ..own }, true)],
            Extent::Full => every_family(&own, settled),
        };
        Ok(Kernels { adapter: adapter.clone(), opened, families, extent, with_draws })
    }

    /// Returns the number of checks that [`Kernels::run`] makes.
    pub fn n_checks(&self) -> usize {
        self.families.len() * self.n_cases()
    }

    /// Returns the number of checks of one family.
    fn n_cases(&self) -> usize {
        let pairs = FORMATS.iter().flat_map(|format| WORDS.iter().map(move |word| (word, *format)));
        pairs.map(|(word, format)| selftest::cases(word, format, self.extent).len()).sum::<usize>() + usize::from(self.with_draws)
    }

    /// Checks all families. Ends early if the user stops the check. A case that cannot run counts as wrong. The first job compiles the kernels that
    /// models use in the default format. Dropping `led` after this job signals that the driver has cached these kernels. With one thread, `led` is
    /// dropped at the end, so that no other check uses the adapter at the same time.
    pub fn run(&self, checks: &Mutex<Checks>, led: Sender<()>) -> Vec<KernelFamily> {
        let formats = FORMATS.iter().copied().map(Some).chain(self.with_draws.then_some(None));
        let jobs: Vec<KernelCheck> =
            (0..self.families.len()).flat_map(|family| formats.clone().map(move |format| KernelCheck { family, format })).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let led = Mutex::new(Some(led));
        let n_threads = n_threads(&self.adapter);
        let take = || {
            let i = next.fetch_add(1, Ordering::Relaxed);
            Some((i, jobs.get(i)?))
        };
        let work = |opened: &Device| {
            while let Some((i, job)) = take() {
                let outcomes = self.job(*job, opened, checks);
                lock(&done).push((job.family, outcomes));
                if i == 0 && n_threads > 1 {
                    drop(lock(&led).take());
                }
                if lock(checks).is_stopped() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..n_threads.min(jobs.len()) {
                let help = || {
                    if let Ok(device) = Device::open(&self.adapter, false) {
                        work(&device);
                    }
                };
                // If the device cannot be opened twice or the system has no more threads, the calling thread does all the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, help);
            }
            work(&self.opened);
        });
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let of = |i: usize| done.iter().filter(move |(family, _)| *family == i).flat_map(|(_, outcomes)| outcomes);
        self.families.iter().enumerate().map(|(i, (caps, is_default))| self.family(caps, *is_default, of(i))).collect()
    }

    fn job(&self, job: KernelCheck, opened: &Device, checks: &Mutex<Checks>) -> Vec<Result<CaseOutcome>> {
        let device = Arc::new(opened.with_caps(self.families[job.family].0.clone()));
        let mut outcomes = Vec::new();
        let mut judge = |outcome: Result<CaseOutcome>| {
            let is_right = outcome.as_ref().is_ok_and(CaseOutcome::is_right);
            outcomes.push(outcome);
            lock(checks).add(is_right)
        };
        let Some(format) = job.format else {
            let _ = judge(selftest::draws(&device));
            return outcomes;
        };
        for case in WORDS.iter().flat_map(|word| selftest::cases(word, format, self.extent)) {
            let Caps { class, batch_invariant, .. } = &device.caps;
            log::debug!("{class:?}, deterministic {batch_invariant}: {} as {}", case.name, format.name()); // shows where a driver crashed
            if judge(selftest::run(case, format, &device)).is_break() {
                break;
            }
        }
        outcomes
    }

    fn family<'a>(&self, caps: &Caps, is_default: bool, outcomes: impl Iterator<Item = &'a Result<CaseOutcome>>) -> KernelFamily {
        let class = match caps.class {
            Class::Groups => "groups",
            Class::Lanes => "lanes",
        };
        let mut family = KernelFamily {
            class,
            deterministic: caps.batch_invariant,
            subgroups: caps.subgroups,
            cooperative: caps.cooperative.is_some(),
            rounded: Tuning::STEPS.iter().any(|&n| caps.rounds(Activations::Auto, n)),
            is_default,
            n_cases: 0,
            n_planned: self.n_cases(),
            worst: None,
            wrong: Vec::new(),
        };
        let mut nearest = 0.0;
        for outcome in outcomes {
            family.n_cases += 1;
            match outcome {
                Ok(o) if o.is_right() && o.error > nearest * o.bound => {
                    nearest = o.error / o.bound;
                    family.worst = Some(text(o));
                }
                Ok(o) if o.is_right() => {}
                Ok(o) => family.wrong.push(text(o)),
                Err(e) => family.wrong.push(flags::in_hint(e.clone()).to_string()),
            }
        }
        family
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the capabilities of each family of a full check, with a flag that is true if models use the family on this adapter. The families
/// are the kernels for GPUs and the kernels for software adapters, each with and without determinism. If the adapter has subgroups or
/// cooperative matrices, the result also has families that use these features. `settled` is the size of the cooperative matrices that
/// models use, or `None`.
fn every_family(own: &Caps, settled: Option<usize>) -> Vec<(Caps, bool)> {
    let every = |class, batch_invariant| Caps { class, batch_invariant, subgroups: false, cooperative: None, ..own.clone() };
    let mut variants = Vec::new();
    for class in [Class::Groups, Class::Lanes] {
        variants.extend([false, true].map(|batch_invariant| every(class, batch_invariant)));
    }
    if own.cooperative.is_some() {
        variants.insert(0, Caps { cooperative: own.cooperative, subgroups: own.subgroups, ..every(Class::Groups, false) });
    }
    if own.subgroups {
        variants.insert(0, Caps { subgroups: true, ..every(Class::Groups, false) });
    }
    let is_default = |caps: &Caps| {
        // The capabilities that a model uses on this adapter.
        let used = Caps { batch_invariant: caps.batch_invariant, ..own.clone() };
        caps.class == used.class && caps.reduce() == used.reduce() && (caps.batch_invariant || caps.cooperative == settled)
    };
    variants.into_iter().map(|caps| (caps.clone(), is_default(&caps))).collect()
}

fn text(o: &CaseOutcome) -> String {
    format!("{}: {:.1e} of {:.0e}", o.case, o.error, o.bound)
}
