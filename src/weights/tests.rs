//! Tests of checkpoints of all kinds.

use super::*;
use testing::{Pickle, halves, pth, put, singles, zip};

fn all_f32(c: &Checkpoint, name: &str) -> Vec<f32> {
    c.tensor(name).unwrap().to_f32().unwrap()
}

#[test]
fn a_pth_with_strides_and_shared_storages() {
    let mut p = Pickle::dict();
    p.tensor("emb.weight", "0", DType::F32, 6, (0, &[3, 2], &[2, 1]));
    p.tensor("blocks.10.att.key.weight", "0", DType::F32, 6, (1, &[2, 2], &[1, 2])); // transposed, from element 1
    p.tensor("blocks.9.ln1.weight", "1", DType::BF16, 4, (2, &[1, 1, 2], &[9, 9, 1]));
    p.tensor("blocks.9.ln1.bias", "1", DType::BF16, 4, (0, &[2], &[1]));
    p.tensor("head.weight", "2", DType::F16, 2, (0, &[], &[]));
    let bf16: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
    let file = zip(&[
        ("m/data.pkl", &p.stop()),
        ("m/byteorder", b"little"),
        ("m/data/0", &singles(&[0., 1., 2., 3., 4., 5.])),
        ("m/data/1", &bf16),
        ("m/data/2", &halves(&[7., 8.])),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let c = Checkpoint::open(&put(&dir, "model 1.5B.pth", &file)).unwrap();
    assert_eq!((c.name(), c.kind(), c.layout()), ("model 1.5B", "pth", "official"));
    let names = ["blocks.9.ln1.bias", "blocks.9.ln1.weight", "blocks.10.att.key.weight", "emb.weight", "head.weight"];
    assert_eq!(c.names().collect::<Vec<_>>(), names);
    assert_eq!(all_f32(&c, "emb.weight"), [0., 1., 2., 3., 4., 5.]);
    assert_eq!(all_f32(&c, "blocks.10.att.key.weight"), [1., 3., 2., 4.]);
    assert_eq!(all_f32(&c, "blocks.9.ln1.weight"), [3., 4.]);
    assert_eq!(all_f32(&c, "blocks.9.ln1.bias"), [1., 2.]);
    assert_eq!(all_f32(&c, "head.weight"), [7.]);
    assert_eq!(c.require("blocks.9.ln1.weight", &[2]).unwrap().shape(), [2]);
    let wrong = c.require("emb.weight", &[2, 3]).unwrap_err().to_string();
    assert!(wrong.contains("tensor emb.weight: the model needs the shape [2, 3], found the shape [3, 2]"), "{wrong}");
    assert!(
        c.require("no", &[1]).unwrap_err().to_string().contains("tensor no: the tensor is missing; the model needs it with the shape [1]")
    );
    c.check_uncut().unwrap();
    assert!(c.tensor("nothing").is_none());
    let clone = c.clone();
    std::thread::spawn(move || assert_eq!(all_f32(&clone, "head.weight"), [7.])).join().unwrap();
}

#[test]
fn a_wrapped_state_dict_with_prefix_and_build() {
    let dir = tempfile::tempdir().unwrap();
    for wrapper in ["state_dict", "model_state_dict", "module", "model"] {
        let mut p = Pickle::dict();
        p.text("epoch").int(3).raw(b"s").text(wrapper).global("collections", "OrderedDict").raw(b")R");
        p.tensor("module.emb.weight", "k", DType::F32, 1, (0, &[1, 1], &[1, 1]));
        p.raw(b"}").text("_metadata").raw(b"}sb").raw(b"s");
        let file = zip(&[("x/data.pkl", &p.stop()), ("x/data/k", &singles(&[2.5]))]);
        let c = Checkpoint::open(&put(&dir, &format!("{wrapper}.pth"), &file)).unwrap();
        assert_eq!(all_f32(&c, "emb.weight"), [2.5], "{wrapper}");
    }
}

#[test]
fn weights_of_an_unsupported_type_name_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = put(&dir, "a.pth", &pth(&[("emb.weight", DType::F64, &[2], &1f64.to_le_bytes().repeat(2))]));
    let said = Checkpoint::open(&path).unwrap().require("emb.weight", &[2]).unwrap_err().to_string();
    assert_eq!(said, format!("{}: tensor emb.weight: expected F32, F16 or BF16 weights, found F64", path.display()));
}

#[test]
fn a_cut_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = put(&dir, "a.pth", &pth(&[("emb.weight", DType::F32, &[2], &singles(&[1., 2.]))]));
    let c = Checkpoint::open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(c.check_uncut().unwrap_err().to_string().contains("shorter"), "{:?}", c.check_uncut());
}
