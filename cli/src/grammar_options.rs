//! The options that constrain output to a grammar, a JSON schema or JSON.

use super::prompt::utf8;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use wingbeat::constrain::{Follower, Grammar};
use wingbeat::engine::{Close, Rules};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::Followers;

/// The maximum size in bytes of a file with a grammar or a schema. The parsers of grammars and schemas set further limits.
const MAX_BYTES: u64 = 16 << 20;

/// The name of the built-in rules that allow any JSON object.
const OBJECT: &str = "json";
/// The name of the built-in rules that allow any JSON value.
const VALUE: &str = "value";

#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub struct GrammarArgs {
    /// Generate only text that matches the grammar in FILE, in llama.cpp's format GBNF
    #[arg(hide_short_help = true, long, value_name = "FILE", conflicts_with_all = ["json_schema", "json_object", "json_value"])]
    grammar: Option<PathBuf>,
    /// Generate only JSON that matches the JSON schema in FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json_object", "json_value"])]
    json_schema: Option<PathBuf>,
    /// Generate only a JSON object
    #[arg(hide_short_help = true, long, conflicts_with = "json_value")]
    json_object: bool,
    /// Generate only a JSON value: an object, array, string, number, true, false or null
    #[arg(hide_short_help = true, long)]
    json_value: bool,
    /// Near the token limit (-n), complete the text in as few tokens as the grammar or schema allows. This is the default with --json-schema, --json-object and --json-value
    #[arg(hide_short_help = true, long, overrides_with = "no_close")]
    close: bool,
    /// Stop at the token limit even if the text is incomplete for its grammar or schema. This is the default with --grammar
    #[arg(hide_short_help = true, long, overrides_with = "close")]
    no_close: bool,
}

impl GrammarArgs {
    /// Returns the rules (grammar or JSON schema) of the flags, or `None` without such flags.
    ///
    /// # Errors
    /// `File` if the file of the grammar or schema cannot be read, `Input` if this file is too long or not UTF-8.
    pub fn selected(&self) -> Result<Option<NamedRules>> {
        match (&self.grammar, &self.json_schema) {
            (Some(path), _) => NamedRules::in_file(path, Rules::Gbnf).map(Some),
            (None, Some(path)) => NamedRules::in_file(path, Rules::Schema).map(Some),
            (None, None) if self.json_object => Ok(Some(NamedRules::of(OBJECT, Rules::Object))),
            (None, None) => Ok(self.json_value.then(|| NamedRules::of(VALUE, Rules::Value))),
        }
    }

    /// Returns the choice between `--close` and `--no-close`. Closing completes a text near the token limit with as few tokens as its rules
    /// allow.
    pub fn close(&self) -> Close {
        Close::asked(self.asked_close())
    }

    /// Returns true for `--close`, false for `--no-close`, or `None` without either flag.
    pub fn asked_close(&self) -> Option<bool> {
        self.close.then_some(true).or(self.no_close.then_some(false))
    }
}

/// A grammar or JSON schema, with the name that the user gave for it.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedRules {
    pub name: String,
    pub rules: Rules,
}

impl NamedRules {
    /// Returns the rules of this name: `json` is any JSON object, `value` is any JSON value. Other names are paths: a JSON schema if the
    /// path ends with `.json`, else a grammar in GBNF.
    pub fn named(name: &str) -> Result<NamedRules> {
        let path = Path::new(name);
        match path.extension() {
            _ if name == OBJECT => Ok(NamedRules::of(OBJECT, Rules::Object)),
            _ if name == VALUE => Ok(NamedRules::of(VALUE, Rules::Value)),
            Some(e) if e.eq_ignore_ascii_case("json") => NamedRules::in_file(path, Rules::Schema),
            _ => NamedRules::in_file(path, Rules::Gbnf),
        }
    }

    /// Gives rules a name.
    pub fn of(name: &str, rules: Rules) -> NamedRules {
        NamedRules { name: name.into(), rules }
    }

    /// Returns a follower at the beginning of a text. A follower tracks a text and finds the tokens that the rules allow next. The rules apply
    /// after the text's first part, `lead`.
    pub fn follower(&self, followers: &mut Followers, close: Close, lead: &str) -> Result<Follower> {
        followers.of(&self.rules, close, lead).cloned().map_err(|e| e.at(&self.name))
    }

    /// Puts the name of these rules in place of the request's field in an error about the rules. Returns other errors unchanged.
    pub fn in_error(&self, mut e: Error) -> Error {
        if e.field_name() == Some(self.rules.field()) {
            let rest = e.field.take().and_then(|field| Some(field.split_once(": ")?.1.to_owned()));
            e.place = rest.or(e.place);
            return e.at(&self.name);
        }
        e
    }

    /// Returns a text that is equal for equal rules, even if their names differ.
    pub fn identity(&self) -> String {
        format!("{:?}", self.rules)
    }

    pub fn grammar(&self) -> Result<Grammar> {
        self.rules.grammar().map_err(|e| e.at(&self.name))
    }

    fn in_file(path: &Path, of: fn(String) -> Rules) -> Result<NamedRules> {
        let (mut bytes, mut file) = (Vec::new(), File::open(path).map_err(|e| Error::io(e, path))?.take(MAX_BYTES + 1));
        file.read_to_end(&mut bytes).map_err(|e| Error::io(e, path))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(
                Error::input(format!("expected a grammar or schema of at most {MAX_BYTES} bytes, found a larger file")).at(path.display())
            );
        }
        let text = utf8(bytes).map_err(|e| e.at(path.display()))?;
        Ok(NamedRules { name: path.display().to_string(), rules: of(text) })
    }
}
