//! The constraint of `min_tokens`, `bad_words` and `allowed_token_ids`, around the constraint of the request's rules.

use super::prepared::MakeConstraint;
use super::request::Request;
use crate::constrain::Narrowing;
use crate::error::{Error, Result};
use crate::session::{Limits, Model};

/// The maximum number of forbidden texts.
const MAX_WORDS: usize = 256;
/// The maximum size of a list of texts, in bytes. The limit bounds the work: each byte of a continuation is compared with all texts.
const MAX_BYTES: usize = 16 << 10;

/// Returns the constraint `rules`, narrowed by the request's `min_tokens`, `bad_words` and `allowed_token_ids`. Returns `rules` unchanged if the
/// request sets none of these fields.
///
/// # Errors
/// `Input` with the field, if `min_tokens` exceeds the maximum, a list is too long, a text is empty, no token is allowed, a token is unknown, or the
/// model has no vocabulary for `bad_words`.
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
        check_texts(bad_words, "texts", MAX_WORDS).map_err(|e| e.field("bad_words"))?;
        let vocab = model.needed_vocab("texts that never occur need a vocabulary, and none was found for this model")?;
        narrowing = narrowing.without(bad_words, vocab);
    }
    Ok(Some(Box::new(move || {
        let rules = rules.as_ref().map(|make| make()).transpose()?;
        Ok(Box::new(narrowing.follow(rules)))
    })))
}

/// Checks a list of stop texts, or of texts that must not occur. `kind` names these texts in errors.
///
/// # Errors
/// `Input` if a text is empty, or if the list has more than `most` texts or more than 16 KiB.
pub(super) fn check_texts(texts: &[String], kind: &str, most: usize) -> Result<()> {
    if texts.iter().any(String::is_empty) {
        return Err(Error::input(format!("expected {kind} of at least 1 byte, found an empty text")));
    }
    let (n, n_bytes) = (texts.len(), texts.iter().map(String::len).sum::<usize>());
    if n > most || n_bytes > MAX_BYTES {
        let found = format!("found {n} texts of {n_bytes} bytes together");
        return Err(Error::input(format!("expected at most {most} {kind} of at most {MAX_BYTES} bytes together, {found}")));
    }
    Ok(())
}
