//! Tests `imatrix`, `--calibrate` and `quality --by-matrix`.

use super::*;

const TEXT: &str =
    "Once upon a time there was a fox named Luna. She lived in the garden. On Thursday, Luna went to look for mushrooms, and lost her way.";

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_importance_matrix_is_written_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let (text, out) = (put(&folder, "text.txt", TEXT.as_bytes()), folder.path().join("imatrix.gguf"));
    let flags = ["imatrix", "-f", path(&text), "-o", path(&out), "--window", "20"];
    let report = json(&run(&[&flags[..], &["--json"]].concat()));
    let n = report["n"].as_u64().unwrap();
    assert!(n > 30 && report["window"] == 20 && report["n_windows"].as_u64() == Some(n.div_ceil(20)), "{report}");
    let found = wingbeat::Calibration::open(&out).unwrap();
    assert_eq!(report["n_tensors"].as_u64(), Some(found.names().count() as u64));
    assert_eq!((found.datasets.as_slice(), found.chunk_size), (&[path(&text).to_string()][..], 20));
    refused(&run(&flags), 1, "exists already");
    let said = run(&[&flags[..], &["--force"]].concat());
    assert!(stdout(&said).is_empty() && stderr(&said).contains("tokens in"), "{said:?}");

    // A text, and the importance matrix of this text, give the same weights.
    assert_eq!(code(&run(&["imatrix", "-f", path(&text), "-o", path(&out), "--force"])), 0);
    let model = put(&folder, "model.safetensors", wingbeat::low_level::assets::MODEL);
    let coded = |name: &str, flags: &[&str]| {
        let coded = folder.path().join(name);
        let output = run(&[&["convert", path(&model), path(&coded), "--quant", "i4"], flags].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        std::fs::read(coded).unwrap()
    };
    let plain = coded("plain.safetensors", &[]);
    let matrix = coded("matrix.safetensors", &["--calibrate", path(&out)]);
    assert!(matrix == coded("text.safetensors", &["--calibrate", path(&text), "--vocab", "small-world"]) && matrix != plain);
    // Encoding at load gives the same weights as encoding into a file.
    let generated = |flags: &[&str]| stdout(&run(&[&["generate", "-n", "12", "--temp", "0", "In the beginning"], flags].concat()));
    let kept = generated(&["-m", path(&folder.path().join("matrix.safetensors")), "--vocab", "small-world"]);
    assert_eq!(generated(&["--quant", "i4", "--calibrate", path(&out)]), kept);
    assert_eq!(generated(&["--quant", "i4", "--calibrate", path(&text)]), kept);
}

#[test]
fn a_wrong_importance_matrix_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |name: &str, x: f32| {
        let number = |n: usize| (n as i32).to_le_bytes();
        [&number(1)[..], &number(name.len()), name.as_bytes(), &number(1), &number(1), &x.to_le_bytes()].concat()
    };
    let with = |bytes: &[u8]| {
        let file = put(&folder, "x.dat", bytes);
        run(&["score", "--tokens", "5,6,7", "--quant", "i4", "--calibrate", path(&file)])
    };
    refused(&with(&entry("blk.0.attn_q.weight", 1.0)), 1, "found only others, such as blk.0.attn_q.weight");
    refused(&with(&entry("output.weight", 1.0)), 1, "expected 128 columns");
    refused(&with(&entry("output.weight", f32::NAN)), 1, "found NaN");
    refused(&with(&entry("output.weight", 1.0)[..9]), 1, "ends early");
    refused(&with(b"GGUF\x03\0\0\0"), 1, "ends early");
    refused(&with(b"a"), 1, "at least 2 tokens");
    refused(&with(b"a text that is \xff not UTF-8"), 1, "0xff");
    refused(&run(&words("score --tokens 5,6,7 --quant i4 --calibrate no-such-file")), 1, "no-such-file");
    let output = run(&words("score --tokens 5,6,7 --calibrate x"));
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    refused(&run(&words("imatrix the_beginning -o /no/such/folder/x")), 1, "/no/such/folder");
    assert_eq!(code(&run(&words("imatrix the_beginning"))), 2);
    let wrong = feed(&["generate", "x", "--quant", "i4", "--calibrate", path(&put(&folder, "y.dat", &entry("a", 1.0)))], b"");
    assert!(stderr(&wrong).contains("--calibrate"), "{}", stderr(&wrong));
}

#[test]
fn quality_compares_matrices() {
    let flags = ["quality", "--prompt", TEXT, "--quant", "q3_k,low-rank=f16", "--by-matrix"];
    let report = json(&run(&[&flags[..], &["--json"]].concat()));
    let tensors = report["tensors"].as_array().unwrap();
    let number = |t: &Value, key: &str| t[key].as_f64().unwrap();
    assert!(tensors.len() > 30 && tensors.iter().any(|t| t["tensor"] == "blocks.0.ffn.value.weight"), "{report}");
    assert!(tensors.windows(2).all(|pair| number(&pair[0], "loss_percent_per_mib") >= number(&pair[1], "loss_percent_per_mib")));
    for t in tensors {
        assert!(t["format"] == "q3_k" && number(t, "kl_mean") > 0.0 && number(t, "bytes_saved") > number(t, "bytes"), "{t}");
        let per_mib = number(t, "loss_percent") * 1048576.0 / number(t, "bytes_saved");
        assert!((per_mib - number(t, "loss_percent_per_mib")).abs() <= 1e-9 * per_mib.abs(), "{t}");
    }
    // The loss of one matrix is smaller than the loss of all matrices.
    assert!(tensors.iter().all(|t| number(t, "kl_mean") < number(&report["all"], "kl_mean")));
    let saved: f64 = tensors.iter().map(|t| number(t, "bytes_saved")).sum();
    assert!((saved - (number(&report["reference"], "weight_bytes") - number(&report["all"], "weight_bytes"))).abs() < 1.0);
    // The loss of one matrix is the loss of a model in which only this matrix is quantised.
    let head = tensors.iter().find(|t| t["tensor"] == "head.weight").unwrap();
    let alone = json(&run(&["quality", "--prompt", TEXT, "--quant", "f16,head=q3_k", "--json"]));
    assert_eq!((&alone["variants"][0]["kl_mean"], &alone["variants"][0]["loss_percent"]), (&head["kl_mean"], &head["loss_percent"]));
    let table = stdout(&run(&flags));
    assert!(table.starts_with("| matrix |") && table.lines().count() == tensors.len() + 5 && table.contains("all together: "), "{table}");
    let two = run(&["quality", "--prompt", TEXT, "--quant", "i4", "--quant", "i8", "--by-matrix"]);
    refused(&two, 2, "one --quant, found 2");
    assert_eq!(code(&run(&["quality", "--prompt", TEXT, "--by-matrix"])), 2);
    // A calibration goes to the quantised variants only.
    let folder = tempfile::tempdir().unwrap();
    let text = put(&folder, "text.txt", TEXT.as_bytes());
    let losses = |flags: &[&str]| {
        let report = json(&run(&[&["quality", "--prompt", TEXT, "--quant", "q3_k", "--dtype", "f16", "--json"], flags].concat()));
        [0, 1].map(|i| report["variants"][i]["kl_mean"].as_f64().unwrap())
    };
    let (plain, calibrated) = (losses(&[]), losses(&["--calibrate", path(&text)]));
    assert!(plain[0] == 0.0 && calibrated[0] == 0.0 && calibrated[1] < plain[1], "{plain:?} {calibrated:?}");
}
