//! The files of a model, which JavaScript reads by ranges.

use crate::error::of_js;
use async_channel::{Receiver, Sender};
use js_sys::{Array, Float64Array, Promise, Uint8Array};
use std::ops::Range;
use std::sync::Arc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use wingbeat::files::{Files, ReadRanges, Reading};
use wingbeat::{Error, Result};

#[wasm_bindgen]
extern "C" {
    /// `{files: [{name, size}], main?, read(file, ranges) => Promise<Uint8Array[]>}`
    pub type Source;

    #[wasm_bindgen(method, getter)]
    fn files(this: &Source) -> Vec<SourceFile>;

    #[wasm_bindgen(method, getter)]
    fn main(this: &Source) -> Option<String>;

    #[wasm_bindgen(method, getter)]
    fn name(this: &Source) -> Option<String>;

    #[wasm_bindgen(method, catch)]
    fn read(this: &Source, file: usize, ranges: Float64Array) -> std::result::Result<Promise, JsValue>;

    type SourceFile;

    #[wasm_bindgen(method, getter)]
    fn name(this: &SourceFile) -> String;

    #[wasm_bindgen(method, getter)]
    fn size(this: &SourceFile) -> f64;
}

/// A request for ranges of one file, and where its answer goes.
struct Asked {
    file: usize,
    ranges: Vec<Range<u64>>,
    answer: Sender<Result<Vec<Vec<u8>>>>,
}

/// A file of a source. JavaScript values cannot move between threads, so one task keeps the source, and other code sends requests to this task.
struct Asker {
    file: usize,
    requests: Sender<Asked>,
}

impl ReadRanges for Asker {
    fn read(&self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Vec<u8>>> {
        Box::pin(async move {
            let (answer, answers) = async_channel::bounded(1);
            let gone = || Error::file("the source of the model has been closed");
            self.requests.send(Asked { file: self.file, ranges, answer }).await.map_err(|_| gone())?;
            answers.recv().await.map_err(|_| gone())?
        })
    }
}

/// Returns the files of a source, and the name of its checkpoint. The source is used until the files are dropped.
pub fn files(source: Source) -> Result<(Files, Option<String>)> {
    let files = Files::new(&source.name().unwrap_or_else(|| "model".into()));
    let main = source.main();
    let (requests, asked) = async_channel::unbounded();
    for (file, entry) in source.files().iter().enumerate() {
        files.add_ranged(&entry.name(), entry.size() as u64, Arc::new(Asker { file, requests: requests.clone() }))?;
    }
    spawn_local(serve(source, asked));
    Ok((files, main))
}

async fn serve(source: Source, asked: Receiver<Asked>) {
    while let Ok(Asked { file, ranges, answer }) = asked.recv().await {
        // An error is ignored: the caller may no longer wait for the answer.
        let _ = answer.send(read(&source, file, &ranges).await.map_err(|e| of_js(&e))).await;
    }
}

async fn read(source: &Source, file: usize, ranges: &[Range<u64>]) -> std::result::Result<Vec<Vec<u8>>, JsValue> {
    let ends: Vec<f64> = ranges.iter().flat_map(|range| [range.start as f64, range.end as f64]).collect();
    let read = JsFuture::from(source.read(file, Float64Array::from(ends.as_slice()))?).await?;
    read.dyn_into::<Array>()?.iter().map(|bytes| Ok(bytes.dyn_into::<Uint8Array>()?.to_vec())).collect()
}
