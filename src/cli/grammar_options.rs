//! What output has to follow: a grammar or a schema of JSON.

use super::prompt::utf8;
use crate::constrain::{Constraint, Follower, Grammar};
use crate::engine::{Close, Followers, Rules};
use crate::error::{Error, Result};
use crate::session::Model;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest file that is read; a grammar itself may be shorter.
const MAX_BYTES: u64 = 16 << 20;

/// What a JSON object and any JSON value are called.
const OBJECT: &str = "json";
const VALUE: &str = "value";

#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub struct GrammarArgs {
    /// Constrain the text to a grammar in GBNF, as llama.cpp reads it
    #[arg(hide_short_help = true, long, value_name = "FILE", conflicts_with_all = ["json_schema", "json_object", "json_value"])]
    grammar: Option<PathBuf>,
    /// Constrain the text to JSON that a schema allows
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json_object", "json_value"])]
    json_schema: Option<PathBuf>,
    /// Constrain the text to a JSON object
    #[arg(hide_short_help = true, long, conflicts_with = "json_value")]
    json_object: bool,
    /// Constrain the text to a JSON value
    #[arg(hide_short_help = true, long)]
    json_value: bool,
    /// Use the last tokens to close the text where it would be cut; the default for JSON
    #[arg(hide_short_help = true, long, overrides_with = "no_close")]
    close: bool,
    /// Cut the text where its tokens end; the default for --grammar
    #[arg(hide_short_help = true, long, overrides_with = "close")]
    no_close: bool,
}

impl GrammarArgs {
    /// What was asked for, if anything.
    pub fn asked(&self) -> Result<Option<Asked>> {
        match (&self.grammar, &self.json_schema) {
            (Some(path), _) => Asked::in_file(path, Rules::Gbnf).map(Some),
            (None, Some(path)) => Asked::in_file(path, Rules::Schema).map(Some),
            (None, None) if self.json_object => Ok(Some(Asked::of(OBJECT, Rules::Object))),
            (None, None) => Ok(self.json_value.then(|| Asked::of(VALUE, Rules::Value))),
        }
    }

    /// Whether a text that runs out of tokens is closed.
    pub fn close(&self) -> Close {
        Close::asked(self.asked_close())
    }

    /// The same, where a flag says so.
    pub fn asked_close(&self) -> Option<bool> {
        self.close.then_some(true).or(self.no_close.then_some(false))
    }

    /// At the beginning of a text; none where nothing was asked for. A clone is for another text.
    pub fn follower(&self, model: &Model) -> Result<Option<Follower>> {
        self.asked()?.map(|asked| asked.follower(&mut Followers::new(model), self.close(), "")).transpose()
    }
}

/// Rules, and what a user calls them.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub name: String,
    rules: Rules,
}

impl Asked {
    /// `json` (an object), `value` (any JSON), or from a file: a schema where its name ends with `.json`, else a grammar in GBNF.
    pub fn named(name: &str) -> Result<Asked> {
        let path = Path::new(name);
        match path.extension() {
            _ if name == OBJECT => Ok(Asked::of(OBJECT, Rules::Object)),
            _ if name == VALUE => Ok(Asked::of(VALUE, Rules::Value)),
            Some(e) if e.eq_ignore_ascii_case("json") => Asked::in_file(path, Rules::Schema),
            _ => Asked::in_file(path, Rules::Gbnf),
        }
    }

    /// Rules of a field of that name.
    pub fn of(name: &str, rules: Rules) -> Asked {
        Asked { name: name.into(), rules }
    }

    /// At the beginning of a text, which begins with `lead`.
    pub fn follower(&self, followers: &mut Followers, close: Close, lead: &str) -> Result<Follower> {
        followers.of(&self.rules, close, lead).cloned().map_err(|e| e.at(&self.name))
    }

    pub fn into_rules(self) -> Rules {
        self.rules
    }

    /// What tells these rules from others, whatever they are called.
    pub fn identity(&self) -> String {
        format!("{:?}", self.rules)
    }

    pub fn grammar(&self) -> Result<Grammar> {
        self.rules.grammar().map_err(|e| e.at(&self.name))
    }

    fn in_file(path: &Path, of: fn(String) -> Rules) -> Result<Asked> {
        let (mut bytes, mut file) = (Vec::new(), File::open(path).map_err(|e| Error::io(e, path))?.take(MAX_BYTES + 1));
        file.read_to_end(&mut bytes).map_err(|e| Error::io(e, path))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::input(format!("expected rules of at most {MAX_BYTES} bytes, found more")).at(path.display()));
        }
        let text = utf8(bytes).map_err(|e| e.at(path.display()))?;
        Ok(Asked { name: path.display().to_string(), rules: of(text) })
    }
}

/// For a stream of the session.
pub fn constraint(follower: Option<&Follower>) -> Option<Box<dyn Constraint>> {
    follower.map(|f| Box::new(f.clone()) as Box<dyn Constraint>)
}
