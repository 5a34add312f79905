//! Checked requests, before they have slots.

use crate::chat::Question;
use crate::constrain::Constraint;
use crate::error::Result;
use crate::sample::Sampling;
use crate::session::{Limits, Speculation, VectorRule};
use std::collections::VecDeque;
use std::sync::Arc;

/// A function that makes the constraint of one continuation. A constraint determines which tokens the request's rules allow next.
pub type MakeConstraint = Box<dyn Fn() -> Result<Box<dyn Constraint>> + Send>;

/// A checked request, in the form in which a session runs it.
pub struct Prepared {
    /// The tokens of the prompt.
    pub prompt: Arc<[u32]>,
    /// Positions in the prompt, as numbers of tokens, from which a later prompt of the same conversation can continue. The prefix cache keeps a
    /// recurrent model's state at these positions.
    pub ends: Vec<usize>,
    /// The sampling settings.
    pub sampling: Sampling,
    /// The limits on the text: the maximum and minimum number of tokens, stop texts and stop ids.
    pub limits: Limits,
    /// Makes the constraint of each continuation. `None` if the request has no rules.
    pub constraint: Option<MakeConstraint>,
    /// Separates the answer to messages into text, thought and tool calls. `None` if the input is a text or tokens.
    pub question: Option<Question>,
    /// How the texts speculate.
    pub(super) speculation: Speculation,
    /// The texts of a request for vectors or scores. The fields above are then empty.
    pub(super) texts: Option<Texts>,
}

/// Texts that an engine reads for vectors or scores, in the order of their indices.
pub(super) struct Texts {
    /// The texts that have no slot yet.
    pub waiting: VecDeque<UnreadText>,
    pub n_texts: usize,
    pub n_tokens: usize,
    /// The number of tokens of `waiting`.
    pub n_unread: usize,
    /// Computes the vectors. `None` if the texts get scores.
    pub rule: Option<Arc<VectorRule>>,
}

/// A text for a vector or a score.
pub(super) struct UnreadText {
    pub tokens: Vec<u32>,
    /// The number of tokens at the beginning whose state the prefix cache keeps: the tokens of a document, before the query. 0 if the cache keeps no state.
    pub kept: usize,
}

impl Prepared {
    /// Returns a request that reads texts. `rule` is `None` if the texts get scores.
    pub(super) fn of_texts(texts: Vec<UnreadText>, rule: Option<Arc<VectorRule>>) -> Prepared {
        let n_tokens = texts.iter().map(|text| text.tokens.len()).sum();
        let texts = Texts { n_texts: texts.len(), n_tokens, n_unread: n_tokens, waiting: texts.into(), rule };
        Prepared {
            prompt: Arc::default(),
            ends: Vec::new(),
            sampling: Sampling::greedy(0),
            limits: Limits::new(0),
            constraint: None,
            question: None,
            speculation: Speculation::off(),
            texts: Some(texts),
        }
    }
}
