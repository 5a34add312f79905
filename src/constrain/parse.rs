//! Parses a text id by id with llguidance, and computes which ids may come next.

use super::Allowed;
use super::deadline::within;
use super::explain::explain;
use crate::error::{Error, Result};
use llguidance::Matcher;
use std::time::Duration;
use toktrie::SimpleVob;

/// The time limit of one parser step. A step usually takes milliseconds.
const STEP: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// The state of the parser after a text. An id is a token or a byte.
pub(super) struct Parse {
    matcher: Matcher,
    /// The ids that may come next, and whether the text may end. `None` until the ids are computed.
    next: Option<AllowedNext>,
    n_ids: u32,
}

/// Copies deeply: the clone shares neither the lexer's cache nor its errors with the original.
impl Clone for Parse {
    fn clone(&self) -> Parse {
        Parse { matcher: self.matcher.deep_clone(), next: self.next.clone(), n_ids: self.n_ids }
    }
}

#[derive(Clone)]
struct AllowedNext {
    ids: SimpleVob,
    may_end: bool,
}

impl Parse {
    /// Begins a text and computes which ids may come first, so that errors appear before generation starts. The error is llguidance's error
    /// message.
    pub fn new(matcher: Matcher, n_ids: u32) -> std::result::Result<Parse, String> {
        let mut parse = Parse { matcher, next: None, n_ids };
        parse.next = Some(parse.compute()?);
        Ok(parse)
    }

    /// Copies shallowly, to look ahead: the copy shares the lexer's cache and errors with the original.
    pub fn fork(&self) -> Parse {
        Parse { matcher: self.matcher.clone(), next: self.next.clone(), n_ids: self.n_ids }
    }

    /// Returns the ids that may come next, and whether the text may end.
    pub fn allowed(&mut self) -> Result<Allowed<'_>> {
        let next = match self.next.take() {
            Some(next) => next,
            None => self.compute().map_err(|e| Error::input(format!("the grammar cannot be followed further: {}", explain(&e))))?,
        };
        let AllowedNext { ids, may_end } = self.next.insert(next);
        Ok(Allowed { ids: ids.as_slice(), may_end: *may_end })
    }

    /// Appends an id to the text. Returns an error if the id is not allowed.
    pub fn accept(&mut self, id: u32) -> Result<()> {
        self.next = None;
        let (handle, matcher) = (self.matcher.cancellation_handle(), &mut self.matcher);
        let n_ids = self.n_ids;
        let is_taken = within(STEP, handle, || {
            let is_allowed = id < n_ids && matcher.validate_tokens(&[id])? == 1;
            if is_allowed { matcher.consume_token(id).map(|()| true) } else { Ok(false) }
        });
        match is_taken {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::input(format!("the grammar does not allow token {id} here"))),
            Err(e) => Err(Error::input(format!("the grammar cannot be followed further: {}", explain(&e)))),
        }
    }

    /// Appends bytes to the text. The grammar must allow these bytes. Each id of this parser must be a byte.
    pub fn read(&mut self, ids: &[u8]) -> Result<()> {
        self.next = None;
        let ids: Vec<u32> = ids.iter().map(|&byte| byte.into()).collect();
        let (handle, matcher) = (self.matcher.cancellation_handle(), &mut self.matcher);
        within(STEP, handle, || matcher.consume_tokens(&ids)).map_err(|e| Error::input(explain(&e)))
    }

    /// Returns whether the text could end, as a match of the grammar, after the bytes `ids`. Appends nothing. Each id of this parser must be a byte.
    pub fn is_whole_after(&mut self, ids: &[u8]) -> bool {
        let ids: Vec<u32> = ids.iter().map(|&byte| byte.into()).chain([self.n_ids]).collect();
        let (handle, matcher) = (self.matcher.cancellation_handle(), &mut self.matcher);
        within(STEP, handle, || matcher.validate_tokens(&ids)).is_ok_and(|n| n == ids.len())
    }

    /// Returns the bytes that must come next, or no bytes if there is a choice. Appends nothing: a copy of the parser computes the bytes.
    pub fn forced(&mut self) -> Vec<u8> {
        // A deep copy: if this computation exceeds a limit, the text can still continue.
        let mut matcher = self.matcher.deep_clone();
        within(STEP, matcher.cancellation_handle(), || matcher.compute_ff_bytes())
    }

    /// Computes the ids that may come next, and whether the text may end. The error is llguidance's error message.
    fn compute(&mut self) -> std::result::Result<AllowedNext, String> {
        let (handle, matcher) = (self.matcher.cancellation_handle(), &mut self.matcher);
        let mut ids = within(STEP, handle, || matcher.compute_mask_or_eos()).map_err(|e| e.to_string())?;
        let may_end = ids.is_allowed(self.n_ids);
        ids.disallow_token(self.n_ids);
        Ok(AllowedNext { ids, may_end })
    }
}
