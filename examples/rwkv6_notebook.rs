//! RWKV-6 as a notebook, cell by cell: shows facts of a checkpoint, the tokens of a context and the next token's probabilities, then continues one
//! state three times in a batch.
//!
//!     cargo run --release --example rwkv6_notebook -- RWKV-x060-World-1B6-v2.1-20240328-ctx4096.pth
//!
//! Without an argument, this example runs the tiny RWKV-6 of the tests, which was trained on the King James Bible.

use std::ops::ControlFlow;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Prompt, Session, Text};

const CONTEXT: &str = "\nDatawhale is ";

fn main() -> Result<()> {
    // [1] Load. The World vocabulary is embedded.
    let mut options = Options::default();
    let path = std::env::args().nth(1).unwrap_or_else(|| {
        options.vocab = Some("tiny".into());
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-rwkv6.safetensors").into()
    });
    let model = Model::load(&ModelSource::Path(path.into()), &options, &mut |_done, _total| ())?;
    let facts = model.facts();
    println!("[1] {:?}", facts);
    println!("    {} parameters in {}, {}", model.n_params(), model.dtype(), model.device().why);

    // [2] Encode the context.
    let mut session = Session::new(&model, 3)?;
    let tokens = session.encode(&Prompt::Text(CONTEXT))?;
    let vocab = model.vocab().ok_or_else(|| Error::input(model.vocab_hint().unwrap_or("no vocabulary")))?;
    let piece = |id: u32| String::from_utf8_lossy(vocab.token(id)).into_owned();
    println!("[2] {:?} is {:?}: {:?}", CONTEXT, tokens, tokens.iter().map(|&t| piece(t)).collect::<Vec<_>>());

    // [3] Prefill all tokens at once. The result is a state of fixed size and the logits of the next token.
    let first = session.open()?;
    let logits = session.prefill(first, &tokens)?;
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f32 = logits.iter().map(|l| (l - max).exp()).sum();
    let mut likely: Vec<(u32, f32)> = (0..).zip(logits.iter().map(|l| (l - max).exp() / sum)).collect();
    likely.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (id, p) in &likely[..5] {
        println!("[3] {:5.1} % {:?}", 100.0 * p, piece(*id));
    }

    // [4] Continue the context three times by 100 tokens, in a batch: each step reads the weights once for all three texts.
    let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(100) };
    let sampler = |seed| {
        let sampling = Sampling { temperature: 1.0, top_p: 0.7, presence_penalty: 0.0, frequency_penalty: 0.0, seed, ..Sampling::rwkv() };
        Sampler::new(sampling)
    };
    let slots = [first, session.fork(first)?, session.fork(first)?];
    let mut continuations: Vec<Text> = (0..).zip(slots).map(|(seed, slot)| Text::after(slot, sampler(seed), &limits)).collect();
    let timings = session.continue_many(&mut continuations, &mut |_event| ControlFlow::Continue(()))?;
    for (trial, continuation) in continuations.iter().enumerate() {
        // The text of a continuation is always valid UTF-8.
        println!("[4] trial {trial}: {CONTEXT}{}\n", continuation.text);
    }
    println!("    {:.1} tokens/s, all trials together", timings.decode_tokens_per_second());
    Ok(())
}
