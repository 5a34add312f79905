//! Importance matrices as GGUF files. A matrix has the tensors `NAME.in_sum2`, the sums of squares, and `NAME.counts`, the numbers of rows.

use super::{Calibration, ColumnSums};
use crate::error::{Error, Result, short};
use crate::tensor::DType;
use crate::weights::gguf::write::head;
use crate::weights::gguf::{GgufValue, Header};
use crate::weights::new_file::Readers;
use crate::weights::write::{NewTensor, write_file};
use std::collections::BTreeMap;
use std::path::Path;

const TYPE: &str = "general.type";
const IMATRIX: &str = "imatrix";
const DATASETS: &str = "imatrix.datasets";
const CHUNKS: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SQUARES: &str = ".in_sum2";
const COUNTS: &str = ".counts";

pub fn parse(bytes: &[u8]) -> Result<Calibration> {
    let header = Header::read(bytes, bytes.len() as u64)?;
    let found = header.metadata.get(TYPE).map_or("no type", String::as_str);
    if found != IMATRIX {
        let e = Error::file(format!("expected a GGUF file of the type {IMATRIX}, found {}", short(found, 64)));
        return Err(e.hint("give a text, or a file that `wingbeat imatrix` or llama-imatrix wrote"));
    }
    let mut sums: BTreeMap<&str, ColumnSums> = BTreeMap::new();
    for t in header.tensors()? {
        let at = |e: Error| e.at(format!("tensor {}", t.name));
        let (name, is_counts) = match (t.name.strip_suffix(SQUARES), t.name.strip_suffix(COUNTS)) {
            (Some(name), _) => (name, false),
            (None, Some(name)) => (name, true),
            (None, None) => return Err(at(Error::file(format!("expected a name that ends with {SQUARES} or {COUNTS}")))),
        };
        if t.dtype != DType::F32 {
            return Err(at(Error::file(format!("expected an importance matrix of F32 numbers, found {}", t.dtype))));
        }
        let numbers = bytes[t.bytes].as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let own = sums.entry(name).or_default();
        *(if is_counts { &mut own.counts } else { &mut own.squares }) = numbers;
    }
    let whole = |key: &str| header.metadata.get(key).and_then(|n| n.parse().ok()).unwrap_or(0);
    let datasets = header.texts(DATASETS)?.unwrap_or_default();
    Ok(Calibration {
        datasets: datasets.into_iter().map(str::to_string).collect(),
        n_chunks: whole(CHUNKS),
        chunk_size: whole(CHUNK_SIZE),
        ..Calibration::new(sums.into_iter().map(|(name, sums)| (name.to_string(), sums)))?
    })
}

pub fn write(calibration: &Calibration, path: &Path) -> Result<()> {
    let values = [
        (TYPE, GgufValue::Text(IMATRIX.to_string())),
        (DATASETS, GgufValue::Texts(calibration.datasets.clone())),
        (CHUNKS, GgufValue::U32(calibration.n_chunks)),
        (CHUNK_SIZE, GgufValue::U32(calibration.chunk_size)),
    ];
    let mut entries = Vec::new();
    for (name, ColumnSums { squares, counts }) in calibration.sums() {
        let (n, columns) = (counts.len(), squares.len() / counts.len());
        entries.push(tensor(format!("{name}{SQUARES}"), if n == 1 { vec![columns] } else { vec![n, columns] }, squares));
        entries.push(tensor(format!("{name}{COUNTS}"), if n == 1 { vec![1] } else { vec![n, 1] }, counts));
    }
    let values = values.map(|(key, value)| (key.to_string(), value));
    let head = head(&values, &entries).map_err(|e| e.at(path.display()))?;
    write_file(Readers::Umask, path, &head, entries, &mut |_, _| ())
}

fn tensor<'a>(name: String, shape: Vec<usize>, numbers: &'a [f32]) -> NewTensor<'a> {
    let data = move |out: &mut dyn std::io::Write| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(|e| Error::io(e, Path::new("output")))
    };
    NewTensor { name, dtype: DType::F32, shape, data: Box::new(data) }
}
