//! The sampling settings, and the defaults of each model family.

/// The order in which filters and temperature apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Applies the temperature after the filters, as the official RWKV package does. `top_p` also keeps all tokens that are exactly as likely as the
    /// last token that it keeps.
    Pip,
    /// Applies the temperature before the filters, as transformers does.
    Hf,
}

/// The sampling settings: how a token is drawn from logits.
///
/// First the logits are adjusted. The penalties for generated tokens, the penalty of [DRY](Self::dry_multiplier), `logit_bias` and `ban` apply
/// in this order. Then the filters apply one after another, in one of two orders:
///
/// * [`Order::Pip`]: `top_n_sigma`, `typical`, `top_p`, `top_k`, `min_p`, `temperature`;
/// * [`Order::Hf`]: `temperature`, `top_n_sigma`, `top_k`, `typical`, `top_p`, `min_p`.
///
/// llama.cpp's order is `top_n_sigma`, `top_k`, `typical`, `top_p`, `min_p`, `temperature`. `Hf` differs from llama.cpp's order in the place of
/// `temperature`, and `Pip` in the place of `top_k`. llama.cpp applies biases before the penalties. If `mirostat` is on, both orders apply the
/// temperature and then mirostat, and skip all other filters, as llama.cpp does.
///
/// The GPU kernel supports every setting except `typical`, `mirostat`, DRY and `repeat_last_n`. If one of these settings is on, the host draws
/// instead. Host and GPU draw the same ids. An id whose logit is not finite is never drawn, except by the [guard](Self::guard).
///
/// ```
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::low_level::sample::{Sampler, Sampling};
///
/// let mut settings = Sampling { temperature: 0.8, top_p: 0.9, seed: 7, ..Sampling::rwkv() };
/// // Flags and JSON fields set a field by its name, from text.
/// settings.set("repeat_penalty", "1.1")?;
/// settings.check(3)?;
///
/// let mut sampler = Sampler::new(settings);
/// let id = sampler.sample(&[0.5, 3.0, f32::NEG_INFINITY])?;
/// sampler.accept(id, 1.0);
/// assert!(id < 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits. Values below 1 favour likely tokens. 0 is greedy sampling: the filters are skipped, and the token with the largest logit
    /// is drawn. Among equal logits, the lowest id is drawn.
    pub temperature: f32,
    /// Keeps the most likely tokens until their total probability reaches this value, in 0 ..= 1. 1 is off. 0 keeps only the most likely token.
    pub top_p: f32,
    /// Keeps this many of the most likely tokens. Among equally likely tokens, the lowest ids are kept. 0 is off.
    pub top_k: usize,
    /// Keeps the tokens whose probability is at least this fraction of the largest probability, in 0 ..= 1. 0 is off.
    pub min_p: f32,
    /// Keeps the tokens whose surprise, -log(p), is closest to the entropy, until their total probability reaches this value, in 0 ..= 1. The
    /// most likely token may be dropped. 1 is off.
    pub typical: f32,
    /// Keeps the tokens whose logit is at most this many standard deviations below the largest logit. 0 is off.
    pub top_n_sigma: f32,
    /// The mean surprise per token, in bits, that mirostat 2 aims at. 0 is off.
    pub mirostat: f32,
    /// The learning rate of mirostat, at least 0.
    pub mirostat_rate: f32,
    /// The number that is subtracted from the logit of every token that was generated before. 0 is off.
    pub presence_penalty: f32,
    /// A factor: the factor times a token's penalty count is subtracted from the token's logit. The penalty count is how often the token was
    /// generated, reduced by `penalty_decay`. 0 is off.
    pub frequency_penalty: f32,
    /// Multiplies all penalty counts after each token. In 0 ..= 1; 1 is off.
    pub penalty_decay: f32,
    /// For every token that was generated before: a positive logit is divided by this factor, and a negative logit is multiplied by this factor.
    /// 1 is off.
    pub repeat_penalty: f32,
    /// The number of last tokens to which `repeat_penalty` applies, including tokens of the prompt. 0 turns `repeat_penalty` off. With `None`,
    /// `repeat_penalty` applies to all generated tokens and to no token of the prompt.
    pub repeat_last_n: Option<usize>,
    /// DRY subtracts `multiplier * base^(length - allowed_length)` from the logit of a token that would extend a repetition. `length` is the number
    /// of tokens in the repetition. Repetitions shorter than `allowed_length` have no penalty. 0 is off.
    pub dry_multiplier: f32,
    /// The base of DRY's formula, at least 1.
    pub dry_base: f32,
    /// The length, in tokens, of the shortest repetition that has a penalty. 0 counts as 1.
    pub dry_allowed_length: usize,
    /// The number of last tokens in which DRY looks for repetitions, including tokens of the prompt. 0 turns DRY off. `None` means all tokens.
    pub dry_range: Option<usize>,
    /// Texts that end a repetition. A token that contains one of these texts ends a repetition, and gets no DRY penalty itself.
    pub dry_breakers: Vec<String>,
    /// Pairs of a token id and a number that is added to the token's logit. Negative infinity bans the id.
    pub logit_bias: Vec<(u32, f32)>,
    /// Ids that are never drawn.
    pub ban: Vec<u32>,
    /// The guard: the id that is drawn if any logit is NaN or infinite. The logits are examined before penalties and bans apply. GLM's reference
    /// code has the same guard, so that a text continues even if the model's arithmetic fails. With `None`, an id with a finite logit is drawn.
    pub guard: Option<u32>,
    /// The order in which filters and temperature apply.
    pub order: Order,
    /// The seed, which selects the random stream.
    pub seed: u64,
}

/// The default of [`Sampling::dry_breakers`].
pub const DRY_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

impl Sampling {
    /// Returns the defaults of the official RWKV package.
    pub fn rwkv() -> Self {
        Sampling { top_p: 0.85, presence_penalty: 0.2, frequency_penalty: 0.2, penalty_decay: 0.996, ..Self::plain(Order::Pip) }
    }

    /// Returns the defaults of GLM-4 in transformers.
    pub fn glm() -> Self {
        Sampling { temperature: 0.8, top_p: 0.8, top_k: 50, ..Self::plain(Order::Hf) }
    }

    /// Returns the settings that the authors of GLM-4.7 recommend.
    pub fn glm47() -> Self {
        Sampling { top_p: 0.95, ..Self::plain(Order::Hf) }
    }

    /// Returns the settings that the authors of GLM-4.7 recommend for conversations with tools.
    pub fn glm47_tools() -> Self {
        Sampling { temperature: 0.7, ..Self::plain(Order::Hf) }
    }

    /// Returns the defaults of Qwen2.5's chat models (`generation_config.json`), without their penalty of repetitions.
    pub fn qwen() -> Self {
        Sampling { temperature: 0.7, top_p: 0.8, top_k: 20, ..Self::plain(Order::Hf) }
    }

    /// Returns settings that always draw the token with the largest logit, without penalties. The seed has an effect only if the temperature is
    /// raised later.
    pub fn greedy(seed: u64) -> Self {
        Sampling { temperature: 0.0, seed, ..Self::plain(Order::Pip) }
    }

    /// Returns settings that draw from the softmax of the logits. Every filter and every penalty is off.
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

    /// Returns whether the temperature is 0, so that the token with the largest logit is always drawn.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }
}
