//! Bounds on the source of a template, checked before it is parsed.
//!
//! The parser and the compiler of templates recurse into nested code and compute constant expressions at once. The bounds keep the
//! first within the stack of the thread that renders, and the second within some memory.

use super::limits::broken;
use minijinja::Error;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The largest published templates have some 30 KB.
pub const MAX_SOURCE: usize = 256 << 10;
/// Tokens of one `{{ … }}` or `{% … %}`: the depth of an expression is at most their number.
const MAX_TAG: usize = 4096;
/// Brackets of one tag that are open at once.
const MAX_BRACKETS: usize = 64;
/// Blocks that are open at once. Each `elif` counts as one: it is parsed as an `if` within an `else`.
const MAX_BLOCKS: usize = 512;
/// Bytes of all constants that a `*` between constants may make.
const MAX_REPEATED: u64 = 1 << 20;

/// The statements that an `end…` closes. `set` opens a block only without a `=`.
const BLOCKS: [&str; 9] = ["for", "if", "macro", "call", "filter", "with", "set", "autoescape", "block"];

/// What one tag has in it.
#[derive(Default)]
struct Tag {
    is_statement: bool,
    n_tokens: usize,
    n_open: usize,
    first: String,
    assigns: bool,
    /// Bytes of texts, and elements of lists.
    n_literal: u64,
    /// At least what the numbers of the tag can make by sums and products. A power is past all bounds.
    factor: u64,
    multiplies: bool,
}

/// # Errors
/// With the line, where the source is past a bound. Source that is no template is the parser's to refuse.
pub fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    if source.len() > MAX_SOURCE {
        return Err(broken(&format!("expected at most {MAX_SOURCE} bytes, found {}", source.len()), None));
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
                    return Err(past(format!("expected texts repeated to at most {MAX_REPEATED} bytes, found more")));
                }
                if tag.is_statement {
                    n_elif += usize::from(tag.first == "elif");
                    if BLOCKS.contains(&tag.first.as_str()) && !(tag.first == "set" && tag.assigns) {
                        n_blocks += 1;
                    } else if tag.first.starts_with("end") {
                        n_blocks = n_blocks.saturating_sub(1);
                    }
                    if n_blocks + n_elif > MAX_BLOCKS {
                        return Err(past(format!("expected at most {MAX_BLOCKS} blocks within each other, found more")));
                    }
                }
                continue;
            }
            _ => tag.count(&token),
        }
        if tag.n_tokens > MAX_TAG {
            return Err(past(format!("expected at most {MAX_TAG} words in one pair of braces, found more")));
        }
        if tag.n_open > MAX_BRACKETS {
            return Err(past(format!("expected at most {MAX_BRACKETS} brackets within each other, found more")));
        }
    }
    Ok(())
}

impl Tag {
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
