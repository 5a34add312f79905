//! Settings and answers that `/completion` and `/infill` share.

use crate::app::App;
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::guard::Caller;
use crate::openai::answer::{finite, stop_text, token_bytes, token_text};
use crate::openai::extras::{ResponseFormat, follow, session_states};
use crate::openai::stream::{self, Out};
use crate::tickets::Ticket;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event, FinishReason, Request, UNLIMITED};
use wingbeat::low_level::session::Logprobs;

/// Fields of llama-server's requests.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct Common {
    /// The name of a model. By default, the server's first model.
    pub model: Option<String>,
    pub stream: Option<bool>,
    /// How many of the most likely tokens are returned at each position: 0 to 20.
    pub n_probs: Option<u32>,
    /// If false, the request neither uses nor creates entries of the prefix cache.
    pub cache_prompt: Option<bool>,
    /// If true, the answer has the token ids of its text.
    pub return_tokens: Option<bool>,
    pub response_format: Option<ResponseFormat>,
}

/// Settings of a request that the last object of the answer repeats, because llama-server's clients expect them there.
pub struct EchoedSettings {
    model: String,
    stops: Vec<String>,
    returns_tokens: bool,
    temperature: f32,
    top_k: u32,
    top_p: f32,
    seed: u64,
    max_tokens: Option<usize>,
    warnings: Vec<String>,
}

/// Submits a request with the settings in `common`.
///
/// # Errors
/// 400 with the wrong field, and the errors of [`Ticket::open`].
pub async fn submitted(
    app: &Arc<App>,
    caller: &Caller,
    endpoint: &'static str,
    common: Common,
    mut request: Request,
    warnings: Vec<String>,
    claim: &Arc<Claim>,
) -> Answer<(Ticket, EchoedSettings)> {
    let schema = follow(&mut request, common.response_format.as_ref().and_then(ResponseFormat::rules), "response_format", "json_schema")?;
    request.logprobs = common.n_probs.filter(|n| *n > 0).map(|n| n as usize);
    request.no_cache |= common.cache_prompt == Some(false);
    let model = app.model(common.model.as_deref())?;
    let states = session_states(&request, caller, None, false)?;
    let (stops, max_tokens) = (request.stop.clone().unwrap_or_default(), request.max_tokens.filter(|n| *n != UNLIMITED));
    let opened = Ticket::open(app, &model, caller, endpoint, request, &states, claim).await;
    let named = |e: Failure| {
        e.renamed(&["tokens"], "prompt")
            .renamed(&["logprobs"], "n_probs")
            .renamed(&["max_tokens"], "n_predict")
            .renamed(&["json_schema"], &schema)
    };
    let ticket = opened.map_err(named)?;
    let sampling = ticket.sampling();
    let echoed = EchoedSettings {
        model: model.name.clone(),
        stops,
        returns_tokens: common.return_tokens == Some(true),
        temperature: sampling.temperature,
        top_k: sampling.top_k as u32,
        top_p: sampling.top_p,
        seed: sampling.seed,
        max_tokens,
        warnings,
    };
    Ok((ticket, echoed))
}

/// A whole text, or an object of a streamed text. Only the last object of a stream has the fields of `end`.
#[derive(Serialize, ToSchema)]
pub struct LlamaText {
    index: usize,
    content: String,
    /// The token ids of the text. Empty unless the request sets `return_tokens`.
    tokens: Vec<u32>,
    id_slot: i32,
    /// True in a whole text and in the last object of a stream.
    stop: bool,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    completion_probabilities: Vec<Probabilities>,
    #[serde(flatten)]
    end: LlamaEnd,
}

/// Fields at the end of a text.
#[derive(Default, Serialize, ToSchema)]
pub struct LlamaEnd {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_settings: Option<GenerationSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has_new_line: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    /// eos, limit or word (a stop text).
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping_word: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_cached: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<LlamaTimings>,
    /// One line for each field of the request that has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The sampler settings of an answer.
#[derive(Serialize, ToSchema)]
pub struct GenerationSettings {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    seed: u64,
    stop: Vec<String>,
    /// -1 means no limit.
    n_predict: i64,
}

/// The log-probability of a token, and of the most likely tokens at its position.
#[derive(Serialize, ToSchema)]
pub struct Probabilities {
    #[serde(flatten)]
    token: Probability,
    top_logprobs: Vec<Probability>,
}

#[derive(Serialize, ToSchema)]
pub struct Probability {
    id: u32,
    token: String,
    bytes: Vec<u8>,
    logprob: f32,
}

/// The numbers of tokens, durations in milliseconds and speeds.
#[derive(Serialize, ToSchema)]
pub struct LlamaTimings {
    cache_n: usize,
    prompt_n: usize,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n_accepted: Option<usize>,
}

impl LlamaTimings {
    fn of(done: &Completion) -> LlamaTimings {
        let (t, usage) = (&done.timings, &done.usage);
        let (prompt_n, predicted_n) = (usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens);
        let each = |ms: f64, n: usize| if n == 0 { 0.0 } else { ms / n as f64 };
        let speed = |ms: f64, n: usize| if ms > 0.0 { n as f64 / ms * 1e3 } else { 0.0 };
        let (draft_n, draft_n_accepted) = t.guesses().unzip();
        LlamaTimings {
            cache_n: usage.cached_tokens,
            prompt_n,
            prompt_ms: t.prefill_ms,
            prompt_per_token_ms: each(t.prefill_ms, prompt_n),
            prompt_per_second: speed(t.prefill_ms, prompt_n),
            predicted_n,
            predicted_ms: t.decode_ms,
            predicted_per_token_ms: each(t.decode_ms, predicted_n),
            predicted_per_second: speed(t.decode_ms, predicted_n),
            draft_n,
            draft_n_accepted,
        }
    }
}

impl Probabilities {
    fn of(engine: &Engine, at: &Logprobs) -> Probabilities {
        let one = |token: u32, logprob: f32| Probability {
            id: token,
            token: token_text(engine, token),
            bytes: token_bytes(engine, token).into(),
            logprob: finite(logprob),
        };
        Probabilities {
            token: one(at.token, at.logprob),
            top_logprobs: at.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect(),
        }
    }
}

impl LlamaText {
    /// Returns the object of a complete text. The last object of a stream leaves out the text and the probabilities, because earlier objects have them.
    pub fn new(engine: &Engine, done: &Completion, echoed: &EchoedSettings, prompt: String, is_streamed: bool) -> LlamaText {
        let stop = stop_text(engine, done, &echoed.stops);
        let stop_type = match done.finish_reason() {
            FinishReason::Length => "limit",
            _ if stop.is_some() => "word",
            _ => "eos",
        };
        let probabilities = done.logprobs.iter().filter(|_| !is_streamed).map(|at| Probabilities::of(engine, at)).collect();
        LlamaText {
            index: done.index,
            content: if is_streamed { String::new() } else { done.text.clone() },
            tokens: if echoed.returns_tokens { done.tokens.clone() } else { Vec::new() },
            id_slot: -1,
            stop: true,
            tokens_predicted: done.usage.completion_tokens,
            tokens_evaluated: done.usage.prompt_tokens,
            completion_probabilities: probabilities,
            end: LlamaEnd {
                model: Some(echoed.model.clone()),
                generation_settings: Some(GenerationSettings {
                    temperature: echoed.temperature,
                    top_k: echoed.top_k,
                    top_p: echoed.top_p,
                    seed: echoed.seed,
                    stop: echoed.stops.clone(),
                    n_predict: echoed.max_tokens.map_or(-1, |n| n as i64),
                }),
                prompt: Some(prompt),
                has_new_line: Some(done.text.contains('\n')),
                truncated: Some(false),
                stop_type: Some(stop_type),
                stopping_word: Some(stop.unwrap_or_default()),
                tokens_cached: Some(done.usage.cached_tokens),
                timings: Some(LlamaTimings::of(done)),
                warnings: echoed.warnings.clone(),
            },
        }
    }
}

/// Writes the objects of a streamed text.
pub struct CompletionLines {
    echoed: EchoedSettings,
    prompt: String,
    prompt_tokens: usize,
    /// Log-probabilities of tokens whose text has not been sent yet.
    logprobs: Vec<Logprobs>,
    n_sent: usize,
}

impl CompletionLines {
    pub fn new(echoed: EchoedSettings, prompt: String) -> CompletionLines {
        CompletionLines { echoed, prompt, prompt_tokens: 0, logprobs: Vec::new(), n_sent: 0 }
    }
}

impl stream::Lines for CompletionLines {
    fn event(&mut self, _: usize, event: &Event, engine: &Engine, out: &mut Out) {
        match event {
            Event::Started { prompt_tokens, .. } => self.prompt_tokens = *prompt_tokens,
            Event::Logprobs { logprobs, .. } => self.logprobs.push(logprobs.clone()),
            Event::Text { index, text, .. } => {
                self.n_sent += 1;
                let completion_probabilities = std::mem::take(&mut self.logprobs).iter().map(|at| Probabilities::of(engine, at)).collect();
                out.json(&LlamaText {
                    index: *index,
                    content: text.clone(),
                    tokens: Vec::new(),
                    stop: false,
                    id_slot: -1,
                    tokens_predicted: self.n_sent,
                    tokens_evaluated: self.prompt_tokens,
                    completion_probabilities,
                    end: LlamaEnd::default(),
                });
            }
            Event::Done(done) => {
                out.json(&LlamaText::new(engine, done, &self.echoed, std::mem::take(&mut self.prompt), true));
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Out) {}
}
