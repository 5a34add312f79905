//! Special tokens as text, for programs that hand prompts over as text: evaluations with chat templates, for example.

use super::Vocab;
use crate::error::{Error, Result};

impl Vocab {
    /// Returns the special tokens that [`encode`](Self::encode) does not find in text, with their ids, in no particular order.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.scheme.specials().into_iter()
    }

    /// Converts text to ids as [`encode`](Self::encode) does, but the texts of special tokens become these tokens. Use it only for trusted text: the
    /// text `<|user|>` in a user's message would begin a turn.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_marked(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.encode_cut(text, &[])
    }

    /// Converts a prompt to ids as [`encode_prompt`](Self::encode_prompt) does, but the texts of special tokens become these tokens. The tokens that
    /// begin every prompt, such as GLM-4's `[gMASK]<sop>`, are added only if the prompt does not already begin with them.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_prompt_marked(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.encode_further_marked(text).map(|ids| self.begun(ids))
    }

    /// Converts a text that continues a prompt to ids as [`encode_further`](Self::encode_further) does, but the texts of special tokens become these
    /// tokens.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_further_marked(&self, text: &[u8]) -> Result<Vec<u32>> {
        if self.specials().next().is_none() { self.encode_further(text) } else { self.encode_marked(text) }
    }

    /// Returns the ids of a prompt with the tokens that begin every prompt. Adds these tokens if the prompt does not begin with them.
    pub(crate) fn begun(&self, ids: Vec<u32>) -> Vec<u32> {
        let start = self.scheme.start();
        if ids.starts_with(&start) { ids } else { [start, ids].concat() }
    }

    /// Converts text to ids as [`encode_marked`](Self::encode_marked) does. After each of the special tokens `before_lines`, the first line is
    /// encoded alone: the built-in templates of GLM-4 put the name of a tool there.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub(crate) fn encode_cut(&self, text: &[u8], before_lines: &[&str]) -> Result<Vec<u32>> {
        let marks: Vec<(&str, u32)> = self.specials().filter(|(mark, _)| !mark.is_empty()).collect();
        let (mut ids, mut begin, mut at, mut last) = (Vec::new(), 0, 0, "");
        let encode_to = |ids: &mut Vec<u32>, plain: &[u8], last: &str| {
            let line = if before_lines.contains(&last) { plain.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1) } else { 0 };
            for part in [&plain[..line], &plain[line..]].into_iter().filter(|part| !part.is_empty()) {
                ids.extend(self.encode(part)?);
            }
            Ok::<(), Error>(())
        };
        while at < text.len() {
            // ChatGLM3's `sop` is a special token only directly after `[gMASK]`, because `sop` also occurs inside words.
            let is_here = |mark: &str| text[at..].starts_with(mark.as_bytes()) && (mark != "sop" || at == begin && last == "[gMASK]");
            let longest = marks.iter().filter(|(mark, _)| is_here(mark)).max_by_key(|(mark, _)| mark.len());
            let Some((mark, id)) = longest else {
                at += 1;
                continue;
            };
            encode_to(&mut ids, &text[begin..at], last)?;
            ids.push(*id);
            at += mark.len();
            (begin, last) = (at, mark);
        }
        encode_to(&mut ids, &text[begin..], last)?;
        Ok(ids)
    }

    /// Returns the bytes of one id as [`token`](Self::token) does. For a special token without bytes, returns its text.
    pub fn token_marked(&self, id: u32) -> &[u8] {
        match self.token(id) {
            [] => self.scheme.marks().into_iter().find(|(_, special)| *special == id).map_or(&[], |(mark, _)| mark.as_bytes()),
            bytes => bytes,
        }
    }

    /// Returns the bytes of ids as [`decode`](Self::decode) does, with the texts of special tokens.
    pub fn decode_marked(&self, ids: &[u32]) -> Vec<u8> {
        let marks: std::collections::HashMap<u32, &str> = self.scheme.marks().into_iter().map(|(mark, id)| (id, mark)).collect();
        let mut bytes = Vec::new();
        for part in ids.split_inclusive(|id| marks.contains_key(id)) {
            match part.split_last().and_then(|(last, before)| Some((marks.get(last)?, before))) {
                Some((mark, before)) => {
                    bytes.extend(self.decode(before));
                    bytes.extend(mark.as_bytes());
                }
                None => bytes.extend(self.decode(part)),
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::testing;

    #[test]
    fn marks_are_tokens_and_become_their_text() {
        let vocab = testing::full_glm4();
        let (user, end) = (vocab.special("<|user|>").unwrap(), vocab.special("<|endoftext|>").unwrap());
        let text = "a<|user|>\nhello<|user|><|user| <|endoftext|>";
        let ids = vocab.encode_marked(text.as_bytes()).unwrap();
        assert_eq!(ids.iter().filter(|&&id| id == user).count(), 2);
        assert_eq!(ids.last(), Some(&end));
        assert_eq!(String::from_utf8(vocab.decode_marked(&ids)).unwrap(), text);
        assert!(!vocab.encode(text.as_bytes()).unwrap().contains(&user));
        assert_eq!(vocab.encode_marked(b"").unwrap(), Vec::<u32>::new());
        assert_eq!((vocab.token_marked(user), vocab.token_marked(ids[0])), (&b"<|user|>"[..], &b"a"[..]));
        assert_eq!(vocab.token_marked(u32::MAX), b"");
        let world = Vocab::world();
        assert_eq!(world.encode_marked(b"a <|user|>").unwrap(), world.encode(b"a <|user|>").unwrap());
        assert_eq!(world.decode_marked(&[33, 34]), world.decode(&[33, 34]));
    }

    #[test]
    fn a_prompt_has_its_first_tokens_once() {
        let vocab = testing::full_glm4();
        let text = b"[gMASK]<sop><|user|>\nhello";
        let ids = vocab.encode_prompt_marked(text).unwrap();
        assert_eq!(ids, vocab.encode_marked(text).unwrap());
        assert_eq!(vocab.encode_prompt_marked(b"<|user|>\nhello").unwrap(), ids);
        assert_eq!(vocab.encode_prompt_marked(b"x").unwrap(), vocab.encode_prompt(b"x").unwrap());
        let world = Vocab::world();
        assert_eq!(world.encode_prompt_marked(b"a\n\n").unwrap(), world.encode_prompt(b"a\n\n").unwrap());
    }

    #[test]
    fn a_line_after_a_role_is_encoded_alone() {
        let vocab = testing::small_glm4(&[b"\n\n"]);
        let (user, bytes) = (vocab.special("<|user|>").unwrap(), |text: &[u8]| vocab.encode(text).unwrap());
        let cut = |text: &[u8]| vocab.encode_cut(text, &["<|user|>"]).unwrap();
        assert_eq!(cut(b"\n\n<|user|>\n\na"), [bytes(b"\n\n"), vec![user], bytes(b"\n"), bytes(b"\na")].concat());
        assert_eq!(vocab.encode_marked(b"<|user|>\n\na").unwrap(), [vec![user], bytes(b"\n\n"), bytes(b"a")].concat());
        assert_eq!(cut(b"<|user|>a"), [vec![user], bytes(b"a")].concat());
    }
}
