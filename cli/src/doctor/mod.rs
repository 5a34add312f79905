//! `doctor`: checks drivers, kernels and results, and prints a page with the results for bug reports.
//!
//! The page has facts about the host, the results of three checks, and estimates of speed. The first check compares kernels with their reference
//! implementations on the CPU. The second check compares the built-in model's logits with golden logits. The third check measures how fast weights
//! are read. The exit code is 3 if a result is wrong or the device cannot be opened, and 130 if the user stopped a check. With `--kernel`, prints
//! the text of a kernel instead.

mod golden;
mod host;
mod kernels;
mod progress;
mod show;

use super::model_options::DeviceArgs;
use super::output::{Output, say};
use super::progress::about;
use super::target::ForceArgs;
use super::values::OUTPUT;
use super::{Failure, Outcome, ceiling, devices, flags, inspect, model_options, signals, speed};
use crate::ExitCode;
use crate::report::{self, BuildReport, DeviceReport, SpeedReport};
use golden::Golden;
use host::Finding;
use kernels::{KernelFamily, Kernels};
use progress::{Checks, Counts};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::exec::gpu::{Adapter, AdapterKind, Backend, Device, adapters};
use wingbeat::low_level::exec::selftest::Extent;
use wingbeat::low_level::exec::{ChosenDevice, DeviceChoice, DeviceDecision, choose};

/// The estimated time of one check in seconds, on a software adapter. The driver's compiler takes most of this time.
const SOFTWARE_SECONDS: f64 = 0.25;
/// The estimated time of one check in seconds, on a GPU.
const GPU_SECONDS: f64 = 0.05;

const EXAMPLES: &str = "\
Examples:
  wingbeat doctor
  wingbeat doctor --full
  wingbeat doctor --device gpu:1 --out page.txt
  wingbeat doctor --device cpu --json
  wingbeat doctor --kernel linear/matvec --quant i4     print a kernel as the device gets it";

/// Check drivers, GPU kernels and results on this machine
///
/// Compares the results of GPU kernels and of the embedded model with reference results. By default, doctor checks the kernels that models use on
/// this device, in every weight format and at a few matrix sizes. --full checks all kernels at all sizes, which takes minutes on a software driver.
/// Ctrl-C stops the check and prints the results so far.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    on: DeviceArgs,
    #[command(flatten)]
    show: show::ShowArgs,
    /// Check all kernels at all sizes, with and without the device's optional features, such as subgroups
    #[arg(long)]
    full: bool,
    /// Print the report as one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    /// Also write the report to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    #[command(flatten)]
    existing: ForceArgs,
}

#[derive(Serialize)]
struct DoctorReport {
    #[serde(flatten)]
    host: Host,
    #[serde(flatten)]
    results: Results,
}

/// Facts about the host and its devices.
#[derive(Serialize)]
struct Host {
    version: &'static str,
    build: BuildReport,
    host: Vec<Finding>,
    devices: Vec<DeviceReport>,
    /// The id of the device that is checked.
    device: String,
}

/// The results of the checks.
#[derive(Serialize)]
struct Results {
    /// True with `--full`.
    full: bool,
    /// True if the user stopped the check.
    interrupted: bool,
    checks: Counts,
    /// One entry per family of kernels. Empty if the device cannot be opened. Also empty for the device `cpu`, which runs the reference
    /// implementations instead of kernels.
    kernels: Vec<KernelFamily>,
    /// The comparison with the golden logits. `None` if the user stopped the check before this comparison.
    golden: Option<Golden>,
    bandwidth: Option<Bandwidth>,
    /// Estimates of the decode speed of well-known models on the device. Empty if they were not measured.
    speed: Vec<SpeedReport>,
    /// The first error that prevented the check of the kernels or the measurement of the speed.
    failure: Option<String>,
    /// True if all checks ran and all results are right.
    ok: bool,
}

#[derive(Serialize)]
struct Bandwidth {
    read_gb_s: f64,
    what: &'static str,
}

/// Runs `wingbeat doctor`. Without `--json`, prints the facts about the host before the checks, because a faulty driver may crash in a check.
pub fn run(args: Args) -> Outcome {
    if let Some(name) = &args.show.kernel {
        return show::run(name, &args.show, &args.on);
    }
    args.out.iter().try_for_each(|path| args.existing.check(path))?;
    let backend = args.on.backend()?;
    let choice = choose_or_software(&args.on, backend)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_on_interrupt(&stop);
    let build = BuildReport::new();
    let host = Host {
        version: build.version,
        build,
        host: host::findings(),
        devices: report::devices(backend, &choice.id),
        device: choice.id.clone(),
    };
    let mut page = Page::open(args.out)?;
    if !args.json {
        page.add(&host.page())?;
    }
    let extent = if args.full { Extent::Full } else { Extent::Quick };
    let results = examine(&choice, backend, extent, stop);
    let code = match &results {
        Results { interrupted: true, .. } => Kind::Interrupted.exit_code(),
        Results { ok: false, .. } => Kind::Device.exit_code(),
        _ => 0,
    };
    if let Some(failure) = &results.failure {
        say(format_args!("error: {failure}"));
    }
    if args.json {
        let report = DoctorReport { host, results };
        page.add(&(serde_json::to_string(&report).map_err(|e| Error::input(format!("cannot write JSON: {e}")))? + "\n"))?;
    } else {
        page.add(&results.page())?;
    }
    page.out.finish()?;
    Ok(ExitCode::from(code))
}

/// Chooses the device of the flags. Without a flag, chooses the best adapter, even a software adapter, whose driver can be wrong, too. Without
/// an adapter, chooses the CPU.
fn choose_or_software(on: &DeviceArgs, backend: Backend) -> Result<DeviceDecision> {
    match on.named() {
        Some(device) => choose(&device.parse()?, backend),
        None if backend == Backend::Auto && adapters(backend).is_empty() => choose(&DeviceChoice::Cpu, backend),
        None => choose(&DeviceChoice::Gpu(None), backend),
    }
}

/// Runs the checks on the chosen device. An error of the device becomes part of the results, because a broken device needs a report, too.
fn examine(choice: &DeviceDecision, backend: Backend, extent: Extent, stop: Arc<AtomicBool>) -> Results {
    let mut failure = None;
    let mut keep = |e: Error| _ = failure.get_or_insert(flags::in_hint(e).to_string());
    let adapter = match &choice.chosen {
        ChosenDevice::Gpu(adapter) => Some(adapter),
        ChosenDevice::Cpu => None,
    };
    let to_check = adapter.and_then(|adapter| Kernels::open(adapter, extent).map_err(&mut keep).ok());
    // The comparison with the golden logits is one more check.
    let n_checks = 1 + to_check.as_ref().map_or(0, Kernels::n_checks);
    announce(choice, extent, n_checks);
    let checks = Mutex::new(Checks::new(n_checks, stop));
    let lock = || checks.lock().unwrap_or_else(PoisonError::into_inner);
    let check_golden = || {
        if lock().is_stopped() {
            return None;
        }
        let golden = golden::check(&choice.id, backend);
        let _ = lock().add(golden.is_right());
        Some(golden)
    };
    let (golden, kernels) = std::thread::scope(|scope| {
        let (led, compiled) = channel();
        // The check of the built-in model starts after the first job, which compiles the kernels that the model uses. Otherwise both threads would
        // compile the same kernels.
        let later = {
            let check_golden = &check_golden;
            move || {
                let _ = compiled.recv();
                check_golden()
            }
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, later);
        let kernels = to_check.map(|kernels| kernels.run(&checks, led)).unwrap_or_default();
        let golden = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system has no more threads: run the check in this one.
            Err(_) => check_golden(),
        };
        (golden, kernels)
    });
    let checks = checks.into_inner().unwrap_or_else(PoisonError::into_inner);
    let interrupted = checks.is_interrupted();
    let bandwidth = adapter.filter(|_| !checks.is_stopped()).and_then(|adapter| bandwidth(adapter).map_err(&mut keep).ok());
    let speed = if checks.is_stopped() { None } else { estimates(choice).map_err(&mut keep).ok() };
    let counts = checks.counts;
    let ok = failure.is_none() && !interrupted && counts.right == counts.planned;
    Results {
        full: extent == Extent::Full,
        interrupted,
        checks: counts,
        kernels,
        golden,
        bandwidth,
        speed: speed.unwrap_or_default(),
        failure,
        ok,
    }
}

/// Prints which device is checked and about how long this takes. The estimate uses measurements on two cores with llvmpipe and on a
/// discrete GPU.
fn announce(choice: &DeviceDecision, extent: Extent, n_checks: usize) {
    let seconds_each = match &choice.chosen {
        ChosenDevice::Gpu(adapter) if adapter.kind == AdapterKind::Cpu => SOFTWARE_SECONDS,
        _ => GPU_SECONDS,
    };
    let estimate = about(Duration::from_secs_f64(5.0 + n_checks as f64 * seconds_each));
    let why = &choice.why;
    match (n_checks, extent) {
        (1, _) => say(format_args!("checking {why}")),
        (n, Extent::Quick) => {
            say(format_args!("checking {why}: quick check of {n} cases, about {estimate}, longer at first use (--full runs every case)"))
        }
        (n, Extent::Full) => say(format_args!("checking {why}: {n} cases, about {estimate}, longer at first use")),
    }
}

/// Measures the rates of the device, keeps them for `inspect`, and estimates the speed of well-known models.
fn estimates(choice: &DeviceDecision) -> Result<Vec<SpeedReport>> {
    let rates = speed::measure(choice, model_options::cache_folder().as_deref())?;
    report::well_known(&rates)
}

fn bandwidth(adapter: &Adapter) -> Result<Bandwidth> {
    let device = Arc::new(Device::open(adapter, false)?);
    Ok(Bandwidth { read_gb_s: ceiling::read_gb_s(&ceiling::products(&device)?)?, what: ceiling::WHAT })
}

/// Writes the page to standard output and, with `--out`, also to a file. Each part is written at once, because the next check can crash.
struct Page {
    out: Output,
    file: Option<(File, PathBuf)>,
}

impl Page {
    fn open(path: Option<PathBuf>) -> Result<Page> {
        let create = |path: PathBuf| match File::create(&path) {
            Ok(file) => Ok((file, path)),
            Err(e) => Err(Error::io(e, &path)),
        };
        Ok(Page { out: Output::new(false), file: path.map(create).transpose()? })
    }

    fn add(&mut self, text: &str) -> std::result::Result<(), Failure> {
        if let Some((file, path)) = &mut self.file {
            file.write_all(text.as_bytes()).map_err(|e| Error::io(e, path))?;
        }
        self.out.text(text)
    }
}

impl Host {
    fn page(&self) -> String {
        let mut lines = vec![format!("wingbeat {} on {} {}", self.build.short(), std::env::consts::OS, std::env::consts::ARCH)];
        let (wgpu, backends) = (self.build.wgpu.unwrap_or("unknown"), self.build.backends.join(", "));
        lines.push(format!("wgpu {wgpu} with {backends}; {}", self.build.profile.unwrap_or("unknown profile")));
        lines.extend(["".into(), "host".into()]);
        for f in &self.host {
            lines.push(format!("  {:<8} {}", f.level, f.text));
            lines.extend(f.hint.iter().map(|hint| format!("           {hint}")));
        }
        lines.extend(["".into(), "devices (* marks the device that is checked)".into()]);
        lines.extend(self.devices.iter().map(|d| format!("  {}", devices::line(d))));
        lines.join("\n") + "\n"
    }
}

impl Results {
    fn page(&self) -> String {
        let mut lines = vec!["".to_string(), "kernels, compared with their reference implementations on the CPU".into()];
        let (failed, stopped) = (self.failure.is_some(), self.interrupted);
        if self.kernels.is_empty() {
            lines.push(match (stopped, failed) {
                (true, _) => "  not checked".into(),
                (_, true) => "  not examined".into(),
                _ => "  none: the device cpu runs the reference implementations themselves".into(),
            });
        }
        for family in &self.kernels {
            lines.push(format!("  {family}"));
            lines.extend(family.wrong.iter().map(|w| format!("    WRONG {w}")));
        }
        let golden = self.golden.as_ref().map_or("not checked".to_string(), Golden::to_string);
        lines.extend(["".into(), "official logits of the built-in model".into(), format!("  {golden}")]);
        lines.extend(["".into(), "bandwidth".into()]);
        lines.push(match &self.bandwidth {
            Some(b) => format!("  {:.1} GB/s: {}", b.read_gb_s, b.what),
            None if failed || stopped => "  not measured".into(),
            None => "  not measured on the device cpu".into(),
        });
        if !self.speed.is_empty() {
            lines.extend(["".into(), "speed, estimated from read rates (`wingbeat bench` measures it): tokens/s of one text".into()]);
            lines.extend(self.speed.iter().map(|s| format!("  {:<11} {}", s.model.unwrap_or_default(), inspect::speeds(s))));
        }
        if let Some(failure) = &self.failure {
            lines.extend(["".into(), "failure".into(), format!("  {failure}")]);
        }
        lines.extend(["".into(), self.verdict()]);
        lines.join("\n") + "\n"
    }

    fn verdict(&self) -> String {
        let Counts { planned, done, right } = self.checks;
        let is_wrong = right < done;
        match (self.interrupted, &self.failure) {
            (true, _) => {
                let report = if is_wrong { ": RESULTS ARE WRONG, please report this page" } else { "" };
                format!("interrupted: {right} of {done} checks right, {} not made{report}", planned - done)
            }
            (_, Some(_)) => "RESULTS ARE MISSING: please report this page".into(),
            _ if is_wrong => "RESULTS ARE WRONG: please report this page".into(),
            _ if self.full || self.kernels.is_empty() => "all results are right".into(),
            _ => format!("all results are right: {right} of {planned} in a quick check; wingbeat doctor --full runs every case"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(full: bool, interrupted: bool, checks: [usize; 3]) -> Results {
        let [planned, done, right] = checks;
        let kernels = vec![KernelFamily {
            class: "lanes",
            deterministic: false,
            subgroups: false,
            cooperative: false,
            rounded: false,
            is_default: true,
            n_cases: done,
            n_planned: planned,
            worst: None,
            wrong: vec!["a case".into(); done - right],
        }];
        let checks = Counts { planned, done, right };
        let ok = !interrupted && right == planned;
        Results {
            full,
            interrupted,
            checks,
            kernels,
            golden: Some(Golden::default()),
            bandwidth: None,
            speed: Vec::new(),
            failure: None,
            ok,
        }
    }

    #[test]
    fn every_page_ends_with_a_verdict() {
        let verdict = |r: Results| r.page().lines().last().unwrap().to_string();
        let quick = verdict(results(false, false, [90, 90, 90]));
        assert_eq!(quick, "all results are right: 90 of 90 in a quick check; wingbeat doctor --full runs every case");
        assert_eq!(verdict(results(true, false, [900, 900, 900])), "all results are right");
        assert_eq!(verdict(results(false, false, [90, 90, 89])), "RESULTS ARE WRONG: please report this page");
        assert_eq!(verdict(results(true, true, [900, 40, 40])), "interrupted: 40 of 40 checks right, 860 not made");
        assert!(verdict(results(true, true, [900, 40, 39])).ends_with("RESULTS ARE WRONG, please report this page"));
        assert!(verdict(Results { failure: Some("lost".into()), ..results(false, false, [90, 90, 90]) }).contains("MISSING"));
        assert!(results(true, true, [900, 40, 40]).page().contains("40 of 40 cases right, 860 not checked"));
        assert!(Results { golden: None, ..results(true, true, [900, 40, 40]) }.page().contains("built-in model\n  not checked\n"));
    }
}
