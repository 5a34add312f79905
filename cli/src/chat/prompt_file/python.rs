//! Parses ChatRWKV's prompt files without Python: code that assigns texts to names.
//!
//! The parser accepts `name = …` and `name += …`. The right side may have string literals, names that have a value, `+` and parentheses.
//! The parser skips comments, texts without an assignment, and `print(…)` of a text. All other code is an error that names the line.

use super::PromptFile;
use super::literal::{self, Literal, MAX_TEXT};
use std::collections::BTreeMap;
use wingbeat::chat::InitialPrompt;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// The maximum size in bytes of all texts that the parser makes from one file, intermediate texts included.
const MAX_MADE: usize = 8 * MAX_TEXT;

/// The maximum number of nested parentheses. Each level is a recursive call of the parser, so a limit protects the stack.
const MAX_DEPTH: usize = 64;

/// Parses a prompt file.
///
/// # Errors
/// `File` if the text has code that the parser does not accept, or lacks an assignment to `user`, `bot` or `init_prompt`. The error about
/// code names the line.
pub fn parse(text: &str) -> Result<PromptFile> {
    // Like Python, normalise line ends first.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut reader = PythonReader { text: &text, at: 0, values: BTreeMap::new(), made: 0 };
    while reader.statement()? {}
    let mut take = |name: &str| reader.values.remove(name);
    let (user, bot, init_prompt) = (take("user"), take("bot"), take("init_prompt"));
    let interface = take("interface").unwrap_or_else(|| ":".into());
    let missing = |name: &str| Error::file(format!("the prompt file does not assign {name}"));
    let prompt = InitialPrompt {
        user: user.ok_or_else(|| missing("user"))?,
        bot: bot.ok_or_else(|| missing("bot"))?,
        interface,
        init_prompt: init_prompt.ok_or_else(|| missing("init_prompt"))?,
    };
    Ok(PromptFile { prompt, settings: Vec::new() })
}

struct PythonReader<'a> {
    text: &'a str,
    at: usize,
    values: BTreeMap<String, String>,
    /// The bytes of text that the parser has made so far, at most [`MAX_MADE`].
    made: usize,
}

/// The meaning of a newline: the end of a statement or, within parentheses, a blank.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Newlines {
    End,
    Blank,
}

impl<'a> PythonReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips blanks, comments and newlines after a backslash. With `Newlines::Blank`, skips all other newlines, too.
    fn blanks(&mut self, newlines: Newlines) {
        loop {
            let rest = self.rest();
            let is_blank = |c: char| matches!(c, ' ' | '\t' | '\u{c}') || c == '\n' && newlines == Newlines::Blank;
            let blanks = rest.len() - rest.trim_start_matches(is_blank).len();
            self.at += match rest.as_bytes() {
                _ if blanks > 0 => blanks,
                [b'\\', b'\n', ..] => 2,
                [b'#', ..] => rest.find('\n').unwrap_or(rest.len()),
                _ => return,
            };
        }
    }

    /// Consumes `token` and returns true if the rest of the text begins with `token`. Otherwise returns false.
    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Consumes and returns a name, or returns `None` if no name follows.
    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..len];
        literal::is_name(name).then(|| {
            self.at += len;
            name
        })
    }

    /// Consumes a statement or an empty line. Returns `false` at the end of the file.
    fn statement(&mut self) -> Result<bool> {
        let line_start = self.at == 0 || self.text[..self.at].ends_with('\n');
        let from = self.at;
        self.blanks(Newlines::End);
        match self.peek() {
            None => return Ok(false),
            Some('\n' | ';') => {
                self.at += 1;
                return Ok(true);
            }
            _ if line_start && self.text[from..self.at].starts_with([' ', '\t']) => {
                return Err(self.refuse("an assignment at the beginning of its line", self.at));
            }
            _ => {}
        }
        let from = self.at;
        if self.literal()?.is_some() {
            // A text that is not assigned to a name has no effect, like a comment.
            self.at = from;
            self.sum(0, Newlines::End)?;
        } else {
            self.assignment(from)?;
        }
        self.blanks(Newlines::End);
        match self.peek() {
            None | Some('\n' | ';') => Ok(true),
            _ => Err(self.refuse("the end of the line after the string", self.at)),
        }
    }

    /// Consumes `name = …`, `name += …` or `print(…)`. `from` is the byte offset of the statement, for errors.
    fn assignment(&mut self, from: usize) -> Result<()> {
        const EXPECTED: &str = "an assignment of a string to a name";
        let name = self.name().ok_or_else(|| self.refuse(EXPECTED, from))?;
        self.blanks(Newlines::End);
        if name == "print" && self.rest().starts_with('(') {
            return self.sum(0, Newlines::End).map(|text| log::info!("the prompt file prints: {}", text.trim()));
        }
        let adds = self.takes("+=");
        if !adds && (self.rest().starts_with("==") || !self.takes("=")) {
            return Err(self.refuse(EXPECTED, from));
        }
        let before = match self.values.get(name) {
            Some(before) if adds => before.clone(),
            None if adds => return Err(self.refuse(&format!("{name} to have a value before +="), from)),
            _ => String::new(),
        };
        let text = before + &self.sum(0, Newlines::End)?;
        self.check_len(&text, from)?;
        self.values.insert(name.into(), text);
        Ok(())
    }

    fn check_len(&self, text: &str, at: usize) -> Result<()> {
        match text.len() > MAX_TEXT {
            true => Err(self.refuse(&format!("a string of at most {MAX_TEXT} bytes"), at)),
            false => Ok(()),
        }
    }

    /// Consumes operands with `+` between them, and returns their texts joined. `depth` is the number of open parentheses.
    fn sum(&mut self, depth: usize, newlines: Newlines) -> Result<String> {
        let mut sum = self.operand(depth, newlines)?;
        loop {
            self.blanks(newlines);
            if !self.takes("+") {
                self.made += sum.len();
                if self.made > MAX_MADE {
                    return Err(self.refuse(&format!("strings of at most {MAX_MADE} bytes together"), self.at));
                }
                return Ok(sum);
            }
            sum += &self.operand(depth, newlines)?;
            self.check_len(&sum, self.at)?;
        }
    }

    /// Consumes an operand and returns its text. An operand is one or more adjacent literals, a name, or a sum in parentheses.
    fn operand(&mut self, depth: usize, newlines: Newlines) -> Result<String> {
        self.blanks(newlines);
        let from = self.at;
        if depth < MAX_DEPTH && self.takes("(") {
            let sum = self.sum(depth + 1, Newlines::Blank)?;
            return if self.takes(")") { Ok(sum) } else { Err(self.refuse("a closing parenthesis", self.at)) };
        }
        let mut texts: Option<String> = None;
        while let Some((literal, inner_at)) = self.literal()? {
            let values = |name: &str| self.values.get(name).map(String::as_str);
            let text = literal::value(&literal, &values)
                .map_err(|(found, at)| self.at_line(Error::file(format!("expected a string, found {found}")), inner_at + at))?;
            let texts = texts.get_or_insert_default();
            texts.push_str(&text);
            self.check_len(texts, from)?;
            self.blanks(newlines);
        }
        if let Some(texts) = texts {
            return Ok(texts);
        }
        let name = self.name().ok_or_else(|| self.refuse("a string in quotes", from))?;
        match self.values.get(name) {
            Some(value) => Ok(value.clone()),
            None => Err(self.refuse("a string in quotes or a name that has a value", from)),
        }
    }

    /// Consumes a literal. Returns the literal and the byte offset of its inner text in the file, or `None` if no literal follows.
    fn literal(&mut self) -> Result<Option<(Literal<'a>, usize)>> {
        let from = self.at;
        let rest = self.rest();
        let quote = rest.bytes().take(3).position(|b| matches!(b, b'"' | b'\''));
        let n_prefix = quote.filter(|&n| rest[..n].bytes().all(|b| b.is_ascii_alphabetic()));
        let Some(n_prefix) = n_prefix else { return Ok(None) };
        let prefix = rest[..n_prefix].to_lowercase();
        if !matches!(prefix.as_str(), "" | "r" | "f" | "u" | "rf" | "fr") {
            return Err(self.refuse("a string with the prefix r or f, or without a prefix", from));
        }
        let quotes = &rest[n_prefix..];
        let quote = [r#"""""#, "'''", "\"", "'"].into_iter().find(|q| quotes.starts_with(q)).expect("the text begins with a quote");
        let inner_at = from + n_prefix + quote.len();
        let inner = &self.text[inner_at..];
        let mut len = 0;
        while !inner[len..].starts_with(quote) {
            let mut chars = inner[len..].chars();
            let ended = match chars.next() {
                None => true,
                Some('\n') => quote.len() == 1,
                // A quote after a backslash does not end the literal, even if the literal is raw.
                Some('\\') => chars.next().is_none(),
                Some(_) => false,
            };
            if ended {
                return Err(self.refuse(&format!("a string that ends with {quote}"), from));
            }
            len = inner.len() - chars.as_str().len();
        }
        self.at = inner_at + len + quote.len();
        let literal = Literal { is_raw: prefix.contains('r'), is_format: prefix.contains('f'), inner: &inner[..len] };
        Ok(Some((literal, inner_at)))
    }

    /// Returns an error at byte offset `at`. The message says what was expected, and quotes the line from `at` on.
    fn refuse(&self, expected: &str, at: usize) -> Error {
        let found = self.text[at..].lines().next().unwrap_or_default();
        let found = if found.is_empty() { "the end".to_string() } else { format!("{:?}", short(found, 40)) };
        let e = self.at_line(Error::file(format!("expected {expected}, found {found}")), at);
        e.hint("a prompt file is not run as Python: it can only assign strings to user, bot, interface and init_prompt")
    }

    /// Adds the number of the line that contains byte offset `at` to an error.
    fn at_line(&self, e: Error, at: usize) -> Error {
        e.at(format!("line {}", 1 + self.text[..at].matches('\n').count()))
    }
}
