//! Reads a grammar in GBNF or a JSON schema, and follows it for a few tokens of the built-in vocabulary `tiny`.
//!
//! The first byte of the input has options: bit 0 selects JSON, bit 1 asks for an ending at each step, and the whole byte seeds the tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use wingbeat::constrain::{Constraint, Grammar, Pieces};
use wingbeat::error::{Error, Result};
use wingbeat::vocab::Vocab;
use wingbeat_fuzz::count;

const TOKENS: usize = 12;

fn read(bytes: &[u8]) -> Result<()> {
    static PIECES: OnceLock<(Pieces, usize)> = OnceLock::new();
    let (pieces, n_ids) = PIECES.get_or_init(|| {
        let vocab = Vocab::tiny();
        let n_ids = vocab.max_id() as usize + 1;
        (Pieces::new(&vocab, n_ids).expect("the tiny vocabulary"), n_ids)
    });
    let (kind, text) = bytes.split_first().ok_or_else(|| Error::input("empty"))?;
    let text = std::str::from_utf8(text).map_err(|_| Error::input("no text"))?;
    let grammar = match kind % 2 {
        0 => Grammar::gbnf(text)?,
        _ => Grammar::json_schema(&serde_json::from_str(text).map_err(|_| Error::input("no JSON"))?)?,
    };
    let closes = kind & 2 != 0;
    let mut follower = pieces.follow(&grammar.close(closes))?;
    for step in 0..TOKENS {
        if closes {
            let _ = follower.closing();
        }
        let allowed = follower.allowed()?;
        if allowed.is_complete() {
            break;
        }
        let mut logits = vec![0.0; *n_ids];
        allowed.mask(&mut logits, &[0]);
        // another token at each step, so that different texts are tried
        let open = |id: &usize| logits[*id].is_finite() && *id != 0;
        let Some(id) = (0..*n_ids).map(|i| (i + 97 * (step + kind.wrapping_mul(31) as usize)) % n_ids).find(open) else { break };
        follower.accept(id as u32)?;
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| count(read(bytes)));
