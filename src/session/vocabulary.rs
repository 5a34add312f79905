//! Chooses the vocabulary of a checkpoint, if the user names no vocabulary.

use crate::vocab::{self, Choice, Lists};
use crate::weights::Checkpoint;
use std::path::Path;

/// Chooses the vocabulary of a model with `n_vocab` embeddings: the vocabulary in the checkpoint's own file (GGUF), or else the choice of
/// `vocab::choose` for its folder. Also returns a note for the user if the vocabulary in the model's file is unusable, or has the World vocabulary's
/// size but other tokens.
pub fn vocabulary(checkpoint: &Checkpoint, n_vocab: usize) -> (Choice, Option<String>) {
    let own = checkpoint.token_lists().and_then(|lists| {
        let lists = lists.as_ref().map(|l| Lists {
            model: &l.model,
            pre: l.pre.as_deref(),
            tokens: &l.tokens,
            types: &l.types,
            merges: &l.merges,
            scores: &l.scores,
            adds_space: l.adds_space,
            removes_spaces: l.removes_spaces,
        });
        lists.map(|lists| vocab::own(n_vocab, &lists)).transpose()
    });
    let unusable = match own {
        Ok(Some((vocab, note))) => return (Choice::Found(vocab), note),
        Ok(None) => None,
        Err(e) => Some(format!("the vocabulary in the model's file cannot be used: {}", e.message)),
    };
    match (vocab::choose(n_vocab, checkpoint.path().and_then(Path::parent)), unusable) {
        (Choice::Missing { hint }, Some(why)) => (Choice::Missing { hint: format!("{hint}; {why}") }, None),
        (choice, unusable) => (choice, unusable),
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests;
