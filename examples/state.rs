//! Saves the state after a text to a file, and continues the text in another engine. `cargo run --release --example state`

use wingbeat::{Engine, EngineOptions, ModelSource, Options, Request, Result};

fn main() -> Result<()> {
    let model = Options::new().open(ModelSource::Embedded)?;
    let path = std::env::temp_dir().join("wingbeat-example.state");
    let engine = Engine::start(&model, EngineOptions::default())?;
    let first = engine.run(Request::text("Once upon a time").max_tokens(20).seed(1).save_state("story"))?;
    first.state.transpose()?;
    engine.export_state("", "story", &path)?;
    // Another process or machine with the same weights reads the file. The prompt is not prefilled again, and the stream of random numbers continues.
    let other = Engine::start(&model, EngineOptions::default())?;
    other.load_state("", "story", &path)?;
    let second = other.run(Request::text("").max_tokens(20).state("story"))?;
    println!("Once upon a time{}|{}", first.text, second.text);
    std::fs::remove_file(&path).map_err(|e| wingbeat::Error::io(e, &path))
}
