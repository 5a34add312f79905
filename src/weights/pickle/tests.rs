//! Tests with good pickles and with hostile pickles.

use super::super::testing::Pickle;
use super::*;
use crate::tensor::DType;

fn refusal(pickle: &[u8]) -> String {
    read(pickle).unwrap_err().to_string()
}

#[test]
fn tensors_in_the_protocols_that_torch_writes() {
    let mut p = Pickle::dict();
    p.tensor("a", "0", DType::BF16, 6, (1, &[2, 2], &[3, 1])).text("note").text("hi").raw(b"s");
    let contents_bytes = p.stop();
    let contents = read(&contents_bytes).unwrap();
    let t = &contents.tensors[0];
    assert_eq!((t.name, t.tensor.offset, &t.tensor.shape[..], &t.tensor.strides[..]), ("a", 1, &[2, 2][..], &[3, 1][..]));
    assert_eq!(t.tensor.storage, objects::Storage { key: "0", dtype: DType::BF16, n_elements: 6 });
    assert!(contents.keys.contains("note"));

    // A pickle of protocol 4, with frames, short texts, STACK_GLOBAL and MEMOIZE. The tensor is wrapped as a parameter, and its sizes are
    // LONG1.
    let mut p: Vec<u8> = b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94\x8c\x01w\x94".to_vec();
    p.extend(b"\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_parameter\x94\x93\x94(");
    p.extend(b"\x8c\x0ctorch._utils\x8c\x12_rebuild_tensor_v2\x93((\x8c\x07storage\x8c\x05torch\x8c\x0cFloatStorage\x93\x8c\x017\x8c\x03cpu\x8a\x02\x00\x01tQ");
    p.extend(b"K\0\x8a\0\x85K\x01\x85\x89Nt");
    p.extend(b"R\x88Nt");
    p.extend(b"Rs.");
    let contents = read(&p).unwrap();
    assert_eq!(contents.tensors[0].tensor.storage.n_elements, 256);
    assert_eq!(contents.tensors[0].tensor.shape, [0]);
}

#[test]
fn code_is_named_and_not_run() {
    assert!(
        refusal(b"\x80\x02cos\nsystem\n(X\x02\0\0\0lstR.")
            .contains("the pickle asks to run the Python function os.system; nothing was executed")
    );
    assert!(refusal(b"\x80\x04\x8c\x05posix\x8c\x06system\x93.").contains("posix.system"));
    assert!(refusal(b"\x80\x02cbuiltins\neval\n.").contains("builtins.eval"));
    assert!(refusal(b"\x80\x02ctorch\nload\n.").contains("torch.load"));
    assert!(refusal(b"\x80\x02ctorch\nComplexFloatStorage\n.").contains("torch.ComplexFloatStorage"));
    assert!(refusal(b"\x80\x02ccollections\nOrderedDict\n)\x81.").contains("the instruction 0x81"));
    assert!(refusal(b"(ios\nsystem\n.").contains("the instruction 0x69"));
    assert!(!refusal(b"\x80\x02cos\nsys\x1b[31mtem\x07\n.").contains('\x1b'));
    assert!(refusal(b"\x80\x09.").contains("protocol"));
}

#[test]
fn bombs_stay_small() {
    let deep = [b"\x80\x02".to_vec(), b"(".repeat(100_000), b"t".repeat(100_000), b".".to_vec()].concat();
    assert!(refusal(&deep).contains("nested more than 256 deep"));
    let lists = [b"]".repeat(100_000), b"a".repeat(99_999), b".".to_vec()].concat();
    assert!(refusal(&lists).contains("expected a dictionary of tensors in the pickle, found a list"));
    let wrapped = [b")".to_vec(), b"\x85".repeat(100_000), b".".to_vec()].concat();
    assert!(refusal(&wrapped).contains("found a tuple"));
    // Each level holds the previous level twice: 2^200 objects if expanded.
    let doubling = [b"]q\0".to_vec(), b"]h\0ah\0aq\0".repeat(200), b".".to_vec()].concat();
    assert!(refusal(&doubling).contains("found a list"));
    let itself = b"}q\0X\x01\0\0\0kh\0s.".to_vec();
    assert!(read(&itself).unwrap().tensors.is_empty());
    let too_much = "refused: the pickle takes more than 256.00 MiB of memory (the checkpoint is hostile or damaged";
    assert!(refusal(&[b"N0".repeat(3 << 22), b".".to_vec()].concat()).contains(too_much), "values");
    let texts = b"\x8c\x00".repeat(1 << 23);
    assert!(refusal(&texts).contains(too_much), "stack");
    assert!(refusal(b"X\xff\xff\xff\xff").contains("4294967295"));
    assert!(refusal(&[b"\x8d".to_vec(), vec![0xff; 8]].concat()).contains("18446744073709551615"));
    assert!(refusal(b"\x8a\xff").contains("expected 255 more bytes"));
}

/// Each call of `OrderedDict` copies all pairs of its list: 8 bytes of pickle take 800 KB.
#[test]
fn copies_of_a_list_are_paid_for() {
    let copies = |n: usize| {
        let list = [b"]q\0NN\x86q\x010(".to_vec(), b"h\x01".repeat(100_000), b"e0".to_vec()].concat();
        let call = b"ccollections\nOrderedDict\nq\x02".to_vec();
        [b"(".to_vec(), list, call, b"h\x02h\0\x85R".repeat(n), b"t0}.".to_vec()].concat()
    };
    assert!(refusal(&copies(2_500)).contains("takes more than 256.00 MiB"));
    assert!(read(&copies(20)).unwrap().tensors.is_empty());
}

#[test]
fn long_names_are_refused() {
    let mut p = Pickle::dict();
    p.text(&"a.".repeat(257)).text("no tensor").raw(b"s");
    assert!(read(&p.stop()).unwrap().keys.is_empty());
    let mut p = Pickle::dict();
    p.tensor(&"a.".repeat(257), "0", DType::F32, 1, (0, &[1], &[1]));
    let said = refusal(&p.stop());
    assert!(said.contains("expected a tensor name of at most 512 bytes, found 514") && said.len() < 250, "{said}");
}

#[test]
fn wrong_types_are_named() {
    assert!(refusal(b"N.").contains("found another value"));
    assert!(refusal(b"K\x01R.").contains("uses an object that it has not made"));
    assert!(refusal(b"(K\x010.").contains("uses an object that it has not made"));
    assert!(refusal(b"K\x01K\x02R.").contains("expected a function in the pickle, found an integer"));
    assert!(refusal(b"K\x01(0.").contains("uses an object that it has not made"), "an outer object is out of reach");
    assert!(refusal(b"h\x05.").contains("object 5"));
    assert!(refusal(b"(K\x01Q.").contains("tuple"));
    assert!(refusal(b"}K\x01a.").contains("expected a list in the pickle, found a dictionary"));
    assert!(refusal(b"](K\x01u.").contains("a key without a value"));
    assert!(refusal(b"U\x01\xff.").contains("UTF-8"));
    let mut p = Pickle::dict();
    p.tensor("a", "0", DType::F32, 1, (0, &[1], &[1])).tensor("a", "0", DType::F32, 1, (0, &[1], &[1]));
    assert!(refusal(&p.stop()).contains("tensor a: two tensors"));
    let mut p = Pickle::dict();
    p.tensor("a", "0", DType::F32, 1, (0, &[1; 9], &[1; 9]));
    assert!(refusal(&p.stop()).contains("dimensions"));
}
