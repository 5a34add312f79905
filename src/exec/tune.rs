//! Which sizes of kernels suit an adapter: measured once, and kept in a file.
//!
//! Sizes change speed, never results: a file that is absent, broken or of another driver means the defaults until somebody
//! measures again.

use super::gpu::{Adapter, AdapterKind, Device};
use super::products::Products;
use super::selftest::settle;
use crate::error::{Error, Result};
use crate::tape::{Caps, Class, Part, Rows, Tape, Tuning, vector};
use crate::words::{Activation, Projection};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Environment variable that forbids measuring (`0`) or measures software adapters, too (`1`).
pub const TUNE: &str = "WINGBEAT_TUNE";

/// Tokens of the steps that are measured, one for each choice that a lowering makes.
const STEPS: [usize; 6] = [1, 2, 8, 32, 64, 256];
/// Candidates take turns this often, and play so many steps in each.
const ROUNDS: usize = 3;
const REPEATS: usize = 4;
/// What a candidate has to gain to take the place of the default.
const GAIN: f64 = 0.97;

/// Opens an adapter with the kernels that prove right on it, in the sizes that were measured, if they were.
pub fn open(adapter: &Adapter, batch_invariant: bool, cache: Option<&Path>) -> Result<Device> {
    let mut device = settle(Device::open(adapter, batch_invariant)?)?;
    if let Some(tuning) = cache.and_then(|folder| read(adapter, folder)) {
        device.caps.tuning = tuning;
    }
    Ok(device)
}

/// What was measured on this adapter, if anything was.
fn read(adapter: &Adapter, folder: &Path) -> Option<Tuning> {
    let path = file(adapter, folder);
    let text = std::fs::read_to_string(&path).ok()?;
    let found = serde_json::from_str(&text).ok().filter(Tuning::is_sound);
    if found.is_none() {
        log::warn!("{} is not what was written there, and is not used", path.display());
    }
    found
}

/// Measures an adapter that nobody has measured yet, and keeps the result; seconds of work. Progress: candidates done, of how many.
/// Where the folder cannot be written the next run measures again.
pub fn measure_once(adapter: &Adapter, folder: &Path, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
    let wanted = match std::env::var(TUNE).as_deref() {
        Ok("0") => false,
        Ok("1") => true,
        Ok(other) => return Err(Error::usage(format!("{TUNE} is {other:?}, expected 0 or 1"))),
        Err(_) => adapter.kind != AdapterKind::Cpu,
    };
    if !wanted || read(adapter, folder).is_some() {
        return Ok(());
    }
    let device = open(adapter, false, None)?;
    if device.caps.class != Class::Groups {
        return Ok(());
    }
    let tuning = measure(&Arc::new(device), tape(adapter.kind), progress)?;
    log::info!("{}: {tuning:?}", adapter.name);
    keep(&tuning, &file(adapter, folder)).unwrap_or_else(|e| log::warn!("cannot keep what was measured in {}: {e}", folder.display()));
    Ok(())
}

/// One file an adapter, driver and version of wingbeat.
fn file(adapter: &Adapter, folder: &Path) -> PathBuf {
    let identity = [&adapter.name, &adapter.backend, &adapter.driver, env!("CARGO_PKG_VERSION")].join("\n");
    let hash: String = Sha256::digest(identity).iter().take(8).map(|b| format!("{b:02x}")).collect();
    folder.join(format!("tuning-{hash}.json"))
}

fn keep(tuning: &Tuning, path: &Path) -> std::io::Result<()> {
    let folder = path.parent().expect("a file in a folder");
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec_pretty(tuning)?)?;
    file.persist(path)?;
    Ok(())
}

/// Channel mixes: products whose input is computed on the way, and products that read a row. Too large for any cache of the GPU.
fn tape(kind: AdapterKind) -> Tape {
    let (n_layer, width) = match kind {
        AdapterKind::Discrete => (8, 2048),
        AdapterKind::Cpu => (1, 256),
        _ => (4, 1024),
    };
    let mut t = Tape::new();
    let x = t.var("x", Rows::Tokens, &[width]);
    for i in 0..n_layer {
        let norm = t.vectors(width, ["g", "b", "mix"].map(vector).into());
        let shift = t.state(format!("shift{i}"), &[width], true);
        let key = Projection { part: Part::new(format!("k{i}"), 4 * width, width), mix: 0, activation: Activation::ReluSquared };
        let k = t.norm_shift_linear("ffn", x, norm, vec![key], shift);
        t.linear_add(Part::new(format!("v{i}"), width, 4 * width), k, x);
    }
    t
}

fn measure(device: &Arc<Device>, tape: Tape, progress: &mut dyn FnMut(usize, usize)) -> Result<Tuning> {
    let products = Products::load(device, tape)?;
    let mut best = Tuning::default();
    // Chunks go through cooperative matrices, where there are any.
    let n_steps = if device.caps.cooperative.is_some() { 3 } else { STEPS.len() };
    for (i, &n) in STEPS[..n_steps].iter().enumerate() {
        progress(i, n_steps);
        let candidates = best.candidates(n);
        let timer = |tuning: &Tuning| {
            let caps = Caps { tuning: tuning.clone(), ..device.caps.clone() };
            products.timer_on(device.with_caps(caps))
        };
        let mut timers = candidates.iter().map(timer).collect::<Result<Vec<_>>>()?;
        let mut seconds = vec![f64::INFINITY; timers.len()];
        for _ in 0..ROUNDS {
            for (timer, best) in timers.iter_mut().zip(&mut seconds) {
                *best = best.min(timer.best_of(REPEATS, n)?);
            }
        }
        log::debug!("{n} tokens, seconds of each candidate: {seconds:?}");
        let fastest = (0..seconds.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).unwrap_or(0);
        if seconds[fastest] < GAIN * seconds[0] {
            best = candidates[fastest].clone();
        }
    }
    progress(n_steps, n_steps);
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_measured_is_read_back() {
        let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
            return eprintln!("SKIPPED: there is no adapter");
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&adapter, folder.path()), None);
        let path = file(&adapter, &folder.path().join("not/yet/there"));
        let tuning = Tuning::default().candidates(1).pop().unwrap();
        keep(&tuning, &path).unwrap();
        assert_eq!(read(&adapter, path.parent().unwrap()), Some(tuning.clone()));
        let text = std::fs::read_to_string(&path).unwrap();
        for broken in [&text[..20], &text.replace("\"rows\": 4", "\"rows\": 5"), &text.replace("64", "6400"), ""] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(read(&adapter, path.parent().unwrap()), None, "{broken}");
        }
    }
}
