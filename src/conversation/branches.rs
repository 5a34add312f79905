//! The branches of a conversation, each with a name.

use crate::error::{Error, Result, short};
use std::collections::BTreeMap;

/// The name of the first branch.
const FIRST: &str = "main";

/// The current branch and the other branches.
pub struct Branches<B> {
    name: String,
    /// The current branch.
    pub here: B,
    others: BTreeMap<String, B>,
}

impl<B: Clone> Branches<B> {
    pub fn new(here: B) -> Branches<B> {
        Branches { name: FIRST.into(), here, others: BTreeMap::new() }
    }

    /// Removes a branch and returns it.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or is the current branch.
    pub fn remove(&mut self, name: &str) -> Result<B> {
        let name = name.trim();
        if name == self.name {
            return Err(Error::usage("the current branch cannot be removed").hint("switch to another branch first"));
        }
        self.others.remove(name).ok_or_else(|| self.unknown(name))
    }

    /// Returns all branches, the current branch last.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut B> {
        self.others.values_mut().chain([&mut self.here])
    }

    fn unknown(&self, name: &str) -> Error {
        let e = Error::usage(format!("unknown branch {:?}", short(name, 40)));
        e.hint(format!("branches: {}", self.names().join(", ")))
    }
}

/// The methods of [`Branches`] that do not depend on the type `B` of a branch.
pub trait Named {
    /// Copies the current branch to a new branch and switches to it. Returns a `Usage` error if the name is empty or already used.
    fn fork(&mut self, name: &str) -> Result<()>;
    /// Switches to a branch. Returns a `Usage` error if the name is unknown.
    fn switch(&mut self, name: &str) -> Result<()>;
    /// Returns the name of the current branch.
    fn name(&self) -> &str;
    /// Returns all names, sorted.
    fn names(&self) -> Vec<String>;
}

impl<B: Clone> Named for Branches<B> {
    fn fork(&mut self, name: &str) -> Result<()> {
        let name = name.trim();
        if name.is_empty() {
            return Err(Error::usage("the name of the branch is missing"));
        }
        if name == self.name || self.others.contains_key(name) {
            let e = Error::usage(format!("a branch {:?} exists already", short(name, 40)));
            return Err(e.hint("choose another name, or switch to this branch"));
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
        assert!(said(branches.fork("main")).starts_with("a branch \"main\" exists already"));
        assert!(said(branches.fork("x")).starts_with("a branch \"x\" exists already"));
        assert!(said(branches.fork(" ")).starts_with("the name of the branch is missing"));
        assert_eq!(said(branches.switch("y")), "unknown branch \"y\" (branches: main, x)");
        assert!(said(branches.remove("x")).starts_with("the current branch cannot be removed"));
        assert!(said(branches.remove("y")).starts_with("unknown branch"));
    }
}
