//! Tests that models from files that the caller hands over, whole or by ranges, have the weights and logits of the same files on disk.

use crate::support::{devices, floats, goldens, options, read};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use wingbeat::files::{Files, ReadRanges, Reading};
use wingbeat::low_level::session::{Model, ModelSource, Options, StateOrientation, convert_coded, embedded};
use wingbeat::low_level::weights::{Checkpoint, Conversion, convert, write_safetensors};
use wingbeat::vocab::Vocab;

/// A file in memory that is read by ranges, and the length of the longest range.
struct Bytes(Vec<u8>, Arc<Mutex<u64>>);

impl ReadRanges for Bytes {
    fn read(&self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Vec<u8>>> {
        let mut longest = self.1.lock().unwrap();
        *longest = ranges.iter().map(|range| range.end - range.start).fold(*longest, u64::max);
        Box::pin(async move { Ok(ranges.iter().map(|r| self.0[r.start as usize..r.end as usize].to_vec()).collect()) })
    }
}

/// Hands over all files of a folder, each read by ranges. Also returns the length of the longest range that was read.
fn handed(folder: &Path) -> (Files, Arc<Mutex<u64>>) {
    let (files, longest) = (Files::new("handed"), Arc::default());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let (name, size) = (path.file_name().unwrap().to_str().unwrap(), bytes.len() as u64);
        files.add_ranged(name, size, Arc::new(Bytes(bytes, Arc::clone(&longest)))).unwrap();
    }
    (files, longest)
}

fn load(source: impl Into<ModelSource>, options: &Options) -> Model {
    options.clone().open(source).unwrap()
}

#[test]
fn weights_and_logits_are_those_of_the_files_on_disk() {
    for golden in goldens() {
        let tokens = golden.golden().prompt(9, 3);
        for (quant, shard_bytes) in [("", None), ("i8", None), ("i8", Some(500_000))] {
            let folder = tempfile::tempdir().unwrap();
            let input = Checkpoint::open(&golden.path()).unwrap();
            let (path, shards) = (folder.path().join("one").join("model.safetensors"), folder.path().join("shards"));
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            let write = |out: &Path, shard_bytes| {
                let what = Conversion { shard_bytes, ..Conversion::default() };
                match quant {
                    "" => convert(&input, out, &what, &mut |_, _| ()).unwrap(),
                    _ => convert_coded(&input, out, &quant.parse().unwrap(), &what, &mut |_, _| ()).unwrap(),
                }
            };
            write(&path, None);
            if shard_bytes.is_some() {
                write(&shards, shard_bytes);
            }
            for device in devices() {
                let options = options(device).deterministic(true);
                let (files, longest) = handed(if shard_bytes.is_some() { &shards } else { path.parent().unwrap() });
                let (whole, ranged) = (load(path.clone(), &options), load(ModelSource::Files { files, main: None }, &options));
                let place = format!("{} {quant} {shard_bytes:?} {device}", golden.name);
                assert_eq!(whole.weights_hash(), ranged.weights_hash(), "{place}");
                assert_eq!((whole.dtype(), whole.weight_bytes()), (ranged.dtype(), ranged.weight_bytes()), "{place}");
                assert_eq!(read(&whole, &tokens), read(&ranged, &tokens), "{place}");
                let size = std::fs::metadata(&path).unwrap().len();
                assert!(*longest.lock().unwrap() < size / 2, "{place}: {} of {size} bytes at once", longest.lock().unwrap());
            }
        }
    }
}

#[test]
fn a_tuned_state_in_ranged_files_has_the_hash_of_the_file_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (path, input) = (folder.path().join("m.safetensors"), embedded().unwrap());
    let shape = [2, 64, 64];
    let state: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i % 97) as f32).collect();
    let weights = input.names().map(|name| floats(name, input.shape(name).unwrap(), &input.tensor(name).unwrap().to_f32().unwrap()));
    let states = (0..6).map(|layer| floats(format!("blocks.{layer}.att.time_state"), shape.to_vec(), &state));
    write_safetensors(&path, input.metadata(), weights.chain(states).collect(), &mut |_, _| ()).unwrap();
    let hashes = StateOrientation::ALL.map(|orientation| {
        let options = Options { state_orientation: orientation, ..options("cpu") };
        let [whole, ranged] = [path.clone().into(), ModelSource::Files { files: handed(folder.path()).0, main: None }];
        let (whole, ranged) = (load(whole, &options), load(ranged, &options));
        assert_eq!(whole.weights_hash(), ranged.weights_hash(), "{orientation:?}");
        whole.weights_hash().to_string()
    });
    assert_ne!(hashes[0], hashes[1], "the states are weights");
}

#[test]
fn the_vocabulary_comes_from_the_files_and_the_files_live_as_long_as_the_model() {
    let folder = tempfile::tempdir().unwrap();
    convert(&embedded().unwrap(), &folder.path().join("small.safetensors"), &Conversion::default(), &mut |_, _| ()).unwrap();
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/small-world.txt"), folder.path().join("vocab.txt")).unwrap();
    let options = options("cpu");
    let model = load(ModelSource::Files { files: handed(folder.path()).0, main: Some("small.safetensors".into()) }, &options);
    let text = b"Once upon a time";
    assert_eq!(model.vocab().unwrap().encode(text).unwrap(), Vocab::small_world().encode(text).unwrap());
    assert!(model.folder().is_some_and(|folder| folder.to_str().unwrap().contains("handed")));
    assert_eq!(model.name(), "small");
}

#[test]
fn numbers_outside_the_range_of_f16_are_refused_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let input = embedded().unwrap();
    let name = "blocks.1.att.output.weight";
    let entry = |tensor: &str| {
        let mut numbers = input.tensor(tensor).unwrap().to_f32().unwrap();
        if tensor == name {
            numbers[5] = 1e6;
        }
        floats(tensor, input.shape(tensor).unwrap(), &numbers)
    };
    write_safetensors(&path, input.metadata(), input.names().map(entry).collect(), &mut |_, _| ()).unwrap();
    let options = options("cpu");
    let source = || ModelSource::Files { files: handed(folder.path()).0, main: None };
    let error = options.clone().open(source()).unwrap_err().to_string();
    assert!(error.contains(name) && error.contains("1000000 is too large for f16") && error.contains("dtype=f32"), "{error}");
    load(source(), &options.dtype("f32".parse().unwrap()));
}
