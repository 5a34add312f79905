//! What output has to follow: a grammar or a schema of JSON.

use crate::constrain::{Constraint, Follower, Grammar, Pieces};
use crate::error::{Error, Result};
use crate::session::Model;
use std::path::{Path, PathBuf};

/// What any JSON is called.
const JSON: &str = "json";

#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub struct GrammarArgs {
    /// The text has to follow the rule root of a grammar in GBNF, as llama.cpp reads them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json_schema", "json_object"])]
    grammar: Option<PathBuf>,
    /// The text has to be JSON that this schema allows
    #[arg(long, value_name = "FILE", conflicts_with = "json_object")]
    json_schema: Option<PathBuf>,
    /// The text has to be JSON, whatever it says
    #[arg(long)]
    json_object: bool,
}

impl GrammarArgs {
    /// What was asked for, if anything.
    pub fn asked(&self) -> Result<Option<Asked>> {
        Ok(match (&self.grammar, &self.json_schema) {
            (Some(path), _) => Some(Asked { name: path.display().to_string(), grammar: gbnf(path)? }),
            (None, Some(path)) => Some(Asked { name: path.display().to_string(), grammar: schema(path)? }),
            (None, None) => self.json_object.then(Asked::json),
        })
    }

    /// At the beginning of a text; none where nothing was asked for. A clone is for another text.
    pub fn follower(&self, model: &Model) -> Result<Option<Follower>> {
        let Some(asked) = self.asked()? else { return Ok(None) };
        let Some(vocab) = model.vocab() else {
            let e = Error::input("a grammar needs a vocabulary, and none was found for this model");
            return Err(e.hint(model.vocab_hint().unwrap_or("give one with --vocab")));
        };
        let followed = Pieces::new(vocab, model.facts().n_vocab)?.follow(&asked.grammar);
        followed.map(Some).map_err(|e| e.at(asked.name))
    }
}

/// A grammar, and what a user calls it.
pub struct Asked {
    pub name: String,
    pub grammar: Grammar,
}

impl Asked {
    fn json() -> Asked {
        Asked { name: JSON.into(), grammar: Grammar::json() }
    }

    /// `json`, or from a file: a schema where its name ends with `.json`, else a grammar in GBNF.
    pub fn named(name: &str) -> Result<Asked> {
        let path = Path::new(name);
        let is_schema = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"));
        match name {
            JSON => Ok(Asked::json()),
            _ => Ok(Asked { name: name.into(), grammar: if is_schema { schema(path)? } else { gbnf(path)? } }),
        }
    }
}

/// For a stream of the session.
pub fn constraint(follower: Option<&Follower>) -> Option<Box<dyn Constraint>> {
    follower.map(|f| Box::new(f.clone()) as Box<dyn Constraint>)
}

fn gbnf(path: &Path) -> Result<Grammar> {
    Grammar::gbnf(&read(path)?).map_err(|e| e.at(path.display()))
}

fn schema(path: &Path) -> Result<Grammar> {
    let value = serde_json::from_str(&read(path)?).map_err(|e| Error::input(format!("expected JSON: {e}")).at(path.display()))?;
    Grammar::json_schema(&value).map_err(|e| e.at(path.display()))
}

fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(e, path))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
