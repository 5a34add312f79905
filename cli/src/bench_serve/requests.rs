//! Makes prompts from a seed, and requests with these prompts.

use serde_json::{Value, json};

/// Words of text prompts. Most tokenizers encode each word as one token.
const WORDS: [&str; 32] = [
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "was", "on", "with", "as", "be", "at", "by", "this", "had", "not",
    "are", "but", "from", "or", "have", "an", "they", "which", "one", "you", "were", "her",
];

/// The kind of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompts {
    /// Token ids below `n_vocab`, and request fields that only wingbeat and similar servers know.
    Tokens { n_vocab: u32 },
    /// Texts, and only fields of OpenAI's API.
    Texts,
}

/// Makes the bodies of requests. Equal seeds give equal bodies.
#[derive(Debug, Clone)]
pub struct Requests {
    /// The name of the model, or `None` to leave the field out.
    pub model: Option<String>,
    pub prompts: Prompts,
    /// The number of tokens of each prompt. The number of words if prompts are texts.
    pub prompt_tokens: usize,
    pub seed: u64,
}

impl Requests {
    /// Returns the body of request number `index`. Different indices give different prompts, so that no server finds a prompt in its cache.
    /// The answer has at most `max_tokens` tokens.
    pub fn body(&self, index: u64, max_tokens: usize) -> Vec<u8> {
        let mut numbers = Numbers(self.seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        let prompt: Value = match self.prompts {
            Prompts::Tokens { n_vocab } => (0..self.prompt_tokens).map(|_| numbers.below(n_vocab)).collect(),
            Prompts::Texts => {
                let words: Vec<&str> = (0..self.prompt_tokens).map(|_| WORDS[numbers.below(WORDS.len() as u32) as usize]).collect();
                words.join(" ").into()
            }
        };
        let mut body = json!({"prompt": prompt, "max_tokens": max_tokens, "stream": true, "stream_options": {"include_usage": true}});
        if let Some(model) = &self.model {
            body["model"] = model.as_str().into();
        }
        if let Prompts::Tokens { .. } = self.prompts {
            (body["ignore_eos"], body["no_cache"]) = (true.into(), true.into());
            // A number of at most 53 bits: every JSON reader represents such a number exactly.
            body["seed"] = (numbers.next() >> 11).into();
        }
        body.to_string().into_bytes()
    }
}

/// A generator of random numbers: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number of `0 .. n`.
    fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(prompts: Prompts, seed: u64, index: u64) -> Value {
        let requests = Requests { model: Some("m".into()), prompts, prompt_tokens: 50, seed };
        serde_json::from_slice(&requests.body(index, 8)).unwrap()
    }

    #[test]
    fn prompts_follow_from_the_seed() {
        for prompts in [Prompts::Tokens { n_vocab: 261 }, Prompts::Texts] {
            let body = |seed, index| body(prompts, seed, index);
            assert_eq!(body(1, 2), body(1, 2));
            assert!(body(1, 2)["prompt"] != body(1, 3)["prompt"] && body(1, 2)["prompt"] != body(2, 2)["prompt"]);
        }
    }

    #[test]
    fn token_prompts_are_within_the_vocabulary() {
        let body = body(Prompts::Tokens { n_vocab: 7 }, 0, 0);
        let ids: Vec<u64> = body["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        assert!(ids.len() == 50 && (0..7).all(|id| ids.contains(&id)) && ids.iter().all(|id| *id < 7), "{ids:?}");
        assert_eq!((&body["ignore_eos"], &body["no_cache"], &body["max_tokens"]), (&json!(true), &json!(true), &json!(8)));
    }

    #[test]
    fn text_prompts_have_only_fields_of_openai() {
        let body = body(Prompts::Texts, 0, 0);
        assert_eq!(body["prompt"].as_str().unwrap().split(' ').count(), 50);
        let mut fields: Vec<&String> = body.as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["max_tokens", "model", "prompt", "stream", "stream_options"]);
    }
}
