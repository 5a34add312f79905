//! Tests the GBNF reader and its errors.

use super::*;

fn body(text: &str) -> Expr {
    let rules = parse(&format!("root ::= {text}")).unwrap();
    rules.bodies[rules.root].clone()
}

fn chars(c: char) -> Expr {
    Expr::Char(Chars::one(c))
}

fn class(is_negated: bool, ranges: &[(char, char)]) -> Expr {
    Expr::Char(Chars { is_negated, ranges: ranges.to_vec() })
}

fn times(one: Expr, least: u32, most: Option<u32>) -> Expr {
    Expr::Repeat(Box::new(one), least, most)
}

#[test]
fn elements() {
    assert_eq!(body("\"a\""), chars('a'));
    assert_eq!(body("\"ab\""), Expr::Sequence(vec![chars('a'), chars('b')]));
    assert_eq!(body("\"\""), Expr::Sequence(vec![]));
    assert_eq!(body(""), Expr::Sequence(vec![]));
    assert_eq!(body(r#""\n\t\r\\\"\x41\u00e9\U0001F600\[\]""#), Expr::Sequence("\n\t\r\\\"Aé😀[]".chars().map(chars).collect()));
    assert_eq!(body("[a-z_]"), class(false, &[('a', 'z'), ('_', '_')]));
    assert_eq!(body("[^\"\\\\-]"), class(true, &[('"', '"'), ('\\', '\\'), ('-', '-')]));
    assert_eq!(body("[-+*/]"), class(false, &[('-', '-'), ('+', '+'), ('*', '*'), ('/', '/')]));
    assert_eq!(body("[\\]a-c^]"), class(false, &[(']', ']'), ('a', 'c'), ('^', '^')]));
    assert_eq!(body("."), class(true, &[]));
}

#[test]
fn operators() {
    let a = || chars('a');
    assert_eq!(body("\"a\"*"), times(a(), 0, None));
    assert_eq!(body("\"a\" +"), times(a(), 1, None));
    assert_eq!(body("\"a\"?"), times(a(), 0, Some(1)));
    assert_eq!(body("\"a\"{3}"), times(a(), 3, Some(3)));
    assert_eq!(body("\"a\"{ 3 , }"), times(a(), 3, None));
    assert_eq!(body("\"a\"{3,5}?"), times(times(a(), 3, Some(5)), 0, Some(1)));
    assert_eq!(body("\"ab\"*"), times(Expr::Sequence(vec![a(), chars('b')]), 0, None));
    assert_eq!(body("\"a\" | \"b\" |"), Expr::Either(vec![a(), chars('b'), Expr::Sequence(vec![])]));
    assert_eq!(body("\"a\" (\"b\" | \"a\")"), Expr::Sequence(vec![a(), Expr::Either(vec![chars('b'), a()])]));
}

#[test]
fn lines_and_names() {
    let text = "# a comment\r\nroot ::=\n  x-1 | # another\n  y_2 (\n  x-1\n  | \"#\" )\n\nx-1::=\"x\"\n\ty_2 ::= \"y\" # the last";
    let rules = parse(text).unwrap();
    assert_eq!(rules.names, ["root", "x-1", "y_2"]);
    let [x, y] = [Expr::Rule(1), Expr::Rule(2)];
    let group = Expr::Either(vec![x.clone(), chars('#')]);
    assert_eq!(rules.bodies, [Expr::Either(vec![x, Expr::Sequence(vec![y, group])]), chars('x'), chars('y')]);
    assert_eq!(rules.root, 0);
}

#[test]
fn errors_have_line_and_column() {
    let deep = format!("root ::= {}\"a\"", "(".repeat(200));
    let large = format!("root ::= \"a\" #{}", " ".repeat(MAX_BYTES));
    for (text, said) in [
        ("", "the grammar has no rule \"root\" (define the rule root ::= …; the output must match it)"),
        ("start ::= \"a\"", "the grammar has no rule \"root\""),
        ("root ::= a\nb ::= \"b\"", "line 1, column 10: rule \"a\" is used, but not defined (define the rule: a ::= …)"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule \"root\" is defined twice, first in line 1"),
        ("root = \"a\"", "line 1, column 6: expected ::= after the name of a rule; found '='"),
        ("root ::= \"a\"\n  | \"b\"", "line 2, column 3: expected the name of a rule; found '|'"),
        ("root ::= \"a", "line 1, column 12: expected \" to close the string that begins at line 1, column 10; found the end"),
        (
            "root ::= \"a\n\"",
            "line 1, column 12: expected \" to close the string that begins at line 1, column 10; found the end of the line",
        ),
        ("root ::= [a", "line 1, column 12: expected ] to close the character class that begins at line 1, column 10; found the end"),
        ("root ::= []", "line 1, column 10: the class [ ] has no characters"),
        ("root ::= [z-a]", "line 1, column 11: expected the smaller character first, as in [a-z]"),
        ("root ::= \"\\d\"", "line 1, column 11: unknown escape; expected one of \\n \\r"),
        ("root ::= \"\\x4\"", "line 1, column 14: expected 2 hexadecimal digits; found '\"'"),
        ("root ::= \"\\ud800\"", "line 1, column 11: this code is not a Unicode character"),
        ("root ::= \"\\U00110000\"", "line 1, column 11: this code is not a Unicode character"),
        ("root ::= (\"a\" | (\"b\")", "line 1, column 22: expected an element, | or ) to close the ( at line 1, column 10; found the end"),
        ("root ::= \"a\")", "line 1, column 13: expected an element, |, or the end of the line; found ')'"),
        ("root ::= *", "line 1, column 10: expected an element before *"),
        ("root ::= \"é\" | +", "line 1, column 16: expected an element before +"),
        ("root ::= \"a\"{}", "line 1, column 14: expected a number, as in {2}, {2,} or {2,5}; found '}'"),
        ("root ::= \"a\"{1;2}", "line 1, column 15: expected }, as in {2}, {2,} or {2,5}; found ';'"),
        ("root ::= \"a\"{3,2}", "line 1, column 13: expected the smaller number first, as in {2,3}"),
        ("root ::= \"a\"{99999999999}", "line 1, column 14: expected a repetition of at most 100000, found 99999999999"),
        ("root ::= <think>", "line 1, column 10: tokens in grammars"),
        ("root ::= 'a'", "line 1, column 10: expected an element, |, or the end of the line; found '\\''"),
        (&deep, "line 1, column 110: parentheses are nested more than 100 deep"),
        (&large, "expected a grammar of at most 1048576 bytes, found 1048590 bytes"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().starts_with(said), "{text:.60}: {error}");
        assert_eq!(error.kind, crate::error::Kind::Input);
    }
}
