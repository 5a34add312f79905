//! Tests sampling on the device with several tokens per submission. Tokens and states must equal the results of sampling on the host.

use crate::support::{adapter, caps, devices};
use std::process::{Command, Output};
use std::sync::Arc;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::exec::selftest;
use wingbeat::low_level::tape::{Caps, Class};

/// Runs `generate` with sampling on `draws`, which is `device` or `host`. Saves the state to the file `state`, unless `args` has `--trials`.
fn generate(args: &[&str], draws: &str, state: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["generate", "-s", "5", "--jsonl"]).args(args);
    if !args.contains(&"--trials") {
        command.arg("--save-state").arg(state).arg("--state-tokens");
    }
    // Selects the kernels for GPUs on every adapter.
    command.env_remove("RUST_LOG").env("WINGBEAT_KERNELS", "groups").env("WINGBEAT_DRAWS", draws);
    command.output().unwrap()
}

const GLM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/tiny-glm4");

/// Returns the JSON objects that the program printed, without their timings.
fn said(output: &Output) -> Vec<serde_json::Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let mut values: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    values.iter_mut().for_each(|v| drop(v.as_object_mut().unwrap().remove("timings")));
    values
}

#[test]
fn a_text_does_not_depend_on_where_tokens_are_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[&[&str]] = &[
        &["-n", "40", "--temp", "0", "In the"],
        &["-n", "70", "--temp", "0.9", "--ignore-eos", "Moses said"],
        // Texts that end within a submission: at a stop text, at a stop id, at the token limit.
        &["-n", "60", "--stop", "the", "--temp", "0", "And it came to pass"],
        &["-n", "60", "--logit-bias", "0=6", "Thou shalt not"],
        &["-n", "1", "In the"],
        &["-n", "2", "In the"],
        // Two cases with settings that only the host supports, then cases with settings that the device supports, too.
        &["-n", "40", "--typical", "0.8", "--top-n-sigma", "2", "--dry-multiplier", "0.8", "In the"],
        &["-n", "40", "--mirostat", "4", "--repeat-penalty", "1.2", "--repeat-last-n", "20", "--trials", "3", "And it came"],
        &["-n", "60", "--top-n-sigma", "1.2", "--temp", "1.4", "Moses said"],
        &[
            "-n",
            "60",
            "--top-k",
            "30",
            "--min-p",
            "0.02",
            "--sampler-order",
            "hf",
            "--repeat-penalty",
            "1.3",
            "--state-dtype",
            "f16",
            "In the",
        ],
        // A transformer whose text is longer than one block of the KV cache.
        &["-m", GLM, "--vocab", "tiny", "-n", "70", "--temp", "0.7", "--ignore-eos", "And the"],
        &["-m", GLM, "--vocab", "tiny", "-n", "100", "--temp", "0.9", "--stop", "the", "And it came to pass"],
        // Three texts in one run, which end at different lengths.
        &["-n", "48", "--trials", "3", "--logit-bias", "0=5", "--stop", "and", "In the beginning"],
    ];
    for device in devices() {
        // A software adapter is slow, so it runs only the last four cases.
        let cases = if *device == "gpu" { &cases[9..] } else { cases };
        for (i, case) in cases.iter().enumerate() {
            if case.contains(&GLM) && !std::path::Path::new(GLM).is_dir() {
                eprintln!("SKIPPED: {GLM} is in the repository only");
                continue;
            }
            let args = [&["--device", device], *case].concat();
            let path = |draws: &str| folder.path().join(format!("{device}-{i}-{draws}.state"));
            let (host, ahead) = (path("host"), path("device"));
            let expected = said(&generate(&args, "host", &host));
            assert_eq!(said(&generate(&args, "device", &ahead)), expected, "{args:?}");
            // The state files also hold the logits, the penalty counts and the position in the random stream.
            if !args.contains(&"--trials") {
                assert!(std::fs::read(&host).unwrap() == std::fs::read(&ahead).unwrap(), "{args:?}: states differ");
            }
        }
    }
}

#[test]
fn a_submission_of_several_steps_equals_single_steps() {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, false).unwrap();
    for class in [Class::Groups, Class::Lanes] {
        for batch_invariant in [false, true] {
            let own = Caps { batch_invariant, ..caps(base.caps.clone(), class) };
            assert!(selftest::draws(&Arc::new(base.with_caps(own))).unwrap().is_right(), "{class:?}, {batch_invariant}");
        }
    }
}
