//! Determines which parts of a grammar are regular expressions of a supported size.

use super::super::gbnf::{Expr, Rules};

/// The size and form of a regular expression, with references to rules expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeExtent {
    depth: usize,
    pub n_chars: usize,
    /// The number of optional subexpressions, such as `x?` or `x*`. llguidance's work for a sequence of
    /// expressions (`a b c`) grows with the square of this number.
    n_optional: usize,
    form: RegexForm,
}

/// The form of a regular expression, ordered from the simplest to the most general form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegexForm {
    Text,
    /// Alternatives that are all plain texts.
    Texts,
    Any,
}

impl NodeExtent {
    /// The largest depth of nested subexpressions in a regular expression. The code that handles regular expressions is recursive.
    const MAX_DEPTH: usize = 120;
    /// The largest size of a regular expression, in characters, after all references to rules are expanded. The limit is needed because rules such
    /// as `a ::= b b`, `b ::= c c` double the size with every rule. The body of a repetition counts once.
    const MAX_CHARS: usize = 20_000;
    /// The largest number of characters of alternatives that are all plain texts.
    const MAX_TEXTS: usize = 500_000;
    /// The largest number of optional subexpressions.
    const MAX_OPTIONAL: usize = 300;
    /// The extent (size and form) of a single character.
    pub const CHAR: NodeExtent = NodeExtent { depth: 1, n_chars: 1, n_optional: 0, form: RegexForm::Text };

    /// Returns the extent of an expression that combines the expressions `below` with the operator `made`. Returns `None` if the extent is too large,
    /// or if one of `below` has no extent.
    pub fn around(made: Operator, below: impl IntoIterator<Item = Option<NodeExtent>>) -> Option<NodeExtent> {
        let n_optional = usize::from(made == Operator::Optional);
        let mut all = NodeExtent { depth: 1, n_chars: 0, n_optional, form: RegexForm::Text };
        for extent in below {
            let extent = extent?;
            all.depth = all.depth.max(extent.depth + 1);
            all.n_chars += extent.n_chars;
            all.n_optional += extent.n_optional;
            all.form = match (made, extent.form.max(all.form)) {
                (Operator::Sequence, RegexForm::Text) => RegexForm::Text,
                (Operator::Either, RegexForm::Text | RegexForm::Texts) => RegexForm::Texts,
                _ => RegexForm::Any,
            };
            let longest = if all.form == RegexForm::Texts { Self::MAX_TEXTS } else { Self::MAX_CHARS };
            if all.depth > Self::MAX_DEPTH || all.n_chars > longest || all.n_optional > Self::MAX_OPTIONAL {
                return None;
            }
        }
        Some(all)
    }
}

/// The way in which an expression combines its subexpressions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Sequence,
    Either,
    /// A repetition with at least one occurrence of the repeated expression.
    Repeated,
    /// A repetition that may have no occurrence of the repeated expression: an optional expression.
    Optional,
}

impl Operator {
    pub fn repeated(least: u32) -> Operator {
        if least == 0 { Operator::Optional } else { Operator::Repeated }
    }
}

/// Returns the extent (size and form as a regular expression) of every rule. The extent is `None` if the rule is recursive, refers to a recursive
/// rule, or is too large.
pub fn extents(rules: &Rules) -> Vec<Option<NodeExtent>> {
    let mut known: Vec<Option<NodeExtent>> = vec![None; rules.bodies.len()];
    // a rule's extent becomes known one round after the extents of all rules that it refers to
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
        Expr::Sequence(all) => NodeExtent::around(Operator::Sequence, all.iter().map(|e| extent(e, rules))),
        Expr::Either(all) => NodeExtent::around(Operator::Either, all.iter().map(|e| extent(e, rules))),
        Expr::Repeat(one, least, _) => NodeExtent::around(Operator::repeated(*least), [extent(one, rules)]),
    }
}
