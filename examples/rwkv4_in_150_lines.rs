//! RWKV-4, token by token: prefills a context and continues it three times, like the well-known demo "RWKV in 150 lines".
//!
//!     cargo run --release --example rwkv4_in_150_lines -- RWKV-4-Pile-430M-20220808-8066.pth 20B_tokenizer.json
//!
//! Without arguments, this example runs the tiny RWKV-4 of the tests, which was trained on the King James Bible.

use std::io::{Write, stdout};
use std::path::PathBuf;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Model, ModelSource, Options, Prompt, Session};
use wingbeat::vocab::Utf8Stream;

const CONTEXT: &str = "\nIn a shocking finding, scientist discovered a herd of dragons living in a remote, previously unexplored valley, \
    in Tibet. Even more surprising to the researchers was the fact that the dragons spoke perfect Chinese.";
const TRIALS: u64 = 3;
const LENGTH_PER_TRIAL: usize = 100;

fn main() -> Result<()> {
    // Load the model and its vocabulary. Models that were trained on the Pile need the file 20B_tokenizer.json, beside the model or as the second
    // argument.
    let mut args = std::env::args().skip(1).map(PathBuf::from);
    let (path, vocab) = match args.next() {
        Some(path) => (path, args.next()),
        None => (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-rwkv4.safetensors").into(), Some("tiny".into())),
    };
    let mut options = Options::default();
    options.vocab = vocab;
    let model = Model::load(&ModelSource::Path(path), &options, &mut |_done, _total| ())?;
    let facts = model.facts();
    eprintln!("{} {}: {} layers of width {}, {}", facts.architecture, facts.version, facts.n_layer, facts.n_embd, model.device().why);

    // Two slots: the first keeps the state after the context, the second continues from a fork of that state.
    let mut session = Session::new(&model, 2)?;
    let context = session.open()?;
    let tokens = session.encode(&Prompt::Text(CONTEXT))?;
    session.prefill(context, &tokens)?;
    let vocab = model.vocab().ok_or_else(|| Error::input(model.vocab_hint().unwrap_or("no vocabulary")))?;

    let mut out = stdout().lock();
    // Returns false if the reader of standard output has closed the pipe.
    let mut show = |text: &str| write!(out, "{text}").and_then(|()| out.flush()).is_ok();
    for trial in 0..TRIALS {
        show(&format!("\n\n--[ trial {trial} ]-----------------{CONTEXT}"));
        // A fork copies the state only when the fork takes its first step.
        let slot = session.fork(context)?;
        let sampling = Sampling { temperature: 1.0, top_p: 0.85, seed: trial, ..plain() };
        let mut sampler = Sampler::new(sampling);
        // A token may be half a character. `Utf8Stream` returns complete characters only.
        let mut text = Utf8Stream::default();
        for _ in 0..LENGTH_PER_TRIAL {
            let token = sampler.sample(session.logits(slot)?)?;
            if !show(text.push(vocab.token(token))) {
                return Ok(());
            }
            // One step of the recurrence: from a state and a token to the next state and its logits.
            session.decode(slot, token)?;
        }
        show(&text.finish());
        session.close(slot)?;
    }
    show("\n");
    Ok(())
}

/// Returns the demo's sampler settings: no penalties.
fn plain() -> Sampling {
    Sampling { presence_penalty: 0.0, frequency_penalty: 0.0, ..Sampling::rwkv() }
}
