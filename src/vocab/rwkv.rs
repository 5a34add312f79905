//! The RWKV vocabulary file: a line `ID LITERAL BYTELEN` a token, and greedy longest match.
//!
//! The id ends at the first space, the length begins after the last, the literal between them may hold spaces. Knows no
//! particular vocabulary: ids may have gaps, need not be sorted, and not every byte need be there.

use super::trie::{Entry, Trie};
use super::{Scheme, literal};
use crate::error::{Error, Result};

/// Ids lie below this. The table by id has a row for each id up to the largest, so one absurd id must not size it.
const ID_LIMIT: u32 = 1 << 20;

/// Where a token lies in `Rwkv::bytes`.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// An id that the file does not give.
const UNASSIGNED: Span = Span { start: u32::MAX, len: 0 };

pub(super) struct Rwkv {
    /// All tokens, one after the other in the order of the file.
    bytes: Vec<u8>,
    /// By id, up to the largest: `[max_id + 1]`.
    spans: Vec<Span>,
    /// How many ids are assigned.
    n_tokens: usize,
    trie: Trie,
}

impl Rwkv {
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::file("expected a vocabulary below 4 GiB, found more"));
        }
        let text = utf8(text)?;
        let mut bytes = Vec::with_capacity(text.len() / 2);
        let mut spans = Vec::new();
        let mut entries = Vec::with_capacity(text.len() / 16);
        // `split` and not a generic notion of lines: U+2028 and its kin stay inside theirs
        for (i, line) in text.split('\n').enumerate() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let entry = parse_line(line, &mut bytes, &mut spans).map_err(|e| e.at(format!("line {}", i + 1)))?;
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(Error::file("expected lines ID 'TEXT' LENGTH, found none"));
        }
        Ok(Rwkv { trie: Trie::new(&entries, &bytes), n_tokens: entries.len(), bytes, spans })
    }
}

/// The file as text, without a byte order mark.
fn utf8(text: &[u8]) -> Result<&str> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    std::str::from_utf8(text).map_err(|e| {
        let line = text[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        Error::file("expected UTF-8 text, found other bytes").at(format!("line {line}")).hint("is this a vocabulary file?")
    })
}

/// Reads one line: appends its token to `bytes`, enters it into `spans`.
fn parse_line(line: &str, bytes: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<Entry> {
    let Some((id, literal, n_bytes)) = split(line) else {
        let shown: String = line.chars().take(40).collect();
        let e = Error::file(format!("expected ID 'TEXT' LENGTH, found {shown}"));
        return Err(if line.starts_with(['{', '[']) { e.hint("this looks like JSON; give the .txt vocabulary") } else { e });
    };
    let id = number(id)
        .and_then(|id| u32::try_from(id).ok())
        .filter(|&id| id < ID_LIMIT)
        .ok_or_else(|| Error::file(format!("expected an id below {ID_LIMIT}, found {}", shorten(id))))?;
    let start = bytes.len();
    literal::append(literal, bytes).map_err(|e| Error::file(format!("the token of id {id} {e}")))?;
    let len = bytes.len() - start;
    if number(n_bytes) != Some(len as u64) {
        return Err(Error::file(format!("expected the length of id {id} to be {len}, its bytes, found {}", shorten(n_bytes))));
    }
    // both fit: a token is never longer than its line, and `parse` bounds the file
    let (start, len) = (start as u32, len as u32);
    let row = id as usize;
    if spans.len() <= row {
        spans.resize(row + 1, UNASSIGNED);
    }
    if spans[row].start != UNASSIGNED.start {
        return Err(Error::file(format!("expected each id once, found {id} again")));
    }
    spans[row] = Span { start, len };
    Ok(Entry { id, start, len })
}

/// Id, literal and length, as they stand.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    let (id, rest) = line.split_once(' ')?;
    let (literal, n_bytes) = rest.rsplit_once(' ')?;
    Some((id, literal, n_bytes))
}

/// Decimal digits only: `str::parse` alone would take a sign.
fn number(s: &str) -> Option<u64> {
    s.parse().ok().filter(|_| s.bytes().all(|b| b.is_ascii_digit()))
}

fn shorten(s: &str) -> String {
    s.chars().take(24).collect()
}

impl Scheme for Rwkv {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        let mut rest = text;
        while let Some(&byte) = rest.first() {
            let Some((id, len)) = self.trie.longest(rest) else {
                let offset = text.len() - rest.len();
                return Err(Error::input(format!("no token of the vocabulary matches the text at offset {offset}, byte 0x{byte:02x}")));
            };
            ids.push(id);
            rest = &rest[len..];
        }
        Ok(ids)
    }

    fn token(&self, id: u32) -> &[u8] {
        let span = self.spans.get(id as usize).copied().filter(|s| s.len > 0).unwrap_or(Span { start: 0, len: 0 });
        &self.bytes[span.start as usize..][..span.len as usize]
    }

    fn max_id(&self) -> u32 {
        self.spans.len().saturating_sub(1) as u32
    }

    fn len(&self) -> usize {
        self.n_tokens
    }
}
