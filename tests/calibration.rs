//! Tests the importance of columns: how it is measured, that files and models use it alike, and that it lowers the loss of quantised weights.

use crate::support::{Tiny, golden, goldens, options, root, tiny};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wingbeat::Calibration;
use wingbeat::low_level::session::{
    GgufVocab, Model, ModelSource, Options, Session, Windows, convert_coded, convert_gguf, embedded, quality,
};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{Checkpoint, ColumnSums, Conversion, Layout};
use wingbeat::vocab::Vocab;

/// Returns options for the CPU with f32 weights, so that sums are exact.
fn exact() -> Options {
    Options { dtype: "f32".parse().unwrap(), ..options("cpu") }
}

fn measured(model: &Model, tokens: &[u32], len: usize) -> Calibration {
    let mut session = Session::new(model, 1).unwrap();
    let mut last = (0, 0);
    let text = Windows { start: &[], tokens, len };
    let found = Calibration::measure(&mut session, &text, "a text", &mut |done, total| last = (done, total)).unwrap();
    assert_eq!(last, (tokens.len(), tokens.len()), "progress goes to the end");
    assert_eq!((found.datasets.as_slice(), found.chunk_size), (&["a text".to_string()][..], len as u32));
    found
}

fn load(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.into()), options, &mut |_, _| ()).unwrap()
}

/// The inputs of the head are the hidden states, which a session returns. Windows begin with an empty state.
#[test]
fn the_head_has_the_mean_squares_of_the_hidden_states() {
    let model = tiny(&exact());
    let tokens = golden().prompt(50, 1);
    let found = measured(&model, &tokens, 20);
    assert_eq!(found.n_chunks, 3);
    let mut session = Session::new(&model, 1).unwrap();
    let mut expected = vec![0f64; model.facts().n_embd];
    for window in tokens.chunks(20) {
        let slot = session.open().unwrap();
        for token in window {
            let hidden = session.hidden(slot, &[*token]).unwrap();
            expected.iter_mut().zip(hidden).for_each(|(sum, x)| *sum += f64::from(x) * f64::from(x));
        }
        session.close(slot).unwrap();
    }
    let found = found.mean_squares("output.weight").unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, sum) in found.iter().zip(expected) {
        let expected = sum / 50.0;
        assert!((f64::from(*found) / expected - 1.0).abs() < 1e-4, "{found}, expected {expected}");
    }
}

/// Names and sizes equal the names and sizes of the matrices in a GGUF file of the same model.
#[test]
fn every_matrix_of_a_gguf_file_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in goldens().filter(|tiny| ["rwkv6", "rwkv7", "glm4"].contains(&tiny.name)) {
        let (input, out) = (checkpoint(tiny), folder.path().join("m.gguf"));
        let what = Conversion { layout: Layout::Gguf, ..Conversion::default() };
        convert_gguf(&input, &out, &GgufVocab::Without, None, &what, &mut |_, _| ()).unwrap();
        let found = measured(&tiny.load(&exact()), &tiny.golden().prompt(30, 0), 30);
        let file = std::fs::read(&out).unwrap();
        let names: BTreeSet<&str> = found.names().collect();
        assert!(names.len() > 20 && names.contains("output.weight") && !names.contains("token_embd.weight"), "{names:?}");
        // The file's header has each name directly after the name's length.
        let is_listed = |name: &str| {
            let text = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
            file.windows(text.len()).any(|window| window == text)
        };
        let absent: Vec<_> = names.iter().filter(|name| !is_listed(name)).collect();
        assert!(absent.is_empty(), "{}: {absent:?}", tiny.name);
        // The same names come from the GGUF file itself.
        let again = measured(&load(&out, &exact()), &tiny.golden().prompt(30, 0), 30);
        assert_eq!(again.names().collect::<Vec<_>>(), found.names().collect::<Vec<_>>(), "{}", tiny.name);
    }
}

fn checkpoint(tiny: &Tiny) -> Checkpoint {
    Checkpoint::open(&tiny.path()).unwrap()
}

/// Compares the losses on text that the calibration has not seen.
#[test]
fn calibrated_weights_lose_less() {
    let text = Vocab::tiny().encode(&std::fs::read(root().join("tests/ruth.txt")).unwrap()).unwrap();
    let (calibrating, compared) = text[..1536].split_at(1024);
    for tiny in goldens().filter(|tiny| ["rwkv6", "rwkv7", "glm4"].contains(&tiny.name)) {
        let plain = options("cpu");
        let reference = tiny.load(&plain);
        let calibration = Arc::new(measured(&reference, calibrating, 128));
        let ratios = ["nf4", "q3_k", "q4_k"].map(|quant| {
            let loss = |calibration: Option<Arc<Calibration>>| {
                let quantised = Options { quant: Some(quant.parse().unwrap()), calibration, ..plain.clone() };
                let (mut a, mut b) = (Session::new(&reference, 1).unwrap(), Session::new(&tiny.load(&quantised), 1).unwrap());
                quality(&mut a, &mut b, &Windows { start: &[], tokens: compared, len: 128 }, &mut |_, _| ()).unwrap().kl_mean
            };
            loss(Some(calibration.clone())) / loss(None)
        });
        eprintln!("{}: {ratios:?}", tiny.name);
        assert!(ratios.iter().all(|ratio| *ratio < 1.05) && ratios.iter().sum::<f64>() / 3.0 < 0.97, "{}: {ratios:?}", tiny.name);
    }
}

/// A file that is written with an importance has the same weights as a model that is loaded with this importance. Tests safetensors and GGUF files.
#[test]
fn files_and_models_have_the_same_calibrated_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut models: Vec<(PathBuf, &str)> = vec![(folder.path().join("tiny.safetensors"), "q4_0,low-rank=f16")];
    wingbeat::low_level::weights::convert(&embedded().unwrap(), &models[0].0, &Conversion::default(), &mut |_, _| ()).unwrap();
    if root().join("tests/models").is_dir() {
        // Rows of 24 weights are no whole blocks of a file.
        let plans = [("tiny-glm4", "q4_0"), ("glm-heads-12", "q4_0"), ("flash", "q4_0,self_attn.k_b=f16")];
        models.extend(plans.map(|(name, plan)| (root().join("tests/models").join(name), plan)));
    }
    for (path, quant) in models {
        let input = Checkpoint::open(&path).unwrap();
        let tokens: Vec<u32> = (0..60).map(|i| (i * 7 + i * i) % 50).collect();
        let calibration = Arc::new(measured(&load(&path, &exact()), &tokens, 60));
        let plan = quant.parse().unwrap();
        let logits = |path: &Path, quant: Option<&str>, calibration: Option<Arc<Calibration>>| {
            let quant = quant.map(|quant| quant.parse().unwrap());
            crate::support::logits_of(&load(path, &Options { quant, calibration, ..exact() }), &tokens)
        };
        let expected = logits(&path, Some(quant), Some(calibration.clone()));
        assert!(expected != logits(&path, Some(quant), None), "{}: the importance changes weights", path.display());
        let what = Conversion { calibration: Some(&calibration), dtype: Some(DType::F32), ..Conversion::default() };
        let coded = folder.path().join("coded.safetensors");
        convert_coded(&input, &coded, &plan, &what, &mut |_, _| ()).unwrap();
        // This model has padded heads. The files store such matrices as floats, so its logits differ from the logits of a model that is quantised at
        // load time.
        if !path.ends_with("glm-heads-12") {
            assert!(logits(&coded, None, None) == expected, "{}", path.display());
        }
        let gguf = folder.path().join("coded.gguf");
        let what = Conversion { layout: Layout::Gguf, ..what };
        convert_gguf(&input, &gguf, &GgufVocab::Without, Some(&plan), &what, &mut |_, _| ()).unwrap();
        if !path.ends_with("glm-heads-12") {
            assert!(logits(&gguf, None, None) == expected, "{}", path.display());
        }
    }
}

#[test]
fn a_calibration_changes_the_numerics_but_not_the_hash_of_the_file() {
    let plain = tiny(&options("cpu"));
    let calibration = Arc::new(measured(&plain, &golden().prompt(40, 1), 40));
    let other = Arc::new(measured(&plain, &golden().prompt(40, 2), 40));
    let of = |calibration: Option<&Arc<Calibration>>| {
        let model = tiny(&Options { quant: Some("q4_0".parse().unwrap()), calibration: calibration.cloned(), ..options("cpu") });
        (model.numerics(), model.weights_hash().to_string())
    };
    let found = [None, Some(&calibration), Some(&other)].map(of);
    assert_eq!(found.iter().map(|(numerics, _)| numerics).collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(found.iter().map(|(_, hash)| hash).collect::<BTreeSet<_>>().len(), 1);
    assert_eq!(of(Some(&calibration)), found[1]);
}

#[test]
fn a_calibration_of_another_model_is_refused() {
    let sums = |name: &str, n: usize| {
        Calibration::new([(name.to_string(), ColumnSums { squares: vec![1.0; n], counts: vec![1.0] })]).map(Arc::new).unwrap()
    };
    let error = |calibration| {
        let options = Options { quant: Some("q4_0".parse().unwrap()), calibration: Some(calibration), ..options("cpu") };
        Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).err().map(|e| e.to_string())
    };
    assert!(error(sums("blk.0.attn_q.weight", 128)).unwrap().contains("found only others, such as blk.0.attn_q.weight"));
    let wrong = error(sums("blk.0.channel_mix_value.weight", 128)).unwrap();
    assert!(
        wrong.contains("expected 512 columns") && wrong.contains("found 128") && wrong.contains("blk.0.channel_mix_value.weight"),
        "{wrong}"
    );
    // A file may leave out matrices, and may have zeros for a matrix that no token has reached.
    assert_eq!(error(sums("blk.0.channel_mix_value.weight", 512)), None);
    let zeros = ColumnSums { squares: vec![0.0; 512], counts: vec![1.0] };
    assert_eq!(error(Arc::new(Calibration::new([("blk.0.channel_mix_value.weight".to_string(), zeros)]).unwrap())), None);
}

/// Some GGUF files have one tensor for queries, keys and values, and no output matrix beside the embedding.
#[test]
fn names_of_fused_and_tied_tensors_are_found() {
    let Some(glm) = crate::support::glm4() else { return };
    let own = measured(&glm.load(&exact()), &glm.golden().prompt(40, 1), 40);
    let renamed = own.names().map(|name| {
        let sums = ColumnSums { squares: own.mean_squares(name).unwrap(), counts: vec![1.0] };
        (name.replace("attn_q.", "attn_qkv.").replace("output.weight", "token_embd.weight").replace("attn_token_embd", "attn_output"), sums)
    });
    let is_left = |name: &String| !name.contains("attn_k.") && !name.contains("attn_v.");
    let renamed = Calibration::new(renamed.filter(|(name, _)| is_left(name)).collect::<Vec<_>>()).unwrap();
    assert!(renamed.mean_squares("blk.0.attn_qkv.weight").is_some() && renamed.mean_squares("token_embd.weight").is_some());
    let logits = |calibration: Calibration| {
        let options = Options { quant: Some("q4_0".parse().unwrap()), calibration: Some(Arc::new(calibration)), ..exact() };
        crate::support::logits_of(&glm.load(&options), &glm.golden().prompt(20, 2))
    };
    assert!(logits(own) == logits(renamed));
}

/// The experts of a layer are one stack in the file. An expert that no token has used has zeros in the stack, and is encoded as without an
/// importance.
#[test]
fn experts_without_tokens_have_no_importance() {
    let path = root().join("tests/models/flash");
    if !path.is_dir() {
        eprintln!("SKIPPED: the folder tests/models is in the repository only");
        return;
    }
    let (folder, input) = (tempfile::tempdir().unwrap(), Checkpoint::open(&path).unwrap());
    // Two tokens use at most 4 of the 8 experts.
    let found = measured(&load(&path, &exact()), &[5, 6], 2);
    let unused = |e: &usize| {
        let squares = found.mean_squares("blk.1.ffn_gate_exps.weight").unwrap();
        assert_eq!(squares.len(), 8 * 64);
        squares[e * 64..][..64].iter().all(|x| *x == 0.0)
    };
    let unused: Vec<usize> = (0..8).filter(unused).collect();
    assert!((4..8).contains(&unused.len()), "{unused:?}");
    for (name, n) in [("attn_k_b", 4 * 24), ("attn_v_b", 4 * 32), ("ffn_down_exps", 8 * 32), ("ffn_down_shexp", 32), ("ffn_gate_inp", 64)] {
        assert_eq!(found.mean_squares(&format!("blk.2.{name}.weight")).map(|squares| squares.len()), Some(n), "{name}");
    }
    let file = folder.path().join("imatrix.gguf");
    found.write(&file).unwrap();
    assert_eq!(Calibration::open(&file).unwrap(), found);

    let written = |name: &str, calibration: Option<&Calibration>| {
        let out = folder.path().join(name);
        let what = Conversion { layout: Layout::Gguf, dtype: Some(DType::F32), calibration, ..Conversion::default() };
        let plan = calibration.is_some() || name.contains("plain");
        let plan = plan.then(|| "q4_0,self_attn.k_b=f16".parse().unwrap());
        convert_gguf(&input, &out, &GgufVocab::Without, plan.as_ref(), &what, &mut |_, _| ()).unwrap();
        out
    };
    // A GGUF file of the model has the same sums, under the same names.
    assert_eq!(measured(&load(&written("floats.gguf", None), &exact()), &[5, 6], 2), found);
    let files = [written("plain.gguf", None), written("calibrated.gguf", Some(&found))].map(|path| Checkpoint::open(&path).unwrap());
    let same = |e: &usize| {
        let name = format!("model.layers.1.mlp.experts.{e}.gate_proj.weight");
        let [plain, calibrated] = files.each_ref().map(|file| file.tensor(&name).unwrap().to_f32().unwrap());
        plain == calibrated
    };
    assert_eq!((0..8).filter(same).collect::<Vec<_>>(), unused);

    // Some GGUF files have one tensor for the gates and the up matrices, and then one entry in the importance matrix.
    let fused = found.names().filter(|name| !name.contains("ffn_up_exps")).map(|name| {
        let sums = ColumnSums { squares: found.mean_squares(name).unwrap(), counts: vec![1.0] };
        (name.replace("ffn_gate_exps", "ffn_gate_up_exps"), sums)
    });
    let fused = Calibration::new(fused.collect::<Vec<_>>()).unwrap();
    let logits = |calibration: Calibration| {
        let options = Options { quant: Some("q4_0".parse().unwrap()), calibration: Some(Arc::new(calibration)), ..exact() };
        crate::support::logits_of(&load(&path, &options), &[5, 6, 7, 8])
    };
    assert!(logits(fused) == logits(found));
}

#[test]
fn measuring_needs_the_cpu_and_a_text() {
    let mut session = Session::new(&tiny(&exact()), 1).unwrap();
    let refused = |session: &mut Session, tokens: &[u32]| {
        let text = Windows { start: &[], tokens, len: 8 };
        Calibration::measure(session, &text, "", &mut |_, _| ()).unwrap_err().to_string()
    };
    assert!(refused(&mut session, &[5]).contains("at least 2 tokens"));
    session.stop_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    refused(&mut session, &[5, 6, 7]);
    session.stop_flag().store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(session.n_free(), 1);
    let split = Options { strategy: Some("cpu fp32 *2 -> cpu fp32".parse().unwrap()), ..exact() };
    let mut session = Session::new(&tiny(&Options { dtype: Default::default(), ..split }), 1).unwrap();
    assert!(refused(&mut session, &[5, 6, 7]).contains("on the CPU, with all layers on one device"));
}

/// A plan that is limited to one tensor quantises this tensor as the whole plan does.
#[test]
fn a_plan_may_quantise_one_tensor() {
    let of = |plan: wingbeat::QuantPlan| tiny(&Options { quant: Some(plan), ..options("cpu") }).quantised_tensors();
    for plan in ["q4_k", "i4-mixed", "i4,head=f16"] {
        let plan: wingbeat::QuantPlan = plan.parse().unwrap();
        let all = of(plan.clone());
        assert!(all.len() > 40 && all.iter().all(|t| t.bytes < t.float_bytes), "{all:?}");
        for tensor in all.iter().step_by(7) {
            assert_eq!(of(plan.clone().only(tensor.tensor.clone())), std::slice::from_ref(tensor));
        }
        assert_eq!(of(plan.only("no such tensor")), []);
    }
}
