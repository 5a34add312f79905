//! Finds the token ids that end a repetition for the DRY penalty: ids whose tokens contain one of the sampler's breaker texts.

use super::Session;
use crate::error::{Error, Result};
use crate::sample::{DRY_BREAKERS, Sampler};
use crate::vocab::Vocab;
use std::sync::Arc;

/// Breaker texts, and the ids of all tokens that contain at least one of these texts, ascending.
#[derive(Default)]
pub(super) struct Breakers {
    texts: Vec<String>,
    ids: Arc<[u32]>,
}

impl Session {
    /// Sets the ids that end a repetition for the sampler's DRY penalty. Does nothing if the sampler needs no ids, for example because its DRY
    /// penalty is off.
    ///
    /// # Errors
    /// `Usage` with the field `dry_breaker`, if no token contains a breaker text of the sampler, or if the model has no vocabulary. The default texts
    /// ([`DRY_BREAKERS`]) never cause an error.
    pub(crate) fn tell_breakers(&mut self, sampler: &mut Sampler) -> Result<()> {
        let Some(texts) = sampler.wants_breakers() else { return Ok(()) };
        if texts != self.breakers.texts {
            let model = self.model.clone();
            let ids = ids(texts, model.vocab(), model.facts().n_vocab)?;
            self.breakers = Breakers { texts: texts.to_vec(), ids };
        }
        sampler.break_at(self.breakers.ids.clone());
        Ok(())
    }
}

/// Returns the ids of all tokens that contain at least one of the texts, ascending. Scans the vocabulary once per text.
fn ids(texts: &[String], vocab: Option<&Vocab>, n_vocab: usize) -> Result<Arc<[u32]>> {
    let mut all = Vec::new();
    for text in texts {
        let before = all.len();
        if let Some(vocab) = vocab {
            let contains = |id: &u32| vocab.token(*id).windows(text.len().max(1)).any(|part| part == text.as_bytes());
            all.extend((0..n_vocab as u32).filter(contains));
        }
        if all.len() == before && !DRY_BREAKERS.contains(&text.as_str()) {
            let e = match vocab {
                Some(_) => Error::usage(format!("no token of the vocabulary contains {text:?}")),
                None => Error::usage(format!("the text {text:?} needs a vocabulary, and none was found for this model"))
                    .hint("name a vocabulary file with `vocab`"),
            };
            return Err(e.field("dry_breaker"));
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakers_are_tokens_that_contain_a_text() {
        let texts = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        // Without a vocabulary, default texts cause no error, but all other texts do.
        assert!(ids(&texts(&DRY_BREAKERS), None, 9).unwrap().is_empty());
        let e = ids(&texts(&["\n", "x"]), None, 9).unwrap_err().to_string();
        assert!(e.starts_with("dry_breaker: the text \"x\" needs a vocabulary, and none was found"), "{e}");
    }
}
