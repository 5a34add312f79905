//! Measures candidates for the sizes of kernels, and writes the file of results.

use super::{Measured, file, read};
use crate::error::{Error, Result};
use crate::exec::environment::{self, TUNE};
use crate::exec::gpu::{Adapter, AdapterKind, Device};
use crate::exec::products::{Products, Timer};
use crate::exec::selftest::{first_wrong, products_of_words, settle};
use crate::tape::{Caps, Class, MatrixPart, Rows, Tape, Tuning, vector};
use crate::weights::{NewFile, Readers};
use crate::words::{Activation, LAYER_NORM_EPS, Norm, Projection};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The numbers of tokens of the measured steps. Each kernel size in [`Tuning`] applies to a range of token numbers. At least one number of each range
/// is measured.
const STEPS: [usize; 7] = [1, 2, 8, 16, 32, 64, 256];
/// The number of rounds over all candidates.
const ROUNDS: usize = 3;
/// The largest number of steps of a candidate in a round.
const REPEATS: usize = 4;
/// A candidate replaces the best tuning so far only if the candidate's time is less than this fraction of the best tuning's time.
const GAIN: f64 = 0.97;

/// Measures an adapter and writes the results to `folder`. Does nothing if `folder` has the results, or if tuning is off for this adapter.
/// Takes seconds. `progress` is called with the steps done and the total steps. If measuring or writing fails, logs a warning; kernels then
/// keep their default sizes.
///
/// # Errors
/// `Usage` if an environment variable has an unknown value.
pub fn measure_once(adapter: &Adapter, folder: &Path, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
    let wanted = environment::value(TUNE)?.map_or(adapter.kind != AdapterKind::Cpu, |on| on == "1");
    let caps = adapter.caps(false)?;
    let path = file(adapter, &caps, folder, "tuning", "json");
    if !wanted || caps.class != Class::Groups || read(&path).is_some() {
        return Ok(());
    }
    let io = |e: std::io::Error| Error::io(e, folder);
    let mut found = || {
        // The file is created before the measurement, because the results would be lost without a file.
        std::fs::create_dir_all(folder).map_err(io)?;
        let place = NewFile::create(&path, Readers::Umask)?;
        let device = settle(Device::open(adapter, false)?)?;
        let cooperative_is_right = device.caps.cooperative == caps.cooperative;
        let found = Measured { tuning: measure(&Arc::new(device), tape(adapter.kind), progress)?, cooperative_is_right };
        log::info!("{}: {found:?}", adapter.name);
        keep(&found, place, &path)
    };
    found().unwrap_or_else(|e: Error| log::warn!("{} was not measured, so its kernels keep their default sizes: {e}", adapter.name));
    Ok(())
}

fn keep(found: &Measured, place: NewFile, path: &Path) -> Result<()> {
    let json = serde_json::to_vec_pretty(found).expect("measurements are plain data");
    place.file().write_all(&json).map_err(|e| Error::io(e, path))?;
    place.finish()
}

/// Returns a tape of channel mixes. Each channel mix has two products. The first product computes its input with a norm and a token shift.
/// The second product reads its input from memory. On a GPU, the weights are larger than the GPU's caches.
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
        let key = Projection { part: MatrixPart::new(format!("k{i}"), 4 * width, width), mix: 0, activation: Activation::ReluSquared };
        let k = t.norm_shift_linear("ffn", x, Norm::layer(norm, LAYER_NORM_EPS), vec![key], shift);
        t.linear_add(MatrixPart::new(format!("v{i}"), width, 4 * width), k, x);
    }
    t
}

fn measure(device: &Arc<Device>, tape: Tape, progress: &mut dyn FnMut(usize, usize)) -> Result<Tuning> {
    let products = Products::load(device, tape)?;
    let on = |tuning: &Tuning| device.with_caps(Caps { tuning: tuning.clone(), ..device.caps.clone() });
    let first = device.caps.tuning.clone();
    let mut best = first.clone();
    // With cooperative matrices, larger steps use other kernels, which are not tuned.
    let n_steps = if device.caps.cooperative.is_some() { 4 } else { STEPS.len() };
    for (i, &n) in STEPS[..n_steps].iter().enumerate() {
        progress(i, n_steps);
        let candidates = best.candidates(n);
        // Skips candidates that the driver refuses.
        let mut timers: Vec<Option<Timer>> = candidates.iter().map(|t| products.timer_on(on(t)).ok()).collect();
        let mut seconds = vec![f64::INFINITY; timers.len()];
        for _ in 0..ROUNDS {
            for (timer, best) in timers.iter_mut().zip(&mut seconds) {
                match timer.as_mut().map(|t| t.best_of(REPEATS, n)) {
                    Some(Ok(took)) => *best = best.min(took),
                    _ => (*timer, *best) = (None, f64::INFINITY),
                }
            }
        }
        log::debug!("{n} tokens, seconds of each candidate: {seconds:?}");
        let fastest = (0..seconds.len()).min_by(|&a, &b| seconds[a].total_cmp(&seconds[b])).unwrap_or(0);
        if seconds[fastest] < GAIN * seconds[0] {
            best = candidates[fastest].clone();
        }
    }
    progress(n_steps, n_steps);
    if best != first
        && let Some(wrong) = first_wrong(&Arc::new(on(&best)), products_of_words())
    {
        log::warn!("the fastest kernels compute wrong results on this driver, so kernels keep their default sizes: {wrong}");
        best = first;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_ignored() {
        let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
            return eprintln!("SKIPPED: there is no adapter");
        };
        let folder = tempfile::tempdir().unwrap();
        let path = file(&adapter, &adapter.caps(false).unwrap(), folder.path(), "tuning", "json");
        assert_eq!(read(&path), None);
        let found = Measured { tuning: Tuning::default().candidates(1).pop().unwrap(), cooperative_is_right: false };
        keep(&found, NewFile::create(&path, Readers::Umask).unwrap(), &path).unwrap();
        assert_eq!(read(&path), Some(found));
        let text = std::fs::read_to_string(&path).unwrap();
        for broken in [&text[..20], &text.replace("\"rows\": 4", "\"rows\": 5"), &text.replace("64", "6400"), ""] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(read(&path), None, "{broken}");
        }
    }
}
