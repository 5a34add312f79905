//! Limits on the source of a template, checked before parsing.
//!
//! minijinja's parser and compiler recurse into nested code and evaluate constant expressions. With these limits, the recursion fits into the
//! rendering thread's stack, and constants stay small.

use super::limits::broken;
use minijinja::Error;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The maximum size of a source, in bytes. The largest published templates have some 30 KB.
pub const MAX_SOURCE: usize = 256 << 10;
/// The maximum number of tokens in one tag: `{{ … }}` or `{% … %}`. An expression is at most as deep as its number of tokens.
const MAX_TAG: usize = 4096;
/// The maximum depth of nested brackets in one tag.
const MAX_BRACKETS: usize = 64;
/// The maximum depth of nested blocks. All `elif` of the template count as nested: the parser converts an `elif` to an `if` within an `else`.
const MAX_BLOCKS: usize = 512;
/// The maximum size in bytes of all repeated constants in a template together, such as `"ab" * 1000`.
const MAX_REPEATED: u64 = 1 << 20;

/// The statements that an `end…` statement closes. `set` opens a block only without a `=`.
const BLOCKS: [&str; 9] = ["for", "if", "macro", "call", "filter", "with", "set", "autoescape", "block"];

/// Counts of the tokens and constants in one tag: `{{ … }}` or `{% … %}`.
#[derive(Default)]
struct Tag {
    is_statement: bool,
    n_tokens: usize,
    n_open: usize,
    first: String,
    assigns: bool,
    /// The number of bytes in the tag's constant texts and list elements.
    n_literal: u64,
    /// An upper bound for sums and products of the numbers in the tag. With a power, a float or a number above 64 bits, the bound is the largest
    /// `u64`.
    factor: u64,
    multiplies: bool,
}

/// Checks a source against the limits. All other errors are left to the parser.
///
/// # Errors
/// Fails, with the line, if the source exceeds a limit.
pub fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    if source.len() > MAX_SOURCE {
        return Err(broken(&format!("the template has {} bytes, at most {MAX_SOURCE} are allowed", source.len()), None));
    }
    let (mut n_blocks, mut n_repeated, mut n_elif) = (0usize, 0u64, 0usize);
    let mut tag = Tag::default();
    for token in tokenize(source, false, syntax) {
        let Ok((token, span)) = token else { return Ok(()) };
        let past = |bound: String| broken(&bound, Some(usize::from(span.start_line)));
        match token {
            Token::VariableStart | Token::BlockStart => {
                tag = Tag { is_statement: matches!(token, Token::BlockStart), factor: 1, ..Tag::default() };
                continue;
            }
            Token::VariableEnd | Token::BlockEnd => {
                if tag.multiplies {
                    n_repeated = n_repeated.saturating_add(tag.n_literal.saturating_mul(tag.factor));
                }
                if n_repeated > MAX_REPEATED {
                    return Err(past(format!("repeated constants have more than {MAX_REPEATED} bytes")));
                }
                if tag.is_statement {
                    n_elif += usize::from(tag.first == "elif");
                    if BLOCKS.contains(&tag.first.as_str()) && !(tag.first == "set" && tag.assigns) {
                        n_blocks += 1;
                    } else if tag.first.starts_with("end") {
                        n_blocks = n_blocks.saturating_sub(1);
                    }
                    if n_blocks + n_elif > MAX_BLOCKS {
                        return Err(past(format!("more than {MAX_BLOCKS} blocks are nested")));
                    }
                }
                continue;
            }
            _ => tag.count(&token),
        }
        if tag.n_tokens > MAX_TAG {
            return Err(past(format!("a tag has more than {MAX_TAG} tokens")));
        }
        if tag.n_open > MAX_BRACKETS {
            return Err(past(format!("more than {MAX_BRACKETS} brackets are nested")));
        }
    }
    Ok(())
}

impl Tag {
    /// Counts one more token of the tag.
    fn count(&mut self, token: &Token<'_>) {
        let times = |n: u64| self.factor.saturating_mul(n.saturating_add(1));
        match token {
            Token::TemplateData(_) => return,
            Token::Ident(name) if self.n_tokens == 0 => self.first = (*name).into(),
            Token::Assign => self.assigns = true,
            Token::Str(text) => self.n_literal += text.len() as u64 + 1,
            Token::String(text) => self.n_literal += text.len() as u64 + 1,
            Token::Int(n) => self.factor = times(*n),
            Token::Int128(_) | Token::Float(_) | Token::Pow => self.factor = u64::MAX,
            Token::Mul => self.multiplies = true,
            Token::Comma => self.n_literal += 32,
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => {
                self.n_open += 1;
                self.n_literal += u64::from(matches!(token, Token::BracketOpen)) * 32;
            }
            Token::BracketClose | Token::ParenClose | Token::BraceClose => self.n_open = self.n_open.saturating_sub(1),
            _ => {}
        }
        self.n_tokens += 1;
    }
}
