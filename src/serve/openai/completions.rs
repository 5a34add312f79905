//! `POST /v1/completions`: continues texts and tokens.

use super::answer::{Sum, add_end, end_of_choice, finish_reason, finite, merge, token_text};
use super::chat::fingerprint;
use super::extras::{ResponseFormat, StreamOptions, follow, kept, of_schema, read};
use super::prompts::{Prompts, check_ids, of_input};
use super::stream::{Lines, Out, collect, respond};
use crate::engine::{Completion, Engine, Event, Input, Request};
use crate::error::Error;
use crate::serve::app::App;
use crate::serve::body::Body;
use crate::serve::failure::{Answer, Failure};
use crate::serve::guard::Caller;
use crate::serve::ids::{new_id, now};
use crate::serve::tickets::Ticket;
use crate::session::Logprobs;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// The most prompts of a request.
const MAX_PROMPTS: usize = 256;

/// A request to continue one or several prompts. Sampler settings, rules and names of states are further fields of the same object.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CompletionBody {
    pub prompt: Prompts,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// If set, each token is returned with its log-probability, and with this number of most likely tokens at its position: 0 to 20.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 20)]
    pub logprobs: Option<u32>,
    /// If true, the text begins with the prompt.
    #[serde(default)]
    pub echo: Option<bool>,
    /// The text after a gap that the model fills; `prompt` is the text before the gap. For RWKV-7 G1.
    #[serde(default)]
    pub suffix: Option<String>,
    #[serde(default)]
    pub response_format: Option<ResponseFormat>,
    /// The id of a session. The state after the text is kept under this id. The next request with this id continues from that state if its
    /// prompt begins with the same text.
    #[serde(default)]
    pub session_id: Option<String>,
    /// If true, the state after the text is stored, and `state.name` in the answer is its name. The server chooses the name, unless `save_state`
    /// or `session_id` sets a name.
    #[serde(default)]
    pub return_state: Option<bool>,
}

pub async fn create(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, body: Body) -> Answer {
    let (asked, mut settings): (CompletionBody, Request) = read(&app, &caller, &body, &[])?;
    let schema = follow(&mut settings, asked.response_format.as_ref().and_then(ResponseFormat::rules), "response_format", "json_schema")?;
    (settings.echo, settings.logprobs) = (asked.echo == Some(true), asked.logprobs.map(|n| n as usize));
    // OpenAI's default.
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
    let kept = kept(&settings, &of_header, asked.session_id, asked.return_state == Some(true))?;
    let model = app.model(asked.model.as_deref())?;
    let n = settings.n;
    let engine = model.engine()?.0;
    check_fits(inputs.len(), n, &engine)?;
    check_ids(&inputs, engine.model())?;
    let scores_prompt = settings.echo && settings.logprobs.is_some();
    let mut tickets = Vec::with_capacity(inputs.len());
    for (path, input) in inputs {
        let request = Request { input, ..settings.clone() };
        let opened = Ticket::open(&app, &model, &caller, "/v1/completions", request, &kept).await;
        tickets.push(opened.map_err(|e| of_schema(of_input(e, &path), schema.as_deref()))?);
    }
    let engine = tickets[0].engine.clone();
    let head = json!({"id": new_id("cmpl-"), "object": "text_completion", "created": now(), "model": model.name, "system_fingerprint": fingerprint(&engine)});
    if asked.stream == Some(true) {
        let usage = StreamOptions::has_usage(asked.stream_options.as_ref());
        let waiting = || Table { early: scores_prompt.then(Vec::new), ..Table::default() };
        let waiting = (0..n * tickets.len()).map(|_| waiting()).collect();
        let lines = Chunks { head, usage, n, sum: Sum::default(), waiting };
        return Ok(respond(tickets, lines, &caller.request_id));
    }
    let all = collect(tickets).await?;
    let mut sum = Sum::default();
    let mut answer = head;
    let mut choices = Vec::new();
    for (ticket, done) in all.iter().enumerate().flat_map(|(ticket, all)| all.iter().map(move |done| (ticket, done))) {
        sum.add(done);
        let table = (settings.logprobs.is_some()).then(|| Table::of(&engine, done, scores_prompt));
        choices.push(json!({
            "index": ticket * n + done.index, "text": done.text, "logprobs": table.map(Table::json), "finish_reason": finish_reason(done), "seed": done.seed,
        }));
    }
    answer["choices"] = choices.into();
    answer["usage"] = sum.json();
    if let Some(done) = all.first().and_then(|all| all.first()) {
        add_end(&mut answer, done);
    }
    Ok(Json(answer).into_response())
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
fn between(prompt: Input, suffix: &str) -> Answer<Input> {
    match prompt {
        Input::Text(prefix) => Ok(Input::Text(crate::chat::fill_prompt(&prefix, suffix))),
        _ => Err(Failure::field("suffix", "expected prompt as text together with suffix, found token ids")),
    }
}

/// Log-probabilities in the format of `/v1/completions`: lists with one entry per token.
#[derive(Default)]
struct Table {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// The length of the text so far, in characters.
    length: usize,
    /// Log-probabilities of generated tokens that arrived before the log-probabilities of the prompt. `None` if the latter have arrived or are
    /// not returned.
    early: Option<Vec<Logprobs>>,
}

impl Table {
    /// Returns the table of a complete text. The table begins with the prompt if `scores_prompt` is true.
    fn of(engine: &Engine, done: &Completion, scores_prompt: bool) -> Table {
        let mut table = Table::default();
        table.add_prompt(engine, done.prompt_first.filter(|_| scores_prompt), &done.prompt_logprobs);
        done.logprobs.iter().for_each(|at| table.add(engine, at));
        table
    }

    fn push(&mut self, engine: &Engine, token: u32, at: Option<&Logprobs>) {
        let text = token_text(engine, token);
        self.offsets.push(self.length);
        self.length += text.chars().count();
        self.tokens.push(text.into());
        self.logprobs.push(at.map_or(Value::Null, |at| finite(at.logprob).into()));
        let top =
            at.map(|at| at.top.iter().map(|(token, logprob)| (token_text(engine, *token), finite(*logprob).into())).collect::<Map<_, _>>());
        self.top.push(top.map_or(Value::Null, Value::Object));
    }

    fn json(self) -> Value {
        json!({"tokens": self.tokens, "token_logprobs": self.logprobs, "top_logprobs": self.top, "text_offset": self.offsets})
    }

    /// Adds the first token of the prompt, which has no log-probability, and the log-probabilities of the other prompt tokens. Then adds the
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

    /// Removes and returns the entries that have not been sent. Returns null if the table is empty or waits for the prompt's log-probabilities.
    fn take(&mut self) -> Value {
        if self.tokens.is_empty() || self.early.is_some() {
            return Value::Null;
        }
        let length = self.length;
        std::mem::replace(self, Table { length, ..Table::default() }).json()
    }
}

/// Writes the chunks of streamed texts.
struct Chunks {
    head: Value,
    usage: bool,
    /// The number of continuations per prompt.
    n: usize,
    sum: Sum,
    /// For each choice, log-probabilities that have not been sent yet.
    waiting: Vec<Table>,
}

impl Chunks {
    fn add_prompt(&mut self, ticket: usize, first: Option<u32>, logprobs: &[Logprobs], engine: &Engine) {
        self.waiting.iter_mut().skip(ticket * self.n).take(self.n).for_each(|table| table.add_prompt(engine, first, logprobs));
    }

    fn chunk(&mut self, ticket: usize, index: usize, text: &str, finish: Option<&str>, more: Value, out: &mut Out) {
        let index = ticket * self.n + index;
        let Some(waiting) = self.waiting.get_mut(index) else { return };
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([{"index": index, "text": text, "logprobs": waiting.take(), "finish_reason": finish}]);
        merge(&mut chunk["choices"][0], &more);
        if self.usage {
            chunk["usage"] = Value::Null;
        }
        out.json(&chunk);
    }
}

impl Lines for Chunks {
    fn event(&mut self, ticket: usize, event: &Event, engine: &Engine, out: &mut Out) {
        match event {
            Event::Text { index, text } => self.chunk(ticket, *index, text, None, Value::Null, out),
            Event::Logprobs { index, logprobs } => {
                let at = ticket * self.n + index;
                self.waiting.get_mut(at).into_iter().for_each(|table| table.add(engine, logprobs));
            }
            // An empty prompt after a state has no log-probabilities.
            Event::Started { prompt_tokens: 0, .. } => self.add_prompt(ticket, None, &[], engine),
            Event::Prompt { first, logprobs } => self.add_prompt(ticket, *first, logprobs, engine),
            Event::Done(done) => {
                self.sum.add(done);
                let more = end_of_choice(done);
                self.chunk(ticket, done.index, "", Some(finish_reason(done)), more, out);
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Out) {
        if self.usage {
            let mut chunk = self.head.clone();
            (chunk["choices"], chunk["usage"]) = (json!([]), self.sum.json());
            out.json(&chunk);
        }
        out.done();
    }
}
