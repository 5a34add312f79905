//! Grammars as constraints of answers.

use super::Conversation;
use crate::constrain::{Grammar, Pieces};
use crate::error::Result;
use std::collections::HashMap;
use std::sync::Mutex;

impl Conversation {
    /// Constrains all further answers to a grammar; `None` removes the constraint. See [`set_constraint`](Self::set_constraint).
    ///
    /// # Errors
    /// The errors of [`Pieces::follow`]. The earlier constraint then stays.
    pub fn set_grammar(&mut self, grammar: Option<&Grammar>) -> Result<()> {
        let Some(grammar) = grammar.cloned() else {
            self.set_constraint(None);
            return Ok(());
        };
        let pieces = Pieces::new(&self.core.vocab, self.model().facts().n_vocab)?;
        // One compiled grammar per text that a format can put before an answer.
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
