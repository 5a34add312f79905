//! Tests GGUF files of the embedded model: other epsilons, absent biases, and block types that stay quantised.

use super::*;
use crate::exec::QuantPlan;
use crate::session::{Model, Session, Windows, quality};
use crate::vocab::Vocab;
use crate::weights::testing::{Gguf, as_stored, put, rounded, singles, tiny_gguf};

fn load(file: &Gguf, quant: &str) -> Result<Model> {
    let dir = tempfile::tempdir().unwrap();
    let path = put(&dir, "m.gguf", &file.finish());
    let quant = (!quant.is_empty()).then(|| quant.parse().unwrap());
    let options = Options { device: "cpu".parse().unwrap(), quant, ..Options::default() };
    Model::load(&ModelSource::Path(path), &options, &mut |_, _| ())
}

fn logits(model: &Model) -> Vec<f32> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &[5, 6, 7]).unwrap().to_vec()
}

#[test]
fn the_epsilon_of_layer_norms_is_read() {
    let with = |eps: f32| {
        let mut file = tiny_gguf(&as_stored);
        logits(&load(file.value("rwkv7.attention.layer_norm_epsilon", 6, &eps.to_le_bytes()), "").unwrap())
    };
    let usual = logits(&load(&tiny_gguf(&as_stored), "").unwrap());
    assert!(usual == with(1e-5), "1e-5 is the default");
    let other = with(1e-2);
    assert!(usual != other && other.iter().all(|x| x.is_finite()));
    let mut file = tiny_gguf(&as_stored);
    let text = load(file.value("rwkv7.attention.layer_norm_epsilon", 6, &0f32.to_le_bytes()), "").err().unwrap().to_string();
    assert!(text.contains("expected a positive number as metadata value wingbeat.layer_norm_eps, found \"0\""), "{text}");
}

#[test]
fn norms_without_biases_have_zeros() {
    let is_bias = |name: &str, group: bool| name.ends_with(".bias") && name.contains("ln_x") == group;
    for group in [false, true] {
        let zeros = |name: &str, view: &View| match is_bias(name, group) {
            true => Some((DType::F32, singles(&vec![0.0; view.len()]))),
            false => as_stored(name, view),
        };
        let without = |name: &str, view: &View| as_stored(name, view).filter(|_| !is_bias(name, group));
        assert!(logits(&load(&tiny_gguf(&zeros), "").unwrap()) == logits(&load(&tiny_gguf(&without), "").unwrap()));
    }
    let broken = |name: &str, view: &View| as_stored(name, view).filter(|_| name != "blocks.1.ln2.bias");
    let text = load(&tiny_gguf(&broken), "").err().unwrap().to_string();
    assert!(text.contains("blocks.1.ln2.bias: the tensor is missing"), "{text}");
}

/// The test prints the numbers of docs/quantisation.md.
#[test]
fn block_types_that_are_kept_lose_little() {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ruth.txt"));
    let tokens = Vocab::tiny().encode(&text.as_bytes()[..2000]).unwrap();
    for (dtype, format, most) in [(DType::Q8_0, "i8", 1e-3), (DType::Q4_0, "i4", 0.1)] {
        let blocks = |name: &str, view: &View| match view.shape() {
            [_, k] if name.ends_with(".weight") && k % 32 == 0 => Some((dtype, rounded(dtype, &view.to_f32().unwrap()))),
            _ => as_stored(name, view),
        };
        let file = tiny_gguf(&blocks);
        let [floats, kept, i8] = ["", QuantPlan::KEEP, "i8"].map(|quant| load(&file, quant).unwrap());
        assert_eq!((floats.dtype(), kept.dtype().contains(format)), ("f16", true));
        let windows = Windows { start: &[], tokens: &tokens, len: 512 };
        let session = |model: &Model| Session::new(model, 1).unwrap();
        let measure = |model| quality(&mut session(&floats), &mut session(model), &windows, &mut |_, _| ()).unwrap();
        let (found, in_i8) = (measure(&kept), measure(&i8));
        println!("{dtype} kept as {}: {found:?} loss {} %; i8: {in_i8:?}", kept.dtype(), found.loss_percent());
        assert!(found.kl_mean > 0.0 && found.kl_mean < most, "{dtype}: {found:?}");
        assert!(kept.weight_bytes() < floats.weight_bytes(), "{dtype}");
    }
}
