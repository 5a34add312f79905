//! Settings of a conversation: the constants of ChatRWKV (the reference chat program), by name.

use crate::error::{Error, Result, short};
use crate::sample::Sampling;

/// Settings of a conversation, named after the constants at the top of ChatRWKV's `chat.py`. The defaults are the values in that file.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `CHAT_LEN_SHORT`: up to this number of tokens in a reply, the logits of newlines get a negative bias that rises to 0.
    pub chat_len_short: usize,
    /// `CHAT_LEN_LONG`: after this number of tokens in a reply, the logits of newlines get a positive bias that grows.
    pub chat_len_long: usize,
    /// `CHAT_LEN_MAX`: the maximum number of tokens in a reply.
    pub chat_len_max: usize,
    /// `FREE_GEN_LEN`: a free text (outside the conversation) has at most this number of tokens plus 1. Up to 99 further tokens may complete a
    /// character.
    pub free_gen_len: usize,
    /// `CHUNK_LEN`: the maximum number of prompt tokens per prefill step.
    pub chunk_len: usize,
    /// `AVOID_REPEAT`: characters that must not occur twice in succession. Only characters that are one token of the vocabulary count.
    pub avoid_repeat: String,
    /// Sampler settings, among them `GEN_TEMP`, `GEN_TOP_P`, `GEN_alpha_presence`, `GEN_alpha_frequency` and `GEN_penalty_decay`.
    pub sampling: Sampling,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            chat_len_short: 40,
            chat_len_long: 150,
            chat_len_max: 999,
            free_gen_len: 256,
            chunk_len: 256,
            avoid_repeat: "，：？！".into(),
            sampling: Sampling::preset("chat").expect("it is one of the presets"),
        }
    }
}

/// Settings that have two names: the name in ChatRWKV, then the sampler's name.
const SAMPLING: [(&str, &str); 5] = [
    ("gen_temp", "temperature"),
    ("gen_top_p", "top-p"),
    ("gen_alpha_presence", "presence-penalty"),
    ("gen_alpha_frequency", "frequency-penalty"),
    ("gen_penalty_decay", "penalty-decay"),
];

/// A setting that is a number of tokens: its name, its field, its lowest value and its meaning.
struct Length(&'static str, fn(&mut Settings) -> &mut usize, usize, &'static str);

const LENGTHS: [Length; 5] = [
    Length("CHAT_LEN_SHORT", |s| &mut s.chat_len_short, 0, "Up to this token of a reply, newlines are less likely"),
    Length("CHAT_LEN_LONG", |s| &mut s.chat_len_long, 0, "After this token of a reply, newlines are more likely"),
    Length("CHAT_LEN_MAX", |s| &mut s.chat_len_max, 1, "Most tokens of a reply"),
    Length("FREE_GEN_LEN", |s| &mut s.free_gen_len, 0, "Tokens of a free text"),
    Length("CHUNK_LEN", |s| &mut s.chunk_len, 1, "Most prompt tokens per prefill step"),
];

/// The largest value of a setting that is a number of tokens. A larger one is probably a typing error.
const LONGEST: usize = 1 << 24;

const AVOID_REPEAT: (&str, &str) = ("AVOID_REPEAT", "Characters that do not repeat; none: all may repeat");

/// The value of `AVOID_REPEAT` that allows all characters to repeat.
const NONE: &str = "none";

impl Settings {
    /// Returns the name of every setting with its meaning in one line. The settings of ChatRWKV come first.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        LENGTHS.iter().map(|Length(name, _, _, meaning)| (*name, *meaning)).chain([AVOID_REPEAT]).chain(Sampling::names())
    }

    /// Sets a setting. `name` is ChatRWKV's name, in upper or lower case, or the sampler's name.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if name.eq_ignore_ascii_case(AVOID_REPEAT.0) {
            self.avoid_repeat = if value.trim() == NONE { String::new() } else { value.trim().into() };
            return Ok(());
        }
        let Some(Length(known, of, least, _)) = length(name) else {
            let is_known = self.sampling.get(of_sampler(name)).is_ok();
            let set = self.sampling.set(of_sampler(name), value);
            return set.map_err(|e| if is_known { e } else { e.hint(format!("see also {}", own_names())) });
        };
        let n = value.trim().parse().ok().filter(|n| (*least..=LONGEST).contains(n));
        let expected = || format!("expected a whole number from {least} to {LONGEST}, found {:?}", short(value, 40));
        *of(self) = n.ok_or_else(|| Error::usage(expected()).at(known))?;
        Ok(())
    }

    /// Returns the value of a setting, as text that [`set`](Self::set) accepts.
    ///
    /// # Errors
    /// `Usage` if the name is unknown.
    pub fn get(&self, name: &str) -> Result<String> {
        if name.eq_ignore_ascii_case(AVOID_REPEAT.0) {
            return Ok(if self.avoid_repeat.is_empty() { NONE.into() } else { self.avoid_repeat.clone() });
        }
        match length(name) {
            Some(Length(_, of, ..)) => Ok(of(&mut self.clone()).to_string()),
            None => self.sampling.get(of_sampler(name)),
        }
    }
}

fn length(name: &str) -> Option<&'static Length> {
    LENGTHS.iter().find(|length| length.0.eq_ignore_ascii_case(name))
}

/// Converts a name of ChatRWKV, such as `gen_temp`, to the sampler's name of the same setting. Returns other names unchanged.
fn of_sampler(name: &str) -> &str {
    SAMPLING.iter().find(|(theirs, _)| theirs.eq_ignore_ascii_case(name)).map_or(name, |(_, own)| own)
}

fn own_names() -> String {
    LENGTHS.iter().map(|length| length.0).chain([AVOID_REPEAT.0]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_chatrwkvs() {
        let s = Settings::default();
        assert_eq!((s.chat_len_short, s.chat_len_long, s.chat_len_max, s.free_gen_len, s.chunk_len), (40, 150, 999, 256, 256));
        let Sampling { temperature, top_p, presence_penalty, frequency_penalty, penalty_decay, .. } = s.sampling;
        assert_eq!((temperature, top_p, presence_penalty, frequency_penalty, penalty_decay), (1.2, 0.5, 0.4, 0.4, 0.996));
        assert_eq!(s.avoid_repeat, "，：？！");
    }

    #[test]
    fn every_setting_is_read_back() {
        let mut changed = Settings::default();
        for (name, value) in [
            ("CHAT_LEN_SHORT", "1"),
            ("chat_len_long", " 2 "),
            ("Chat_Len_Max", "3"),
            ("FREE_GEN_LEN", "4"),
            ("CHUNK_LEN", "5"),
            ("avoid_repeat", "!?"),
            ("GEN_TEMP", "0.7"),
            ("GEN_TOP_P", "0.6"),
            ("GEN_alpha_presence", "0.1"),
            ("gen_alpha_frequency", "0.3"),
            ("GEN_penalty_decay", "0.9"),
            ("top_k", "9"),
        ] {
            changed.set(name, value).unwrap();
            assert_eq!(changed.get(name).unwrap(), value.trim(), "{name}");
        }
        let mut copy = Settings::default();
        for (name, meaning) in Settings::names().filter(|(name, _)| *name != "preset") {
            assert!(!meaning.is_empty() && !meaning.contains('\n'), "{name}");
            copy.set(name, &changed.get(name).unwrap()).unwrap();
        }
        assert_eq!(copy, changed);
        copy.set("AVOID_REPEAT", "none").unwrap();
        assert_eq!((copy.avoid_repeat.as_str(), copy.get("AVOID_REPEAT").unwrap().as_str()), ("", "none"));
        assert_eq!((copy.chunk_len, copy.sampling.temperature, copy.sampling.top_k), (5, 0.7, 9));
    }

    #[test]
    fn errors_name_the_setting() {
        let cases = [
            ("CHUNK_LEN", "0", "CHUNK_LEN: expected a whole number from 1 to 16777216, found \"0\""),
            ("chat_len_max", "-1", "CHAT_LEN_MAX: expected a whole number from 1"),
            ("FREE_GEN_LEN", "x", "FREE_GEN_LEN: expected a whole number from 0"),
            ("CHAT_LEN_SHORT", "99999999", "CHAT_LEN_SHORT: expected a whole number"),
            ("GEN_TOP_P", "2", "top-p: expected a number from 0 to 1, found 2"),
            ("GEN_TEMPERATURE", "1", "unknown sampling setting \"GEN_TEMPERATURE\""),
        ];
        for (name, value, want) in cases {
            let mut s = Settings::default();
            let said = s.set(name, value).unwrap_err().to_string();
            assert!(said.starts_with(want) && !said.contains('\n'), "{said}");
            assert_eq!(s, Settings::default());
        }
        assert!(Settings::default().get("best").is_err());
    }
}
