//! Whether a part of a grammar is a regular expression of a size that can be worked with.

use super::super::gbnf::{Expr, Rules};

/// How large a regular expression is, with what it refers to written out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeExtent {
    depth: usize,
    pub n_chars: usize,
    /// Parts that may be left out. A sequence of many takes the square of their number.
    n_optional: usize,
    form: Form,
}

/// What a regular expression is made of, from the simplest to the most general.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Text,
    /// One of several texts.
    Texts,
    Any,
}

impl NodeExtent {
    /// A regular expression nests no deeper: whoever works with one goes down by calling itself.
    const MAX_DEPTH: usize = 120;
    /// Nor is it longer: rules of two rules each double it with every line. A repeated one counts once.
    const MAX_CHARS: usize = 20_000;
    /// Of all texts, where it is one of several.
    const MAX_TEXTS: usize = 500_000;
    const MAX_OPTIONAL: usize = 300;
    pub const CHAR: NodeExtent = NodeExtent { depth: 1, n_chars: 1, n_optional: 0, form: Form::Text };

    /// Of what is made of these; none where it is too large or one of them is.
    pub fn around(made: Made, below: impl IntoIterator<Item = Option<NodeExtent>>) -> Option<NodeExtent> {
        let n_optional = usize::from(made == Made::Optional);
        let mut all = NodeExtent { depth: 1, n_chars: 0, n_optional, form: Form::Text };
        for extent in below {
            let extent = extent?;
            all.depth = all.depth.max(extent.depth + 1);
            all.n_chars += extent.n_chars;
            all.n_optional += extent.n_optional;
            all.form = match (made, extent.form.max(all.form)) {
                (Made::Sequence, Form::Text) => Form::Text,
                (Made::Either, Form::Text | Form::Texts) => Form::Texts,
                _ => Form::Any,
            };
            let longest = if all.form == Form::Texts { Self::MAX_TEXTS } else { Self::MAX_CHARS };
            if all.depth > Self::MAX_DEPTH || all.n_chars > longest || all.n_optional > Self::MAX_OPTIONAL {
                return None;
            }
        }
        Some(all)
    }
}

/// How an expression is made of others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Made {
    Sequence,
    Either,
    /// Repeated, at least once.
    Repeated,
    /// Repeated, perhaps not at all.
    Optional,
}

impl Made {
    pub fn repeated(least: u32) -> Made {
        if least == 0 { Made::Optional } else { Made::Repeated }
    }
}

/// Of every rule; none where it needs a rule that needs itself, or is too large.
pub fn extents(rules: &Rules) -> Vec<Option<NodeExtent>> {
    let mut known: Vec<Option<NodeExtent>> = vec![None; rules.bodies.len()];
    // A rule's is known one round after those that it needs.
    for _ in 0..NodeExtent::MAX_DEPTH {
        let before = known.clone();
        for (rule, body) in rules.bodies.iter().enumerate() {
            known[rule] = known[rule].or_else(|| extent(body, &before));
        }
        if before == known {
            break;
        }
    }
    known
}

fn extent(expr: &Expr, rules: &[Option<NodeExtent>]) -> Option<NodeExtent> {
    match expr {
        Expr::Char(_) => Some(NodeExtent::CHAR),
        Expr::Rule(rule) => rules[*rule],
        Expr::Sequence(all) => NodeExtent::around(Made::Sequence, all.iter().map(|e| extent(e, rules))),
        Expr::Either(all) => NodeExtent::around(Made::Either, all.iter().map(|e| extent(e, rules))),
        Expr::Repeat(one, least, _) => NodeExtent::around(Made::repeated(*least), [extent(one, rules)]),
    }
}
