//! From a request to a job: everything that can be wrong with a request is found here, before it takes a slot.

use super::request::{Follows, Input, MAX_LOGPROBS, MAX_N, Request, UNLIMITED};
use super::rules::Close;
use crate::chat::{Format, Message, Question, Role, Tool};
use crate::constrain::Constraint;
use crate::error::{Error, Kind, Result};
use crate::sample::{Sampling, random_seed};
use crate::session::{Limits, Model, nothing_to_continue};
use crate::vocab::Vocab;

/// Makes the constraint of one continuation.
pub type MakeConstraint = Box<dyn Fn() -> Result<Box<dyn Constraint>> + Send>;

/// A request that a model can run.
pub struct Prepared {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Tokens of the prompt up to the ends of some messages, for snapshots of a recurrent state.
    pub ends: Vec<usize>,
    /// The sampling settings.
    pub sampling: Sampling,
    /// The limits of the text.
    pub limits: Limits,
    /// What the text has to follow.
    pub constraint: Option<MakeConstraint>,
    /// Of an answer to messages: how it is taken apart.
    pub question: Option<Question>,
}

/// Prepares requests for one model. Keeps what requests share: the format of messages, and grammars that were read.
pub struct Preparer {
    model: Model,
    /// For messages: as the engine was started, else the model's own once there are some.
    format: Option<Result<Format>>,
    /// Requests leave snapshots at the ends of messages.
    finds_ends: bool,
    /// Formats that requests named. There are few.
    named: Vec<(String, Result<Format>)>,
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    followers: super::Followers,
}

/// Every byte of a text is compared with all of its stop texts.
const MAX_STOPS: usize = 64;
const MAX_STOP_BYTES: usize = 16 << 10;

fn check_counts(request: &Request) -> Result<()> {
    let check = |name: &str, n: usize, range: std::ops::RangeInclusive<usize>| match range.contains(&n) {
        true => Ok(()),
        false => Err(Error::input(format!("expected a number from {} to {}, found {n}", range.start(), range.end())).field(name)),
    };
    check("n", request.n, 1..=MAX_N)?;
    if request.echo && matches!(request.input, Input::Messages(_)) {
        return Err(Error::input("expected a prompt or tokens to echo, found messages").field("echo"));
    }
    if request.save_state.is_some() && request.n > 1 {
        return Err(Error::input(format!("expected one continuation where its state is saved, found {}", request.n)).field("save_state"));
    }
    for (field, name) in [("state", &request.state), ("save_state", &request.save_state)] {
        name.iter().try_for_each(|name| super::states::check_name(name)).map_err(|e| e.field(field))?;
    }
    check("logprobs", request.logprobs.unwrap_or(0), 0..=MAX_LOGPROBS)?;
    let stops = request.stop.as_deref().unwrap_or_default();
    if stops.len() > MAX_STOPS || stops.iter().map(String::len).sum::<usize>() > MAX_STOP_BYTES {
        let text = format!("expected at most {MAX_STOPS} texts of {MAX_STOP_BYTES} bytes together, found more");
        return Err(Error::input(text).field("stop"));
    }
    Ok(())
}

/// The messages with these tools declared in the system's, which comes first.
fn declare(tools: &[Tool], messages: &[Message]) -> Result<Vec<Message>> {
    if messages.iter().any(|message| !message.tools.is_empty()) {
        return Err(Error::input("expected tools in one place, found them in a message, too").field("tools"));
    }
    let mut messages = messages.to_vec();
    if messages.first().is_none_or(|first| first.role != Role::System) {
        messages.insert(0, Message::system(""));
    }
    messages[0].tools = tools.to_vec();
    Ok(messages)
}

impl Preparer {
    /// With a format for messages, or the model's own.
    pub fn new(model: &Model, format: Option<Format>) -> Preparer {
        Preparer {
            model: model.clone(),
            format: format.map(Ok),
            finds_ends: false,
            named: Vec::new(),
            #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
            followers: super::Followers::new(model),
        }
    }

    /// Finds the ends of messages, too: see [`Prepared::ends`].
    pub fn with_ends(self, finds_ends: bool) -> Preparer {
        Preparer { finds_ends, ..self }
    }

    /// Prepares a request that begins with an empty state.
    ///
    /// # Errors
    /// `Input` and `Usage`, at the field.
    pub fn prepare(&mut self, request: &Request) -> Result<Prepared> {
        let prepared = self.prepare_with(request, Vocab::encode_prompt)?;
        if prepared.prompt.is_empty() {
            return Err(nothing_to_continue().field(request.input.field()));
        }
        Ok(prepared)
    }

    /// The same; `encode` says how a text becomes tokens: with or without what stands before every text.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_with(&mut self, request: &Request, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Prepared> {
        let (prompt, question) = match &request.input {
            Input::Tokens(tokens) => (tokens.clone(), None),
            Input::Text(text) => (self.tokens(text, encode)?, None),
            Input::Messages(messages) => {
                let question = self.question(request, messages)?;
                (question.tokens.clone(), Some(question))
            }
        };
        self.check_tokens(&prompt).map_err(|e| e.field(request.input.field()))?;
        check_counts(request)?;
        let sampling = self.sampling(request, question.as_ref())?;
        let constraint = self.constraint(request, question.as_ref())?;
        let ends = self.ends(request, &prompt);
        let mut limits = Limits::new(request.max_tokens.unwrap_or(UNLIMITED));
        limits.stop_texts = request.stop.clone().unwrap_or_default();
        if let Some(question) = &question {
            limits.stop_ids.clone_from(&question.stop_ids);
            // Rules say where a text ends that follows them.
            if constraint.is_none() {
                limits.stop_texts.extend(question.stop_texts.iter().cloned());
            }
        }
        if request.ignore_eos == Some(true) || self.model.vocab().is_none() {
            limits.stop_ids = Some(Vec::new());
        }
        Ok(Prepared { prompt, ends, sampling, limits, constraint, question })
    }

    /// Whether the model has these tokens, and room for them.
    fn check_tokens(&self, prompt: &[u32]) -> Result<()> {
        let n_vocab = self.model.facts().n_vocab;
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= n_vocab) {
            return Err(Error::input(format!("token {token} is out of range: the model has {n_vocab}")));
        }
        match self.model.context() {
            Some(context) if prompt.len() > context => {
                let text = format!("expected a prompt of at most {context} tokens, the context, found {}", prompt.len());
                Err(Error::input(text).hint("give a larger `context`, or a shorter prompt"))
            }
            _ => Ok(()),
        }
    }

    fn tokens(&self, text: &str, encode: impl Fn(&Vocab, &[u8]) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        let vocab = self.model.vocab().ok_or_else(|| {
            let e = Error::input("text needs a vocabulary, and none was found for this model; token ids can be given in its place");
            e.hint(self.model.vocab_hint().unwrap_or("give one with `vocab`"))
        })?;
        encode(vocab, text.as_bytes())
    }

    fn question(&mut self, request: &Request, messages: &[Message]) -> Result<Question> {
        let mut format = self.format(request.format.as_deref())?;
        if let Some(thinking) = request.thinking {
            format = format.with_thinking(thinking).map_err(|e| e.field("thinking"))?;
        }
        match request.tools.as_slice() {
            [] => Question::new(&self.model, &format, messages),
            tools => {
                let with_tools = declare(tools, messages)?;
                Question::new(&self.model, &format, &with_tools).map_err(|e| e.field("tools"))
            }
        }
    }

    /// The format of that name, else the engine's.
    fn format(&mut self, name: Option<&str>) -> Result<Format> {
        let Preparer { model, format, named, .. } = self;
        let Some(name) = name else { return format.get_or_insert_with(|| Format::of(model)).clone() };
        if let Some((_, format)) = named.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return format.clone();
        }
        let format = Format::named(name, model).map_err(|e| Error { kind: Kind::Input, ..e }.field("format"));
        // Names that are none may be any.
        if format.is_ok() {
            named.push((name.into(), format.clone()));
        }
        format
    }

    /// Ends of messages in a prompt: places from which another prompt of the same conversation may go on. Those are the end of what comes
    /// before the last message, and the end of what stays when the conversation goes on, which a thought that the prompt begins does not.
    fn ends(&mut self, request: &Request, prompt: &[u32]) -> Vec<usize> {
        let Input::Messages(messages) = &request.input else { return Vec::new() };
        // A model with attention goes back to any token.
        if self.model.context().is_some() || request.no_cache || request.state.is_some() || !self.finds_ends {
            return Vec::new();
        }
        let Some((last, before)) = messages.split_last() else { return Vec::new() };
        let other = Message { content: if last.content.starts_with('x') { "y".into() } else { "x".into() }, ..last.clone() };
        let edited = [before, &[other]].concat();
        let next = |answer: &str| [messages.as_slice(), &[Message::assistant(answer), Message::user("x")]].concat();
        let common = |messages: &[Message], preparer: &mut Self| {
            let tokens = preparer.question(request, messages).map(|question| question.tokens).unwrap_or_default();
            tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count()
        };
        // How an answer begins decides which tokens the end of the prompt has: " x" may be one token or two.
        let stays = ["x", "The", "1"].map(|answer| common(&next(answer), self)).into_iter().min().unwrap_or(0);
        vec![common(&edited, self), stays]
    }

    /// A request without a seed gets a random one.
    fn sampling(&self, request: &Request, question: Option<&Question>) -> Result<Sampling> {
        let defaults = question.map_or(self.model.sampling(), |question| &question.sampling).clone();
        let sampling = Sampling { seed: random_seed(), ..defaults }.with_kept(&request.sampling)?;
        sampling.check(self.model.facts().n_vocab)?;
        Ok(sampling)
    }

    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    fn constraint(&mut self, request: &Request, question: Option<&Question>) -> Result<Option<MakeConstraint>> {
        let Some(Follows::Rules(rules)) = &request.follows else { return Ok(None) };
        let (close, followers) = (Close::asked(request.close), &mut self.followers);
        let mut follower = |lead: &str| followers.of(rules, close, lead).cloned().map_err(|e| e.field(rules.field()));
        let Some(question) = question else {
            let follower = follower("")?;
            return Ok(Some(Box::new(move || Ok(Box::new(follower.clone())))));
        };
        // The lead of an answer is known to the format alone.
        let mut found = None;
        question.constrain(&self.model, &mut |lead| {
            let made = follower(lead)?;
            found = Some(made.clone());
            Ok(Box::new(made))
        })?;
        let (question, model) = (question.clone(), self.model.clone());
        Ok(found.map(|found| -> MakeConstraint { Box::new(move || question.constrain(&model, &mut |_| Ok(Box::new(found.clone())))) }))
    }

    #[cfg(not(all(feature = "grammar", not(target_arch = "wasm32"))))]
    fn constraint(&mut self, request: &Request, _question: Option<&Question>) -> Result<Option<MakeConstraint>> {
        match &request.follows {
            Some(Follows::Rules(rules)) => {
                let _ = Close::asked(request.close);
                Err(Error::input("this build of wingbeat reads no grammars").field(rules.field()).hint("build it with the feature grammar"))
            }
            _ => Ok(None),
        }
    }
}
