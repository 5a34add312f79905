//! Generates a text and prints it when it is complete. `cargo run --release --example whole_text -- "Once upon a time" model.pth`

use wingbeat::{Engine, EngineOptions, ModelSource, Options, Request, Result, Sampling};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let prompt = args.next().unwrap_or("Once upon a time".into());
    let source = args.next().map_or(ModelSource::Embedded, ModelSource::from);
    let model = Options::new().open(source)?;
    let engine = Engine::start(&model, EngineOptions::default())?;
    let sampling = Sampling { temperature: 0.8, seed: 1, ..model.sampling().clone() };
    let answer = engine.run(Request::text(prompt).max_tokens(60).sampling(sampling))?;
    println!("{}", answer.text);
    println!("({} tokens, ended by {})", answer.usage.completion_tokens, answer.finish.name());
    Ok(())
}
