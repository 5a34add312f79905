//! The RWKV vocabulary file: one line `ID LITERAL BYTELEN` per token. Text becomes ids by greedy longest match.
//!
//! The id ends at the first space, and the length begins after the last space. The literal between them may contain spaces. Ids may have gaps and
//! may be in any order. Some single bytes may have no token.

use super::table::{ID_LIMIT, TokenTable};
use super::trie::{Steps, Trie, TrieToken};
use super::{OwnedLists, Scheme, literal, no_token, written};
use crate::error::{Error, Result, short, try_alloc};

/// The hint for a file that is probably no vocabulary.
const NO_VOCABULARY: &str = "name the model's vocabulary file, such as rwkv_vocab_v20230424.txt";

pub(super) struct Rwkv {
    table: TokenTable,
    trie: Trie,
}

impl Rwkv {
    /// Creates a vocabulary. If several entries have equal bytes, `encode` returns the id of the last of these entries.
    pub(super) fn new(table: TokenTable, entries: &[TrieToken]) -> Self {
        Rwkv { trie: Trie::new(entries, table.bytes()), table }
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let text = utf8(text)?;
        let mut table = TokenTable::default();
        let mut entries = Vec::with_capacity(text.len() / 16);
        // `split` at `\n` only: a token may contain U+2028 and other line separators
        for (i, line) in text.split('\n').enumerate() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let entry = parse_line(line, &mut table).map_err(|e| e.at(format!("line {}", i + 1)))?;
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(Error::file("expected a vocabulary with one token per line, ID 'TEXT' LENGTH; found no line").hint(NO_VOCABULARY));
        }
        Ok(Self::new(table, &entries))
    }
}

/// Returns the content of a file as text, without a byte order mark.
fn utf8(text: &[u8]) -> Result<&str> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    std::str::from_utf8(text).map_err(|e| {
        let line = text[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        Error::file("expected UTF-8 text, found other bytes").at(format!("line {line}")).hint(NO_VOCABULARY)
    })
}

/// Reads a line and adds its token to the table.
fn parse_line(line: &str, table: &mut TokenTable) -> Result<TrieToken> {
    let Some((id, literal, n_bytes)) = split(line) else {
        let e = Error::file(format!("expected a token as ID 'TEXT' LENGTH, found {:?}", short(line, 40)));
        return Err(if line.starts_with(['{', '[']) {
            e.hint("the line looks like JSON, but a vocabulary in JSON must begin with {")
        } else {
            e.hint(NO_VOCABULARY)
        });
    };
    let id = number(id)
        .and_then(|id| u32::try_from(id).ok())
        .ok_or_else(|| Error::file(format!("expected a token id below {ID_LIMIT}, found {}", short(id, 24))))?;
    let mut token = Vec::with_capacity(literal.len());
    literal::append(literal, &mut token).map_err(|e| Error::file(format!("the token with id {id} {e}")))?;
    if number(n_bytes) != Some(token.len() as u64) {
        let len = token.len();
        let unit = if len == 1 { "byte" } else { "bytes" };
        let found = if n_bytes.is_empty() { "missing".into() } else { short(n_bytes, 24) };
        return Err(Error::file(format!("the token with id {id} has {len} {unit}, but the LENGTH in its line is {found}")));
    }
    table.add(id, &token)
}

/// Splits a line into id, literal and length. Returns `None` if the line has fewer than two spaces.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    let (id, rest) = line.split_once(' ')?;
    let (literal, n_bytes) = rest.rsplit_once(' ')?;
    Some((id, literal, n_bytes))
}

/// Reads a number that consists of decimal digits only; `str::parse` also accepts a sign.
pub(super) fn number(s: &str) -> Option<u64> {
    s.parse().ok().filter(|_| s.bytes().all(|b| b.is_ascii_digit()))
}

impl Scheme for Rwkv {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let mut ids = try_alloc(text.len() / 3 + 1, "the tokens of the text")?;
        let (mut rest, mut steps) = (text, Steps::of(text.len()));
        while !rest.is_empty() {
            let (id, len) = self.trie.longest(rest, &mut steps)?.ok_or_else(|| no_token(text, text.len() - rest.len()))?;
            ids.push(id);
            rest = &rest[len..];
        }
        Ok(ids)
    }

    fn is_greedy(&self) -> bool {
        true
    }

    fn lists(&self) -> Option<OwnedLists> {
        Some(written::rwkv(&self.table))
    }

    fn table(&self) -> &TokenTable {
        &self.table
    }
}
