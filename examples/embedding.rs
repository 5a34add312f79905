//! Compares texts by their vectors. `cargo run --release --example embedding`

use wingbeat::{Engine, EngineOptions, ModelSource, Options, Pooling, Request, Result};

fn main() -> Result<()> {
    let model = Options::new().open(ModelSource::Embedded)?;
    let engine = Engine::start(&model, EngineOptions::default())?;
    let texts = ["The fox lives in the forest.", "A bear lives in the forest.", "What is 7 plus 6?"];
    // All requests are submitted before the first result is read, so that their texts share steps.
    let all = texts.map(|text| engine.submit(Request::text(text).pooling(Pooling::Mean)));
    let mut vectors = Vec::new();
    for generation in all {
        vectors.extend(generation?.wait()?.remove(0).vector);
    }
    for (text, vector) in texts.iter().zip(&vectors) {
        let cosine: f32 = vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
        println!("{cosine:.3}  {text}");
    }
    Ok(())
}
