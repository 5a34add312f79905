//! `POST /v1/completions`: continues texts and tokens.

use super::answer::{End, FinishSchema, Head, finite, token_text};
use super::extras::{ResponseFormat, StreamOptions, follow, read, session_states};
use super::prompts::{Prompts, check_ids};
use super::stream::{ChunkStream, Lines, Out, collect, respond, whole};
use crate::app::App;
use crate::body::Body;
use crate::failure::{Answer, Failure};
use crate::fields::Dialect;
use crate::guard::Caller;
use crate::tickets::Ticket;
use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, Event, FinishReason, Input};
use wingbeat::error::Error;
use wingbeat::low_level::session::Logprobs;

/// The maximum number of prompts in a request.
const MAX_PROMPTS: usize = 256;

/// A request to continue one or several prompts. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CompletionBody {
    pub prompt: Prompts,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    /// If set, the answer has the log-probability of each token, and this number of most likely tokens at each position: 0 to 20.
    #[schema(minimum = 0, maximum = 20)]
    pub logprobs: Option<u32>,
    /// If true, the text begins with the prompt.
    pub echo: Option<bool>,
    /// The text after a gap that the model fills; `prompt` is the text before the gap. For RWKV-7 G1.
    pub suffix: Option<String>,
    pub response_format: Option<ResponseFormat>,
    /// The id of a session. The state after the text is kept under this id. The next request with this id continues from that state if its
    /// prompt begins with the same text.
    pub session_id: Option<String>,
    /// If true, the state after the text is stored, and `state.name` in the answer is its name. The server chooses the name, unless `save_state`
    /// or `session_id` sets a name.
    pub return_state: Option<bool>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let no_input = |_: &mut CompletionBody| Ok(Input::Text(String::new()));
    let (asked, mut settings, warnings, claim) = read(&app, &caller, body, Dialect::Text, no_input).await?;
    let schema = follow(&mut settings, asked.response_format.as_ref().and_then(ResponseFormat::rules), "response_format", "json_schema")?;
    (settings.echo, settings.logprobs) = (asked.echo == Some(true), asked.logprobs.map(|n| n as usize));
    // As in OpenAI's API, a request without `max_tokens` generates 16 tokens.
    settings.max_tokens.get_or_insert(16);
    let mut inputs = asked.prompt.inputs("prompt");
    if let Some(suffix) = asked.suffix.filter(|suffix| !suffix.is_empty()) {
        inputs = inputs.into_iter().map(|(path, input)| Ok((path, between(input, &suffix)?))).collect::<Answer<_>>()?;
    }
    if inputs.is_empty() || inputs.len() > MAX_PROMPTS || inputs.len().saturating_mul(settings.n) > app.options.max_n.max(MAX_PROMPTS) {
        let text = format!(
            "expected 1 to {MAX_PROMPTS} prompts and at most {} continuations in all, found {} prompts with n = {}",
            app.options.max_n.max(MAX_PROMPTS),
            inputs.len(),
            settings.n
        );
        return Err(Failure::field("prompt", text));
    }
    if inputs.len() > 1 && (asked.session_id.is_some() || asked.return_state == Some(true) || settings.save_state.is_some()) {
        return Err(Failure::field("prompt", "expected one prompt together with a session or a saved state, found several"));
    }
    // With several prompts, the header `x-session-id` is ignored: a session has one text.
    let of_header = Caller { session: caller.session.clone().filter(|_| inputs.len() == 1), ..caller.clone() };
    let states = session_states(&settings, &of_header, asked.session_id, asked.return_state == Some(true))?;
    let model = app.model(asked.model.as_deref())?;
    let n = settings.n;
    let engine = app.started(&model).await?.0;
    check_fits(inputs.len(), n, &engine)?;
    check_ids(&inputs, engine.model())?;
    let scores_prompt = settings.echo && settings.logprobs.is_some();
    let mut tickets = Vec::with_capacity(inputs.len());
    for (path, input) in inputs {
        let mut request = settings.clone();
        request.input = input;
        let opened = Ticket::open(&app, &model, &caller, "/v1/completions", request, &states, &claim).await;
        tickets.push(opened.map_err(|e| e.renamed(&["prompt", "tokens"], &path).renamed(&["json_schema"], &schema))?);
    }
    let head = Head::new("cmpl-", "text_completion", &tickets[0], warnings);
    let table = || Table { early: scores_prompt.then(Vec::new), ..Table::default() };
    if asked.stream == Some(true) {
        let tables = (0..n * tickets.len()).map(|_| table()).collect();
        return Ok(respond(tickets, Chunks { stream: ChunkStream::new(head, asked.stream_options), n, tables }, &caller.request_id));
    }
    let all = collect(tickets).await?;
    Ok(whole(head, &all, |ticket, done| {
        let mut table = table();
        table.add_prompt(&engine, done.prompt_first.filter(|_| scores_prompt), &done.prompt_logprobs);
        done.logprobs.iter().for_each(|at| table.add(&engine, at));
        let logprobs = settings.logprobs.is_some().then(|| table.within(&done.text));
        TextChoice {
            index: ticket * n + done.index,
            text: done.text.clone(),
            logprobs,
            finish_reason: Some(done.finish_reason()),
            end: End { seed: Some(done.seed), complete: done.complete, ..End::default() },
        }
    }))
}

/// Checks that the slots and the caller's part of the queue have room for all prompts of one body. Without this check, a body with too many prompts
/// would always get the status 429.
fn check_fits(n_prompts: usize, n: usize, engine: &Engine) -> Answer<()> {
    let most = engine.most_at_once(n);
    if n_prompts <= most {
        return Ok(());
    }
    let text = format!("expected at most {most} prompts, for which the slots and the queue have room, found {n_prompts}");
    Err(Error::input(text).field("prompt").hint("divide the prompts among several requests").into())
}

/// Returns the input with which RWKV-7 G1 writes the text between `prompt` and `suffix`.
///
/// # Errors
/// 400 if `prompt` has token ids.
fn between(prompt: Input, suffix: &str) -> Answer<Input> {
    match prompt {
        Input::Text(prefix) => Ok(Input::Text(wingbeat::chat::fill_prompt(&prefix, suffix))),
        _ => Err(Failure::field("suffix", "expected prompt as text together with suffix, found token ids")),
    }
}

/// A text, or a piece of a text in a stream.
#[derive(Serialize, ToSchema)]
pub struct TextChoice {
    index: usize,
    text: String,
    logprobs: Option<TextLogprobs>,
    /// `null` in all chunks of a text but the last.
    #[schema(value_type = Option<FinishSchema>)]
    finish_reason: Option<FinishReason>,
    #[serde(flatten)]
    end: End,
}

/// The log-probabilities of a text, as lists with one entry per token.
#[derive(Default, Serialize, ToSchema)]
pub struct TextLogprobs {
    tokens: Vec<String>,
    /// `null` for the first token of a prompt.
    token_logprobs: Vec<Option<f32>>,
    /// For each token, the most likely tokens at its position. `null` for the first token of a prompt.
    #[schema(value_type = Vec<Option<HashMap<String, f32>>>)]
    top_logprobs: Vec<Option<Map<String, Value>>>,
    /// The position at which each token begins in the text, in characters. A token that begins within a character has the position of that character.
    text_offset: Vec<usize>,
}

/// Collects the log-probabilities of a text.
#[derive(Default)]
struct Table {
    /// The entries that have not been sent.
    entries: TextLogprobs,
    /// The number of whole characters of the text so far.
    length: usize,
    /// The first bytes of a character whose other bytes are in later tokens.
    begun: Vec<u8>,
    /// Log-probabilities of generated tokens that arrived before the log-probabilities of the prompt. `None` if the prompt's log-probabilities have
    /// arrived, or if the request does not ask for them.
    early: Option<Vec<Logprobs>>,
}

impl Table {
    fn push(&mut self, engine: &Engine, token: u32, at: Option<&Logprobs>) {
        let text = token_text(engine, token);
        let entries = &mut self.entries;
        entries.text_offset.push(self.length);
        self.begun.extend(engine.model().vocab().map_or(&[][..], |vocab| vocab.token(token)));
        self.length += take_characters(&mut self.begun);
        entries.tokens.push(text);
        entries.token_logprobs.push(at.map(|at| finite(at.logprob)));
        let likely = |(token, logprob): &(u32, f32)| (token_text(engine, *token), finite(*logprob).into());
        entries.top_logprobs.push(at.map(|at| at.top.iter().map(likely).collect()));
    }

    /// Returns the entries of a whole text. Tokens of a stop text are not in `text`, so their position becomes the end of `text`.
    fn within(mut self, text: &str) -> TextLogprobs {
        let end = text.chars().count();
        self.entries.text_offset.iter_mut().for_each(|at| *at = end.min(*at));
        self.entries
    }

    /// Adds the first token of the prompt without a log-probability, and the other prompt tokens with their log-probabilities. Then adds the
    /// log-probabilities of generated tokens that arrived earlier.
    fn add_prompt(&mut self, engine: &Engine, first: Option<u32>, logprobs: &[Logprobs]) {
        let early = self.early.take().unwrap_or_default();
        first.into_iter().for_each(|token| self.push(engine, token, None));
        logprobs.iter().chain(&early).for_each(|at| self.push(engine, at.token, Some(at)));
    }

    /// Adds the log-probabilities of a generated token.
    fn add(&mut self, engine: &Engine, at: &Logprobs) {
        match &mut self.early {
            Some(early) => early.push(at.clone()),
            None => self.push(engine, at.token, Some(at)),
        }
    }

    /// Removes and returns the entries that have not been sent. Returns `None` if all entries have been sent, or while the table waits for the prompt.
    fn take(&mut self) -> Option<TextLogprobs> {
        (!self.entries.tokens.is_empty() && self.early.is_none()).then(|| std::mem::take(&mut self.entries))
    }
}

/// Removes the whole characters from the beginning of `bytes`, and returns their number. Bytes that belong to no character count as one
/// character, because the text has the replacement character there.
fn take_characters(bytes: &mut Vec<u8>) -> usize {
    let mut n = 0;
    loop {
        let (valid, wrong) = match std::str::from_utf8(bytes) {
            Ok(_) => (bytes.len(), None),
            Err(e) => (e.valid_up_to(), e.error_len()),
        };
        n += String::from_utf8_lossy(&bytes[..valid]).chars().count() + usize::from(wrong.is_some());
        bytes.drain(..valid + wrong.unwrap_or(0));
        if wrong.is_none() {
            return n;
        }
    }
}

/// Writes the chunks of streamed texts.
struct Chunks {
    stream: ChunkStream,
    n: usize,
    /// The log-probabilities of each choice.
    tables: Vec<Table>,
}

impl Chunks {
    fn add_prompt(&mut self, ticket: usize, first: Option<u32>, logprobs: &[Logprobs], engine: &Engine) {
        self.tables.iter_mut().skip(ticket * self.n).take(self.n).for_each(|table| table.add_prompt(engine, first, logprobs));
    }

    /// Sends a piece of a text. For the last piece, `done` is the complete continuation.
    fn chunk(&mut self, index: usize, text: &str, done: Option<&Completion>, out: &mut Out) {
        let Some(table) = self.tables.get_mut(index) else { return };
        let (finish_reason, end) = (done.map(Completion::finish_reason), done.map(End::of).unwrap_or_default());
        self.stream.send(TextChoice { index, text: text.into(), logprobs: table.take(), finish_reason, end }, out);
    }
}

impl Lines for Chunks {
    fn event(&mut self, ticket: usize, event: &Event, engine: &Engine, out: &mut Out) {
        let first = ticket * self.n;
        match event {
            Event::Text { index, text, .. } => self.chunk(first + index, text, None, out),
            Event::Logprobs { index, logprobs } => {
                self.tables.get_mut(first + index).into_iter().for_each(|table| table.add(engine, logprobs));
            }
            // An empty prompt after a state has no log-probabilities, so the tables must not wait for them.
            Event::Started { prompt_tokens: 0, .. } => self.add_prompt(ticket, None, &[], engine),
            Event::Prompt { first, logprobs } => self.add_prompt(ticket, *first, logprobs, engine),
            Event::Done(done) => {
                self.stream.usage.add(done);
                self.chunk(first + done.index, "", Some(done), out);
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        self.stream.end::<TextChoice>(out);
    }
}
