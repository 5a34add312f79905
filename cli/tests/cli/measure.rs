//! Tests the verbs that measure: `score`, `bench`, `quality`, `doctor`.

use super::*;

#[test]
fn scores_are_natural_logarithms_and_logits_go_to_a_file() {
    let golden = Golden::of_the_embedded();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.safetensors");
    let report = json(&run(&["score", "--tokens", &ids(&golden.tokens), "--json", "--logits", out.to_str().unwrap()]));
    assert_eq!(report["tokens"], serde_json::json!(golden.tokens));
    let logprobs = report["logprobs"].as_array().unwrap();
    assert!(logprobs[0].is_null() && logprobs.len() == golden.tokens.len());
    let row = &golden.logits[..golden.logits.len() / golden.tokens.len()];
    let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
    let expected = f64::from(row[golden.tokens[1] as usize]) - sum.ln();
    assert!((logprobs[1].as_f64().unwrap() - expected).abs() < 1e-3);
    let (nll, n) = (report["nll"].as_f64().unwrap(), report["n"].as_f64().unwrap());
    assert!(((nll / n).exp() - report["perplexity"].as_f64().unwrap()).abs() < 1e-9);

    let bytes = std::fs::read(&out).unwrap();
    let (tensors, _) = wingbeat::low_level::weights::read_safetensors(&bytes).unwrap();
    assert_eq!(tensors["logits"].1, [golden.tokens.len(), row.len()]);
    let found: Vec<f32> = tensors["logits"].2.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(crate::support::nmse(&found, &golden.logits) < 1e-7);
    refused(&run(&words("score --tokens 5")), 1, "at least 2 tokens");
    assert!(stdout(&run(&words("perplexity --tokens 5,6,7"))).contains("perplexity"));
}

/// Runs every tiny model with the fastest instructions of this CPU and without AVX-512, with floats and with rounded activations.
#[test]
#[cfg(target_arch = "x86_64")]
fn texts_and_logits_do_not_depend_on_the_width_of_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let logits = folder.path().join("logits.safetensors");
    for tiny in goldens() {
        let (model, prompt) = (tiny.path().to_str().unwrap().to_string(), ids(&tiny.golden().tokens));
        for quant in ["f16", "i4", "q8_0", "q4_k"] {
            for activations in ["float", "i8"] {
                let found = ["", "avx2"].map(|vectors| {
                    let made = |args: &[&str]| {
                        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
                        command.args(args).args(["-m", &model, "--tokens", &prompt, "--quant", quant, "--activations", activations]);
                        json(&command.args(["--device", "cpu"]).env("WINGBEAT_VECTORS", vectors).stdin(Stdio::null()).output().unwrap())
                    };
                    made(&["score", "--json", "--force", "--logits", logits.to_str().unwrap()]);
                    let text = made(&["generate", "--temperature", "0", "--ignore-eos", "-n", "40", "--json"]);
                    (text["tokens"].clone(), std::fs::read(&logits).unwrap())
                });
                assert!(found[0].0.as_array().unwrap().len() == 40 && found[0].0 == found[1].0, "{} {quant} {activations}", tiny.name);
                assert!(found[0].1 == found[1].1, "{} {quant} {activations}", tiny.name);
            }
        }
    }
}

#[test]
fn bench_speaks_llama_bench() {
    let records = json(&run(&words("bench -p 6 -n 3 -pg 4,2 -d 5 -b 1,2 -r 2 -o json")));
    let records = records.as_array().unwrap();
    let tests: Vec<_> =
        records.iter().map(|r| [&r["n_prompt"], &r["n_gen"], &r["n_batch"], &r["n_depth"]].map(|v| v.as_u64().unwrap())).collect();
    assert_eq!(tests, [[6, 0, 1, 5], [0, 3, 1, 5], [4, 2, 1, 5], [6, 0, 2, 5], [0, 3, 2, 5], [4, 2, 2, 5]]);
    for r in records {
        assert_eq!(r["samples_ns"].as_array().unwrap().len(), 2);
        assert!(r["avg_ts"].as_f64().unwrap() > 0.0 && r["model_type"].as_str().unwrap().starts_with("rwkv7"));
        assert_eq!(r["wingbeat"]["p50_ms"].is_number(), r["n_gen"] != 0);
    }
    assert_eq!(stdout(&run(&words("bench -p 4 -n 0 -r 1"))).lines().count(), 3);
    assert_eq!(stdout(&run(&words("bench -p 4 -n 2 -r 1 -o csv"))).lines().count(), 3);
    assert_eq!(stdout(&run(&words("bench -p 4 -n 2 -r 1 -o jsonl"))).lines().count(), 2);
    refused(&run(&words("bench --synthetic rwkv7-1t")), 2, "rwkv7-1t");
    let listed = |flags: &str| {
        let mut list = json(&run(&words(flags)));
        // The amount of free memory differs between two calls.
        list.as_array_mut().unwrap().iter_mut().for_each(|d| d["memory_free_bytes"] = Value::Null);
        list
    };
    assert_eq!(listed("bench --list-devices -o json"), listed("devices --json"));
    for device in devices() {
        let profiled = run(&["bench", "-p", "5", "-n", "2", "-r", "1", "--profile", "-o", "json", "--device", device]);
        let counted = json(&profiled)[1]["wingbeat"]["dispatches_per_token"].as_u64();
        assert_eq!(counted.is_some(), *device != "cpu");
        let sparsity = |out: &Output| json(out)[1]["wingbeat"]["ffn_sparsity"].as_f64().unwrap();
        let dense = run(&["bench", "-p", "5", "-n", "2", "-r", "1", "--no-sparse", "-o", "json", "--device", device]);
        assert!(sparsity(&profiled) > 0.3 && sparsity(&profiled) < 1.0 && sparsity(&profiled) == sparsity(&dense));
        let said = stderr(&profiled);
        for line in ["a step of 1 tokens", "a step of 5 tokens", "norm_shift_linear", "wkv7", "head"] {
            assert!(said.contains(line), "{device}: {said}");
        }
        // The table lists every dispatch of a step under its word (fused operation).
        let table = said.split("a step of 1 tokens").nth(1).unwrap().lines().skip(2).take(6);
        let sum: u64 = table.map(|l| l.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, counted.unwrap_or(0), "{device}: {said}");
    }
    refused(&run(&words("bench -pg 4")), 2, "-pg");
}

#[test]
fn doctor_finds_the_host_sound() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.txt");
    let shown = stdout(&run(&["doctor", "--device", "cpu", "--out", page.to_str().unwrap()]));
    assert!(shown.contains("all results are right"), "{shown}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), shown);
    let report = json(&run(&words("doctor --device cpu --json")));
    assert_eq!((report["ok"].as_bool(), report["device"].as_str()), (Some(true), Some("cpu")));
    assert!(shown.contains("speed, estimated from read rates") && shown.contains("\n  rwkv7-7.2b  "), "{shown}");
    let speeds = report["speed"].as_array().unwrap();
    assert!(speeds.len() == 5 && speeds.iter().all(|s| s["estimate"] == true && s["tokens_per_second"].get("i4").is_some()), "{report}");
}

/// The second measurement would take hours, so the test interrupts it.
#[cfg(unix)]
#[test]
fn an_interrupted_bench_prints_what_it_measured() {
    for (flags, is_array) in [("--json", true), ("-o jsonl", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
        command.args(words("bench --device cpu -p 4,100000000 -n 0 -r 1")).args(words(flags));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let first = said.find(|line| line.as_ref().is_ok_and(|line| line.contains(": pp4, ")));
        assert!(first.is_some(), "{flags}: the first test ends");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        said.for_each(drop);
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 130);
        let records: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{flags}: {e}: {output:?}"));
        let record = if is_array { &records[0] } else { &records };
        assert_eq!((record["n_prompt"].as_u64(), records.as_array().map_or(1, Vec::len)), (Some(4), 1), "{flags}");
    }
}

#[test]
fn quality_names_the_device_once() {
    let output = run(&words("quality --dtype f16,f32 --quant i8 the_beginning"));
    assert_eq!(stdout(&output).lines().filter(|line| line.starts_with("| ")).count(), 5);
    assert_eq!(stderr(&output).matches("device: ").count(), 1, "{}", stderr(&output));
}

#[test]
fn quality_is_a_table_or_an_object() {
    let golden = Golden::of_the_embedded();
    let tokens = ids(&golden.tokens);
    let n = golden.tokens.len() as u64;
    let report = json(&run(&["quality", "--tokens", &tokens, "--dtype", "f16,f32", "--json"]));
    assert_eq!((report["n"].as_u64(), report["n_windows"].as_u64(), report["window"].as_u64()), (Some(n - 1), Some(1), Some(2048)));
    assert_eq!((report["reference"]["name"].as_str(), report["reference"]["dtype"].as_str()), (Some("auto"), Some("f16")));
    let [same, wide] = [&report["variants"][0], &report["variants"][1]];
    assert_eq!(
        (same["kl_max"].as_f64(), same["agreement_percent"].as_f64(), same["loss_percent"].as_f64()),
        (Some(0.0), Some(100.0), Some(0.0))
    );
    assert_eq!(same["perplexity"], report["reference"]["perplexity"]);
    let size = |variant: &Value| variant["weight_bytes"].as_u64().unwrap();
    assert_eq!((wide["name"].as_str(), size(wide)), (Some("f32"), 2 * size(same)));
    assert!((wide["bits_per_weight"].as_f64().unwrap() / 32.0 - 1.0).abs() < 0.05);
    let scored = json(&run(&["score", "--tokens", &tokens, "--json"]));
    let [perplexity, expected] = [&report["reference"], &scored].map(|r| r["perplexity"].as_f64().unwrap());
    assert!((perplexity - expected).abs() < 1e-5 * expected);

    // Without --dtype, the table has all formats except the reference's format.
    let table = stdout(&run(&["quality", "--tokens", &tokens, "--window", "16"]));
    let rows: Vec<&str> = table.lines().collect();
    let kinds = [
        "auto (f16)",
        "f32",
        "i8",
        "i4",
        "nf4",
        "i8rc (f16+i8rc)",
        "q8_0",
        "q6_k",
        "q5_k",
        "q5_0",
        "q5_1",
        "q4_k",
        "q4_0",
        "q4_1",
        "iq4_nl",
        "iq4_xs",
        "q3_k",
        "q2_k",
        "i4-mixed (i4+i8)",
    ];
    assert!(rows[2..].iter().zip(kinds).all(|(row, kind)| row.starts_with(&format!("| {kind} |"))), "{table}");
    assert!(rows.len() == 4 + kinds.len() && rows[3 + kinds.len()].contains("of 16"), "{table}");
    // States in f16 are rounded, and the reference's states are f32.
    let half = json(&run(&["quality", "--text", "In the beginning", "--dtype", "auto", "--state-dtype", "f16", "--json"]));
    assert_eq!(half["variants"][0]["name"], "auto, f16 state");
    assert!(half["variants"][0]["kl_mean"].as_f64().unwrap() > 0.0);

    refused(&run(&words("quality --tokens 5")), 1, "at least 2 tokens");
    refused(&run(&words("quality --tokens 5,6 --window 1")), 2, "--window");
    refused(&run(&words("quality --tokens 5,6 --dtype f17")), 2, "f17");
    refused(&run(&words("quality --tokens 5,6 --quant i3")), 2, "i3");
}

#[test]
fn strategies_and_formats_are_flags_of_every_model() {
    let text = |flags: &[&str]| stdout(&run(&[&["generate", "-n", "12", "--temp", "0", "In the beginning"], flags].concat()));
    let plain = text(&["--device", "cpu"]);
    assert_eq!(text(&["--strategy", "cpu fp16"]), plain);
    assert_eq!(text(&["--strategy", "cpu fp16 *2 -> cpu fp32"]), plain);
    if devices().contains(&"gpu") {
        assert_eq!(text(&["--strategy", "gpu fp16 *3 -> gpu:0 fp16"]), plain);
        assert_eq!(text(&["--strategy", "gpu fp16 *2+"]), plain);
    }
    let coded = json(&run(&words("generate -n 4 --temp 0 --device cpu --quant i4,head=i8,low-rank=f16 --json Lo")));
    assert_eq!(coded["model"]["dtype"], "f16+i4+i8");
    let parts = json(&run(&["generate", "-n", "4", "--strategy", "cpu fp16i8 *2 -> cpu fp32", "--json", "Lo"]));
    assert_eq!(parts["model"]["dtype"], "f32+i8");
    refused(&run(&["generate", "-n", "4", "--quant", "i4,att.kay=i8", "Lo"]), 2, "att.kay");
    refused(&run(&["generate", "-n", "4", "--strategy", "cpu fp16", "--device", "cpu", "Lo"]), 2, "--device");
    let wrong = run(&["generate", "-n", "4", "--strategy", "gpu fp16 -> tpu fp16", "Lo"]);
    let shown = String::from_utf8_lossy(&wrong.stderr).into_owned();
    refused(&wrong, 2, "column 13");
    assert!(shown.contains("\n  gpu fp16 -> tpu fp16\n              ^^^"), "{shown}");
}
