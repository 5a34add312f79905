//! Tests `doctor --kernel`, which prints a kernel as the device gets it.

use crate::cli::{refused, run, stderr, stdout};
use crate::support::devices;

#[test]
fn a_kernel_is_printed_as_the_device_gets_it() {
    let list = stdout(&run(&["doctor", "--kernel", "list"]));
    assert!(list.lines().count() > 20 && list.lines().any(|line| line.starts_with("linear/matvec  ")), "{list}");
    let show = |args: &[&str]| run(&[&["doctor", "--kernel"], args].concat());
    refused(&show(&["matvek"]), 1, "did you mean linear/matvec");
    refused(&show(&["zzz"]), 1, "--kernel list");
    refused(&show(&["matvec", "--quant", "i5"]), 2, "--quant");
    refused(&show(&["matvec", "--json"]), 2, "--json");
    refused(&show(&["matvec", "--device", "cpu"]), 3, "the device cpu has no kernels");
    if !devices().contains(&"gpu") {
        return;
    }
    // By default, software drivers get other kernels than GPUs. `WINGBEAT_KERNELS=groups` selects the kernels for GPUs.
    let on = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_wingbeat"));
        let args = [&["doctor", "--device", "gpu", "--quant", "i4", "--kernel"], args].concat();
        command.args(args).env("WINGBEAT_KERNELS", "groups").env_remove("RUST_LOG").output().unwrap()
    };
    let output = on(&["matvec"]);
    let text = stdout(&output);
    assert!(text.starts_with("// The kernel linear/matvec for weights in i4.\n// Device gpu:0, "), "{text}");
    assert!(text.contains("\n// Slot weight: weight/i4\n") && text.contains("\nfn main("), "{text}");
    assert!(!text.contains("\nimport ") && !text.contains("unroll ") && !text.contains('$'), "{text}");
    assert!(stderr(&output).contains("note: variant 1 of "), "{}", stderr(&output));
    let second = stdout(&on(&["linear/matvec", "--variant", "2"]));
    assert!(second != text && second.contains("\nfn main("));
    refused(&on(&["matvec", "--variant", "9999"]), 1, "--variant: expected a variant from 1 to ");
}
