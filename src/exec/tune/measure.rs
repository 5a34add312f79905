//! Measures candidates for the sizes of kernels, and writes the file of results.

use super::fastest::{fastest, tape};
use super::{MeasuredAdapter, file, read, rounded, sparse};
use crate::error::{Error, Result};
use crate::exec::environment::TUNE;
use crate::exec::gpu::{Adapter, AdapterKind, Device};
use crate::exec::products::Products;
use crate::exec::selftest::{first_wrong, products_of_words, settle};
use crate::quant;
use crate::tape::{Caps, Class, Tuning};
use crate::weights::{NewFile, Readers};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The numbers of tokens of the measured steps. Each kernel size in [`Tuning`] applies to a range of token numbers. At least one number of each range
/// is measured.
const STEPS: [usize; 7] = [1, 2, 8, 16, 32, 64, 256];

/// Measures an adapter and writes the results to `folder`. Does nothing if `folder` has the results, or if tuning is off for this adapter.
/// Takes seconds. `progress` is called with the steps done and the total steps. If measuring or writing fails, logs a warning; kernels then
/// keep their default sizes.
///
/// # Errors
/// `Usage` if an environment variable has an unknown value.
pub fn measure_once(adapter: &Adapter, folder: &Path, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
    let wanted = TUNE.is("1")?.unwrap_or(adapter.kind != AdapterKind::Cpu);
    let caps = adapter.caps(false)?;
    let path = file(adapter, &caps, folder, "tuning", "json");
    if !wanted || caps.class != Class::Groups || read(&path).is_some() {
        return Ok(());
    }
    let io = |e: std::io::Error| Error::io(e, folder);
    let mut found = || {
        // The file is created before the measurement: if this fails, no time is spent on results that cannot be kept.
        std::fs::create_dir_all(folder).map_err(io)?;
        let place = NewFile::create(&path, Readers::Umask)?;
        let device = settle(Device::open(adapter, false)?)?;
        let cooperative_is_right = device.caps.cooperative == caps.cooperative;
        let found = MeasuredAdapter { tuning: measure(&Arc::new(device), adapter.kind, progress)?, cooperative_is_right };
        log::info!("{}: {found:?}", adapter.name);
        keep(&found, place, &path)
    };
    found().unwrap_or_else(|e: Error| log::warn!("{} was not measured, so its kernels keep their default sizes: {e}", adapter.name));
    Ok(())
}

fn keep(found: &MeasuredAdapter, place: NewFile, path: &Path) -> Result<()> {
    let json = serde_json::to_vec_pretty(found).expect("measurements are plain data");
    place.file().write_all(&json).map_err(|e| Error::io(e, path))?;
    place.finish()
}

fn measure(device: &Arc<Device>, kind: AdapterKind, progress: &mut dyn FnMut(usize, usize)) -> Result<Tuning> {
    let products = Products::load(device, tape(kind))?;
    let on = |tuning: &Tuning| device.with_caps(Caps { tuning: tuning.clone(), ..device.caps.clone() });
    let first = device.caps.tuning.clone();
    let mut best = first.clone();
    // With cooperative matrices, larger steps use kernels whose sizes are not tuned.
    let has_tiles = device.caps.cooperative.is_none();
    let n_steps = if has_tiles { STEPS.len() } else { 4 };
    let n_rounded = if has_tiles { Tuning::STEPS.len() } else { 0 };
    let all = n_steps + n_rounded + sparse::FORMATS.len();
    for (i, &n) in STEPS[..n_steps].iter().enumerate() {
        progress(i, all);
        let candidates = best.candidates(n);
        best = fastest(&products, &candidates, &on, n).clone();
    }
    if has_tiles {
        match rounded::measure(device, kind, &best, &mut |i| progress(n_steps + i, all)) {
            Ok(found) => best = found,
            Err(e) => log::warn!("products with rounded activations were not measured: {e}"),
        }
    }
    let tuned = Arc::new(on(&best));
    let mut other_weights = products.timer()?;
    best.dense_from = sparse::dense_from(&tuned, &mut other_weights, kind, &mut |i| progress(n_steps + n_rounded + i, all));
    if best != first
        && let Some(wrong) = wrong(&Arc::new(on(&best)), &first)
    {
        log::warn!("the fastest kernels compute wrong results on this driver, so kernels keep their default sizes: {wrong}");
        best = first;
    }
    Ok(best)
}

/// Compares all products with their twins in f16. Other formats are compared only if the device's tuning and `first` choose differently between
/// sparse and dense, and only for products whose inputs are mostly zeros. Returns a description of the first wrong product.
fn wrong(device: &Arc<Device>, first: &Tuning) -> Option<String> {
    let chosen = device.caps.tuning.dense_from;
    let changed = |name: &&str| quant::find(name).is_ok_and(|f| chosen.of(f) != first.dense_from.of(f));
    let of_zeros = || products_of_words().into_iter().filter(|case| case.zeros.is_some()).collect();
    first_wrong(device, products_of_words(), "f16").or_else(|| {
        sparse::FORMATS.into_iter().filter(|name| *name != "f16").filter(changed).find_map(|f| first_wrong(device, of_zeros(), f))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::tune::open;
    use crate::tape::{DenseFrom, MatrixPart, Rows, Tape};

    /// Returns an adapter, and a folder with a tuning file for this adapter.
    fn kept(found: &MeasuredAdapter) -> Option<(Adapter, tempfile::TempDir, std::path::PathBuf)> {
        let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
            eprintln!("SKIPPED: there is no adapter");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = file(&adapter, &adapter.caps(false).unwrap(), folder.path(), "tuning", "json");
        assert_eq!(read(&path), None);
        keep(found, NewFile::create(&path, Readers::Umask).unwrap(), &path).unwrap();
        Some((adapter, folder, path))
    }

    #[test]
    fn a_damaged_file_is_ignored() {
        let found = MeasuredAdapter { tuning: Tuning::default().candidates(1).pop().unwrap(), cooperative_is_right: false };
        let Some((_, _folder, path)) = kept(&found) else { return };
        assert_eq!(read(&path), Some(found));
        let text = std::fs::read_to_string(&path).unwrap();
        for (right, wrong) in [("\"rows\": 4", "\"rows\": 5"), ("64", "6400"), ("\"i4\": 8", "\"i4\": 3"), ("dense_from", "dense")] {
            let broken = text.replace(right, wrong);
            assert_ne!(broken, text, "{right}");
            std::fs::write(&path, &broken).unwrap();
            assert_eq!(read(&path), None, "{broken}");
        }
        for broken in [&text[..20], ""] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(read(&path), None, "{broken}");
        }
    }

    #[test]
    fn a_device_has_the_choices_of_its_file() {
        let tuning = Tuning { dense_from: DenseFrom { f16: 16, i8: 2, i4: 1 }, ..Tuning::default() };
        let Some((adapter, folder, _)) = kept(&MeasuredAdapter { tuning: tuning.clone(), cooperative_is_right: true }) else { return };
        let device = open(&adapter, false, Some(folder.path())).unwrap();
        assert_eq!(device.caps.tuning, tuning);
        let mut tape = Tape::new();
        let (y, x) = (tape.var("y", Rows::Tokens, &[64]), tape.var("x", Rows::Tokens, &[64]));
        tape.linear_add_sparse(MatrixPart::new("w", 64, 64), y, x);
        for deterministic in [false, true] {
            let caps = Caps { class: Class::Groups, batch_invariant: deterministic, ..device.caps.clone() };
            let by_columns = |format| {
                tape.store_as(quant::find(format).unwrap());
                caps.by_columns(&tape.matrices[0])
            };
            let expected = if deterministic { [false; 3] } else { [true, true, false] };
            assert_eq!(["f16", "i8", "i4"].map(by_columns), expected, "deterministic: {deterministic}");
        }
    }
}
