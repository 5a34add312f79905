//! Special tokens as text, for programs that hand prompts over as text: evaluations with chat templates, for example.

use super::Vocab;
use crate::error::Result;

impl Vocab {
    /// Returns the special tokens that [`encode`](Self::encode) does not find in text: their texts and ids, without an order.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.scheme.specials().into_iter()
    }

    /// Converts text to ids as [`encode`](Self::encode) does, but the texts of special tokens become these tokens. Only for text that its author may
    /// command with: a user's `<|user|>` would begin a turn.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_marked(&self, text: &[u8]) -> Result<Vec<u32>> {
        let marks: Vec<(&str, u32)> = self.specials().filter(|(mark, _)| !mark.is_empty()).collect();
        let (mut ids, mut begin, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let longest = marks.iter().filter(|(mark, _)| text[at..].starts_with(mark.as_bytes())).max_by_key(|(mark, _)| mark.len());
            let Some((mark, id)) = longest else {
                at += 1;
                continue;
            };
            ids.extend(self.encode(&text[begin..at])?);
            ids.push(*id);
            at += mark.len();
            begin = at;
        }
        ids.extend(self.encode(&text[begin..])?);
        Ok(ids)
    }

    /// Returns the bytes of ids as [`decode`](Self::decode) does, with the texts of special tokens.
    pub fn decode_marked(&self, ids: &[u32]) -> Vec<u8> {
        let marks: std::collections::HashMap<u32, &str> = self.specials().map(|(mark, id)| (id, mark)).collect();
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
        let world = Vocab::world();
        assert_eq!(world.encode_marked(b"a <|user|>").unwrap(), world.encode(b"a <|user|>").unwrap());
        assert_eq!(world.decode_marked(&[33, 34]), world.decode(&[33, 34]));
    }
}
