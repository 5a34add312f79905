//! Finds and replaces library names in errors: the option's name in `Error::field`, and names between backticks in a hint.

use super::Error;

/// Returns the name at the beginning of the field `path`: the text before the first `:` or `,`.
pub(super) fn name(path: &str) -> &str {
    path.split([':', ',']).next().unwrap_or(path)
}

/// Replaces the names between backticks in a text. `rename` receives a name and, for `` `name=value` ``, the value. The result of `rename` replaces
/// the text between the backticks and the backticks themselves; `None` leaves them unchanged.
pub fn renamed(text: &str, rename: &dyn Fn(&str, Option<&str>) -> Option<String>) -> String {
    let mut parts = text.split('`');
    let mut out = parts.next().unwrap_or_default().to_string();
    while let Some(quoted) = parts.next() {
        let Some(after) = parts.next() else {
            out.extend(["`", quoted]);
            break;
        };
        let (name, value) = quoted.split_once('=').map_or((quoted, None), |(name, value)| (name, Some(value)));
        match rename(name, value) {
            Some(text) => out.push_str(&text),
            None => out.extend(["`", quoted, "`"]),
        }
        out.push_str(after);
    }
    out
}

impl Error {
    /// Replaces the names between backticks in the hint, as [`renamed`] does.
    pub fn with_names(mut self, rename: &dyn Fn(&str, Option<&str>) -> Option<String>) -> Error {
        self.hint = self.hint.map(|hint| renamed(&hint, rename));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_between_backticks_are_renamed() {
        let shout = |name: &str, value: Option<&str>| match (name, value) {
            ("device", Some(value)) => Some(format!("DEVICE {value}")),
            ("context", None) => Some("CONTEXT".into()),
            _ => None,
        };
        for (text, want) in [
            ("use a smaller `context` or `device=cpu`", "use a smaller CONTEXT or DEVICE cpu"),
            ("`context`", "CONTEXT"),
            ("run `wingbeat doctor`", "run `wingbeat doctor`"),
            ("an odd ` and `context` later", "an odd ` and `context` later"),
            ("`context` and an odd `", "CONTEXT and an odd `"),
            ("none", "none"),
        ] {
            assert_eq!(renamed(text, &shout), want);
            assert_eq!(Error::input("x `context`").hint(text).with_names(&shout).to_string(), format!("x `context` ({want})"));
        }
    }
}
