//! Tests both file formats with files that are made byte by byte, as llama.cpp writes them, and with damaged files.

use super::*;
use crate::weights::hostile::small_gguf;
use crate::weights::testing::{Dice, Gguf, put, singles};

const KEY: &str = "blk.0.ffn_up.weight";

/// Returns a GGUF file as llama.cpp writes it. `change` may add to the file.
fn made(change: &dyn Fn(&mut Gguf)) -> Vec<u8> {
    let mut g = Gguf::new("");
    g.text("general.type", "imatrix").texts("imatrix.datasets", &["wiki.txt"]);
    g.u32("imatrix.chunk_count", 3).u32("imatrix.chunk_size", 512);
    g.tensor("blk.0.ffn_up.weight.in_sum2", 0, &[3], &singles(&[6.0, 0.0, 1.5]));
    g.tensor("blk.0.ffn_up.weight.counts", 0, &[1], &singles(&[3.0]));
    g.tensor("blk.1.time_mix_w2.weight.in_sum2", 0, &[2, 2], &singles(&[1.0, 2.0, 3.0, 4.0]));
    g.tensor("blk.1.time_mix_w2.weight.counts", 0, &[2, 1], &singles(&[1.0, 2.0]));
    change(&mut g);
    g.finish()
}

fn entry(name: &str, calls: i32, values: &[f32]) -> Vec<u8> {
    let number = |n: usize| (n as i32).to_le_bytes();
    [&number(name.len())[..], name.as_bytes(), &calls.to_le_bytes(), &number(values.len()), &singles(values)].concat()
}

/// Returns a file of the older format with these entries.
fn dat(entries: &[Vec<u8>]) -> Vec<u8> {
    [&(entries.len() as i32).to_le_bytes()[..], &entries.concat()].concat()
}

/// Returns a file of the older format, the length of its entries, and the length with the last chunk.
fn whole_dat() -> (Vec<u8>, [usize; 2]) {
    let mut bytes = dat(&[entry(KEY, 4, &[8.0, 2.0, 0.0]), entry("output.weight", 1, &[5.0])]);
    let n_entries = bytes.len();
    bytes.extend(7i32.to_le_bytes());
    let n_chunks = bytes.len();
    bytes.extend([&8i32.to_le_bytes()[..], b"wiki.txt"].concat());
    (bytes, [n_entries, n_chunks])
}

fn refused(bytes: &[u8]) -> String {
    let e = Calibration::parse(bytes).unwrap_err();
    assert!(e.to_string().lines().count() == 1 && e.kind == crate::error::Kind::File, "{e}");
    e.to_string()
}

#[test]
fn both_formats_of_llama_cpp_are_read() {
    let found = Calibration::parse(&made(&|_| ())).unwrap();
    assert_eq!(found.mean_squares(KEY), Some(vec![2.0, 0.0, 0.5]));
    assert_eq!(found.mean_squares("blk.1.time_mix_w2.weight"), Some(vec![1.0, 2.0, 1.5, 2.0]));
    assert_eq!((found.mean_squares("output.weight"), found.names().count()), (None, 2));
    assert_eq!((found.datasets.as_slice(), found.n_chunks, found.chunk_size), (&["wiki.txt".to_string()][..], 3, 512));

    let (bytes, ends) = whole_dat();
    let found = Calibration::parse(&bytes).unwrap();
    assert_eq!((found.mean_squares(KEY), found.mean_squares("output.weight")), (Some(vec![2.0, 0.5, 0.0]), Some(vec![5.0])));
    assert_eq!((found.datasets.as_slice(), found.n_chunks, found.chunk_size), (&["wiki.txt".to_string()][..], 7, 0));
    // Early files of this format end after the entries or after the last chunk.
    for end in ends {
        assert_eq!(Calibration::parse(&bytes[..end]).unwrap().mean_squares(KEY), found.mean_squares(KEY));
    }
    assert!(Calibration::is_one(&bytes[..8]) && Calibration::is_one(b"GGUF\x03\0\0\0"));
    assert!(!Calibration::is_one(b"In the beginning") && !Calibration::is_one(b"") && !Calibration::is_one("Ü".as_bytes()));
}

#[test]
fn a_written_file_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("imatrix.gguf");
    for bytes in [made(&|_| ()), whole_dat().0] {
        let first = Calibration::open(&put(&dir, "in", &bytes)).unwrap();
        first.write(&path).unwrap();
        assert_eq!(Calibration::open(&path).unwrap(), first);
    }
    // The header has what llama.cpp looks for, and no dimensions of size 1 after the columns.
    let first = Calibration::parse(&made(&|_| ())).unwrap();
    first.write(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let header = crate::weights::gguf::Header::read(&bytes, bytes.len() as u64).unwrap();
    let shapes: Vec<_> = header.tensors().unwrap().into_iter().map(|t| (t.name.to_string(), t.shape)).collect();
    let expected = [
        ("blk.0.ffn_up.weight.in_sum2", vec![3]),
        ("blk.0.ffn_up.weight.counts", vec![1]),
        ("blk.1.time_mix_w2.weight.in_sum2", vec![2, 2]),
        ("blk.1.time_mix_w2.weight.counts", vec![2, 1]),
    ];
    assert_eq!(shapes, expected.map(|(name, shape)| (name.to_string(), shape)));
    assert_eq!(header.texts("imatrix.datasets").unwrap(), Some(vec!["wiki.txt"]));
}

#[test]
fn wrong_numbers_and_sizes_are_named() {
    let with = |name: &str, shape: &[usize], numbers: &[f32]| {
        refused(&made(&|g| {
            g.tensor(name, 0, shape, &singles(numbers));
        }))
    };
    for x in [f32::NAN, f32::INFINITY, -1.0] {
        let shown = format!("expected numbers of at least 0, found {x}");
        assert!(refused(&dat(&[entry(KEY, 1, &[1.0, x])])).contains(&shown));
        let changed = made(&|g| {
            g.tensor("a.in_sum2", 0, &[1], &singles(&[x])).tensor("a.counts", 0, &[1], &singles(&[1.0]));
        });
        assert!(refused(&changed).contains(&shown) && refused(&changed).contains("matrix a"));
    }
    assert!(refused(&dat(&[entry(KEY, -4, &[1.0])])).contains("found -4"));
    assert!(refused(&dat(&[entry(KEY, 1, &[1.0]), entry(KEY, 1, &[1.0])])).contains("two matrices have this name"));
    assert!(with("a.counts", &[1], &[1.0]).contains("found 0 sums and 1 counts"));
    assert!(with("a.in_sum2", &[1], &[1.0]).contains("found 1 sums and 0 counts"));
    assert!(with("a.sums", &[1], &[1.0]).contains(".in_sum2 or .counts"));
    let odd = made(&|g| {
        g.tensor("a.in_sum2", 0, &[3], &singles(&[1.0; 3])).tensor("a.counts", 0, &[2], &singles(&[1.0; 2]));
    });
    assert!(refused(&odd).contains("found 3 sums and 2 counts"));
    let halves = made(&|g| {
        g.tensor("a.in_sum2", 1, &[2], &[0; 4]);
    });
    assert!(refused(&halves).contains("F32 numbers, found F16"));
    assert!(refused(&small_gguf()).contains("of the type imatrix, found no type"));
    // A matrix without inputs has no mean. This is not an error, because another file may have inputs for the matrix.
    assert_eq!(Calibration::parse(&dat(&[entry(KEY, 0, &[0.0])])).unwrap().mean_squares(KEY), None);
}

#[test]
fn truncated_and_damaged_files_are_errors() {
    let (bytes, ends) = whole_dat();
    for end in (0..bytes.len()).filter(|end| !ends.contains(end)) {
        refused(&bytes[..end]);
    }
    assert!(refused(&[bytes.as_slice(), b"x"].concat()).contains("1 more bytes"));
    let gguf = made(&|_| ());
    let last = gguf.len() - 24; // the last tensor, before its padding
    (0..last).for_each(|end| drop(refused(&gguf[..end])));
    // A count beyond the file takes no memory.
    for n in [i32::MAX, i32::MIN, 0, -1] {
        let mut bytes = bytes.clone();
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        refused(&bytes);
        bytes[..8].copy_from_slice(&[&1i32.to_le_bytes()[..], &n.to_le_bytes()].concat());
        refused(&bytes);
    }
    let mut dice = Dice(7);
    for whole in [&bytes, &gguf] {
        for _ in 0..4000 {
            let mut damaged = whole.clone();
            let at = dice.roll(damaged.len());
            damaged[at] ^= 1 << dice.roll(8);
            let _ = Calibration::parse(&damaged);
        }
    }
}
