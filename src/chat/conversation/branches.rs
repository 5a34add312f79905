//! Branches: conversations side by side, each under a name.

use crate::error::{Error, Result, short};
use std::collections::BTreeMap;

pub const FIRST: &str = "main";

/// The current branch and the other branches.
pub struct Branches<B> {
    name: String,
    pub here: B,
    others: BTreeMap<String, B>,
}

impl<B: Clone> Branches<B> {
    pub fn new(here: B) -> Branches<B> {
        Branches { name: FIRST.into(), here, others: BTreeMap::new() }
    }

    /// Takes a branch out, but not the current one.
    pub fn remove(&mut self, name: &str) -> Result<B> {
        let name = name.trim();
        if name == self.name {
            return Err(Error::usage("expected another branch than the current one").hint("switch to another one first"));
        }
        self.others.remove(name).ok_or_else(|| self.unknown(name))
    }

    /// All branches, the current one last.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut B> {
        self.others.values_mut().chain([&mut self.here])
    }

    fn unknown(&self, name: &str) -> Error {
        let e = Error::usage(format!("expected the name of a branch, found {:?}", short(name, 40)));
        e.hint(format!("there are {}", self.names().join(", ")))
    }
}

/// What can be done with branches, whatever they hold.
pub trait Named {
    /// Begins a branch of that name here, which is the current one then.
    fn fork(&mut self, name: &str) -> Result<()>;
    fn switch(&mut self, name: &str) -> Result<()>;
    fn name(&self) -> &str;
    fn names(&self) -> Vec<String>;
}

impl<B: Clone> Named for Branches<B> {
    fn fork(&mut self, name: &str) -> Result<()> {
        let name = name.trim();
        if name.is_empty() {
            return Err(Error::usage("expected a name for the branch, found none"));
        }
        if name == self.name || self.others.contains_key(name) {
            return Err(
                Error::usage(format!("there is a branch {:?} already", short(name, 40))).hint("choose another name, or switch to it")
            );
        }
        let left = std::mem::replace(&mut self.name, name.into());
        self.others.insert(left, self.here.clone());
        Ok(())
    }

    fn switch(&mut self, name: &str) -> Result<()> {
        let name = name.trim();
        if name == self.name {
            return Ok(());
        }
        let there = self.others.remove(name).ok_or_else(|| self.unknown(name))?;
        let left = std::mem::replace(&mut self.name, name.into());
        self.others.insert(left, std::mem::replace(&mut self.here, there));
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.others.keys().chain([&self.name]).cloned().collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let mut branches = Branches::new(());
        branches.fork("x").unwrap();
        let said = |result: Result<()>| result.unwrap_err().to_string();
        assert!(said(branches.fork("main")).starts_with("there is a branch \"main\" already"));
        assert!(said(branches.fork("x")).starts_with("there is a branch \"x\" already"));
        assert!(said(branches.fork(" ")).starts_with("expected a name"));
        assert_eq!(said(branches.switch("y")), "expected the name of a branch, found \"y\" (there are main, x)");
        assert!(said(branches.remove("x")).starts_with("expected another branch"));
        assert!(said(branches.remove("y")).starts_with("expected the name of a branch"));
    }
}
