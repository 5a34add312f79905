//! Prints two texts of one model as they come, each in a line of its own. `cargo run --release --example stream`

use wingbeat::{Engine, EngineOptions, Event, ModelSource, Options, Request, Result};

fn main() -> Result<()> {
    let model = Options::new().open(ModelSource::Embedded)?;
    let engine = Engine::start(&model, EngineOptions { slots: 2, ..EngineOptions::default() })?;
    // Both texts are generated at the same time, in one batch.
    let prompts = ["Once upon a time", "The fox"];
    let all = prompts.map(|prompt| engine.submit(Request::text(prompt).max_tokens(40).seed(1).echo(true)));
    for generation in all {
        for event in generation? {
            match event? {
                Event::Text { text, .. } => print!("{}", text.replace('\n', " ")),
                Event::Done(done) => println!(" … {:.0} ms", done.timings.decode_ms),
                _ => {}
            }
        }
    }
    Ok(())
}
