//! Fields that `/api/chat` and `/api/generate` share: the model, sampler settings in `options`, the format of the answer, thinking.

use super::untagged;
use crate::abilities::keep_supported_thinking;
use crate::app::App;
use crate::body::{Body, parse};
use crate::budget::Claim;
use crate::failure::{Answer, Failure};
use crate::fields::{Dialect, settle};
use crate::guard::Caller;
use crate::hosted::Hosted;
use crate::openai::extras::{check_sizes, follow, session_states, think};
use crate::tickets::Ticket;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;
use wingbeat::engine::{Fields, Input, Request, Rules};

/// Fields of a request for text.
#[derive(Debug, Deserialize, ToSchema)]
pub struct Settings {
    /// The name of a model, with or without the tag `latest`. By default, the server's first model. A server with only one model accepts any name.
    pub model: Option<String>,
    /// If true (the default), the answer is a stream of JSON objects, one per line.
    pub stream: Option<bool>,
    /// `json` for any JSON object, or a JSON schema for the answer.
    #[schema(value_type = Object)]
    pub format: Option<Value>,
    /// Sampler settings, `num_predict`, `stop`, and further settings of the engine by name. Options that have no effect, such as `num_ctx`, are listed in
    /// `warnings` of the answer.
    #[schema(value_type = Object)]
    pub options: Option<Map<String, Value>>,
    /// How much the model thinks: true, false, low, medium or high.
    #[schema(value_type = Object)]
    pub think: Option<Value>,
    /// If true, the objects have the log-probabilities of their tokens.
    pub logprobs: Option<bool>,
    /// How many of the most likely tokens are returned at each position: 0 to 20. Needs `logprobs`.
    pub top_logprobs: Option<u32>,
}

/// A request for text whose body has been read.
pub struct ParsedRequest {
    pub settings: Settings,
    /// One line for each field that has no effect.
    pub warnings: Vec<String>,
    request: Request,
    claim: Arc<Claim>,
}

/// Reads the body of a request for text. `input` converts the endpoint's own fields to the input of the engine's request, and may change the request.
///
/// # Errors
/// 400 with the path of the wrong field.
pub async fn read<T: DeserializeOwned + Send + 'static>(
    app: &Arc<App>,
    caller: &Caller,
    body: Body,
    input: impl FnOnce(T, &mut Request) -> Answer<Input> + Send + 'static,
) -> Answer<ParsedRequest> {
    let (of_work, request_id) = (app.clone(), caller.request_id.clone());
    let work = move |body: &Body| {
        let mut fields = body.fields()?;
        check_sizes(&fields, &of_work.options)?;
        let (own, settings): (T, Settings) = (parse(&fields)?, parse(&fields)?);
        of_work.log_body(&request_id, &body.bytes);
        let mut warnings = settle(Dialect::Ollama, &mut fields)?.warnings;
        let mut request = settings.request(&mut warnings)?;
        request.input = input(own, &mut request)?;
        of_work.log_warnings(&request_id, &warnings);
        Ok((settings, warnings, request))
    };
    let ((settings, warnings, request), claim) = body.read(app, work).await?;
    Ok(ParsedRequest { settings, warnings, request, claim })
}

impl ParsedRequest {
    /// Returns whether there is an input to answer.
    pub fn has_input(&self) -> bool {
        !matches!(&self.request.input, Input::Messages(messages) if messages.is_empty())
    }

    /// Submits the request.
    ///
    /// # Errors
    /// The errors of [`Ticket::open`].
    pub async fn open(self, app: &Arc<App>, caller: &Caller, model: &Arc<Hosted>, endpoint: &'static str) -> Answer<Ticket> {
        let ParsedRequest { settings, mut request, claim, .. } = self;
        // A model without thoughts does what `false` asks for, so `false` is no error there.
        if settings.think == Some(Value::Bool(false)) {
            keep_supported_thinking(&app.started(model).await?.0, &mut request);
        }
        let states = session_states(&request, caller, None, false)?;
        let opened = Ticket::open(app, model, caller, endpoint, request, &states, &claim).await;
        opened.map_err(|e| settings.located(e))
    }
}

impl Settings {
    /// Returns the name in answers: the name in the request, or the model's own name if the request names no model.
    pub fn name_of(&self, model: &Hosted) -> String {
        self.model.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| model.name.clone())
    }

    /// Returns the model that the request names.
    ///
    /// # Errors
    /// 404 if the model is unknown.
    pub fn model(&self, app: &App) -> Answer<Arc<Hosted>> {
        app.model(untagged(app, self.model.as_deref())).map_err(|e| e.in_field("model"))
    }

    /// Returns a request with these settings and an empty input. Adds a warning for each option that has no effect.
    fn request(&self, warnings: &mut Vec<String>) -> Answer<Request> {
        let options = Value::Object(self.options.clone().unwrap_or_default()).to_string();
        let mut fields = Fields::read(options.as_bytes()).map_err(|e| e.field("options"))?;
        let settled = settle(Dialect::Options, &mut fields).map_err(|e| e.in_field("options"))?;
        warnings.extend(settled.warnings.iter().map(|warning| format!("options.{warning}")));
        let read = Request::read_settings(Input::Text(String::new()), &fields).map(|(request, _)| request);
        let mut request = read.map_err(|e| self.located(settled.as_sent(e.into())))?;
        let rules = match &self.format {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            Some(Value::String(text)) if text == "json" => Some(Rules::Object),
            Some(schema @ Value::Object(_)) => Some(Rules::Schema(schema.to_string())),
            Some(_) => return Err(Failure::field("format", "expected \"json\" or an object with a JSON schema")),
        };
        follow(&mut request, rules, "format", "")?;
        let effort = match &self.think {
            None | Some(Value::Null) => None,
            Some(Value::Bool(true)) => Some("medium"),
            Some(Value::Bool(false)) => Some("none"),
            Some(Value::String(level)) if matches!(level.as_str(), "low" | "medium" | "high") => Some(level.as_str()),
            Some(_) => return Err(Failure::field("think", "expected true, false, \"low\", \"medium\" or \"high\"")),
        };
        think(&mut request, "think", effort, None)?;
        if self.logprobs == Some(true) {
            request.logprobs = Some(self.top_logprobs.unwrap_or(0) as usize);
        }
        Ok(request)
    }

    /// Replaces the engine's name of the wrong field by the path of the field in the body.
    fn located(&self, e: Failure) -> Failure {
        let renamed = e
            .renamed(&["json_schema"], "format")
            .renamed(&["max_tokens"], "num_predict")
            .renamed(&["typical"], "typical_p")
            .renamed(&["logprobs"], "top_logprobs");
        let renamed = if self.think.is_some() { renamed.renamed(&["thinking"], "think") } else { renamed };
        let field = renamed.error.field_name().and_then(|field| field.split(['.', '[', ':']).next()).unwrap_or_default();
        let is_option = field != "format" && self.options.as_ref().is_some_and(|options| options.contains_key(field));
        if is_option { renamed.in_field("options") } else { renamed }
    }
}
