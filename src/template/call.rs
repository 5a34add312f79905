//! ChatGLM3's tool calls: `tool_call(city='北京', days=3)` in a fenced block. ChatGLM3's own code runs the call as Python, but this module only
//! parses the call.
//!
//! Arguments are literals: strings, numbers, `True`, `False`, `None`, lists, tuples and mappings. Other code is an error.

use crate::error::{Error, Result, short};
use crate::vocab::unescape_text;
use serde_json::{Map, Number, Value};

/// The maximum depth of nested lists and mappings in an argument.
const MAX_DEPTH: usize = 64;

/// Parses the call in a fenced block, whose first and last line are the fence. Returns its keyword arguments.
///
/// # Errors
/// `Input` if there is no fenced block, or if the block is not exactly one call with literals.
pub(super) fn arguments(content: &str) -> Result<Value> {
    let lines: Vec<&str> = content.split('\n').collect();
    let [_, inner @ .., _] = lines.as_slice() else {
        return Err(expected("a fenced block with tool_call(…)", content));
    };
    let text = inner.join("\n");
    let mut reader = PythonCallReader { text: &text, at: 0 };
    let call = reader.call()?;
    reader.blanks();
    match reader.rest() {
        "" => Ok(Value::Object(call)),
        rest => Err(expected("nothing after the call", rest)),
    }
}

fn expected(what: &str, found: &str) -> Error {
    Error::input(format!("the model wrote an invalid tool call: expected {what}, found {:?}", short(found, 40)))
}

struct PythonCallReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> PythonCallReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Skips blanks. If `token` follows, consumes `token` and returns true.
    fn takes(&mut self, token: &str) -> bool {
        self.blanks();
        let is_next = self.rest().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    fn must(&mut self, token: &str) -> Result<()> {
        if self.takes(token) { Ok(()) } else { Err(expected(token, self.rest())) }
    }

    fn while_is(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !is(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn name(&mut self) -> Result<&'a str> {
        self.blanks();
        match self.while_is(|c| c.is_alphanumeric() || c == '_') {
            "" => Err(expected("a name", self.rest())),
            name => Ok(name),
        }
    }

    /// Parses `tool_call(name=value, …)` and returns its keyword arguments.
    fn call(&mut self) -> Result<Map<String, Value>> {
        self.must("tool_call")?;
        self.must("(")?;
        let mut arguments = Map::new();
        while !self.takes(")") {
            let name = self.name()?;
            self.must("=")?;
            let value = self.value(0)?;
            if arguments.insert(name.into(), value).is_some() {
                return Err(expected("each argument once", name));
            }
            if !self.takes(",") {
                self.must(")")?;
                break;
            }
        }
        Ok(arguments)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(Error::input(format!("the model wrote an invalid tool call: lists are nested more than {MAX_DEPTH} deep")));
        }
        self.blanks();
        match self.peek() {
            Some('\'' | '"') => self.strings().map(Value::String),
            Some('[') => self.list(']', depth),
            Some('(') => self.list(')', depth),
            Some('{') => self.mapping(depth),
            Some(c) if c.is_alphabetic() => self.constant(),
            _ => self.number(),
        }
    }

    fn list(&mut self, close: char, depth: usize) -> Result<Value> {
        self.at += 1;
        let close = close.to_string();
        let (mut items, mut has_comma) = (Vec::new(), false);
        while !self.takes(&close) {
            items.push(self.value(depth + 1)?);
            if !self.takes(",") {
                self.must(&close)?;
                break;
            }
            has_comma = true;
        }
        // `(x)` is `x`, `(x,)` is a tuple.
        match (close.as_str(), items.len(), has_comma) {
            (")", 1, false) => Ok(items.remove(0)),
            _ => Ok(Value::Array(items)),
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value> {
        self.at += 1;
        let mut map = Map::new();
        while !self.takes("}") {
            self.blanks();
            let key = self.strings()?;
            self.must(":")?;
            map.insert(key, self.value(depth + 1)?);
            if !self.takes(",") {
                self.must("}")?;
                break;
            }
        }
        Ok(Value::Object(map))
    }

    fn constant(&mut self) -> Result<Value> {
        match self.name()? {
            "True" => Ok(Value::Bool(true)),
            "False" => Ok(Value::Bool(false)),
            "None" => Ok(Value::Null),
            other => Err(expected("a number, a string, True, False or None", other)),
        }
    }

    fn number(&mut self) -> Result<Value> {
        let text = self.while_is(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
        let plain = text.replace('_', "");
        let float = |text: &str| text.parse().ok().and_then(Number::from_f64);
        let number = plain.parse::<i64>().map(Number::from).ok().or_else(|| plain.parse::<u64>().map(Number::from).ok());
        let digits = plain.contains(|c: char| c.is_ascii_digit());
        match number.or_else(|| float(&plain)).filter(|_| digits) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(expected("a number, a string, True, False or None", if text.is_empty() { self.rest() } else { text })),
        }
    }

    /// Parses one or more adjacent strings and joins them, as Python does.
    fn strings(&mut self) -> Result<String> {
        let mut text = self.string()?;
        self.blanks();
        while matches!(self.peek(), Some('\'' | '"')) {
            text += &self.string()?;
            self.blanks();
        }
        Ok(text)
    }

    fn string(&mut self) -> Result<String> {
        let begun = self.rest();
        let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| begun.starts_with(quote));
        let quote = quote.ok_or_else(|| expected("a string", begun))?;
        self.at += quote.len();
        let mut text = String::new();
        loop {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                return Ok(text);
            }
            let Some(c) = self.peek().filter(|&c| c != '\n' || quote.len() == 3) else {
                return Err(expected("a string with a closing quote", begun));
            };
            self.at += c.len_utf8();
            match c {
                '\\' => {
                    let n = unescape_text(self.rest(), &mut text);
                    self.at +=
                        n.map_err(|found| Error::input(format!("the model wrote an invalid tool call: expected a string, found {found}")))?;
                }
                c => text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(call: &str) -> Result<Value> {
        arguments(&format!("```python\n{call}\n```"))
    }

    #[test]
    fn literals_are_read() {
        let cases = [
            ("tool_call()", json!({})),
            ("tool_call(symbol='10111')", json!({"symbol": "10111"})),
            ("tool_call(b=\"x\", a=-3, )", json!({"b": "x", "a": -3})),
            ("tool_call(x=1.5e3, y=1_000, z=18446744073709551615)", json!({"x": 1500.0, "y": 1000, "z": 18446744073709551615_u64})),
            ("tool_call(x=True, y=False, z=None)", json!({"x": true, "y": false, "z": null})),
            ("tool_call(l=[1, [2], ], t=(1, 'a'), o=(1,), g=(1), e=())", json!({"l": [1, [2]], "t": [1, "a"], "o": [1], "g": 1, "e": []})),
            ("tool_call(d={'a': {\"b\": []}, 'c': 1})", json!({"d": {"a": {"b": []}, "c": 1}})),
            (r#"tool_call(s='it\'s \n\x41\u67e5\U0001f600\d' "!")"#, json!({"s": "it's \nA查😀\\d!"})),
            ("tool_call(s='''a\n'b' ''')", json!({"s": "a\n'b' "})),
            ("  tool_call(\n    城市 = '北京',\n)  ", json!({"城市": "北京"})),
        ];
        for (call, want) in cases {
            assert_eq!(of(call).unwrap(), want, "{call}");
        }
        assert_eq!(of("tool_call(b=1, a=2)").unwrap().to_string(), r#"{"b":1,"a":2}"#, "in the order of the call");
    }

    #[test]
    fn nothing_is_run_and_nothing_panics() {
        let deep = format!("tool_call(x={}", "[".repeat(100_000));
        let calls = [
            "",
            "f(x=1)",
            "tool_call",
            "tool_call(",
            "tool_call(x=)",
            "tool_call(x=__import__('os').system('ls'))",
            "tool_call(1)",
            "tool_call(x=1+1)",
            "tool_call(x=1, x=2)",
            "tool_call(x=1) or f()",
            "tool_call(x='a)",
            "tool_call(x='\\u12')",
            "tool_call(x=-)",
            "tool_call(x=nan)",
            "tool_call(x=[1)",
            "tool_call(x={1: 2})",
            "tool_call(x='\n')",
            "tool_call(x=f'{y}')",
            "tool_call(x='\\",
            &deep,
        ];
        for call in calls {
            let said = of(call).unwrap_err().to_string();
            assert!(said.starts_with("the model wrote an invalid tool call: ") && said.len() < 190, "{call}: {said}");
        }
        for content in ["", "tool_call(x=1)", "```\n```"] {
            assert!(arguments(content).is_err(), "{content:?}");
        }
    }
}
