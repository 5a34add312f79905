//! Checkpoints whose files are read by ranges: reads the headers first, and tensors when they are needed.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges may have one range")]

use super::locate::{self, FileKind};
use super::located::LocatedTensor;
use super::{Checkpoint, TensorSlot, archive, gguf, pth, reshaped, safetensors};
use crate::error::{Error, Result, size};
use crate::files::{Files, Parts, joined};
use crate::tensor::{View, dense_strides};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The number of bytes at the beginning of a file that show its format.
const MAGIC_BYTES: u64 = 16;
/// The maximum size of a file beside the weights, in bytes: a vocabulary, a configuration or an index. Larger files are not read.
const MAX_SIDE_BYTES: u64 = 64 << 20;

impl Checkpoint {
    /// Reads the headers of the checkpoints among `files`, and all bytes of the small files beside them. Leaves out other large files. If `main` is
    /// the name of a single checkpoint file, the other checkpoints are left out.
    ///
    /// # Errors
    ///
    /// `File` if a file cannot be read; `Memory` if a file is too large for the addresses of this machine.
    pub async fn fetch_heads(files: &Files, main: Option<&str>) -> Result<()> {
        let is_shard = |name: &str| name.contains("-of-") || name.ends_with(".index.json");
        let main = main.filter(|main| !is_shard(main));
        files.fetch_heads(&|name, parts| needed(parts, main.is_some_and(|main| main != name))).await
    }

    /// Returns whether tensors must be fetched before they can be read.
    pub fn is_ranged(&self) -> bool {
        self.0.maps.iter().any(|map| map.ranged().is_some())
    }

    /// Reads tensors of files that are read by ranges. Unknown names and tensors in memory are left out.
    ///
    /// # Errors
    ///
    /// `File` if a range cannot be read.
    pub async fn fetch(&self, names: &[&str]) -> Result<FetchedTensors> {
        let wanted = names.iter().filter_map(|&name| Some((name, self.slot(name)?)));
        let wanted: Vec<_> = wanted.filter(|(_, slot)| self.0.maps[slot.located.file].ranged().is_some()).collect();
        let mut tensors = HashMap::new();
        for (file, map) in self.0.maps.iter().enumerate() {
            let own: Vec<_> = wanted.iter().filter(|(_, slot)| slot.located.file == file).collect();
            let Some(ranged) = map.ranged().filter(|_| !own.is_empty()) else { continue };
            let range = |slot: &TensorSlot| slot.located.bytes.start as u64..slot.located.bytes.end as u64;
            let runs = joined(own.iter().map(|(_, slot)| range(slot)).collect());
            let read = ranged.read(runs.clone()).await.map_err(|e| e.at(self.location()))?;
            let read: Vec<Arc<Vec<u8>>> = read.into_iter().map(Arc::new).collect();
            for (name, slot) in own {
                let own = range(slot);
                let run = runs.iter().position(|run| run.start <= own.start && own.end <= run.end).expect("a run covers every range");
                let start = (own.start - runs[run].start) as usize;
                tensors.insert(name.to_string(), (read[run].clone(), start..start + slot.located.bytes.len()));
            }
        }
        Ok(FetchedTensors { checkpoint: self.clone(), tensors })
    }

    /// Reads parts of tensors. An entry `(name, at, n)` of `wanted` requests `n` elements of a tensor, from element `at` on. Reads as few bytes as
    /// the tensor's format allows.
    ///
    /// # Errors
    ///
    /// `Model` if a tensor is missing; `File` if a range cannot be read.
    pub async fn elements(&self, wanted: &[(&str, usize, usize)]) -> Result<Vec<Vec<f32>>> {
        let mut found = Vec::new();
        for &(name, at, n) in wanted {
            let slot = self.slot(name).ok_or_else(|| Error::model("the tensor is missing").at(self.place_of(name)))?;
            let mut numbers = vec![0.0; n];
            match (self.0.maps[slot.located.file].ranged(), excerpt(slot, at, n)) {
                (Some(file), Some(part)) => {
                    let bytes = file.read(vec![part.bytes.start as u64..part.bytes.end as u64]).await?.concat();
                    part.view_of(&bytes)?.read_f32(0, &mut numbers)?;
                }
                _ => {
                    let fetched = self.fetch(&[name]).await?;
                    let shape = slot.shape();
                    fetched.require(name, &shape)?.read_f32(at, &mut numbers)?;
                }
            }
            found.push(numbers);
        }
        Ok(found)
    }
}

/// Returns the ranges of a file that must be in memory before its tensors are read, or `None` if the file is left out. `is_other` is true for a
/// checkpoint other than the main one.
fn needed(parts: &Parts, is_other: bool) -> Result<Option<Vec<Range<u64>>>> {
    let (head, bytes) = (parts.head(), parts.size);
    let begin = |n: u64| Ok(Some(vec![0..n]));
    if (head.len() as u64) < MAGIC_BYTES.min(bytes) {
        return begin(MAGIC_BYTES);
    }
    let Ok(kind) = locate::sniff(head) else { return if bytes <= MAX_SIDE_BYTES { begin(bytes) } else { Ok(None) } };
    if is_other {
        return Ok(None);
    }
    if usize::try_from(bytes).is_err() {
        let e = Error::memory(format!("expected a file of at most 4 GiB, found {}: a browser has no longer addresses", size(bytes)));
        return Err(e.hint("split it with `wingbeat convert`, which writes files of the size in `shard`"));
    }
    match kind {
        FileKind::Safetensors => begin(safetensors::header_bytes(head)),
        FileKind::Gguf => begin(gguf::header_bytes(head, bytes)),
        FileKind::Pth => Ok(Some(archive::needed(parts, &pth::MEMBERS))),
    }
}

/// Returns elements `at..at + n` of a tensor as a tensor of one dimension. Returns `None` if the file does not store them as one range.
fn excerpt(slot: &TensorSlot, at: usize, n: usize) -> Option<LocatedTensor> {
    let own = &slot.located;
    let is_dense = own.coding.is_none() && own.strides == dense_strides(&own.shape);
    let width = own.dtype.size_bytes().filter(|_| is_dense && !slot.swapped)?;
    let start = own.bytes.start + at * width;
    (start + n * width <= own.bytes.end).then(|| LocatedTensor {
        shape: vec![n],
        strides: vec![1],
        bytes: start..start + n * width,
        ..own.clone()
    })
}

/// Tensors of a checkpoint that were read into memory. Requests for other tensors go to the checkpoint itself.
pub struct FetchedTensors {
    checkpoint: Checkpoint,
    /// The bytes of each tensor, as a range of bytes that were read together.
    tensors: HashMap<String, (Arc<Vec<u8>>, Range<usize>)>,
}

impl FetchedTensors {
    /// Returns the checkpoint of the tensors.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns a view of a tensor as [`Checkpoint::require`] does. Also finds the fetched tensors of a file that is read by ranges.
    ///
    /// # Errors
    ///
    /// `Model` if the tensor is missing, has another shape or was not fetched.
    pub fn require(&self, name: &str, shape: &[usize]) -> Result<View<'_>> {
        let Some((bytes, range)) = self.tensors.get(name) else { return self.checkpoint.require(name, shape) };
        self.checkpoint.check_shape(name, shape)?;
        let slot = self.checkpoint.slot(name).expect("it was fetched");
        let view = slot.located.view_of(&bytes[range.clone()]).map(|view| slot.oriented(view));
        view.and_then(|view| reshaped(view, shape)).map_err(|e| e.at(self.checkpoint.place_of(name)))
    }

    /// Returns the memory that holds a tensor, or `None` if the tensor was not fetched.
    pub fn memory_of(&self, name: &str) -> Option<Arc<Vec<u8>>> {
        self.tensors.get(name).map(|(bytes, _)| bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gguf, halves, pth, put, q8_0, singles};
    use super::*;
    use crate::files::{ReadRanges, Reading};
    use crate::tensor::DType;
    use std::sync::Mutex;

    /// A file in memory that records the ranges that are read.
    struct Counted(Vec<u8>, Arc<Mutex<Vec<Range<u64>>>>);

    impl ReadRanges for Counted {
        fn read(&self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Vec<u8>>> {
            self.1.lock().unwrap().extend(ranges.clone());
            Box::pin(async move { Ok(ranges.iter().map(|r| self.0[r.start as usize..r.end as usize].to_vec()).collect()) })
        }
    }

    static TINY: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/models/small-world.safetensors"));

    fn all() -> [(&'static str, Vec<u8>); 3] {
        let (x, shape) = ((0..64).map(|i| i as f32).collect::<Vec<_>>(), [2, 32]);
        let tensors: [(&str, DType, &[usize], &[u8]); 4] = [
            ("emb.weight", DType::F16, &shape, &halves(&x)),
            ("head.weight", DType::Q8_0, &shape, &q8_0(&x)),
            ("blocks.0.ffn.value.weight", DType::F32, &shape, &singles(&x)),
            ("blocks.1.ffn.value.weight", DType::F32, &shape, &singles(&x)),
        ];
        let long: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
        let long = singles(&long);
        let names = ["emb.weight", "head.weight", "blocks.0.ffn.value.weight"];
        let pth = pth(&names.map(|name| (name, DType::F32, &[100, 1000][..], long.as_slice())));
        [("m.safetensors", TINY.to_vec()), ("m.gguf", gguf("rwkv6", &[("rescale_every_n_layers", 1)], &tensors)), ("m.pth", pth)]
    }

    fn ranged(name: &str, bytes: &[u8]) -> (Files, Arc<Mutex<Vec<Range<u64>>>>) {
        let (files, read) = (Files::new("m"), Arc::new(Mutex::new(Vec::new())));
        files.add_ranged(name, bytes.len() as u64, Arc::new(Counted(bytes.to_vec(), read.clone()))).unwrap();
        pollster::block_on(Checkpoint::fetch_heads(&files, None)).unwrap();
        (files, read)
    }

    #[test]
    fn tensors_are_equal_to_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in all() {
            let path = put(&dir, name, &bytes);
            let (files, read) = ranged(name, &bytes);
            let (whole, by_ranges) = (Checkpoint::open(&path).unwrap(), Checkpoint::open(files.folder()).unwrap());
            assert_eq!(whole.metadata(), by_ranges.metadata(), "{name}");
            assert_eq!(whole.names().collect::<Vec<_>>(), by_ranges.names().collect::<Vec<_>>(), "{name}");
            // All of a small file is read with its header.
            assert_eq!(by_ranges.is_ranged(), name != "m.gguf", "{name}");
            read.lock().unwrap().clear();
            for tensor in whole.names() {
                let shape = whole.shape(tensor).unwrap();
                let (want, fetched) = (whole.require(tensor, &shape).unwrap(), pollster::block_on(by_ranges.fetch(&[tensor])).unwrap());
                let found = fetched.require(tensor, &shape).unwrap();
                assert_eq!((found.dtype(), by_ranges.stored_dtype(tensor)), (want.dtype(), Some(want.dtype())), "{name} {tensor}");
                assert_eq!(found.to_f32().unwrap(), want.to_f32().unwrap(), "{name} {tensor}");
                let n = want.len().min(3);
                let some = pollster::block_on(by_ranges.elements(&[(tensor, want.len() - n, n)])).unwrap().concat();
                assert_eq!(some, want.to_f32().unwrap()[want.len() - n..], "{name} {tensor}");
            }
            assert!(read.lock().unwrap().iter().all(|r| r.end - r.start < 600_000), "{name}");
        }
    }

    #[test]
    fn a_cut_file_is_refused() {
        let (files, _) = ranged("m.safetensors", &TINY[..TINY.len() - 1]);
        assert!(Checkpoint::open(files.folder()).unwrap_err().to_string().contains("but its safetensors header describes"));
    }
}
