//! `GET /props`: the properties of the server's first model.

use crate::abilities::thinking_choices;
use crate::body::OfModel;
use crate::failure::Answer;
use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;
use wingbeat::engine::Request;
use wingbeat::low_level::template::Message;

/// The properties of a model.
#[derive(Serialize, ToSchema)]
pub struct Props {
    default_generation_settings: DefaultSettings,
    total_slots: usize,
    model_alias: String,
    model_path: String,
    /// Empty if the chat format is part of the program.
    chat_template: String,
    modalities: Modalities,
    build_info: String,
    /// The values of a request's field `thinking` that the model's chat format offers. Not a field of llama-server.
    thinking: Vec<&'static str>,
}

#[derive(Serialize, ToSchema)]
pub struct DefaultSettings {
    /// The maximum number of tokens in prompt and answer together. 0 if the model has no limit.
    n_ctx: usize,
    /// The number of tokens for which the model was trained. 0 means any number.
    n_ctx_train: usize,
    params: DefaultParams,
}

/// The settings of a request for an answer to messages that sets none.
#[derive(Serialize, ToSchema)]
pub struct DefaultParams {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    /// The maximum number of tokens of an answer.
    n_predict: usize,
}

#[derive(Serialize, ToSchema)]
pub struct Modalities {
    vision: bool,
    audio: bool,
}

pub async fn get(of: OfModel) -> Answer<Json<Props>> {
    let model = of.engine.model();
    let (sampling, max_tokens) = of.engine.settings(&Request::chat([Message::user("a")]))?;
    Ok(Json(Props {
        default_generation_settings: DefaultSettings {
            n_ctx: model.context().unwrap_or(0),
            n_ctx_train: model.facts().context.unwrap_or(0),
            params: DefaultParams {
                temperature: sampling.temperature,
                top_k: sampling.top_k,
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                typical_p: sampling.typical,
                repeat_penalty: sampling.repeat_penalty,
                presence_penalty: sampling.presence_penalty,
                frequency_penalty: sampling.frequency_penalty,
                n_predict: max_tokens,
            },
        },
        total_slots: of.engine.stats().slots,
        model_alias: of.model.name.clone(),
        model_path: of.model.name.clone(),
        chat_template: String::new(),
        modalities: Modalities { vision: false, audio: false },
        build_info: format!("wingbeat-{}", env!("CARGO_PKG_VERSION")),
        thinking: thinking_choices(&of.engine),
    }))
}
