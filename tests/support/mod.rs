//! Shared code of the tests: devices, models with official logits, and the error measure `nmse` (normalised mean squared error).

#[allow(dead_code, reason = "the tests of the program damage no files")]
pub mod damage;
pub mod made;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use wingbeat::low_level::exec::gpu::{Adapter, Device, adapters};
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Session, Slot};
use wingbeat::low_level::tape::{Caps, Class};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{NewTensor, read_safetensors};

#[allow(unused_imports, reason = "the tests of the server compare no logits")]
pub use wingbeat::low_level::words::testing::nmse;

/// Returns the repository's folder. The tests of the front ends use this module too, and their packages are folders of the repository.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    if package.join("shaders").is_dir() { package } else { package.parent().expect("a front end is in the repository") }
}

/// Returns true if WINGBEAT_TEST_ALL is set: some tests then try all cases, not only a selection.
pub fn runs_all() -> bool {
    std::env::var_os("WINGBEAT_TEST_ALL").is_some()
}

/// Returns `cpu`, and also `gpu` if the machine has an adapter. Without an adapter, prints SKIPPED, or panics if WINGBEAT_REQUIRE_GPU is 1.
pub fn devices() -> &'static [&'static str] {
    static DEVICES: OnceLock<Vec<&'static str>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        if !wingbeat::low_level::exec::gpu::adapters(Default::default()).is_empty() {
            return vec!["cpu", "gpu"];
        }
        assert_ne!(std::env::var("WINGBEAT_REQUIRE_GPU").as_deref(), Ok("1"), "WINGBEAT_REQUIRE_GPU=1, but no adapter was found");
        eprintln!("SKIPPED on gpu: no adapter found");
        vec!["cpu"]
    })
}

/// Returns the adapter that tests use, or `None` if the machine has no adapter.
pub fn adapter() -> Option<Adapter> {
    devices().contains(&"gpu").then(|| adapters(Default::default()).remove(0))
}

/// Returns the capabilities `base` with the kernel family `class`.
pub fn caps(base: Caps, class: Class) -> Caps {
    Caps { class, ..base }
}

/// Returns the device `base` with the capabilities `caps` and without a time limit for steps. With a time limit, chunks get shorter on a busy
/// machine, and the kernels for shorter chunks round differently.
pub fn unwatched(base: &Device, caps: Caps) -> Arc<Device> {
    let mut device = base.with_caps(caps);
    device.is_slow = false;
    Arc::new(device)
}

/// Returns options, each with a name: the default options of every device, and options for a GPU with each class of kernels, with and without batch
/// invariance.
#[allow(dead_code, reason = "the tests of the front ends compare no kernels")]
pub fn kernel_cases() -> Vec<(String, Options)> {
    let mut cases: Vec<(String, Options)> = devices().iter().map(|d| (d.to_string(), options(d))).collect();
    let Some(adapter) = adapter() else { return cases };
    let base = Device::open(&adapter, true).unwrap();
    // A `max_binding` of 20 000 bytes splits every table and matrix into several pieces.
    for (class, max_binding) in [(Class::Groups, 128 << 20), (Class::Groups, 20_000), (Class::Lanes, 128 << 20)] {
        for batch_invariant in [false, true] {
            let mut options = options("gpu");
            options.deterministic = batch_invariant;
            options.gpu = Some(Arc::new(base.with_caps(Caps { max_binding, batch_invariant, ..caps(base.caps.clone(), class) })));
            cases.push((format!("{class:?}, {max_binding}, invariant: {batch_invariant}"), options));
        }
    }
    cases
}

pub fn options(device: &str) -> Options {
    let mut options = Options::default();
    options.device = device.parse().unwrap();
    // GLM's keys and values are f32, as in the official logits
    options.cache_dtype = "f32".parse().unwrap();
    options
}

/// Loads the tiny RWKV-7 of the King James Bible.
pub fn tiny(options: &Options) -> Model {
    GOLDENS[3].load(options)
}

/// A tiny trained model with its official logits: a model of the King James Bible in `tests/models`. The published package lacks this folder. There,
/// the embedded model takes the place of `rwkv7`.
pub struct Tiny {
    /// The architecture's name in `ARCHS`.
    pub name: &'static str,
}

/// Returns one model of every architecture. The published package has only the embedded model. There, the function prints SKIPPED for the other
/// models.
pub fn goldens() -> impl Iterator<Item = &'static Tiny> {
    let all = root().join("tests/models").is_dir();
    if !all {
        eprintln!("SKIPPED except for rwkv7, which is the embedded model: the folder tests/models is in the repository only");
    }
    GOLDENS.iter().filter(move |t| all || t.name == "rwkv7")
}

const GOLDENS: &[Tiny] =
    &[Tiny { name: "rwkv4" }, Tiny { name: "rwkv5" }, Tiny { name: "rwkv6" }, Tiny { name: "rwkv7" }, Tiny { name: "glm4" }];

/// Returns the tiny GLM, or `None` in the published package, which lacks the model's file.
pub fn glm4() -> Option<&'static Tiny> {
    goldens().find(|t| t.name == "glm4")
}

/// The official logits of a tiny model for one prompt.
pub struct Golden {
    pub tokens: Vec<u32>,
    /// The logits after each token of the prompt. `[T, V]`
    pub logits: Vec<f32>,
    pub greedy: Vec<u32>,
}

impl Golden {
    /// Reads a file of golden logits.
    pub fn read(path: &Path) -> Golden {
        let bytes = std::fs::read(path).expect("the golden file is part of the project");
        let (tensors, _) = read_safetensors(&bytes).expect("the golden file is sound");
        let ints = |name: &str| tensors[name].2.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let floats = tensors["logits"].2.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Golden { tokens: ints("tokens"), logits: floats, greedy: ints("greedy") }
    }

    /// Returns the official logits of the embedded model.
    pub fn of_the_embedded() -> Golden {
        Golden::read(&root().join("assets/golden/small-world.golden.safetensors"))
    }

    /// Reads `tests/models/NAME.golden.safetensors`. Returns `None` in the published package, which lacks this folder.
    pub fn of_made(name: &str) -> Option<Golden> {
        let path = root().join(format!("tests/models/{name}.golden.safetensors"));
        if !path.exists() {
            eprintln!("SKIPPED: the folder tests/models is in the repository only");
            return None;
        }
        Some(Golden::read(&path))
    }

    /// Returns `n` tokens from the prompt. The choice depends on `seed`.
    pub fn prompt(&self, n: usize, seed: usize) -> Vec<u32> {
        (0..n).map(|i| self.tokens[(i * (1 + seed % 5) + 7 * seed) % self.tokens.len()]).collect()
    }
}

impl Tiny {
    pub fn path(&self) -> PathBuf {
        // the path of a GLM is a folder, because a GLM also needs its config.json
        let ending = if self.name == "glm4" { "" } else { ".safetensors" };
        match self.is_embedded() {
            true => root().join("assets/models/small-world.safetensors"),
            false => root().join(format!("tests/models/tiny-{}{ending}", self.name)),
        }
    }

    fn is_embedded(&self) -> bool {
        self.name == "rwkv7" && !root().join("tests/models").is_dir()
    }

    /// Loads the model. The RWKV-7 gets its vocabulary, unless the options name one.
    pub fn load(&self, options: &Options) -> Model {
        let mut options = options.clone();
        if self.name == "rwkv7" {
            let own = if self.is_embedded() { "small-world" } else { "tiny" };
            options.vocab.get_or_insert(own.into());
        }
        Model::load(&self.source(), &options, &mut |_, _| ()).expect("the tiny models load")
    }

    pub fn source(&self) -> ModelSource {
        ModelSource::Path(self.path())
    }

    pub fn golden(&self) -> Golden {
        match self.is_embedded() {
            true => Golden::of_the_embedded(),
            false => Golden::read(&root().join(format!("tests/models/tiny-{}.golden.safetensors", self.name))),
        }
    }
}

/// Returns the official logits of the tiny RWKV-7 of the King James Bible.
pub fn golden() -> Golden {
    GOLDENS[3].golden()
}

/// Returns an F32 tensor, ready to be written to a file.
pub fn floats(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> NewTensor<'static> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")));
    NewTensor { name: name.into(), dtype: DType::F32, shape, data: Box::new(data) }
}

/// Runs the test `test` in a second process. Its environment selects sampling on the device, with several tokens per submission, also for the device
/// `cpu`. In the first process, this function starts the second process, checks that the second process succeeds, and returns false. In the second
/// process, this function returns true, so that the test does its work there.
pub fn draws_ahead(test: &str) -> bool {
    const INNER: &str = "WINGBEAT_TEST_INNER";
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(INNER, "1").env("WINGBEAT_DRAWS", "device").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Prefills a prompt in a new session. Returns the logits after the prompt, `[V]`.
pub fn read(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, tokens).unwrap().to_vec()
}

/// Returns the logits after each token, `[T, V]`.
pub fn score(session: &mut Session, slot: Slot, tokens: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    let mut each = |_: usize, row: &[f32]| {
        logits.extend_from_slice(row);
        Ok(())
    };
    session.score(slot, tokens, &mut each, &mut |_, _| ()).unwrap();
    logits
}

/// Returns the logits after each token of the prompt, computed in a new session in as few steps as possible.
pub fn logits_of(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    score(&mut session, slot, tokens)
}

/// Returns the logits after each token of the prompt, one token in each step of a new session.
pub fn one_by_one(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    tokens.iter().flat_map(|&t| session.decode(slot, t).unwrap().to_vec()).collect()
}

/// Compares a model's logits and greedy text with the official results. Computes the logits in as few steps as possible, and also token by token. If
/// `is_invariant` is true, the logits of both ways must be equal to the bit.
#[allow(dead_code, reason = "the tests of the front ends compare no logits")]
pub fn check_official(name: &str, model: &Model, golden: &Golden, is_invariant: bool) {
    let (many, single) = (logits_of(model, &golden.tokens), one_by_one(model, &golden.tokens));
    for (found, steps) in [(&many, "in one step"), (&single, "one by one")] {
        let error = nmse(found, &golden.logits);
        eprintln!("{name}, {steps}: {error:.1e}");
        assert!(error <= 1e-9, "{name}, {steps}: error {error:.2e}");
    }
    assert!(!is_invariant || many == single, "{name}: one kernel class, but different bits");
    let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(golden.greedy.len()) };
    let mut session = Session::new(model, 1).unwrap();
    let made = session.generate(golden.tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(made.tokens, golden.greedy, "{name}");
}

/// Checks that other slots, forks and saved states change nothing. The state is saved after `n` tokens.
#[allow(dead_code, reason = "the tests of the front ends compare no logits")]
pub fn check_states(name: &str, model: &Model, golden: &Golden, n: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::new(model, 3).unwrap();
    let (a, other) = (session.open().unwrap(), session.open().unwrap());
    let (first, rest) = golden.tokens.split_at(n);
    session.prefill(a, first).unwrap();
    session.prefill(other, &rest[..5]).unwrap();
    let saved = folder.path().join("saved.state");
    session.save(a, &saved, None, None).unwrap();
    let fork = session.fork(a).unwrap();
    session.prefill(a, &rest[..3]).unwrap();
    let expected = score(&mut session, fork, rest);
    session.close(other).unwrap();
    let (loaded, _) = session.load(&saved, false).unwrap();
    assert!(score(&mut session, loaded, rest) == expected, "{name}");
}
