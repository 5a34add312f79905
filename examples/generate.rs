//! Continues a prompt with a model from a file, or with the tiny one that is built in, and prints text as it comes.
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
        // Whoever reads our text may have closed the pipe: then there is no point in going on.
        if stdout().flush().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    println!();
    eprintln!("{} tokens, {:.1} a second", made.tokens.len(), made.timings.decode_tokens_per_second());
    Ok(())
}
