//! Texts held to a grammar, token by token. What may follow is computed by llguidance over a trie of the vocabulary's bytes.

use super::closing::Closer;
use super::parse::Parse;
use super::parts::MAX_CHOICES;
use super::told::{blame, told};
use super::{Allowed, Constraint, Grammar};
use crate::error::{Error, Result};
use crate::vocab::Vocab;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Logger, Matcher, ParserFactory};
use serde_json::Value;
use std::sync::Arc;
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

/// For those who read a grammar: how deep its rules nest is the author's choice, and the crate goes down by calling itself.
const STACK_BYTES: usize = 256 << 20;

/// A vocabulary's tokens as a trie of their bytes. Made once a model: some 100 ms for 65 536 tokens.
#[derive(Clone)]
pub struct Pieces {
    /// Of the vocabulary.
    tokens: Ids,
    /// Of the 256 bytes: for endings, which are looked for byte by byte.
    bytes: Ids,
}

/// Makes parsers over texts with ids.
#[derive(Clone)]
struct Ids {
    factory: Arc<ParserFactory>,
    /// Ids are below it; it stands for the end of the text itself.
    n_ids: u32,
}

impl Pieces {
    /// Of the ids below `n_ids`, as many as the model has logits. An id without bytes, as special tokens and unassigned ids have none, is
    /// never allowed.
    ///
    /// # Errors
    /// `Model`, where the crate does not take the vocabulary.
    pub fn new(vocab: &Vocab, n_ids: usize) -> Result<Pieces> {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let byte = |id: u32| bytes.get(id as usize..=id as usize).unwrap_or_default();
        let tokens = Ids::new(n_ids as u32, |id| vocab.token(id), &SlicedBiasComputer::general_slices())?;
        Ok(Pieces { tokens, bytes: Ids::new(256, byte, &[])? })
    }

    /// A text that is to follow a grammar, at its beginning. A clone of it is another text.
    ///
    /// # Errors
    /// `Input`: what of a schema is not supported or contradicts itself, how a grammar is too large, or that no text begins as it wants.
    pub fn follow(&self, grammar: &Grammar) -> Result<Follower> {
        let refused = match self.tokens.parse(grammar)? {
            Ok(parse) => return Ok(self.follower(parse, grammar)),
            Err(said) => said,
        };
        match grammar.as_schema() {
            Some(schema) => Err(blame(schema, refused, |part| self.compile_error(part))),
            None => Err(Error::input(format!("the grammar cannot be followed: {}", told(&refused)))),
        }
    }

    fn follower(&self, parse: Parse, grammar: &Grammar) -> Follower {
        let bytes = if grammar.closes() { self.bytes.parse(grammar).ok().and_then(|parse| parse.ok()) } else { None };
        let vocab = self.tokens.factory.tok_env().clone();
        let closer = bytes.and_then(|bytes| Closer::new(bytes, vocab.clone()));
        Follower { parse, closer, vocab }
    }

    /// What the crate says against a schema, if anything.
    fn compile_error(&self, schema: &Value) -> Option<String> {
        self.tokens.parse(&Grammar::schema(schema)).ok()?.err()
    }
}

impl Ids {
    fn new<'t>(n_ids: u32, text: impl Fn(u32) -> &'t [u8], slices: &[String]) -> Result<Ids> {
        // Grammars speak of UTF-8, in which the byte does not occur; to the trie it would say that a token is special.
        let bytes = |id: u32| if id < n_ids { text(id) } else { &[] };
        let pieces: Vec<Vec<u8>> = (0..=n_ids).map(bytes).map(|b| if b.contains(&0xff) { Vec::new() } else { b.to_vec() }).collect();
        let info = TokRxInfo::new(n_ids + 1, n_ids);
        // Not its text but its tokens are drawn, so nobody has to split text here.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &pieces)));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), slices).map_err(|e| Error::model(told(&e)))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Ids { factory: Arc::new(factory), n_ids })
    }

    /// The error within is the crate's.
    fn parse(&self, grammar: &Grammar) -> Result<std::result::Result<Parse, String>> {
        let init = GrammarInit::Serialized(grammar.source());
        let factory = &self.factory;
        let parser = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().stack_size(STACK_BYTES);
            let reader = reader.spawn_scoped(scope, move || {
                factory.create_parser_from_init_ext(init, Logger::new(0, 0), InferenceCapabilities::default(), factory.limits().clone())
            });
            Ok(reader.map_err(|e| Error::memory(format!("a thread to read the grammar could not be started: {e}")).caused_by(e))?.join())
        })?;
        let parser = match parser {
            Ok(Ok(parser)) => parser,
            Ok(Err(e)) => return Ok(Err(e.to_string())),
            Err(_) => return Ok(Err("a panic".into())),
        };
        Ok(Parse::new(Matcher::new(Ok(parser)).into_cancellable(), self.n_ids))
    }
}

/// Larger than the crate's own for the work of a step: a slow mask is better than none.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 5_000_000,
        step_lexer_fuel: 5_000_000,
        step_max_items: 2_000_000,
        // The choices of one place, and what else may come there. The crate compares every new item with all others of its row.
        max_items_in_row: 5 * MAX_CHOICES,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// A text that follows a grammar. A clone goes on from the same place.
#[derive(Clone)]
pub struct Follower {
    parse: Parse,
    /// Where the grammar asks for it and an end is known.
    closer: Option<Closer>,
    vocab: TokEnv,
}

impl Constraint for Follower {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        self.parse.allowed()
    }

    fn accept(&mut self, id: u32) -> Result<()> {
        self.parse.accept(id)?;
        let closer = self.closer.take();
        self.closer = closer.and_then(|closer| closer.accept(id, self.vocab.tok_trie().token(id)));
        Ok(())
    }

    fn closing(&mut self) -> Option<&[u32]> {
        self.closer.as_ref().map(Closer::tokens)
    }

    fn closes_within(&mut self, id: u32, left: usize) -> bool {
        self.closer.as_mut().is_none_or(|closer| closer.fits(id, self.vocab.tok_trie().token(id), left))
    }
}
