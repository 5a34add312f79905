//! Tests quantised files. A quantised file has codes: weights quantised to integers. These codes must equal the codes that wingbeat makes when it
//! quantises the original file at load time. The tests check this on every device and with all kernels.

use crate::support::{adapter, caps, devices, floats, goldens, nmse, options, read, unwatched};
use std::path::{Path, PathBuf};
use wingbeat::low_level::exec::QuantPlan;
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::quant::find;
use wingbeat::low_level::session::{Model, ModelSource, Options, convert_coded, embedded};
use wingbeat::low_level::tape::{Caps, Class};
use wingbeat::low_level::tensor::DType;
use wingbeat::low_level::weights::{Checkpoint, Conversion, convert, write_safetensors};

/// Writes a model, quantised as `quant` says. Returns the path of the new file.
fn coded(input: &Path, folder: &Path, quant: &str) -> PathBuf {
    let path = folder.join("coded.safetensors");
    convert_coded(&Checkpoint::open(input).unwrap(), &path, &quant.parse().unwrap(), &Conversion::default(), &mut |_, _| ()).unwrap();
    path
}

fn load(path: &Path, options: &Options) -> Model {
    Model::load(&ModelSource::Path(path.to_path_buf()), options, &mut |_, _| ()).unwrap()
}

/// Returns options for every device, and for kernels of the family Groups. These kernels store matrices with sparse inputs column-major.
fn everywhere() -> Vec<Options> {
    // Without the option `deterministic`, chunk lengths depend on time if a driver has a watchdog.
    let mut all: Vec<Options> = devices().iter().map(|d| options(d)).collect();
    all.iter_mut().for_each(|options| options.deterministic = true);
    if let Some(adapter) = adapter() {
        let base = Device::open(&adapter, false).unwrap();
        let mut own = options("gpu");
        own.gpu = Some(unwatched(&base, Caps { cooperative: None, ..caps(base.caps.clone(), Class::Groups) }));
        all.push(own);
    }
    all
}

#[test]
fn a_quantised_file_equals_the_model_quantised_at_load() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in goldens() {
        let input = tiny.path();
        let tokens = tiny.golden().prompt(20, 1);
        for plan in QuantPlan::names().chain(["i4,head=f16,low-rank=i8"]) {
            // All devices are tested with one model that has only plain matrices, and with GLM, the only model that has slices of tensors. All block
            // types of GGUF are loaded in the same way. So `q4_k` is tested with all models, and every other block type with one model.
            let is_block_type = find(plan).is_ok_and(|format| format.file_blocks().is_some()) && plan != "q4_k";
            let n_devices = match (tiny.name, plan, is_block_type) {
                ("rwkv7", _, false) | ("glm4", "i8rc", _) => 3,
                ("rwkv7", ..) | (_, _, false) => 1,
                _ => 0,
            };
            if n_devices == 0 {
                continue;
            }
            let path = coded(&input, folder.path(), plan);
            for options in everywhere().into_iter().take(n_devices) {
                let mut asked = options.clone();
                asked.quant = Some(plan.parse().unwrap());
                let (loaded, filed) = (load(&input, &asked), load(&path, &options));
                let what = format!("{} {plan} on {}", tiny.name, filed.device().name);
                assert_eq!((filed.dtype(), filed.token_bytes()), (loaded.dtype(), loaded.token_bytes()), "{what}");
                assert!(read(&filed, &tokens) == read(&loaded, &tokens), "{what}");
            }
        }
    }
}

/// Writes the embedded model with ffn values whose codes are at the ends of the range of codes. If scales were computed in another order, the codes
/// would differ.
fn on_ends_of_codes(folder: &Path) -> PathBuf {
    let path = folder.join("ends.safetensors");
    let model = embedded().unwrap();
    let entry = |name: &str| {
        let view = model.tensor(name).unwrap();
        let mut values = view.to_f32().unwrap();
        if name.ends_with(".ffn.value.weight") {
            for (at, x) in values.iter_mut().enumerate() {
                let (i, j) = (at / view.shape()[1], at % view.shape()[1]);
                // Every row and every column has the smallest and the largest code. These two codes determine the scale and the offset.
                let code = [256, (7 * i + 11 * j) % 256, 0][if (i + j) % 16 == 0 { 0 } else { 1 + usize::from((i + j) % 16 == 8) }];
                *x = ((20 + i % 13) * (20 + j % 17) * code) as f32 / (1 << 15) as f32;
            }
        }
        floats(name, view.shape().to_vec(), &values)
    };
    write_safetensors(&path, model.metadata(), model.names().map(entry).collect(), &mut |_, _| ()).unwrap();
    path
}

#[test]
fn codes_of_a_file_equal_codes_of_a_device_that_transposes_the_matrix() {
    let folder = tempfile::tempdir().unwrap();
    let input = on_ends_of_codes(folder.path());
    let filed = coded(&input, folder.path(), "i8rc");
    let tokens = goldens().find(|t| t.name == "rwkv7").unwrap().golden().prompt(20, 1);
    for options in everywhere() {
        let mut asked = options.clone();
        asked.quant = Some("i8rc".parse().unwrap());
        let (loaded, filed) = (load(&input, &asked), load(&filed, &options));
        assert!(read(&filed, &tokens) == read(&loaded, &tokens), "on {}", filed.device().name);
    }
}

#[test]
fn a_quantised_file_can_be_converted_to_floats_and_other_formats() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in goldens() {
        let input = tiny.path();
        let tokens = tiny.golden().prompt(20, 1);
        for plan in ["i8", "i8rc,low-rank=i8", "i4,low-rank=nf4"] {
            let path = coded(&input, folder.path(), plan);
            let mut floats = options("cpu");
            floats.activations = "float".parse().unwrap();
            let expected = read(&load(&path, &floats), &tokens);
            (floats.quant, floats.dtype) = (Some("f16".parse().unwrap()), "f32".parse().unwrap());
            let model = load(&path, &floats);
            assert_eq!(model.dtype(), "f32");
            let error = nmse(&read(&model, &tokens), &expected);
            assert!(error < 1e-9, "{} {plan}: {error:.1e}", tiny.name);

            let back = folder.path().join("back.safetensors");
            let what = Conversion { dtype: Some(DType::F32), ..Conversion::default() };
            convert(&Checkpoint::open(&path).unwrap(), &back, &what, &mut |_, _| ()).unwrap();
            assert!(Checkpoint::open(&back).unwrap().names().eq(Checkpoint::open(&path).unwrap().names()));
            let mut all = options("cpu");
            all.dtype = "f32".parse().unwrap();
            assert!(nmse(&read(&load(&back, &all), &tokens), &expected) < 1e-9, "{} {plan}", tiny.name);

            // Converting to the same format again changes no byte of the file.
            let again = folder.path().join("again.safetensors");
            convert_coded(&Checkpoint::open(&path).unwrap(), &again, &plan.parse().unwrap(), &Conversion::default(), &mut |_, _| ())
                .unwrap();
            assert!(std::fs::read(&again).unwrap() == std::fs::read(&path).unwrap(), "{} {plan}", tiny.name);
        }
    }
}

#[test]
fn hostile_files_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let tensor = |json: &str, bytes: usize| {
        let data = vec![0u8; bytes];
        let entry = wingbeat::low_level::weights::NewTensor {
            name: "emb.weight".into(),
            dtype: DType::U8,
            shape: vec![bytes],
            data: Box::new(move |out| out.write_all(&data).map_err(|e| wingbeat::error::Error::io(e, Path::new("made")))),
        };
        let metadata = [("wingbeat.coded".to_string(), json.to_string())].into();
        write_safetensors(&path, &metadata, vec![entry], &mut |_, _| ()).unwrap();
        Checkpoint::open(&path).map(|c| c.tensor("emb.weight").unwrap().to_f32().unwrap().len())
    };
    let said = |format: &str, shape: &str, slices: usize| {
        format!(r#"{{"emb.weight":{{"format":"{format}","shape":{shape},"axis":"row","turned":false,"slices":{slices}}}}}"#)
    };
    assert_eq!(tensor(&said("i8", "[4,8]", 1), 4 * 8 + 4 * 2).unwrap(), 32);
    for (json, bytes, word) in [
        ("{".to_string(), 40, "wingbeat.coded"),
        (r#"{"emb.weight":{"format":"i8"}}"#.to_string(), 40, "the key \"shape\" is missing"),
        (said("i8", "[4,8]", 1), 41, "in the format i8 needs 40 bytes, found 41 bytes"),
        (said("i8", "[4,8]", 0), 40, "slices"),
        (said("i8", "[4,8]", 3), 40, "slices"),
        (said("i8", "[]", 1), 40, "rows"),
        (said("i8", "[0,8]", 1), 40, "rows"),
        (said("i8", "[4294967296,4294967296]", 1), 40, "too large for this machine"),
        (said("i8", "[1,1,1,1,1,1,1,4,8]", 1), 40, "dimensions"),
        (said("i3", "[4,8]", 1), 40, "\"i3\""),
        (said("i8", "[4,8]", 1).replace("row", "diagonal"), 40, "diagonal"),
        (said("i8", "[4,8]", 1).replace("emb", "hat"), 40, "hat.weight"),
    ] {
        let error = tensor(&json, bytes).unwrap_err();
        assert!(error.kind.exit_code() == 1 && error.to_string().contains(word) && !error.to_string().contains('\n'), "{json}: {error}");
    }
}
