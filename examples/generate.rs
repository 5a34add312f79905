//! Continues a prompt with a checkpoint, or with the embedded tiny model, and prints the text as it is generated.
//!
//!     cargo run --release --example generate -- "In the beginning"
//!     cargo run --release --example generate -- "Once upon a time" model.pth

use std::io::{Write, stdout};
use std::ops::ControlFlow;
use wingbeat::error::Result;
use wingbeat::sample::Sampling;
use wingbeat::session::{Limits, Model, ModelSource, Options, Session};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let prompt = args.next().unwrap_or_else(|| "User: light\n\nAssistant:".into());
    let source = args.next().map_or(ModelSource::Embedded, |path| ModelSource::Path(path.into()));

    let model = Model::load(&source, &Options::default(), &mut |_done, _total| ())?;
    eprintln!("{} on {}", model.name(), model.device().why);

    let mut session = Session::new(&model, 1)?;
    let sampling = Sampling { temperature: 0.7, seed: 6, ..Sampling::rwkv() };
    let made = session.generate(prompt.as_str(), &sampling, &Limits::new(100), &mut |piece| {
        print!("{piece}");
        // Stop if the reader of standard output has closed the pipe.
        if stdout().flush().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    println!();
    eprintln!("{} tokens, {:.1} tokens/s", made.tokens.len(), made.timings.decode_tokens_per_second());
    Ok(())
}
