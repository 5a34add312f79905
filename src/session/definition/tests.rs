//! Tests GGUF files of the embedded model: other epsilons, absent biases, and block types that stay quantised.

use super::*;
use crate::exec::FloatChoice;
use crate::exec::gpu::Device;
use crate::quant::{Activations, FORMATS, Float, Format};
use crate::session::{Model, Session, Windows, quality};
use crate::tape::{Caps, Class};
use crate::vocab::Vocab;
use crate::weights::testing::{Change, Gguf, as_stored, put, rounded, scale_places, singles, tiny_gguf};
use crate::words::testing::nmse;
use std::sync::Arc;

fn load(file: &Gguf, quant: &str) -> Result<Model> {
    let quant = (!quant.is_empty()).then(|| quant.parse().unwrap());
    load_with(file, Options { quant, activations: Activations::Float, ..Options::default() })
}

fn load_with(file: &Gguf, options: Options) -> Result<Model> {
    let dir = tempfile::tempdir().unwrap();
    let path = put(&dir, "m.gguf", &file.finish());
    let options = Options { device: "cpu".parse().unwrap(), ..options };
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

/// Returns each block type of GGUF for which there is a weight format, with the name of the format.
fn block_types() -> impl Iterator<Item = (DType, &'static str)> {
    let of = |format: &&'static dyn Format| DType::ALL.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(format.name()));
    FORMATS.iter().filter(|format| format.file_blocks().is_some()).map(move |format| (of(format).unwrap(), format.name()))
}

/// Stores the matrices whose rows are whole blocks of `dtype` in this type. The embedded model has rows of 128 weights, and of 512 in the value
/// matrices of its ffn.
fn in_blocks(dtype: DType) -> impl Fn(&str, &View) -> Option<(DType, Vec<u8>)> {
    let (len, _) = dtype.block().unwrap();
    move |name, view| match view.shape() {
        [_, k] if name.ends_with(".weight") && k % len == 0 => Some((dtype, rounded(dtype, &view.to_f32().unwrap()))),
        _ => as_stored(name, view),
    }
}

/// The test prints the numbers of docs/quantisation.md.
#[test]
fn block_types_that_are_kept_lose_nothing() {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ruth.txt"));
    let tokens = Vocab::small_world().encode(&text.as_bytes()[..2000]).unwrap();
    let original = load(&tiny_gguf(&as_stored), "").unwrap();
    for (dtype, format) in block_types() {
        let file = tiny_gguf(&in_blocks(dtype));
        let floats = load_with(&file, Options { dtype: FloatChoice::Exactly(Float::F32), ..in_floats() }).unwrap();
        let kept = load(&file, "").unwrap();
        assert!(logits(&kept) == logits(&floats), "{dtype}: exactly the weights of the file");
        assert!(kept.dtype().contains(format), "{}", kept.dtype());
        assert!(kept.weight_bytes() < floats.weight_bytes(), "{dtype}");
        let windows = Windows { start: &[], tokens: &tokens, len: 512 };
        let session = |model: &Model| Session::new(model, 1).unwrap();
        let found = quality(&mut session(&original), &mut session(&kept), &windows, &mut |_, _| ()).unwrap();
        println!("{dtype}: loss {} %", found.loss_percent());
        assert!(found.loss_percent() < if format == "q2_k" { 60.0 } else { 20.0 }, "{dtype}: {found:?}");
    }
}

/// Returns options that convert all quantised matrices of a file to floats.
fn in_floats() -> Options {
    Options { quant: Some("f16".parse().unwrap()), ..Options::default() }
}

#[test]
fn blocks_of_a_type_without_kernels_become_f16() {
    for dtype in [DType::MXFP4, DType::TQ1_0, DType::TQ2_0] {
        let (len, size_bytes) = dtype.block().unwrap();
        let is_matrix = |name: &str, view: &View| matches!(view.shape(), [_, k] if name.ends_with(".weight") && k.is_multiple_of(len));
        // Any codes, with scales of about 0.01.
        let bytes = |view: &View| {
            let mut bytes: Vec<u8> = (0..dtype.bytes_of(view.len()).unwrap()).map(|i| (i * i * 31 % 251) as u8).collect();
            bytes.chunks_exact_mut(size_bytes).for_each(|block| match dtype {
                DType::MXFP4 => block[0] = 120,
                _ => block[size_bytes - 2..].copy_from_slice(&[0x1f, 0x21]),
            });
            bytes
        };
        let blocks = |name: &str, view: &View| match is_matrix(name, view) {
            true => Some((dtype, bytes(view))),
            false => as_stored(name, view),
        };
        let floats = |name: &str, view: &View| match is_matrix(name, view) {
            true => Some((DType::F32, singles(&View::dense(dtype, view.shape(), &bytes(view)).unwrap().to_f32().unwrap()))),
            false => as_stored(name, view),
        };
        let [blocks, floats] = [&blocks as Change, &floats].map(|change| load(&tiny_gguf(change), "").unwrap());
        assert!(logits(&blocks) == logits(&floats), "{dtype}");
        assert_eq!(blocks.dtype(), "f16");
        let note = blocks.notes().iter().find(|note| note.contains(&format!("tensors of {dtype} are converted to f16")));
        assert!(note.is_some(), "{dtype}: {:?}", blocks.notes());
    }
}

#[test]
fn a_block_with_an_infinite_scale_is_refused() {
    for (dtype, _) in block_types() {
        for (at, bits) in scale_places(dtype).into_iter().flat_map(|at| [[0x00, 0x7c], [0x01, 0xfe]].map(|bits| (at, bits))) {
            let broken = |name: &str, view: &View| match name {
                "blocks.1.ffn.value.weight" => {
                    let mut bytes = rounded(dtype, &view.to_f32().unwrap());
                    bytes[at..at + 2].copy_from_slice(&bits);
                    Some((dtype, bytes))
                }
                _ => as_stored(name, view),
            };
            let said = load(&tiny_gguf(&broken), "").err().unwrap().to_string();
            assert!(said.contains("m.gguf: tensor blocks.1.ffn.value.weight: expected finite scales of blocks, found "), "{said}");
        }
    }
}

/// Returns options for the first adapter, with the kernels for software adapters and with the kernels for GPUs. Empty without an adapter.
fn on_adapter() -> Vec<Options> {
    let Some(adapter) = crate::exec::gpu::adapters(Default::default()).into_iter().next() else {
        eprintln!("SKIPPED: there is no adapter");
        return Vec::new();
    };
    let with = |class: Class| {
        let base = Device::open(&adapter, false).unwrap();
        let caps = Caps { cooperative: None, ..Caps::plain(class, base.caps.max_binding) };
        Options { device: "gpu".parse().unwrap(), gpu: Some(Arc::new(base.with_caps(caps))), deterministic: true, ..Options::default() }
    };
    [Class::Lanes, Class::Groups].map(with).into()
}

#[test]
fn kept_blocks_give_the_logits_of_their_floats_on_an_adapter() {
    // Together, these types have every layout that codes can have on a device.
    for dtype in [DType::Q8_0, DType::Q4_1, DType::Q5_0, DType::Q6K, DType::Q2K] {
        let file = tiny_gguf(&in_blocks(dtype));
        for options in on_adapter() {
            let load = |options: Options| {
                let dir = tempfile::tempdir().unwrap();
                Model::load(&ModelSource::Path(put(&dir, "m.gguf", &file.finish())), &options, &mut |_, _| ()).unwrap()
            };
            let kept = logits(&load(options.clone()));
            let floats = logits(&load(Options { dtype: FloatChoice::Exactly(Float::F32), quant: in_floats().quant, ..options }));
            let error = nmse(&kept, &floats);
            assert!(error <= 1e-9, "{dtype}: {error}");
        }
    }
}
