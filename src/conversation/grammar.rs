//! Constrains answers by a grammar.

use super::Conversation;
use crate::constrain::{Grammar, Pieces};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::Mutex;

impl Conversation {
    /// Constrains all further answers to the texts of a grammar, as [`set_constraint`](Self::set_constraint) does. `None` removes the
    /// constraint.
    ///
    /// # Errors
    /// The errors of [`Pieces::follow`]. After an error, the earlier constraint stays.
    pub fn set_grammar(&mut self, grammar: Option<&Grammar>) -> Result<()> {
        let Some(grammar) = grammar.cloned() else {
            self.set_constraint(None);
            return Ok(());
        };
        let pieces = Pieces::new(&self.core.vocab, self.model().facts().n_vocab)?;
        // Caches compiled grammars. The key is the text between prompt and answer. A grammar in the cache first allows its key, then the answer.
        let read = Mutex::new(HashMap::from([(String::new(), pieces.follow(&grammar)?)]));
        self.set_constraint(Some(Box::new(move |lead| {
            let mut read = read.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if !read.contains_key(lead) {
                read.insert(lead.into(), pieces.follow(&grammar.with_lead(lead))?);
            }
            Ok(Box::new(read[lead].clone()))
        })));
        Ok(())
    }
}
