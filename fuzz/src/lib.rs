//! Shared code of the fuzz targets: a count of accepted inputs, a file for readers that need a path, and a session of the embedded model.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::session::{Model, ModelSource, Options, Session};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, write_safetensors};

static RUNS: AtomicU64 = AtomicU64::new(0);
static ACCEPTED: AtomicU64 = AtomicU64::new(0);

/// Counts an input. Prints the counts at each power of two and at the end, because a target that accepts nothing tests only its first
/// check.
pub fn count<T>(outcome: Result<T>) {
    if let Err(e) = &outcome {
        let text = e.to_string();
        assert!(!text.contains('\n') && text.len() < 8000, "an error is one short line: {text}");
    }
    ACCEPTED.fetch_add(u64::from(outcome.is_ok()), Relaxed);
    let runs = RUNS.fetch_add(1, Relaxed) + 1;
    if runs == 1 {
        // SAFETY: the function is called when the process exits, and uses only atomics and stderr.
        unsafe { atexit(print_counts) };
    }
    if runs.is_power_of_two() && runs >= 1024 {
        print_counts();
    }
}

unsafe extern "C" {
    fn atexit(at_exit: extern "C" fn()) -> i32;
}

extern "C" fn print_counts() {
    eprintln!("accepted {} of {} inputs", ACCEPTED.load(Relaxed), RUNS.load(Relaxed));
}

/// Calls `read` with the path of a file with `bytes`. The file is in the folder for temporary files, which TMPDIR sets.
pub fn with_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let mut file = tempfile::Builder::new().prefix("wingbeat-fuzz-").tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for a temporary file");
    read(file.path())
}

/// Calls `run` with a session of the embedded model, which each thread opens once.
pub fn with_session<T>(run: impl FnOnce(&mut Session) -> T) -> T {
    thread_local!(static SESSION: RefCell<Session> = RefCell::new(Session::new(&model(), 4).expect("four slots")));
    SESSION.with_borrow_mut(run)
}

/// Opens the embedded model on the CPU.
pub fn model() -> Model {
    let mut options = Options::default();
    options.device = "cpu".parse().unwrap();
    Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).expect("the embedded model")
}

/// Writes a safetensors file with tensors of zeros.
pub fn zeros(path: &Path, tensors: &[(&str, &[usize])]) -> Result<()> {
    let entry = |(name, shape): &(&str, &[usize])| {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        let data = move |out: &mut dyn Write| out.write_all(&bytes).map_err(|e| Error::file(e.to_string()));
        NewTensor { name: name.to_string(), dtype: DType::F32, shape: shape.to_vec(), data: Box::new(data) }
    };
    write_safetensors(path, &BTreeMap::new(), tensors.iter().map(entry).collect(), &mut |_, _| ())
}
