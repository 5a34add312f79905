//! The random embedding model and its reranker, with the numbers that the package `rwkv-emb` computes. `tools/embedding-golden.py` made both.

use crate::support::{options, root};
use serde_json::Value;
use std::path::PathBuf;
use wingbeat::engine::{Engine, EngineOptions};
use wingbeat::low_level::session::{Model, ModelSource};

/// Returns the path of a file of the random embedding model, or `None` in the published package, which lacks the file.
pub fn file(name: &str) -> Option<PathBuf> {
    let path = root().join("tests/models/tiny-embedding").join(name);
    if !path.is_file() {
        eprintln!("SKIPPED: {} is in the repository only", path.display());
    }
    Some(path).filter(|path| path.is_file())
}

pub fn open(name: &str, device: &str) -> Model {
    let mut options = options(device);
    options.vocab = (name == "embedding.pth").then(|| file("vocab.txt").unwrap());
    options.dtype = "f32".parse().unwrap();
    Model::load(&ModelSource::Path(file(name).unwrap()), &options, &mut |_, _| ()).unwrap()
}

/// Returns the numbers that the package computes.
pub fn package() -> Value {
    serde_json::from_slice(&std::fs::read(file("golden.json").unwrap()).unwrap()).unwrap()
}

/// Starts an engine with the random embedding model and its reranker.
pub fn engine(device: &str) -> wingbeat::error::Result<Engine> {
    let options = EngineOptions { slots: 2, reranker: Some(open("reranker.pth", device)), ..EngineOptions::default() };
    Engine::start(&open("embedding.pth", device), options)
}
