//! What a caller may set: one struct, the defaults of each model family, and the check of what came from outside.

/// When the temperature applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// After the filters, as the official RWKV package. Tokens as likely as the last one that top_p keeps are kept too.
    Pip,
    /// Before the filters, as transformers.
    Hf,
}

/// How a token is drawn.
///
/// First the logits are changed: penalties of what was generated, those of [DRY](Self::dry_multiplier), `logit_bias`, `ban`. Then come
/// the filters, each of what the one before it left, in one of two orders:
///
/// * [`Order::Pip`]: `top_n_sigma`, `typical`, `top_p`, `top_k`, `min_p`, `temperature`;
/// * [`Order::Hf`]: `temperature`, `top_n_sigma`, `top_k`, `typical`, `top_p`, `min_p`.
///
/// So it is in llama.cpp, but that it biases first, and for the place of `temperature` in `Hf` and of `top_k` in `Pip`. With `mirostat` it
/// is, as there, the temperature in both orders, then mirostat in place of all filters.
///
/// A GPU's kernel knows everything but `typical`, `mirostat`, DRY and `repeat_last_n`; with these the host draws, by itself. The
/// ids are the same either way. A logit of negative infinity is drawn by no setting, and counts for none.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits: below 1 is more certain. 0 is greedy: always the largest logit, the lowest id of equals, whatever the filters.
    pub temperature: f32,
    /// Keeps the most likely tokens up to this share of the probability, in 0 ..= 1. 1 is off, 0 keeps the largest.
    pub top_p: f32,
    /// Keeps this many tokens; the lower id of equals. 0 is off.
    pub top_k: usize,
    /// Keeps tokens at least this fraction as likely as the most likely one, in 0 ..= 1. 0 is off.
    pub min_p: f32,
    /// Keeps the tokens whose surprise is nearest to what it is on average, up to this share of the probability, in 0 ..= 1; the most
    /// likely token may go. 1 is off.
    pub typical: f32,
    /// Keeps tokens whose logit is at most this many standard deviations of all logits below the largest. 0 is off.
    pub top_n_sigma: f32,
    /// The surprise in bits that mirostat (its version 2) holds a text to. 0 is off.
    pub mirostat: f32,
    /// How fast mirostat learns, from 0.
    pub mirostat_rate: f32,
    /// Taken from the logit of every token that was seen, however long ago. 0 is off.
    pub presence_penalty: f32,
    /// Taken from the logit of a token once per count. 0 is off.
    pub frequency_penalty: f32,
    /// What is left of all counts after one more token, in 0 ..= 1. 1 never forgets.
    pub penalty_decay: f32,
    /// Divides a positive logit, multiplies a negative one, of every token that was seen. 1 is off.
    pub repeat_penalty: f32,
    /// `repeat_penalty` looks at the last so many tokens, those of the prompt included; 0 at none. None: at all that were generated.
    pub repeat_last_n: Option<usize>,
    /// DRY takes `multiplier * base^(length - allowed_length)` from the logit of a token that would go on with a repetition of at least
    /// the allowed length. 0 is off.
    pub dry_multiplier: f32,
    /// From 1.
    pub dry_base: f32,
    /// Repetitions shorter than this are free.
    pub dry_allowed_length: usize,
    /// DRY looks at the last so many tokens, those of the prompt included; 0 at none. None: at all.
    pub dry_range: Option<usize>,
    /// No repetition reaches past a token that contains one of these texts, and no such token is taken anything from.
    pub dry_breakers: Vec<String>,
    /// Added to the logits of these ids. Negative infinity bans.
    pub logit_bias: Vec<(u32, f32)>,
    /// Ids that are never drawn.
    pub ban: Vec<u32>,
    /// The invalid-score guard of GLM's own code: while any logit is NaN or infinite, before penalties and bans, this id is drawn.
    /// It keeps a text going where the model's numbers fail. None: such logits are never drawn, and the others are.
    pub guard: Option<u32>,
    /// When the temperature applies.
    pub order: Order,
    /// Names the random stream.
    pub seed: u64,
}

/// What breaks a repetition unless something else is asked for.
pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

impl Sampling {
    /// The defaults of the official RWKV package.
    pub fn rwkv() -> Self {
        Sampling { top_p: 0.85, presence_penalty: 0.2, frequency_penalty: 0.2, penalty_decay: 0.996, ..Self::plain(Order::Pip) }
    }

    /// The defaults of GLM-4 under transformers.
    pub fn glm() -> Self {
        Sampling { temperature: 0.8, top_p: 0.8, top_k: 50, ..Self::plain(Order::Hf) }
    }

    /// Always the largest logit, no penalties. The seed only names the stream that a later change of temperature would use.
    pub fn greedy(seed: u64) -> Self {
        Sampling { temperature: 0.0, seed, ..Self::plain(Order::Pip) }
    }

    /// Every filter and penalty off: draws from the softmax of the logits.
    pub(super) fn plain(order: Order) -> Self {
        Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical: 1.0,
            top_n_sigma: 0.0,
            mirostat: 0.0,
            mirostat_rate: 0.1,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_decay: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: None,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_range: None,
            dry_breakers: DRY_BREAKERS.map(String::from).to_vec(),
            logit_bias: Vec::new(),
            ban: Vec::new(),
            guard: None,
            order,
            seed: 0,
        }
    }

    /// Whether the largest logit always wins, so that nothing is drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}
