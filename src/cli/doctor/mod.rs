//! `doctor`: is this machine fit, and if not, why? A page to paste into a bug report.
//!
//! What the host offers, every word's kernels against their twins, the official logits of the built-in model, and how fast
//! weights are read. Exit 3 where a kernel is wrong, or the device cannot be examined.

mod golden;
mod host;
mod kernels;

use super::model_options::DeviceArgs;
use super::output::{Output, say};
use super::target::Existing;
use super::values::OUTPUT;
use super::{Failure, Outcome, ceiling, devices};
use crate::error::{Error, Kind, Result};
use crate::exec::gpu::{Adapter, Backend, Device, adapters};
use crate::exec::{Choice, Chosen, choose};
use crate::report::{self, DeviceReport};
use golden::Golden;
use host::Finding;
use kernels::Family;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  wingbeat doctor
  wingbeat doctor --device gpu:1 --out page.txt
  wingbeat doctor --device cpu --json";

/// Check drivers, kernels and results on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    on: DeviceArgs,
    /// Print one JSON object
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
    /// Write the page to a file, too
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    #[command(flatten)]
    existing: Existing,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    host: Host,
    #[serde(flatten)]
    results: Results,
}

/// What is there.
#[derive(Serialize)]
struct Host {
    version: &'static str,
    host: Vec<Finding>,
    devices: Vec<DeviceReport>,
    /// The device that is checked.
    device: String,
}

/// What came of it.
#[derive(Serialize)]
struct Results {
    /// Empty for the host's own cores: they are what kernels are judged by.
    kernels: Vec<Family>,
    golden: Golden,
    bandwidth: Option<Bandwidth>,
    /// Why some results are missing.
    failure: Option<String>,
    /// Whether all results are there and right.
    ok: bool,
}

#[derive(Serialize)]
struct Bandwidth {
    read_gb_s: f64,
    what: &'static str,
}

/// The host's part is printed first: a driver may well crash in what follows.
pub fn run(args: Args) -> Outcome {
    args.out.iter().try_for_each(|path| args.existing.check(path))?;
    let backend = args.on.backend()?;
    let choice = choose_or_software(&args.on, backend)?;
    let host = Host {
        version: env!("CARGO_PKG_VERSION"),
        host: host::findings(),
        devices: report::devices(backend, &choice.id),
        device: choice.id.clone(),
    };
    let mut page = Page::open(args.out)?;
    if !args.json {
        page.add(&host.page())?;
    }
    say(format_args!("checking {}: this takes some seconds", choice.why));
    let results = examine(&choice, backend);
    let ok = results.ok;
    if let Some(failure) = &results.failure {
        say(format_args!("error: {failure}"));
    }
    if args.json {
        let report = Report { host, results };
        page.add(&(serde_json::to_string(&report).map_err(|e| Error::input(format!("cannot write JSON: {e}")))? + "\n"))?;
    } else {
        page.add(&results.page())?;
    }
    page.out.finish()?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(Kind::Device.exit_code()) })
}

/// Without a wish, the best adapter even if a CPU plays it: a kernel is right or wrong there, too.
fn choose_or_software(on: &DeviceArgs, backend: Backend) -> Result<Choice> {
    match on.named() {
        Some(device) => choose(&device, backend),
        None if backend == Backend::Auto && adapters(backend).is_empty() => choose("cpu", backend),
        None => choose("gpu", backend),
    }
}

/// What cannot be examined is a result, too: the page is for those whose device fails.
fn examine(choice: &Choice, backend: Backend) -> Results {
    let mut failure = None;
    let mut keep = |e: Error| _ = failure.get_or_insert(e.to_string());
    let (kernels, bandwidth) = match &choice.chosen {
        Chosen::Gpu(adapter) => (kernels::check(adapter).map_err(&mut keep).ok(), speed(adapter).map_err(&mut keep).ok()),
        Chosen::Cpu => (None, None),
    };
    let kernels = kernels.unwrap_or_default();
    let golden = golden::check(&choice.id, backend);
    let ok = failure.is_none() && golden.is_right() && kernels.iter().all(Family::is_right);
    Results { kernels, golden, bandwidth, failure, ok }
}

fn speed(adapter: &Adapter) -> Result<Bandwidth> {
    let device = Arc::new(Device::open(adapter, false)?);
    Ok(Bandwidth { read_gb_s: ceiling::read_gb_s(&ceiling::products(&device)?)?, what: ceiling::WHAT })
}

/// Standard output, and the file that gets the same: each part at once, as the next may crash.
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
        let mut lines = vec![format!("wingbeat {} on {} {}", self.version, std::env::consts::OS, std::env::consts::ARCH)];
        lines.extend(["".into(), "host".into()]);
        for f in &self.host {
            lines.push(format!("  {:<8} {}", f.level, f.text));
            lines.extend(f.hint.iter().map(|hint| format!("           {hint}")));
        }
        lines.extend(["".into(), "devices (* is the one checked here)".into()]);
        lines.extend(self.devices.iter().map(|d| format!("  {}", devices::line(d))));
        lines.join("\n") + "\n"
    }
}

impl Results {
    fn page(&self) -> String {
        let mut lines = vec!["".to_string(), "kernels against their twins".into()];
        if self.kernels.is_empty() {
            let failed = self.failure.is_some();
            lines.push(if failed { "  not examined" } else { "  none: the host's own cores are what kernels are judged by" }.into());
        }
        for family in &self.kernels {
            lines.push(format!("  {family}"));
            lines.extend(family.wrong.iter().map(|w| format!("    WRONG {w}")));
        }
        lines.extend(["".into(), "official logits of the built-in model".into(), format!("  {}", self.golden)]);
        lines.extend(["".into(), "bandwidth".into()]);
        lines.push(match &self.bandwidth {
            Some(b) => format!("  {:.1} GB/s: {}", b.read_gb_s, b.what),
            None if self.failure.is_some() => "  not measured".into(),
            None => "  not measured on the host's own cores".into(),
        });
        if let Some(failure) = &self.failure {
            lines.extend(["".into(), "failure".into(), format!("  {failure}")]);
        }
        let verdict = match (&self.failure, self.ok) {
            (Some(_), _) => "RESULTS ARE MISSING: please report this page",
            (None, false) => "RESULTS ARE WRONG: please report this page",
            (None, true) => "all results are right",
        };
        lines.extend(["".into(), verdict.into()]);
        lines.join("\n") + "\n"
    }
}
