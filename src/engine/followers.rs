//! A cache of followers. A follower tracks the text of one continuation and finds the tokens that the continuation's rules allow next. Rules that
//! were used recently are not parsed again.

use super::rules::{Close, Rules};
use crate::constrain::{Follower, Pieces};
use crate::error::{Error, Result};
use crate::session::Model;

/// The maximum number of rules in the cache. The limit protects the memory: the parser of a large grammar takes some megabytes.
const KNOWN: usize = 16;

/// A cache of followers for one model.
pub struct Followers {
    model: Model,
    /// The texts of the model's tokens. `None` until a request first has rules.
    pieces: Option<Pieces>,
    known: Recent<(Rules, Close, String), Result<Follower>>,
}

impl Followers {
    /// Creates an empty cache of followers for a model.
    pub fn new(model: &Model) -> Followers {
        Followers { model: model.clone(), pieces: None, known: Recent::new(KNOWN) }
    }

    /// Returns the follower of `rules` at the beginning of a text. The text must begin with `lead`, and the text after `lead` must satisfy the rules.
    /// The cache keeps the returned follower, so clone it for each text.
    ///
    /// # Errors
    /// `Input` if the rules are invalid, or if the model has no vocabulary.
    pub fn of(&mut self, rules: &Rules, close: Close, lead: &str) -> Result<&Follower> {
        let Followers { model, pieces, known } = self;
        known.get(&(rules.clone(), close, lead.into()), || follow(rules, close, lead, pieces, model)).as_ref().map_err(Error::clone)
    }
}

fn follow(rules: &Rules, close: Close, lead: &str, pieces: &mut Option<Pieces>, model: &Model) -> Result<Follower> {
    let grammar = close.apply(rules.grammar()?);
    let pieces = match pieces {
        Some(pieces) => pieces,
        None => {
            let vocab = model.needed_vocab("a grammar needs a vocabulary, and none was found for this model")?;
            pieces.insert(Pieces::new(vocab, model.facts().n_vocab)?)
        }
    };
    pieces.follow(&grammar.with_lead(lead))
}

/// A cache of the most recently used values.
struct Recent<K, V> {
    /// The maximum number of values in the cache.
    most: usize,
    /// Keys and values, the most recently used value first.
    all: Vec<(K, V)>,
}

impl<K: PartialEq + Clone, V> Recent<K, V> {
    fn new(most: usize) -> Self {
        Recent { most, all: Vec::new() }
    }

    /// Returns the value of a key. If the key is unknown, makes the value with `make`.
    fn get(&mut self, key: &K, make: impl FnOnce() -> V) -> &V {
        match self.all.iter().position(|(known, _)| known == key) {
            Some(at) => self.all[..=at].rotate_right(1),
            None => {
                self.all.truncate(self.most - 1);
                self.all.insert(0, (key.clone(), make()));
            }
        }
        &self.all[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ModelSource, Options};

    #[test]
    fn recent_values_are_not_made_again() {
        let mut recent = Recent::new(3);
        let mut made = String::new();
        for key in "abcabcadabcbcd".chars() {
            let value = *recent.get(&key, || {
                made.push(key);
                key
            });
            assert_eq!(value, key);
            assert!(recent.all.len() <= 3);
        }
        assert_eq!(made, "abcdbcd");
    }

    #[test]
    fn rules_and_their_errors_are_parsed_once() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let mut followers = Followers::new(&model);
        let schemas = [r#"{"properties":{"a":{},"b":{}}}"#, r#"{"properties":{"b":{},"a":{}}}"#].map(|text| Rules::Schema(text.into()));
        let rules = [Rules::Value, Rules::Gbnf("root ::= [a".into()), Rules::Schema("[".into())].into_iter().chain(schemas);
        for rules in rules.collect::<Vec<_>>().iter().cycle().take(15) {
            let said = followers.of(rules, Close::ByKind, "").map(drop).map_err(|e| e.to_string());
            match rules {
                Rules::Gbnf(_) => assert!(said.unwrap_err().starts_with("line 1, column 12: expected ]")),
                Rules::Schema(text) if text == "[" => {
                    assert!(said.unwrap_err().starts_with("the JSON schema is not valid JSON: the JSON ends"))
                }
                _ => said.unwrap(),
            }
        }
        assert_eq!(followers.known.all.len(), 5);
    }
}
