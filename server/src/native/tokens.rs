//! Endpoints that need no slot: tokenize, detokenize, apply a template, count tokens.

use crate::app::App;
use crate::body::Body;
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::openai::{WireMessage, check_tokens, read_messages};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Engine, Input, Request};
use wingbeat::error::{Error, Result};
use wingbeat::vocab::Vocab;

/// A text or a conversation. Exactly one of the fields `content`, `prompt` and `messages` is required.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct TextBody {
    pub content: Option<String>,
    /// Another name for `content`.
    pub prompt: Option<String>,
    pub messages: Option<Vec<WireMessage>>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[expect(dead_code, reason = "`of_body` reads it, before the body is parsed")]
    pub model: Option<String>,
    /// If true (the default), the result includes the tokens with which every prompt begins.
    #[serde(default, alias = "add_special_tokens")]
    pub add_special: Option<bool>,
    /// If true (the default), the texts of special tokens, such as `<|user|>`, become these tokens. Special tokens in `messages` always stay text.
    pub parse_special: Option<bool>,
    /// If true, each token is returned with its text.
    pub with_pieces: Option<bool>,
}

/// Token ids to convert to a text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct TokensBody {
    pub tokens: Vec<u32>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[expect(dead_code, reason = "`of_body` reads it, before the body is parsed")]
    pub model: Option<String>,
}

/// The tokens of a text or a conversation, as ids. If `with_pieces` is true, each token also has its text.
#[derive(Serialize, ToSchema)]
pub struct Tokens {
    tokens: Vec<Token>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Token {
    Id(u32),
    Piece { id: u32, piece: Piece },
}

/// The text of a token. As in llama.cpp, a token that is not UTF-8 has a list of its bytes instead.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

/// The text of token ids, in two fields with the same value: llama.cpp's name is `content`, vLLM's name is `prompt`.
#[derive(Serialize, ToSchema)]
pub struct Detokenized {
    content: String,
    prompt: String,
}

/// The tokenizer, as vLLM describes it. If a server has this endpoint, programs such as lm-evaluation-harness use `/tokenize` and need no tokenizer
/// of their own.
#[derive(Serialize, ToSchema)]
pub struct TokenizerInfo {
    tokenizer_class: &'static str,
    vocab_size: usize,
    bos_token: Option<String>,
    eos_token: Option<&'static str>,
    pad_token: Option<String>,
    chat_template: Option<String>,
}

/// The prompt that the model sees.
#[derive(Serialize, ToSchema)]
pub struct RenderedPrompt {
    prompt: String,
}

#[derive(Serialize, ToSchema)]
pub struct TokenCount {
    object: &'static str,
    tokens: usize,
}

fn vocab(engine: &Engine) -> Result<&Vocab> {
    engine.model().vocab().ok_or_else(|| Error::input("the model has no vocabulary"))
}

/// Parses a body and tokenizes its text or conversation. Returns the parsed body without this text or conversation, the engine of the body's model,
/// the tokens, and the claim on their memory.
async fn encoded(app: &Arc<App>, body: Body) -> Answer<(TextBody, Engine, Vec<u32>, Arc<Claim>)> {
    let engine = of_body(app, &body).await?;
    let ((asked, engine, tokens), claim) = body.read(app, move |body| encode(engine, body)).await?;
    claim.add(4 * tokens.len())?;
    Ok((asked, engine, tokens, claim))
}

/// Returns the engine of the model that a body names. Loads the model if it has left memory.
async fn of_body(app: &Arc<App>, body: &Body) -> Answer<Engine> {
    #[derive(Deserialize)]
    struct Named {
        model: Option<String>,
    }
    let model = app.model(body.parse::<Named>()?.model.as_deref())?;
    Ok(app.started(&model).await?.0)
}

fn encode(engine: Engine, body: &Body) -> Answer<(TextBody, Engine, Vec<u32>)> {
    let mut asked: TextBody = body.parse()?;
    let input = match (asked.content.take(), asked.prompt.take(), asked.messages.take()) {
        (Some(text), None, None) | (None, Some(text), None) => Input::Text(text),
        (None, None, Some(messages)) => Input::Messages(read_messages(&messages, false)?),
        _ => return Err(Failure::field("content", "expected exactly one of the fields content, prompt and messages")),
    };
    // Some settings change the prompt of a conversation: `tools`, `format` and `thinking`, for example.
    let mut fields = body.fields()?;
    for name in ["content", "prompt", "messages", "tokens", "model", "stream"] {
        fields.take(name);
    }
    let mut request = Request::read_settings(Input::Text(String::new()), &fields)?.0;
    let encode = match (asked.add_special != Some(false), asked.parse_special != Some(false)) {
        (true, true) => Vocab::encode_prompt_marked,
        (false, true) => Vocab::encode_further_marked,
        (true, false) => Vocab::encode_prompt,
        (false, false) => Vocab::encode_further,
    };
    let tokens = match input {
        Input::Text(text) => encode(vocab(&engine)?, text.as_bytes()),
        input => {
            request.input = input;
            engine.tokens(&request)
        }
    }?;
    Ok((asked, engine, tokens))
}

/// The tokens in one part of a response of `/tokenize`.
const PER_PART: usize = 4096;

/// Answers with [`Tokens`]. A token with its piece takes many times the memory of its text, so the response is written in parts, each when the client
/// has taken the part before it.
pub async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Answer {
    let (asked, engine, tokens, claim) = encoded(&app, body).await?;
    let with_piece = move |id: u32| {
        let bytes = engine.model().vocab().map_or(&[][..], |vocab| vocab.token_marked(id));
        let piece = std::str::from_utf8(bytes).map_or_else(|_| Piece::Bytes(bytes.into()), |text| Piece::Text(text.into()));
        Token::Piece { id, piece }
    };
    let token = move |&id: &u32| if asked.with_pieces == Some(true) { with_piece(id) } else { Token::Id(id) };
    let n_parts = tokens.len().div_ceil(PER_PART).max(1);
    let parts = (0..n_parts).map(move |i| {
        let _held = &claim;
        let some: Vec<Token> = tokens.iter().skip(i * PER_PART).take(PER_PART).map(&token).collect();
        let list = serde_json::to_string(&some)?;
        let before = if i == 0 { "{\"tokens\":[" } else { "," };
        let after = if i + 1 == n_parts { "]}" } else { "" };
        Ok::<_, serde_json::Error>(format!("{before}{}{after}", &list[1..list.len() - 1]))
    });
    let parts = axum::body::Body::from_stream(futures_util::stream::iter(parts));
    Ok(([(header::CONTENT_TYPE, "application/json")], parts).into_response())
}

pub async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Detokenized>> {
    let engine = of_body(&app, &body).await?;
    let decode = move |body: &Body| {
        let asked: TokensBody = body.parse()?;
        check_tokens("tokens", &asked.tokens, engine.model())?;
        Ok(String::from_utf8_lossy(&vocab(&engine)?.decode_marked(&asked.tokens)).into_owned())
    };
    let (content, _claim) = body.read(&app, decode).await?;
    Ok(Json(Detokenized { prompt: content.clone(), content }))
}

pub async fn info(State(app): State<Arc<App>>) -> Answer<Json<TokenizerInfo>> {
    Ok(Json(TokenizerInfo {
        tokenizer_class: "wingbeat",
        vocab_size: vocab(&app.started(&app.model(None)?).await?.0)?.len(),
        bos_token: None,
        eos_token: Some("<|endoftext|>"),
        pad_token: None,
        chat_template: None,
    }))
}

pub async fn apply_template(State(app): State<Arc<App>>, body: Body) -> Answer<Json<RenderedPrompt>> {
    let (_, engine, tokens, _claim) = encoded(&app, body).await?;
    Ok(Json(RenderedPrompt { prompt: String::from_utf8_lossy(&vocab(&engine)?.decode_marked(&tokens)).into_owned() }))
}

pub async fn count(State(app): State<Arc<App>>, body: Body) -> Answer<Json<TokenCount>> {
    let (_, _, tokens, _claim) = encoded(&app, body).await?;
    Ok(Json(TokenCount { object: "token_count", tokens: tokens.len() }))
}
