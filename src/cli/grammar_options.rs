//! What output has to follow: a grammar or a schema of JSON.

use super::followers::{Followers, Rules};
use crate::constrain::{Constraint, Follower};
use crate::error::{Error, Result};
use crate::session::Model;
use std::path::{Path, PathBuf};

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
    pub json_object: bool,
}

impl GrammarArgs {
    /// At the beginning of a text; none where nothing was asked for. A clone is for another text.
    pub fn follower(&self, model: &Model) -> Result<Option<Follower>> {
        self.follower_among(&mut Followers::new(model))
    }

    /// The same, where texts follow other rules too.
    pub fn follower_among(&self, followers: &mut Followers) -> Result<Option<Follower>> {
        let (rules, path) = match (&self.grammar, &self.json_schema) {
            (Some(path), _) => (Rules::Gbnf(read(path)?), Some(path)),
            (None, Some(path)) => (Rules::Schema(read(path)?), Some(path)),
            (None, None) if self.json_object => (Rules::Json, None),
            (None, None) => return Ok(None),
        };
        followers.of(&rules).cloned().map(Some).map_err(|e| match path {
            Some(path) => e.at(path.display()),
            None => e,
        })
    }
}

/// For a stream of the session.
pub fn constraint(follower: Option<&Follower>) -> Option<Box<dyn Constraint>> {
    follower.map(|f| Box::new(f.clone()) as Box<dyn Constraint>)
}

fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(e, path))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
