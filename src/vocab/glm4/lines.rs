//! Reads GLM-4's `tokenizer.model`: one line `BASE64 RANK` per token.

use super::{FileToken, N_RANKS, not_glm4};
use crate::error::{Error, Result, short};
use crate::vocab::rwkv::number;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;

/// Returns whether the first line of a file has the form `BASE64 RANK`, as in GLM-4's `tokenizer.model`.
pub(in crate::vocab) fn is_lines(text: &[u8]) -> bool {
    text.split(|&b| b == b'\n').next().is_some_and(|line| parse_line(line).is_some())
}

/// Returns the tokens of a `tokenizer.model`, in the order of the file. Fails if a line is invalid or a rank is not below `n_ranks`.
pub(super) fn entries(text: &[u8], n_ranks: usize) -> Result<Vec<FileToken>> {
    let mut entries = Vec::with_capacity(n_ranks.min(N_RANKS));
    for (nth, line) in (1..).zip(text.split(|&b| b == b'\n')) {
        if !matches!(line, b"" | b"\r") {
            let (token, rank) = parse_line(line).ok_or_else(|| {
                let shown = String::from_utf8_lossy(line);
                Error::file(format!("expected a token as BASE64 RANK, found {:?}", short(&shown, 24))).at(location(nth))
            })?;
            let rank = u32::try_from(rank)
                .ok()
                .filter(|&rank| (rank as usize) < n_ranks)
                .ok_or_else(|| not_glm4(format!("expected a rank below {n_ranks}, found {rank}")).at(location(nth)))?;
            entries.push(FileToken { rank, token, nth });
        }
    }
    Ok(entries)
}

/// Returns the place of the nth token in the file, for errors.
pub(super) fn location(nth: usize) -> String {
    format!("line {nth}")
}

/// Returns the token and the rank in a line, or `None` if the line has another form.
fn parse_line(line: &[u8]) -> Option<(Vec<u8>, u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let (token, rank) = line.strip_suffix('\r').unwrap_or(line).split_once(' ')?;
    let token = STANDARD.decode(token).ok().filter(|bytes| !bytes.is_empty())?;
    Some((token, number(rank)?))
}
