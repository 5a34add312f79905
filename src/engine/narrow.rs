//! The constraint of `min_tokens`, `bad_words` and `allowed_token_ids`, around that of the request's rules.

use super::prepared::MakeConstraint;
use super::request::Request;
use crate::constrain::Narrowing;
use crate::error::{Error, Result};
use crate::session::{Limits, Model};

/// The maximum number of forbidden texts, and of their bytes together.
const MAX_WORDS: usize = 256;
const MAX_WORD_BYTES: usize = 16 << 10;

/// Returns the constraint `rules`, narrowed by the lists of the request.
///
/// # Errors
/// `Input` with the field, if a list is too long, a text is empty, or a token is unknown.
pub(super) fn narrowed(model: &Model, request: &Request, limits: &Limits, rules: Option<MakeConstraint>) -> Result<Option<MakeConstraint>> {
    let Request { min_tokens, bad_words, allowed_token_ids, .. } = request;
    if *min_tokens == 0 && bad_words.is_empty() && allowed_token_ids.is_none() {
        return Ok(rules);
    }
    if *min_tokens > limits.max_tokens {
        let text = format!("expected at most max_tokens, {}, found {min_tokens}", limits.max_tokens);
        return Err(Error::input(text).field("min_tokens"));
    }
    let mut narrowing = Narrowing::none(model.facts().n_vocab).min_tokens(*min_tokens);
    if let Some(ids) = allowed_token_ids {
        if ids.is_empty() {
            return Err(Error::input("expected at least one token id, found none").field("allowed_token_ids"));
        }
        model.check_ids(ids).map_err(|e| e.field("allowed_token_ids"))?;
        let ends = limits.stop_ids.as_ref().unwrap_or(&model.facts().stop_ids);
        narrowing = narrowing.only(ids, ends.iter().any(|end| ids.contains(end)));
    }
    if !bad_words.is_empty() {
        check_words(bad_words).map_err(|e| e.field("bad_words"))?;
        let vocab = model.needed_vocab("texts that never occur need a vocabulary, and none was found for this model")?;
        narrowing = narrowing.without(bad_words, vocab);
    }
    Ok(Some(Box::new(move || {
        let rules = rules.as_ref().map(|make| make()).transpose()?;
        Ok(Box::new(narrowing.follow(rules)))
    })))
}

fn check_words(words: &[String]) -> Result<()> {
    if words.iter().any(String::is_empty) {
        return Err(Error::input("expected texts of at least 1 byte, found an empty text"));
    }
    let (n, n_bytes) = (words.len(), words.iter().map(String::len).sum::<usize>());
    if n > MAX_WORDS || n_bytes > MAX_WORD_BYTES {
        let found = format!("found {n} texts of {n_bytes} bytes together");
        return Err(Error::input(format!("expected at most {MAX_WORDS} texts of at most {MAX_WORD_BYTES} bytes together, {found}")));
    }
    Ok(())
}
