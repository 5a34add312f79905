//! Checks requests, and makes the prompt, the sampler settings and the constraint with which a session runs a request. A wrong request fails before
//! it takes a slot.

use super::narrow::{check_texts, narrowed};
pub use super::prepared::{MakeConstraint, Prepared};
use super::request::{Follows, Input, MAX_LOGPROBS, Request, ToolChoice, UNLIMITED};
use super::rules::{Close, Rules};
use crate::chat::answer_prefix::without_empty_answer;
use crate::chat::{Format, Message, Question, Role, Tool, is_begun};
#[cfg(feature = "grammar")]
use crate::constrain::Constraint;
#[cfg(feature = "grammar")]
use crate::constrain::Follower;
use crate::error::{Error, Kind, Result};
use crate::sample::{Sampling, random_seed};
use crate::session::{Limits, MAX_SLOTS, Model, Speculation, nothing_to_continue};
use crate::vocab::Vocab;
use std::collections::BTreeSet;

/// Prepares requests for one model. Keeps chat formats and compiled grammars for later requests.
pub struct Preparer {
    model: Model,
    /// The engine's chat format: the format in the options, or else the model's own format. `None` until a request first needs the model's
    /// own format. An error if the model's own format is unknown.
    format: Option<Result<Format>>,
    /// True if requests get positions in [`Prepared::ends`]. Otherwise this list stays empty.
    finds_ends: bool,
    /// Chat formats that requests have selected, with their names.
    named: Vec<(String, Result<Format>)>,
    #[cfg(feature = "grammar")]
    followers: super::Followers,
}

/// The maximum number of stop texts or stop ids in a request.
const MAX_STOPS: usize = 64;

/// Checks the request's fields `n`, `echo`, `logprobs`, `stop`, `stop_token_ids`, `state`, `save_state` and `pooling`.
///
/// # Errors
/// An `Input` or `Usage` error that names the invalid field.
fn check_counts(request: &Request) -> Result<()> {
    let check = |name: &str, n: usize, range: std::ops::RangeInclusive<usize>| match range.contains(&n) {
        true => Ok(()),
        false => Err(Error::input(format!("expected a whole number from {} to {}, found {n}", range.start(), range.end())).field(name)),
    };
    check("n", request.n, 1..=MAX_SLOTS)?;
    if request.echo && matches!(request.input, Input::Messages(_)) {
        return Err(Error::input("echo works with prompt and tokens, not with messages").field("echo"));
    }
    if request.save_state.is_some() && request.n > 1 {
        return Err(Error::input(format!("expected n = 1 together with save_state, found n = {}", request.n)).field("save_state"));
    }
    for (field, name) in [("state", &request.state), ("save_state", &request.save_state)] {
        name.iter().try_for_each(|name| super::states::check_name(name)).map_err(|e| e.field(field))?;
    }
    if request.pooling.is_some() {
        check_pooling(request).map_err(|e| e.field("pooling"))?;
    }
    check("logprobs", request.logprobs.unwrap_or(0), 0..=MAX_LOGPROBS)?;
    let n_ids = request.stop_token_ids.len();
    if n_ids > MAX_STOPS {
        return Err(Error::input(format!("expected at most {MAX_STOPS} token ids, found {n_ids}")).field("stop_token_ids"));
    }
    check_texts(request.stop.as_deref().unwrap_or_default(), "stop texts", MAX_STOPS).map_err(|e| e.field("stop"))
}

/// Checks that `continue_final_message`, if set, matches the last message: true if this message is an answer with text, otherwise false.
fn check_begun(request: &Request, messages: &[Message]) -> Result<()> {
    let found = match (request.continue_final_message, messages.last()) {
        (Some(false), Some(last)) if is_begun(last) => "expected true, because the last message has the role assistant, found false",
        (Some(true), Some(last)) if !is_begun(last) => "expected a last message of the role assistant with text to continue",
        _ => return Ok(()),
    };
    Err(Error::input(found).field("continue_final_message").hint("leave the field out: an answer at the end of the messages is continued"))
}

/// Checks a request for vectors or scores. The request generates no text, so it cannot have fields that need text.
pub(super) fn check_pooling(request: &Request) -> Result<()> {
    if matches!(request.input, Input::Messages(_)) {
        return Err(Error::input("a vector needs a prompt or tokens, not messages"));
    }
    let other = [
        ("n", request.n > 1),
        ("echo", request.echo),
        ("logprobs", request.logprobs.is_some()),
        ("save_state", request.save_state.is_some()),
        ("state", request.state.is_some() && matches!(request.input, Input::Vectors(_) | Input::Classes(_) | Input::Ranking { .. })),
        ("grammar", matches!(request.follows, Some(Follows::Rules(_)))),
    ];
    match other.into_iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Error::input(format!("a request for a vector generates no text and cannot have `{name}`"))),
        None => Ok(()),
    }
}

/// Returns the messages with `tools` in the system message. Inserts a system message without text if the first message is not a system message.
///
/// # Errors
/// `Input` if a message declares tools, too.
fn declare(tools: &[Tool], messages: &[Message]) -> Result<Vec<Message>> {
    if messages.iter().any(|message| !message.tools.is_empty()) {
        return Err(Error::input("both the request and a message declare tools")
            .field("tools")
            .hint("declare the tools only in the request"));
    }
    let mut messages = messages.to_vec();
    if messages.first().is_none_or(|first| first.role != Role::System) {
        messages.insert(0, Message::system(""));
    }
    messages[0].tools = tools.to_vec();
    Ok(messages)
}

/// The maximum number of tokens in a begun answer that must follow a grammar or schema. [`BEGUN_TIME`] limits the time for checking such an answer.
#[cfg(feature = "grammar")]
const MAX_BEGUN: usize = 4096;
#[cfg(feature = "grammar")]
const BEGUN_TIME: std::time::Duration = std::time::Duration::from_secs(5);

/// Returns `follower` after the text `begun`, with which the caller began the answer.
///
/// # Errors
/// `Input` if the rules do not allow this text, or if the text is too long to be checked.
#[cfg(feature = "grammar")]
fn begun_by(mut follower: Follower, begun: &str, model: &Model) -> Result<Follower> {
    let vocab = model.vocab().ok_or_else(|| Error::input("a grammar needs a vocabulary"))?;
    let ids = vocab.encode(begun.as_bytes())?;
    let until = web_time::Instant::now() + BEGUN_TIME;
    for (i, id) in ids.iter().copied().enumerate() {
        if i >= MAX_BEGUN || web_time::Instant::now() > until {
            let e = Error::input("the begun answer is too long for the rules of the request").field("messages");
            return Err(e.hint(format!("begin the answer with at most {MAX_BEGUN} tokens, or leave its grammar or schema out")));
        }
        follower.accept(id).map_err(|_| {
            let e = Error::input(format!("the begun answer {:?} breaks the rules of the request", crate::error::short(begun, 40)))
                .field("messages");
            e.hint("end with a message of the role user, or begin the answer as its grammar or schema demands")
        })?;
    }
    Ok(follower)
}

impl Preparer {
    /// Returns a preparer that converts messages with `format`. `None` selects the model's own format.
    pub fn new(model: &Model, format: Option<Format>) -> Preparer {
        Preparer {
            model: model.clone(),
            format: format.map(Ok),
            finds_ends: false,
            named: Vec::new(),
            #[cfg(feature = "grammar")]
            followers: super::Followers::new(model),
        }
    }

    /// Sets whether requests get a list of positions in `Prepared::ends`. By default, this list stays empty.
    pub fn with_ends(self, finds_ends: bool) -> Preparer {
        Preparer { finds_ends, ..self }
    }

    /// Prepares a request that begins with an empty state.
    ///
    /// # Errors
    /// An `Input` or `Usage` error that names the invalid field of the request. Errors of [`Format::of`].
    pub fn prepare(&mut self, request: &Request) -> Result<Prepared> {
        let prepared = self.prepare_with(request, Vocab::encode_prompt)?;
        if prepared.prompt.is_empty() {
            return Err(nothing_to_continue().field(request.input.field()));
        }
        Ok(prepared)
    }

    /// Prepares a request whose prompt may follow a state. Such a prompt may be empty. `encode` tokenizes a text prompt:
    /// [`Vocab::encode_prompt`] adds the tokens that begin every text, [`Vocab::encode_further`] does not.
    ///
    /// # Errors
    /// An `Input` or `Usage` error that names the invalid field of the request. Errors of [`Format::of`].
    pub fn prepare_with(&mut self, request: &Request, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Prepared> {
        let (prompt, question) = match &request.input {
            Input::Tokens(tokens) => (tokens.clone(), None),
            Input::Text(text) if request.parse_special == Some(true) => (self.rendered(request, text, encode)?, None),
            Input::Text(text) => (self.tokens(text, encode)?, None),
            Input::Messages(messages) => {
                let question = self.question(request, messages)?;
                (question.tokens.clone(), Some(question))
            }
            Input::Vectors(_) | Input::Classes(_) | Input::Ranking { .. } => {
                return Err(Error::input("vectors and scores need an engine").field(request.input.field()));
            }
        };
        self.check_tokens(&prompt).map_err(|e| e.field(request.input.field()))?;
        check_counts(request)?;
        if request.pooling.is_some() && prompt.is_empty() {
            return Err(Error::input("expected at least one token for a vector, found none").field(request.input.field()));
        }
        let sampling = self.sampling(request, question.as_ref())?;
        let constraint = self.constraint(request, question.as_ref())?;
        let ends = self.ends(request, &prompt);
        let of_model = question.as_ref().and_then(|question| question.max_new_tokens);
        let most = if request.pooling.is_some() { Some(0) } else { request.max_tokens.or(of_model) };
        let mut limits = Limits::new(most.unwrap_or(UNLIMITED));
        limits.stop_texts = request.stop.clone().unwrap_or_default();
        if let Some(question) = &question {
            limits.stop_ids.clone_from(&question.stop_ids);
            // The rules determine where the text ends, so the stop texts of the chat format do not apply.
            if constraint.is_none() {
                limits.stop_texts.extend(question.stop_texts.iter().cloned());
            }
        }
        if request.ignore_eos == Some(true) || self.model.vocab().is_none() {
            limits.stop_ids = Some(Vec::new());
        }
        if !request.stop_token_ids.is_empty() && constraint.is_some() {
            let e =
                Error::input("stop tokens cannot be combined with a grammar, a schema or a required call, which end the text themselves");
            return Err(e.field("stop_token_ids"));
        }
        if !request.stop_token_ids.is_empty() {
            self.model.check_ids(&request.stop_token_ids).map_err(|e| e.field("stop_token_ids"))?;
            let of_model = || self.model.facts().stop_ids.clone();
            limits.stop_ids.get_or_insert_with(of_model).extend(&request.stop_token_ids);
        }
        limits.min_tokens = request.min_tokens;
        let constraint = narrowed(&self.model, request, &limits, constraint)?;
        Ok(Prepared { prompt: prompt.into(), ends, sampling, limits, constraint, question, speculation: Speculation::off(), texts: None })
    }

    /// Checks that the model knows all tokens of the prompt, and that the context has room for the prompt.
    fn check_tokens(&self, prompt: &[u32]) -> Result<()> {
        self.model.check_ids(prompt)?;
        match self.model.context() {
            Some(context) if prompt.len() > context => {
                let text = format!("the prompt has {} tokens, more than the context of {context} tokens", prompt.len());
                Err(Error::input(text).hint("send a shorter prompt, or give a larger `context`"))
            }
            _ => Ok(()),
        }
    }

    fn tokens(&self, text: &str, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        let vocab = self.model.needed_vocab(
            "a text prompt needs a vocabulary, and none was found for this model; token ids in the field tokens need no vocabulary",
        )?;
        encode(vocab, text.as_bytes())
    }

    /// Tokenizes a rendered conversation, in which special tokens are text. If `encode` begins every text with certain tokens, so do the returned
    /// ids.
    fn rendered(&mut self, request: &Request, text: &str, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        let begins = !self.tokens("", encode)?.is_empty();
        let format = self.format(request.format.as_deref())?;
        format.encode_rendered(
            self.model.needed_vocab("special tokens need a vocabulary, and none was found for this model")?,
            text,
            begins,
        )
    }

    /// Converts messages and the request's tools to a prompt, with the chat format that the request selects.
    fn question(&mut self, request: &Request, messages: &[Message]) -> Result<Question> {
        check_begun(request, messages)?;
        let (format, messages) = self.asked(request, messages)?;
        Question::new(&self.model, &format, &messages).map_err(|e| if request.tools.is_empty() { e } else { e.field("tools") })
    }

    /// Returns the chat format with the request's options applied. Also returns the messages, with the request's tools in the system message, and
    /// with the format's hint on thinking in the user's last message.
    fn asked(&mut self, request: &Request, messages: &[Message]) -> Result<(Format, Vec<Message>)> {
        let mut format = self.format(request.format.as_deref())?;
        let is_declared = !request.tools.is_empty() && request.tool_choice != Some(ToolChoice::None);
        let messages = if is_declared { declare(&request.tools, messages)? } else { messages.to_vec() };
        if messages.iter().any(|m| !m.tools.is_empty() || !m.metadata.is_empty() || m.role == Role::Observation) {
            format = format.for_tools();
        }
        if let Some(thinking) = request.thinking {
            format = format.with_thinking(thinking).map_err(|e| e.field("thinking"))?;
        }
        format = format.with_names(request.user_name.as_deref(), request.assistant_name.as_deref())?;
        if let Some(has_bos) = request.add_bos {
            format = format.with_bos(has_bos).map_err(|e| e.field("add_bos"))?;
        }
        let messages = format.hinted(messages);
        Ok((format, messages))
    }

    /// Returns the rules of the answer: the request's own rules, or the rules of a demanded tool call. Returns `None` if there are no rules.
    ///
    /// # Errors
    /// An `Input` error that names the field `tool_choice`, if a demanded call is impossible.
    fn rules(&mut self, request: &Request) -> Result<Option<Rules>> {
        let own = match &request.follows {
            Some(Follows::Rules(rules)) => Some(rules.clone()),
            _ => None,
        };
        let name = match &request.tool_choice {
            Some(ToolChoice::Required) => None,
            Some(ToolChoice::Tool(name)) => Some(name.as_str()),
            Some(ToolChoice::Auto | ToolChoice::None) | None => return Ok(own),
        };
        let refused = |text: &str| Err(Error::input(text).field("tool_choice").hint("set `tool_choice` to auto, or leave it out"));
        if own.is_some() {
            return refused("a required tool call cannot be combined with a grammar or JSON schema for the answer");
        }
        let Input::Messages(messages) = &request.input else {
            return refused("a tool call can be required only in an answer to messages");
        };
        let (format, messages) = self.asked(request, messages)?;
        let texts = format.demanded(&messages, name).map_err(|e| e.field("tool_choice"))?;
        Ok(Some(Rules::Calls(texts.into_iter().map(|(before, schema, after)| [before, schema.to_string(), after]).collect())))
    }

    /// Returns the format with this name, or the engine's format if `name` is `None`.
    fn format(&mut self, name: Option<&str>) -> Result<Format> {
        let Preparer { model, format, named, .. } = self;
        let Some(name) = name else { return format.get_or_insert_with(|| Format::of(model)).clone() };
        if let Some((_, format)) = named.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return format.clone();
        }
        let format = Format::named(name, model).map_err(|e| Error { kind: Kind::Input, ..e }.field("format"));
        // Errors are not kept, because clients can send any number of unknown names.
        if format.is_ok() {
            named.push((name.into(), format.clone()));
        }
        format
    }

    /// Returns two positions in `prompt`, as numbers of tokens. Later prompts of the same conversation have the same tokens up to these positions.
    /// The first position is for a prompt in which the last message is edited. The second is for a prompt with an answer and a further message. If
    /// `prompt` ends with the beginning of a thought, the second position is before the thought. Returns an empty list if no later request can use
    /// the positions, or if the model needs no positions.
    fn ends(&mut self, request: &Request, prompt: &[u32]) -> Vec<usize> {
        let Input::Messages(messages) = &request.input else { return Vec::new() };
        // A later prompt may end with another role, so `continue_final_message` does not apply.
        let request = &Request { continue_final_message: None, input: Input::Tokens(Vec::new()), ..request.clone() };
        // A model that can be rewound continues from any token, so no positions are needed.
        if self.model.can_rewind() || request.no_cache || request.state.is_some() || !self.finds_ends {
            return Vec::new();
        }
        let messages = without_empty_answer(messages);
        let Some((last, before)) = messages.split_last() else { return Vec::new() };
        let other = Message { content: if last.content.starts_with('x') { "y".into() } else { "x".into() }, ..last.clone() };
        let edited = [before, &[other]].concat();
        let (before_answer, begun) = if is_begun(last) { (before, last.content.as_str()) } else { (messages, "") };
        let next = |answer: &str| [before_answer, &[Message::assistant(format!("{begun}{answer}")), Message::user("x")]].concat();
        let common = |messages: &[Message], preparer: &mut Self| {
            let tokens = preparer.question(request, messages).map(|question| question.tokens).unwrap_or_default();
            tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count()
        };
        // An answer can change the prompt's last tokens: a space and the letter after it may be one token or two. So several answers are tried.
        let stays = ["x", "The", "1"].map(|answer| common(&next(answer), self)).into_iter().min().unwrap_or(0);
        vec![common(&edited, self), stays]
    }

    /// Returns the sampler settings. Settings that the request does not set have the defaults of the chat format or the model. A request without a
    /// seed gets a random seed.
    fn sampling(&self, request: &Request, question: Option<&Question>) -> Result<Sampling> {
        let of_model = || question.map_or(self.model.sampling(), |question| &question.sampling).clone();
        let base = request.base.clone().unwrap_or_else(|| Sampling { seed: random_seed(), ..of_model() });
        let sampling = base.with_kept(&self.with_ids(&request.sampling)?)?;
        sampling.check(self.model.facts().n_vocab)?;
        Ok(sampling)
    }

    /// Returns sampler settings with token ids in place of the texts of `logit_bias`: each token of a text gets the bias of the text.
    fn with_ids(&self, settings: &[(String, Vec<String>)]) -> Result<Vec<(String, Vec<String>)>> {
        let ids = |value: &String| -> Result<Vec<String>> {
            let text = value.rsplit_once('=').filter(|_| value.starts_with('"'));
            let Some((text, bias)) = text.and_then(|(key, bias)| Some((serde_json::from_str::<String>(key).ok()?, bias))) else {
                return Ok(vec![value.clone()]);
            };
            let vocab = self.model.needed_vocab("the texts of `logit_bias` need a vocabulary, and none was found for this model")?;
            // Biases of one id add up, so each token of the text counts once.
            let ids: BTreeSet<u32> = vocab.encode_further(text.as_bytes())?.into_iter().collect();
            Ok(ids.into_iter().map(|id| format!("{id}={bias}")).collect())
        };
        let of_setting = |(name, values): &(String, Vec<String>)| {
            let values = match name.as_str() {
                "logit-bias" => values.iter().map(ids).collect::<Result<Vec<_>>>()?.concat(),
                _ => values.clone(),
            };
            Ok((name.clone(), values))
        };
        settings.iter().map(of_setting).collect()
    }

    #[cfg(feature = "grammar")]
    fn constraint(&mut self, request: &Request, question: Option<&Question>) -> Result<Option<MakeConstraint>> {
        let Some(rules) = self.rules(request)? else { return Ok(None) };
        let (close, model, followers) = (Close::asked(request.close), &self.model, &mut self.followers);
        let is_call = matches!(rules, Rules::Calls(_));
        let mut follower = |lead: &str| {
            let lead = question.filter(|_| is_call).map_or_else(|| Ok(lead.to_string()), |question| question.call_lead(lead));
            let follower = lead.and_then(|lead| followers.of(&rules, close, &lead).cloned()).map_err(|e| e.field(rules.field()))?;
            match question.and_then(Question::begun) {
                Some(begun) => begun_by(follower, begun, model),
                None => Ok(follower),
            }
        };
        let Some(question) = question else {
            let follower = follower("")?;
            return Ok(Some(Box::new(move || Ok(Box::new(follower.clone())))));
        };
        // `constrain` calls back with `lead`, the text between the prompt and the answer. Only the chat format knows this text.
        let mut found = None;
        question.constrain(&self.model, &mut |lead| {
            let made = follower(lead)?;
            found = Some(made.clone());
            Ok(Box::new(made))
        })?;
        let (question, model) = (question.clone(), model.clone());
        Ok(found.map(|found| -> MakeConstraint { Box::new(move || question.constrain(&model, &mut |_| Ok(Box::new(found.clone())))) }))
    }

    #[cfg(not(feature = "grammar"))]
    fn constraint(&mut self, request: &Request, _question: Option<&Question>) -> Result<Option<MakeConstraint>> {
        match self.rules(request)? {
            Some(rules) => {
                let _ = Close::asked(request.close);
                Err(Error::input("this build of wingbeat has no grammars and JSON schemas")
                    .field(rules.field())
                    .hint("build wingbeat with the feature `grammar`"))
            }
            None => Ok(None),
        }
    }
}
