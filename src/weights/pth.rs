//! `.pth` files: a zip archive with one pickle that describes tensors, and one member of raw elements per storage.
//!
//! This module connects the modules `archive` and `pickle`, and does not know the purpose of the tensors.

use super::image::Image;
use super::located::{LocatedTensor, check_shape};
use super::{archive, pickle};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// The maximum size of a pickle, in bytes. The pickle of 10 000 tensors has 1 MB.
const MAX_PICKLE_BYTES: usize = 16 << 20;
/// The keys that the Python package `rwkv` adds to a file when it converts a model for one strategy.
const CONVERTED: [&str; 3] = ["_strategy", "_version", "_rescale_layer"];

/// The key, in a `.pth` and in metadata, of the list of layers that a reranker of EmbeddingRWKV reads from the embedding model. In a `.pth`, the
/// value is a list of numbers. In metadata, the value is a text with commas between the numbers.
pub const RERANKER_LAYERS: &str = "reranker_layer_idx";

/// The members of the archive that are read before the tensors.
pub(super) const MEMBERS: [&str; 2] = ["data.pkl", "byteorder"];

/// Returns the tensors of a `.pth` file, and the metadata. The metadata are empty, or have the list [`RERANKER_LAYERS`] if the file has this list.
///
/// # Errors
///
/// `File` if the archive is damaged or hostile, if it is not a torch checkpoint, or if a tensor is outside of its storage.
pub(super) fn parse(file: Image<'_>) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
    let members = archive::members(file)?;
    let mut pickles = members.iter().filter(|(name, _)| name.split('/').next_back() == Some("data.pkl"));
    let (name, range) = match (pickles.next(), pickles.next()) {
        (Some(one), None) => one,
        (None, _) => {
            let e = Error::file("expected a torch checkpoint, found a zip archive without data.pkl");
            return Err(e.hint("if the archive holds a checkpoint file, unpack the archive first"));
        }
        (Some((a, _)), Some((b, _))) => return Err(Error::file(format!("expected one data.pkl in the zip archive, found {a} and {b}"))),
    };
    let root = name.strip_suffix("data.pkl").unwrap_or_default();
    if let Some(range) = members.get(&format!("{root}byteorder")) {
        let order = file.slice(range.clone())?;
        if order.trim_ascii() != b"little" {
            let found = String::from_utf8_lossy(&order[..order.len().min(16)]).into_owned();
            return Err(Error::file(format!("expected little-endian numbers, found byteorder '{found}'"))
                .hint("save the checkpoint again from torch on a little-endian machine"));
        }
    }
    if range.len() > MAX_PICKLE_BYTES {
        return Err(Error::file(format!("expected a data.pkl of at most {MAX_PICKLE_BYTES} bytes, found {} bytes", range.len())));
    }
    let contents = pickle::read(file.slice(range.clone())?).map_err(|e| e.at(name))?;
    if let Some(key) = CONVERTED.iter().find(|k| contents.keys.contains(*k)) {
        return Err(Error::file(format!(
            "the Python package rwkv has converted this checkpoint for one strategy, and only that package can read it (found the key {key})"
        ))
        .hint("use the original .pth file of the model"));
    }
    let text = |list: &Vec<usize>| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let layers = contents.lists.get(RERANKER_LAYERS).map(|list| (RERANKER_LAYERS.to_string(), text(list)));
    let located = |t| locate(t, root, |member| members.get(member).cloned()).map_err(|e| e.at(format!("tensor {}", t.name)));
    Ok((contents.tensors.iter().map(located).collect::<Result<_>>()?, layers.into_iter().collect()))
}

/// Returns the place of a tensor in the file. `root` is the prefix of the members' names. `member` returns the byte range of a member.
fn locate(t: &pickle::NamedTensor<'_>, root: &str, member: impl Fn(&str) -> Option<Range<usize>>) -> Result<LocatedTensor> {
    let (tensor, storage) = (&t.tensor, &t.tensor.storage);
    check_shape(&tensor.shape)?;
    let name = format!("{root}data/{}", storage.key);
    let range =
        member(&name).ok_or_else(|| Error::file(format!("the zip archive has no file {name}, which holds the numbers of this tensor")))?;
    let Some(stored_bytes) = storage.dtype.bytes_of(storage.n_elements).filter(|&n| n <= range.len()) else {
        return Err(Error::file(format!(
            "expected {} numbers of type {} in the file {name}, but the file has only {} bytes",
            storage.n_elements,
            storage.dtype,
            range.len()
        )));
    };
    let end = range.start + stored_bytes;
    let start = storage.dtype.bytes_of(tensor.offset).and_then(|n| n.checked_add(range.start)).filter(|&n| n <= end);
    let start = start.ok_or_else(|| {
        Error::file(format!("the tensor begins at number {}, but the file {name} has {} numbers", tensor.offset, storage.n_elements))
    })?;
    // Strides may skip or reorder elements, but not repeat them. With repeats, a few bytes could claim terabytes.
    let n_elements: usize = tensor.shape.iter().product();
    if n_elements > storage.n_elements {
        let text = format!("the tensor has the shape {:?}, but the file {name} has only {} numbers", tensor.shape, storage.n_elements);
        return Err(Error::file(text));
    }
    let (shape, strides) = (tensor.shape.clone(), tensor.strides.clone());
    Ok(LocatedTensor {
        name: t.name.to_string(),
        dtype: storage.dtype,
        shape,
        strides,
        bytes: start..end,
        scale: 1.0,
        file: 0,
        coding: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pickle, singles, zip};
    use super::*;
    use crate::tensor::DType;

    fn refusal(pickle: &[u8], more: &[(&str, &[u8])]) -> String {
        let numbers = singles(&[1., 2., 3., 4.]);
        let mut members: Vec<(&str, &[u8])> = vec![("r/data.pkl", pickle), ("r/data/0", &numbers)];
        members.extend(more);
        match parse(Image::Whole(&zip(&members))).and_then(|(ts, _)| ts.iter().try_for_each(|t| t.view(&zip(&members)).map(|_| ()))) {
            Ok(()) => "accepted".into(),
            Err(e) => e.to_string(),
        }
    }

    fn one(n: usize, place: (usize, &[usize], &[usize])) -> Vec<u8> {
        let mut p = Pickle::dict();
        p.tensor("emb.weight", "0", DType::F32, n, place);
        p.stop()
    }

    #[test]
    fn a_tensor_outside_of_its_storage_is_refused() {
        assert_eq!(refusal(&one(4, (0, &[2, 2], &[2, 1])), &[]), "accepted");
        assert_eq!(refusal(&one(4, (3, &[1], &[1])), &[("r/byteorder", b"little")]), "accepted");
        assert!(refusal(&one(5, (0, &[1], &[1])), &[]).contains("tensor emb.weight: expected 5 numbers"));
        assert!(refusal(&one(4, (5, &[1], &[1])), &[]).contains("begins at number 5"));
        assert!(refusal(&one(4, (4, &[1], &[1])), &[]).contains("needs 4 bytes"));
        assert!(refusal(&one(4, (0, &[2, 2], &[3, 1])), &[]).contains("needs 20 bytes"));
        assert!(refusal(&one(4, (0, &[2, 2], &[usize::MAX >> 1, 1])), &[]).contains("too large for this machine"));
        assert!(refusal(&one(4, (0, &[usize::MAX >> 1, 9], &[1, 1])), &[]).contains("too large for this machine"));
        assert!(refusal(&one(4, (0, &[2, 2], &[1])), &[]).contains("strides"));
        assert!(refusal(&one(usize::MAX >> 2, (0, &[1], &[1])), &[]).contains("numbers"));
    }

    #[test]
    fn members_around_the_pickle() {
        let good = one(4, (0, &[4], &[1]));
        assert!(refusal(&good, &[("r/byteorder", b"big")]).contains("byteorder 'big'"));
        assert!(
            refusal(&good, &[("s/data.pkl", b".")]).contains("expected one data.pkl in the zip archive, found r/data.pkl and s/data.pkl")
        );
        assert!(parse(Image::Whole(&zip(&[("a", b"b")]))).unwrap_err().to_string().contains("found a zip archive without data.pkl"));
        let mut lost = Pickle::dict();
        lost.tensor("emb.weight", "7", DType::F32, 4, (0, &[4], &[1]));
        assert!(refusal(&lost.stop(), &[]).contains("the zip archive has no file r/data/7, which holds the"));
        for key in CONVERTED {
            let mut p = Pickle::dict();
            p.text(key).text("cuda fp16").raw(b"s");
            assert!(refusal(&p.stop(), &[]).contains("Python package rwkv"));
        }
    }
}
