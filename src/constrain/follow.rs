//! Follows a grammar token by token. The crate llguidance computes the allowed tokens, using a trie of the bytes of all tokens.

use super::closing::Closer;
use super::explain::{blame, explain};
use super::parse::Parse;
use super::parts::MAX_CHOICES;
use super::{Allowed, Constraint, Grammar};
use crate::error::{Error, Result};
use crate::vocab::Vocab;
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Logger, Matcher, ParserFactory};
use serde_json::Value;
use std::sync::Arc;
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

/// If more tokens than this are allowed, the search for forced bytes is skipped. A forced byte usually leaves only a few tokens, which begin with it.
const MOST_FORCED: u32 = 64;

/// The stack size, in bytes, of the thread that compiles a grammar. llguidance's compiler recurses as deeply as the grammar's rules are nested.
const STACK_BYTES: usize = 256 << 20;

/// The tokens of a vocabulary as a trie of their bytes. Create the trie once per model: it takes about 100 ms for 65 536 tokens.
#[derive(Clone)]
pub struct Pieces {
    /// Creates parsers whose ids are the tokens of the vocabulary.
    tokens: Ids,
    /// Creates parsers whose ids are single bytes, to search for bytes that complete a text.
    bytes: Ids,
}

/// Creates parsers of texts that arrive as ids. An id is a token or a byte.
#[derive(Clone)]
struct Ids {
    factory: Arc<ParserFactory>,
    /// The number of ids. The ids are 0 to `n_ids - 1`. The id `n_ids` means the end of the text.
    n_ids: u32,
}

impl Pieces {
    /// Builds the trie of the tokens whose ids are below `n_ids`, the number of the model's logits. Ids without bytes, such as special tokens and
    /// unassigned ids, are never allowed in a text.
    ///
    /// # Errors
    /// `Model` if llguidance refuses the vocabulary.
    pub fn new(vocab: &Vocab, n_ids: usize) -> Result<Pieces> {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let byte = |id: u32| bytes.get(id as usize..=id as usize).unwrap_or_default();
        let tokens = Ids::new(n_ids as u32, |id| vocab.token(id), &SlicedBiasComputer::general_slices())?;
        Ok(Pieces { tokens, bytes: Ids::new(256, byte, &[])? })
    }

    /// Returns a follower at the beginning of a text under `grammar`. To follow several texts, clone the follower.
    ///
    /// # Errors
    /// `Input` if a part of a schema is unsupported or contradictory, if the grammar is too large, or if no token can begin a text. An error in a
    /// schema has the JSON pointer of the faulty part. `Memory` if the thread that compiles the grammar cannot be started.
    pub fn follow(&self, grammar: &Grammar) -> Result<Follower> {
        let refused = match self.tokens.parse(grammar)? {
            Ok(parse) => return Ok(self.follower(parse, grammar)),
            Err(said) => said,
        };
        match grammar.as_schema() {
            Some(schema) => Err(blame(schema, refused, |part| self.compile_error(part))),
            None => Err(Error::input(format!("the grammar cannot be followed: {}", explain(&refused)))),
        }
    }

    fn follower(&self, parse: Parse, grammar: &Grammar) -> Follower {
        let bytes = if grammar.closes() { self.bytes.parse(grammar).ok().and_then(|parse| parse.ok()) } else { None };
        let vocab = self.tokens.factory.tok_env().clone();
        let closer = bytes.and_then(|bytes| Closer::new(bytes, vocab.clone()));
        Follower { parse, closer, vocab }
    }

    /// Returns llguidance's error for a schema, or `None` if the schema compiles.
    fn compile_error(&self, schema: &Value) -> Option<String> {
        self.tokens.parse(&Grammar::schema(schema)).ok()?.err()
    }
}

impl Ids {
    fn new<'t>(n_ids: u32, text: impl Fn(u32) -> &'t [u8], slices: &[String]) -> Result<Ids> {
        // the trie would treat a token that begins with the byte 0xff as a special token; no UTF-8 text contains this byte
        let bytes = |id: u32| if id < n_ids { text(id) } else { &[] };
        let pieces: Vec<Vec<u8>> = (0..=n_ids).map(bytes).map(|b| if b.contains(&0xff) { Vec::new() } else { b.to_vec() }).collect();
        let info = TokRxInfo::new(n_ids + 1, n_ids);
        // an approximate environment is enough, because it never has to tokenize text
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &pieces)));
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), slices).map_err(|e| Error::model(explain(&e)))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Ids { factory: Arc::new(factory), n_ids })
    }

    /// Compiles a grammar and returns a parser at the beginning of a text. The outer error means that no thread could be started; the inner error is
    /// llguidance's message.
    fn parse(&self, grammar: &Grammar) -> Result<std::result::Result<Parse, String>> {
        let init = GrammarInit::Serialized(grammar.source());
        let factory = &self.factory;
        let compile =
            || factory.create_parser_from_init_ext(init, Logger::new(0, 0), InferenceCapabilities::default(), factory.limits().clone());
        // A browser has no thread with a larger stack, so a rule that is nested too deeply stops the whole WebAssembly module.
        let parser = match cfg!(target_arch = "wasm32") {
            true => Ok(compile()),
            false => std::thread::scope(|scope| {
                let reader = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, compile);
                Ok(reader.map_err(|e| Error::memory(format!("cannot start a thread to compile the grammar: {e}")).caused_by(e))?.join())
            })?,
        };
        let parser = match parser {
            Ok(Ok(parser)) => parser,
            Ok(Err(e)) => return Ok(Err(e.to_string())),
            Err(_) => return Ok(Err("a panic".into())),
        };
        Ok(Parse::new(Matcher::new(Ok(parser)).into_cancellable(), self.n_ids))
    }
}

/// Returns the parser's limits. The limits allow a step more work than llguidance's defaults, because a slow step is better than an error.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 5_000_000,
        step_lexer_fuel: 5_000_000,
        step_max_items: 2_000_000,
        // a row holds the parser's items at one place of the text, such as alternatives; llguidance compares each new item with all items of the row
        max_items_in_row: 5 * MAX_CHOICES,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// The state of a parser that follows a text under a grammar, after the tokens so far. A clone continues from the same state, independently of
/// the original.
#[derive(Clone)]
pub struct Follower {
    parse: Parse,
    /// Searches for tokens that complete the text. `None` if [`Grammar::close`] is off, so that the text may be cut at its token limit, or if no
    /// ending was found.
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

    fn forced(&mut self) -> Vec<u8> {
        let n_allowed = |allowed: Allowed<'_>| allowed.ids.iter().map(|word| word.count_ones()).sum::<u32>();
        match self.parse.allowed().map(n_allowed) {
            Ok(1..=MOST_FORCED) => self.parse.forced(),
            _ => Vec::new(),
        }
    }

    fn closes_within(&mut self, id: u32, left: usize) -> bool {
        self.closer.as_mut().is_none_or(|closer| closer.fits(id, self.vocab.tok_trie().token(id), left))
    }
}
