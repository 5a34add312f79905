//! Endpoints that need no slot: tokenize, detokenize, apply a template, count tokens.

use crate::chat::Message;
use crate::engine::{Input, Request};
use crate::error::Error;
use crate::serve::app::App;
use crate::serve::body::Body;
use crate::serve::failure::Answer;
use crate::serve::openai::{WireMessage, check_tokens, read_messages};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// A text or a conversation. Exactly one of the fields `content`, `prompt` and `messages` is required.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct TextBody {
    #[serde(default)]
    pub content: Option<String>,
    /// A second name of `content`.
    #[serde(default)]
    pub prompt: Option<String>,
    #[serde(default)]
    pub messages: Option<Vec<WireMessage>>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
    /// If true (the default), the tokens that begin every text are added.
    #[serde(default, alias = "add_special_tokens")]
    pub add_special: Option<bool>,
    /// If true, each token is returned with its text.
    #[serde(default)]
    pub with_pieces: Option<bool>,
}

/// Token ids to convert to a text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct TokensBody {
    pub tokens: Vec<u32>,
    /// The name of a model. By default, the server's first model. A server with only one model accepts any name.
    #[serde(default)]
    pub model: Option<String>,
}

/// Returns the parsed body, the engine of its model, and the tokens of its text or conversation. The parsed body no longer contains the text.
async fn encoded(app: &Arc<App>, body: &Body) -> Answer<(TextBody, crate::engine::Engine, Vec<u32>)> {
    let mut asked: TextBody = body.parse()?;
    let engine = app.model(asked.model.as_deref())?.engine()?.0;
    let messages: Option<Vec<Message>> = asked.messages.take().map(|messages| read_messages(&messages));
    let input = match (asked.content.take(), asked.prompt.take(), messages) {
        (Some(text), None, None) | (None, Some(text), None) => Input::Text(text),
        (None, None, Some(messages)) => Input::Messages(messages),
        _ => return Err(Error::input("expected exactly one of the fields content, prompt and messages").field("content").into()),
    };
    let add_special = asked.add_special != Some(false);
    let fields = without_text(body)?;
    let preparing = engine.clone();
    let prepare = move || match &input {
        Input::Text(text) => {
            let vocab = preparing.model().vocab().ok_or_else(|| Error::input("the model has no vocabulary"))?;
            if add_special { vocab.encode_prompt(text.as_bytes()) } else { vocab.encode_further(text.as_bytes()) }
        }
        _ => preparing.tokens(&Request { input, ..fields }),
    };
    let permit = app.preparing.clone().acquire_owned().await;
    let work = move || {
        let _permit = permit;
        prepare()
    };
    let tokens = tokio::task::spawn_blocking(work).await.map_err(|_| Error::file("tokenizing panicked"))??;
    Ok((asked, engine, tokens))
}

/// Returns the settings of a body, without its text. Some settings change the prompt: `tools`, `format` and `thinking`, for example.
fn without_text(body: &Body) -> Answer<Request> {
    let mut fields = body.fields()?;
    ["content", "prompt", "messages", "tokens", "model", "stream"].iter().for_each(|name| {
        fields.take(name);
    });
    Ok(Request::read_settings(Input::Text(String::new()), &fields)?.0)
}

pub async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Value>> {
    let (asked, engine, tokens) = encoded(&app, &body).await?;
    if asked.with_pieces != Some(true) {
        return Ok(Json(json!({"tokens": tokens})));
    }
    let piece = |token: &u32| {
        let bytes = engine.model().vocab().map_or(&[][..], |vocab| vocab.token(*token));
        // A piece that is not UTF-8 is a list of bytes, as in llama.cpp.
        let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), Value::from);
        json!({"id": token, "piece": piece})
    };
    Ok(Json(json!({"tokens": tokens.iter().map(piece).collect::<Vec<_>>()})))
}

pub async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Value>> {
    let asked: TokensBody = body.parse()?;
    let engine = app.model(asked.model.as_deref())?.engine()?.0;
    let vocab = engine.model().vocab().ok_or_else(|| Error::input("the model has no vocabulary"))?;
    check_tokens("tokens", &asked.tokens, engine.model())?;
    let text = vocab.decode(&asked.tokens);
    let text = String::from_utf8_lossy(&text);
    // llama.cpp names the text `content`, vLLM names it `prompt`.
    Ok(Json(json!({"content": text, "prompt": text})))
}

/// Describes the tokenizer as vLLM does. Programs such as lm-evaluation-harness then use `/tokenize` in place of a tokenizer of their own.
pub async fn info(State(app): State<Arc<App>>) -> Answer<Json<Value>> {
    let engine = app.model(None)?.engine()?.0;
    let vocab = engine.model().vocab().ok_or_else(|| Error::input("the model has no vocabulary"))?;
    Ok(Json(json!({
        "tokenizer_class": "wingbeat", "vocab_size": vocab.len(), "bos_token": null, "eos_token": "<|endoftext|>", "pad_token": null,
        "chat_template": null,
    })))
}

pub async fn apply_template(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Value>> {
    let (_, engine, tokens) = encoded(&app, &body).await?;
    let text = engine.model().vocab().map(|vocab| vocab.decode(&tokens)).unwrap_or_default();
    Ok(Json(json!({"prompt": String::from_utf8_lossy(&text)})))
}

pub async fn count(State(app): State<Arc<App>>, body: Body) -> Answer<Json<Value>> {
    let (_, _, tokens) = encoded(&app, &body).await?;
    Ok(Json(json!({"object": "token_count", "tokens": tokens.len()})))
}
