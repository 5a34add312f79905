//! Runs a checkpoint's own Jinja template in the same environment as transformers: `trim_blocks`, `lstrip_blocks`, no HTML escapes, and the
//! functions `tojson`, `raise_exception` and `strftime_now`.
//!
//! A template is an untrusted program. It can read only the conversation and the checkpoint's variables. The template's size, memory, output and time
//! are limited: `scan.rs` checks the source, `metered.rs` inserts checks between instructions, `limits.rs` counts what a rendering uses.

mod environment;
mod form;
mod limits;
mod metered;
mod range;
mod scan;
#[cfg(test)]
mod tests;
mod token_escaper;

use super::part::split_marked;
use super::{Family, Message, Opening, Part, Template};
use crate::error::{Error, Result, with_place};
use form::Form;
use limits::RenderLimits;
use minijinja::machinery::{eval, make_string_output};
use minijinja::value::Serde;
use minijinja::{AutoEscape, ErrorKind};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use token_escaper::TokenEscaper;

/// The name of a template in errors.
const NAME: &str = "chat_template";

/// The variable by which a GLM's template decides whether the answer begins with a thought.
const THINKS: &str = "enable_thinking";

/// The stack size of the rendering thread in bytes. The most deeply nested code that `scan.rs` allows needs only a part of this stack.
const STACK_BYTES: usize = 64 << 20;

/// A template in Jinja.
///
/// Special tokens are found in the template's own text only, never in messages. In older models, every special token except `<sop>`, `sop` and
/// `<eop>` contains `|` or `]`. So these characters in messages are replaced by unused characters while the template runs, and restored after the
/// output is split into parts. The template can still trim, split and compare messages. But if its output depends on `|` or `]` in a message, the
/// output would differ from transformers' output. So the prompt is rendered with and without the replacement. A difference is an error; the caller
/// can use the built-in template instead.
///
/// Tokens of newer models, such as `<think>`, are hidden, too, except in the model's own messages. If the output depends on such a token in a
/// message, the prompt is rendered without hiding these tokens. The tokens are then ordinary text in the whole prompt, even in the template's own
/// text.
#[derive(Debug, Clone)]
pub struct Jinja {
    source: String,
    family: Family,
    form: Form,
    /// Variables that the template can read in addition to the conversation, such as `eos_token`.
    variables: Map<String, Value>,
}

impl Jinja {
    /// Parses a template, such as a `chat_template.jinja`. A GLM's template that writes calls with `<arg_key>` has the family [`Family::Glm47`].
    ///
    /// # Errors
    /// `File`, with the line, if `source` is not a template or exceeds a limit of `scan.rs`; `Memory` if no thread can be started.
    pub fn parse(source: &str, family: Family) -> Result<Jinja> {
        let source = without_generation(source);
        with_stack(|| metered::compile(&source, NAME, environment::syntax()).map(drop))?.map_err(broken)?;
        let form = Form::of(&source);
        let family = if family == Family::Glm4 && source.contains("<arg_key>") { Family::Glm47 } else { family };
        Ok(Jinja { source, family, form, variables: Map::new() })
    }

    /// Reads the template of a `tokenizer_config.json`. Returns `None` if the file has no `chat_template`. If the file has several templates, takes
    /// the template `name`, or the template `default` if `name` is `None`.
    ///
    /// # Errors
    /// `File` if the file or the template is invalid, `Input` if there is no template `name`.
    pub fn from_tokenizer_config(json: &[u8], name: Option<&str>, family: Family) -> Result<Option<Jinja>> {
        let config: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|e| Error::file(format!("expected tokenizer settings as a JSON object: {}", with_place(&e))).caused_by(e))?;
        let source = match config.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(source)) => source,
            Some(Value::Array(named)) => one_of(named, name.unwrap_or("default"))?,
            Some(_) => return Err(Error::file("expected a string or a list of named templates as chat_template").at("chat_template")),
        };
        let mut jinja = Self::parse(source, family)?;
        for (key, token) in config.iter().filter(|(key, _)| key.ends_with("_token")) {
            // The value is a text, or an object that contains the text.
            if let Some(text) = token.as_str().or_else(|| token.get("content")?.as_str()) {
                jinja.variables.insert(key.clone(), text.into());
            }
        }
        Ok(Some(jinja))
    }

    /// Returns true if the source contains this text, such as the name of a variable.
    pub fn mentions(&self, text: &str) -> bool {
        self.source.contains(text)
    }

    /// Renders the whole prompt as one text. `escaper` hides `|` and `]` of the messages. Without an escaper, a special token's text in a message
    /// looks like a special token of the template, as in transformers.
    fn filled(&self, mut variables: Value, escaper: Option<&TokenEscaper>) -> Result<String> {
        if let Some(escaper) = escaper {
            escaper.hide_variables(&mut variables);
        }
        let Value::Object(mut context) = variables else { unreachable!("variables are an object") };
        context.insert("add_generation_prompt".into(), json!(true));
        self.text(context, &[])
    }

    #[cfg(test)]
    fn run(&self, messages: &[Message], escaper: Option<&TokenEscaper>) -> Result<String> {
        self.filled(self.form.variables(messages, self.family), escaper)
    }

    /// Runs the template with the variables in `context` and returns the output. The template can also read the variables from the checkpoint's file,
    /// and `defaults` for variables that neither `context` nor the file has.
    pub(super) fn text(&self, mut context: Map<String, Value>, defaults: &[(&str, &str)]) -> Result<String> {
        for (name, value) in &self.variables {
            context.entry(name).or_insert_with(|| value.clone());
        }
        for (name, value) in defaults {
            context.entry(*name).or_insert_with(|| (*value).into());
        }
        let input = self.source.len() + serde_json::to_string(&context).expect("plain data").len();
        let limits = Arc::new(RenderLimits::new(input));
        with_stack(|| {
            let environment = environment::new(&limits);
            let code = metered::compile(&self.source, NAME, environment::syntax())?;
            let mut text = String::new();
            let mut output = make_string_output(&mut text);
            eval(&environment, &code.instructions, Serde(&context).into(), &code.blocks, &mut output, AutoEscape::None)?;
            drop(output);
            Ok(text)
        })?
        .map_err(failed)
    }
}

/// Replaces the blocks `generation` by blocks that are always rendered. In transformers, these blocks mark the model's own words for training.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let Some(end) = tag.find("%}") else { break };
        let (inner, signs) = (&tag[2..end], ['-', '+']);
        let name = inner.trim_start_matches(signs).trim_end_matches(signs).trim();
        out.push_str(before);
        match name {
            "generation" => out.push_str(&tag[..end].replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag[..end].replacen("endgeneration", "endif", 1)),
            _ => out.push_str(&tag[..end]),
        }
        out.push_str("%}");
        rest = &tag[end + 2..];
    }
    out + rest
}

/// Calls `run` on a thread whose stack is large enough for every source that `scan.rs` accepts. A browser has one thread, which calls `run` itself.
fn with_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T> {
    if cfg!(target_arch = "wasm32") {
        return Ok(run());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK_BYTES).spawn_scoped(scope, run);
        let thread = thread.map_err(|e| Error::memory(format!("cannot start a thread for the chat template: {e}")).caused_by(e))?;
        thread.join().map_err(|_| Error::file("the chat template cannot be applied to the conversation: the template engine failed"))
    })
}

impl Template for Jinja {
    fn name(&self) -> String {
        "the checkpoint's own".into()
    }

    fn family(&self) -> Family {
        self.family
    }

    fn with_opening(&self, opening: Opening) -> Option<Arc<dyn Template>> {
        if self.family != Family::Glm47 || !self.mentions(THINKS) {
            return None;
        }
        let mut other = self.clone();
        other.variables.insert(THINKS.into(), (opening == Opening::Thought).into());
        Some(Arc::new(other))
    }

    fn render(&self, messages: &[Message]) -> Result<Vec<Part>> {
        let variables = self.form.variables(messages, self.family);
        let (mut escaper, mut finds_newer) = (TokenEscaper::new(&self.source, &variables, true)?, true);
        let mut text = self.filled(variables.clone(), Some(&escaper))?;
        let plain = if escaper.hides_something() { Some(self.filled(variables.clone(), None)?) } else { None };
        let differs = |escaper: &TokenEscaper, text: &str| plain.as_ref().is_some_and(|plain| escaper.reveal(text) != *plain);
        if differs(&escaper, &text) && escaper.hides_newer(&variables) {
            (escaper, finds_newer) = (TokenEscaper::new(&self.source, &variables, false)?, false);
            text = self.filled(variables, Some(&escaper))?;
        }
        if differs(&escaper, &text) {
            let e = Error::input("the chat template treats \"|\" or \"]\" in a message as its own syntax");
            return Err(e.hint("use the built-in template for this conversation"));
        }
        let mut parts = split_marked(&text, finds_newer);
        for part in &mut parts {
            if let Part::Text(text) = part {
                *text = escaper.reveal(text);
            }
        }
        Ok(parts)
    }
}

/// Returns the template `name` from a list of `{"name", "template"}`.
fn one_of<'a>(named: &'a [Value], name: &str) -> Result<&'a str> {
    let text = |value: &'a Value, key: &str| value.get(key).and_then(Value::as_str);
    let found = named.iter().find(|value| text(value, "name") == Some(name));
    found.and_then(|value| text(value, "template")).ok_or_else(|| {
        let names: Vec<&str> = named.iter().filter_map(|value| text(value, "name")).take(20).collect();
        Error::input(format!("unknown chat template {name}; the file has the templates {}", names.join(", "))).at("chat_template")
    })
}

fn broken(e: minijinja::Error) -> Error {
    Error::file(format!("the chat template is not valid Jinja: {e}"))
}

fn failed(e: minijinja::Error) -> Error {
    match (e.kind(), e.detail()) {
        (ErrorKind::OutOfFuel, _) => Error::file(limits::ENDLESS).at(NAME),
        (_, Some(detail)) if detail.starts_with(limits::PREFIX) => Error::file(&detail[limits::PREFIX.len()..]).at(NAME),
        (_, Some(detail)) if detail.starts_with(environment::RAISED) => {
            Error::input(format!("the chat template refuses the conversation: {}", &detail[environment::RAISED.len()..]))
        }
        _ => Error::file(format!("the chat template cannot be applied to the conversation: {e}")),
    }
}
