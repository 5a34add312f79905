//! Counts and reports endings that the text does not show. Either the context was full, or the text was cut before its grammar or schema was
//! complete.

use wingbeat::low_level::session::Finish;

/// The numbers of texts, by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Endings {
    /// The number of all counted texts.
    pub all: usize,
    /// The number of texts that ended because the context was full.
    pub context: usize,
    /// The number of texts that were cut before their grammar or schema was complete.
    pub incomplete: usize,
    /// The number of texts that ended at the token limit or the end of the context, but are complete under their grammar or schema.
    pub closed: usize,
}

impl Endings {
    pub fn of(texts: impl Iterator<Item = (Finish, Option<bool>)>) -> Endings {
        let mut endings = Endings::default();
        texts.for_each(|(finish, complete)| endings.add(finish, complete));
        endings
    }

    /// Adds a text to the counts. `complete` is true if the text is complete under its grammar or schema, and `None` without a grammar or schema.
    pub fn add(&mut self, finish: Finish, complete: Option<bool>) {
        self.all += 1;
        self.context += usize::from(finish == Finish::Context);
        let is_cut = matches!(finish, Finish::Length | Finish::Context);
        self.incomplete += usize::from(is_cut && complete == Some(false));
        self.closed += usize::from(is_cut && complete == Some(true));
    }

    /// Returns one line for each kind of ending that occurred. `context` is the session's context length in tokens.
    pub fn lines(&self, context: Option<usize>) -> Vec<String> {
        let Endings { all, context: full, incomplete, closed } = *self;
        let how_many = |n: usize| if all > 1 { format!("{n} of {all} texts: ") } else { String::new() };
        let cure = if incomplete + closed > full { "; -n, --max-tokens makes it longer" } else { "" };
        let mut lines = Vec::new();
        if full > 0 {
            let n = context.unwrap_or_default();
            lines.push(format!("{}the context of {n} tokens is full; --context makes it larger", how_many(full)));
        }
        if incomplete > 0 {
            lines.push(format!("{}the text is cut and does not follow its grammar or schema to the end{cure}", how_many(incomplete)));
        }
        if closed > 0 {
            lines.push(format!("{}the tokens ran out, so the text ends as soon as its grammar or schema allows{cure}", how_many(closed)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_counted_and_reported() {
        let lines = |texts: &[(Finish, Option<bool>)]| Endings::of(texts.iter().copied()).lines(Some(64));
        let (length, context) = (Finish::Length, Finish::Context);
        assert!(lines(&[(length, None), (Finish::Stop, Some(false)), (Finish::Eos, Some(true))]).is_empty());
        assert_eq!(lines(&[(context, None)]), ["the context of 64 tokens is full; --context makes it larger"]);
        let cut = "the text is cut and does not follow its grammar or schema to the end";
        assert_eq!(lines(&[(length, Some(false))]), [format!("{cut}; -n, --max-tokens makes it longer")]);
        let closed = "the tokens ran out, so the text ends as soon as its grammar or schema allows; -n, --max-tokens makes it longer";
        assert_eq!(lines(&[(length, Some(true))]), [closed]);
        let full = "1 of 2 texts: the context of 64 tokens is full; --context makes it larger";
        assert_eq!(lines(&[(length, None), (context, Some(false))]), [full.to_string(), format!("1 of 2 texts: {cut}")]);
    }
}
