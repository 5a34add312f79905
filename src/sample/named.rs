//! The registry of sampling settings by name. Flags, JSON fields and chat's `/set` read and write settings through it.
//!
//! To add a setting, add a field to [`Sampling`], its value in `Sampling::plain`, and an entry in [`SETTINGS`].

use super::seed;
use super::settings::{Order, Sampling};
use super::texts;
use crate::error::{Error, Result, short};
use std::ops::RangeInclusive;

/// A sampling setting that can be read from text.
#[derive(Debug)]
pub struct Setting {
    /// The name, with hyphens as in flags: `top-p`.
    pub name: &'static str,
    /// The placeholder for the setting's value in help texts, such as `X`.
    pub value: &'static str,
    /// The setting's help text, in one line.
    pub meaning: &'static str,
    field: Field,
}

/// The kind of the setting's value, and the field of [`Sampling`] that holds the value.
#[derive(Debug)]
enum Field {
    /// A number: its field, its range, and the range in words for errors.
    Number(fn(&mut Sampling) -> &mut f32, RangeInclusive<f32>, &'static str),
    Count(fn(&mut Sampling) -> &mut usize),
    /// The number of tokens at the end of the text that the setting examines. `None` means all tokens.
    Last(fn(&mut Sampling) -> &mut Option<usize>),
    Preset,
    Breakers,
    Biases,
    Bans,
    Order,
    Seed,
}

const POSITIVE: RangeInclusive<f32> = 0.0..=f32::MAX;
const SHARE: RangeInclusive<f32> = 0.0..=1.0;
const ANY: RangeInclusive<f32> = f32::MIN..=f32::MAX;

const fn number(
    name: &'static str,
    meaning: &'static str,
    of: fn(&mut Sampling) -> &mut f32,
    range: RangeInclusive<f32>,
    expected: &'static str,
) -> Setting {
    Setting { name, value: "X", meaning, field: Field::Number(of, range, expected) }
}

const fn share(name: &'static str, meaning: &'static str, of: fn(&mut Sampling) -> &mut f32) -> Setting {
    number(name, meaning, of, SHARE, "a number from 0 to 1")
}

const fn positive(name: &'static str, meaning: &'static str, of: fn(&mut Sampling) -> &mut f32) -> Setting {
    number(name, meaning, of, POSITIVE, "a number of at least 0")
}

const fn setting(name: &'static str, value: &'static str, meaning: &'static str, field: Field) -> Setting {
    Setting { name, value, meaning, field }
}

/// All settings, in the order of the help text. The preset comes first, because all other settings override it.
static SETTINGS: &[Setting] = &[
    setting(
        "preset",
        "NAME",
        "Use the sampling settings of this preset in place of the model's defaults; further flags override the preset. `list` prints all presets and exits",
        Field::Preset,
    ),
    positive(
        "temperature",
        "Randomness: logits are divided by X. 0 always takes the likeliest token, without filters and default penalties [default: 1; GLM 0.8]",
        |s| &mut s.temperature,
    ),
    share(
        "top-p",
        "Keep only the likeliest tokens whose probabilities add up to X; 1 turns this filter off [default: 0.85; GLM 0.8]",
        |s| &mut s.top_p,
    ),
    setting("top-k", "N", "Keep only the N likeliest tokens; 0 turns this filter off [default: 0; GLM 50]", Field::Count(|s| &mut s.top_k)),
    share(
        "min-p",
        "Keep only tokens that are at least X times as likely as the likeliest token; 0 turns this filter off [default: 0]",
        |s| &mut s.min_p,
    ),
    number(
        "typical",
        "Keep only the tokens whose surprise (-log p) is closest to the entropy and whose probabilities add up to X; 1 turns this filter off [default: 1]",
        |s| &mut s.typical,
        f32::MIN_POSITIVE..=1.0,
        "a number above 0 and at most 1",
    ),
    positive(
        "top-n-sigma",
        "Keep only tokens whose logit is at most X standard deviations below the largest logit; 0 turns this filter off [default: 0]",
        |s| &mut s.top_n_sigma,
    ),
    positive(
        "mirostat",
        "Replace all filters by mirostat 2, which aims at a mean surprise of X bits per token; 0 turns mirostat off [default: 0]",
        |s| &mut s.mirostat,
    ),
    positive("mirostat-rate", "Learning rate with which mirostat adapts after each token [default: 0.1]", |s| &mut s.mirostat_rate),
    number(
        "presence-penalty",
        "Subtract X once from the logit of each token that was generated before [default: 0.2; GLM 0]",
        |s| &mut s.presence_penalty,
        ANY,
        "a number",
    ),
    number(
        "frequency-penalty",
        "Subtract X from a token's logit for each time that the token was generated before [default: 0.2; GLM 0]",
        |s| &mut s.frequency_penalty,
        ANY,
        "a number",
    ),
    share("penalty-decay", "After each token, multiply the counts of the frequency penalty by X [default: 0.996]", |s| {
        &mut s.penalty_decay
    }),
    number(
        "repeat-penalty",
        "For each token that was generated before, divide a positive logit by X and multiply a negative logit by X; 1 turns this penalty off [default: 1]",
        |s| &mut s.repeat_penalty,
        f32::MIN_POSITIVE..=f32::MAX,
        "a number above 0",
    ),
    setting(
        "repeat-last-n",
        "N",
        "Apply the repeat penalty only to the last N tokens, including tokens of the prompt [default: all generated tokens, without the prompt]",
        Field::Last(|s| &mut s.repeat_last_n),
    ),
    positive(
        "dry-multiplier",
        "DRY (don't repeat yourself): subtract X from the logit of each token that would extend a repetition; 0 turns DRY off [default: 0]",
        |s| &mut s.dry_multiplier,
    ),
    number(
        "dry-base",
        "DRY: multiply the penalty by X for each token of the repetition beyond the allowed length [default: 1.75]",
        |s| &mut s.dry_base,
        1.0..=f32::MAX,
        "a number of at least 1",
    ),
    setting(
        "dry-allowed-length",
        "N",
        "DRY: repetitions shorter than N tokens have no penalty [default: 2]",
        Field::Count(|s| &mut s.dry_allowed_length),
    ),
    setting(
        "dry-range",
        "N",
        "DRY: look for repetitions only in the last N tokens, including the prompt [default: all]",
        Field::Last(|s| &mut s.dry_range),
    ),
    setting(
        "dry-breaker",
        "TEXT",
        "DRY: end a repetition at each token that contains TEXT; repeatable. The given texts replace the default list; `none` means an empty list [default: \\n : \" *]",
        Field::Breakers,
    ),
    setting("logit-bias", "ID=X", "Add X to the logit of the token with this id; repeatable", Field::Biases),
    setting("ban", "ID", "Never generate the token with this id; repeatable", Field::Bans),
    setting(
        "sampler-order",
        "ORDER",
        "When to apply the temperature: after the filters (pip, as in RWKV's Python package) or before the filters (hf, as in transformers) [default: pip; GLM hf]",
        Field::Order,
    ),
    setting(
        "seed",
        "N",
        "Seed of the random numbers that choose tokens; -1 means a random seed. The same seed, model and settings give the same text [default: a random seed, which the JSON output shows]",
        Field::Seed,
    ),
];

impl Setting {
    /// Returns all settings.
    pub fn all() -> &'static [Setting] {
        SETTINGS
    }

    /// Returns whether the setting is a list, so that it takes several values.
    pub fn is_list(&self) -> bool {
        matches!(self.field, Field::Breakers | Field::Biases | Field::Bans)
    }

    /// Returns whether choosing a preset replaces the value of this setting.
    pub fn is_of_presets(&self) -> bool {
        !matches!(self.field, Field::Biases | Field::Bans | Field::Seed)
    }

    /// Returns the setting with this name, or a `Usage` error. `_` and `-` are equivalent, and `temp` means `temperature`.
    pub fn named(name: &str) -> Result<&'static Setting> {
        let wanted = name.replace('_', "-");
        let wanted = if wanted == "temp" { "temperature" } else { &wanted };
        SETTINGS.iter().find(|s| s.name == wanted).ok_or_else(|| {
            let all: Vec<&str> = SETTINGS.iter().map(|s| s.name).collect();
            Error::usage(format!("unknown sampling setting {name:?}")).hint(format!("sampling settings: {}", all.join(", ")))
        })
    }

    fn set(&self, s: &mut Sampling, values: &[&str]) -> Result<()> {
        // a setting that is not a list takes the last value
        let value = values.last().copied().unwrap_or_default().trim();
        match &self.field {
            // The error shows the text, not the parsed number: a number that is too large for 32 bits would be shown as infinity.
            Field::Number(of, range, expected) => {
                *of(s) = texts::in_range(texts::number(value, expected)?, short(value, 60), range, expected)?
            }
            Field::Count(of) => *of(s) = texts::number(value, "a whole number of at least 0")?,
            Field::Last(of) => *of(s) = texts::last(value)?,
            Field::Preset => s.begin_with(Sampling::preset(value)?),
            Field::Breakers => s.dry_breakers = texts::all(values, texts::breakers)?,
            Field::Biases => s.logit_bias = texts::all(values, |text| texts::items(text, texts::bias))?,
            Field::Bans => s.ban = texts::all(values, |text| texts::items(text, |id| texts::number(id, "a token id such as 261")))?,
            Field::Order => s.order = order(value)?,
            Field::Seed => s.seed = seed::parse(value)?,
        }
        Ok(())
    }

    /// Returns the setting's value in `s` as text that `set` can read. Returns `None` for the setting `preset`, which has no value of its own.
    fn get(&self, s: &Sampling) -> Option<String> {
        let mut s = s.clone();
        Some(match &self.field {
            Field::Number(of, ..) => of(&mut s).to_string(),
            Field::Count(of) => of(&mut s).to_string(),
            Field::Last(of) => of(&mut s).map_or("all".into(), |n| n.to_string()),
            Field::Preset => return None,
            Field::Breakers => serde_json::Value::from(s.dry_breakers).to_string(),
            Field::Biases => s.logit_bias.iter().map(|(id, x)| format!("{id}={x}")).collect::<Vec<_>>().join(","),
            Field::Bans => s.ban.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            Field::Order if s.order == Order::Hf => "hf".into(),
            Field::Order => "pip".into(),
            Field::Seed => s.seed.to_string(),
        })
    }
}

impl Sampling {
    /// Returns the name and the help text of every setting that [`set`](Self::set) reads.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        SETTINGS.iter().map(|s| (s.name, s.meaning))
    }

    /// Changes one setting. The name may be written as in a flag or as in a JSON field. `_` and `-` are equivalent.
    ///
    /// A list takes items that are separated by commas or spaces. `dry-breaker` takes one text, or a JSON array of texts. `preset` replaces all
    /// settings except the seed, the guard, the bans and existing biases.
    ///
    /// # Errors
    /// `Usage`, with `name` as the error's field, if the name is unknown or the value is invalid. Ids are not compared with the size of a
    /// vocabulary: [`check`](Self::check) does this.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.set_each(name, &[value])
    }

    /// Changes one setting from several values. A list takes the items of all values. Any other setting takes the last value.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    pub fn set_each(&mut self, name: &str, values: &[&str]) -> Result<()> {
        Setting::named(name)?.set(self, values).map_err(|e| e.field(name))
    }

    /// Returns the value of one setting as text that [`set`](Self::set) can read. The text is empty for `preset`.
    ///
    /// # Errors
    /// `Usage` if the name is unknown.
    pub fn get(&self, name: &str) -> Result<String> {
        Ok(Setting::named(name)?.get(self).unwrap_or_default())
    }

    /// Returns `self` with the settings in `kept` applied as [`with`](Self::with) does. Each item is a setting's name and its values.
    ///
    /// # Errors
    /// Returns the errors of [`with`](Self::with).
    pub fn with_kept(self, kept: &[(impl AsRef<str>, Vec<String>)]) -> Result<Sampling> {
        let texts: Vec<Vec<&str>> = kept.iter().map(|(_, values)| values.iter().map(String::as_str).collect()).collect();
        let asked: Vec<(&str, &[&str])> = kept.iter().map(|(name, _)| name.as_ref()).zip(texts.iter().map(Vec::as_slice)).collect();
        self.with(&asked)
    }

    /// Returns `self` (the defaults) with the settings in `asked` applied. Each item is a setting's name and its values. The order of the items does
    /// not matter: `preset` applies first. If another item makes the sampling greedy, all filters and penalties that `asked` does not name are off.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    pub fn with(mut self, asked: &[(&str, &[&str])]) -> Result<Sampling> {
        let (presets, rest): (Vec<_>, Vec<_>) = asked.iter().partition(|(name, _)| *name == "preset");
        // An error names the setting as JSON does, with `_`. The program turns this name into the flag.
        let set = |s: &mut Sampling, name: &str, values: &[&str]| s.set_each(&name.replace('-', "_"), values);
        let all = |s: &mut Sampling, of: &[&(&str, &[&str])]| of.iter().try_for_each(|(name, values)| set(s, name, values));
        all(&mut self, &presets)?;
        let mut s = self.clone();
        all(&mut s, &rest)?;
        if s.is_greedy() && !self.is_greedy() {
            let Sampling { order, guard, seed, .. } = self;
            s = Sampling { order, guard, logit_bias: self.logit_bias, ban: self.ban, ..Sampling::greedy(seed) };
            all(&mut s, &rest)?;
        }
        Ok(s)
    }

    /// Replaces the settings by a preset. Keeps the seed, the guard, the bans and the existing biases.
    fn begin_with(&mut self, preset: Sampling) {
        let old = std::mem::replace(self, preset);
        (self.seed, self.guard, self.ban) = (old.seed, old.guard, old.ban);
        // without this, applying the same preset twice would add its biases twice
        self.logit_bias.retain(|(id, _)| old.logit_bias.iter().all(|(known, _)| known != id));
        self.logit_bias.extend(old.logit_bias);
    }
}

fn order(text: &str) -> Result<Order> {
    match text {
        "pip" => Ok(Order::Pip),
        "hf" => Ok(Order::Hf),
        _ => Err(texts::refuse("pip or hf", text)),
    }
}

/// Checks that every number is in its range. An error has the name of the setting as its field.
pub(super) fn check_numbers(s: &Sampling) -> Result<()> {
    let mut s = s.clone();
    for setting in SETTINGS {
        if let Field::Number(of, range, expected) = &setting.field {
            let x = *of(&mut s);
            texts::in_range(x, x, range, expected).map_err(|e| e.field(&setting.name.replace('-', "_")))?;
        }
    }
    Ok(())
}

/// Lists the settings in which `s` differs from `other`, with their values in `s`, separated by commas.
pub(super) fn differences(s: &Sampling, other: &Sampling) -> String {
    let changed = SETTINGS.iter().filter_map(|setting| {
        let value = setting.get(s)?;
        (setting.get(other)? != value).then(|| format!("{} {value}", setting.name))
    });
    changed.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn every_setting_reads_its_own_text() {
        let mut s = Sampling { logit_bias: vec![(3, -1.5), (4, f32::NEG_INFINITY)], ban: vec![7, 8], ..Sampling::glm() };
        s.dry_breakers = vec!["\n".into(), "[\"".into(), ",".into()];
        s.repeat_last_n = Some(64);
        let mut copy = Sampling::rwkv();
        for (name, meaning) in Sampling::names().filter(|(name, _)| *name != "preset") {
            assert!(!meaning.is_empty() && !meaning.contains('\n'), "{name}");
            copy.set(name, &s.get(name).unwrap()).unwrap();
        }
        assert_eq!(copy, s);
    }

    #[test]
    fn names_are_accepted_as_flags_and_as_json_fields() {
        let mut s = Sampling::rwkv();
        for (name, value) in [("top_p", "0.5"), ("temp", " 0.8 "), ("repeat-last-n", "64"), ("dry_range", "-1"), ("sampler_order", "hf")] {
            s.set(name, value).unwrap();
        }
        assert_eq!((s.top_p, s.temperature, s.repeat_last_n, s.dry_range, s.order), (0.5, 0.8, Some(64), None, Order::Hf));
        s.set("logit_bias", "1=2, 3=-inf").unwrap();
        s.set_each("ban", &["1,2", "3"]).unwrap();
        assert_eq!((s.logit_bias.as_slice(), s.ban.as_slice()), ([(1, 2.0), (3, f32::NEG_INFINITY)].as_slice(), [1, 2, 3].as_slice()));
        s.set_each("dry-breaker", &["\\n", "a\\\\b", "[\"x\", \"y\"]"]).unwrap();
        assert_eq!(s.dry_breakers, ["\n", "a\\b", "x", "y"]);
        s.set("dry-breaker", "none").unwrap();
        assert!(s.dry_breakers.is_empty());
    }

    #[test]
    fn errors_name_the_setting() {
        let cases = [
            ("top_q", "1", "unknown sampling setting \"top_q\""),
            ("top_p", "x", "top_p: expected a number from 0 to 1, found \"x\""),
            ("top_p", "1.5", "top_p: expected a number from 0 to 1, found 1.5"),
            ("top_p", "nan", "top_p: expected a number from 0 to 1, found nan"),
            ("temperature", "1e300", "temperature: expected a number of at least 0, found 1e300"),
            ("top-k", "-1", "top-k: expected a whole number of at least 0, found \"-1\""),
            ("temperature", "", "temperature: expected a number of at least 0, found \"\""),
            ("dry-base", "0.9", "dry-base: expected a number of at least 1, found 0.9"),
            ("repeat-penalty", "0", "repeat-penalty: expected a number above 0, found 0"),
            ("repeat-last-n", "-2", "repeat-last-n: expected a whole number of at least 0, or all, found \"-2\""),
            ("dry-breaker", "", "dry-breaker: expected strings that are not empty, found \"\""),
            ("dry-breaker", "[\"", "dry-breaker: expected an array of strings"),
            ("logit-bias", "5", "logit-bias: expected ID=X, a token id and a number, such as 261=-1.5, found \"5\""),
            ("logit-bias", "-7=1", "logit-bias: expected ID=X"),
            ("ban", "x", "ban: expected a token id such as 261, found \"x\""),
            ("sampler-order", "both", "sampler-order: expected pip or hf, found \"both\""),
            ("preset", "best", "preset: unknown preset \"best\" (presets: pip, "),
            ("seed", "1.5", "seed: expected a whole number from -2^63 to 2^64 - 1 (-1 means a random seed), found \"1.5\""),
        ];
        for (name, value, want) in cases {
            let mut s = Sampling::rwkv();
            let e = s.set(name, value).unwrap_err();
            assert_eq!(e.kind, Kind::Usage);
            assert!(e.to_string().starts_with(want), "{e}");
            assert_eq!(s, Sampling::rwkv(), "{name} {value}");
        }
        assert!(Sampling::rwkv().get("best").is_err());
    }

    #[test]
    fn requested_settings_override_a_preset_and_greedy_drops_penalties() {
        let asked = |asked: &[(&str, &str)]| {
            let lists: Vec<(&str, Vec<&str>)> = asked.iter().map(|&(name, value)| (name, vec![value])).collect();
            let asked: Vec<(&str, &[&str])> = lists.iter().map(|(name, values)| (*name, values.as_slice())).collect();
            Sampling { seed: 5, guard: Some(1), ..Sampling::glm() }.with(&asked).unwrap()
        };
        let chat = asked(&[("top_p", "0.6"), ("preset", "chat")]);
        assert_eq!((chat.top_p, chat.temperature, chat.presence_penalty, chat.order), (0.6, 1.2, 0.4, Order::Pip));
        assert_eq!((chat.seed, chat.guard), (5, Some(1)));
        let greedy = asked(&[("preset", "chat"), ("temp", "0"), ("frequency_penalty", "0.1"), ("ban", "3")]);
        assert_eq!(
            (greedy.presence_penalty, greedy.frequency_penalty, greedy.top_p, greedy.ban.as_slice()),
            (0.0, 0.1, 1.0, [3].as_slice())
        );
        let midi = asked(&[("ban", "3"), ("preset", "midi")]);
        assert_eq!((midi.logit_bias, midi.ban), (vec![(127, -1.0)], vec![3]));
        assert_eq!(asked(&[]), Sampling { seed: 5, guard: Some(1), ..Sampling::glm() });
    }

    #[test]
    fn presets_list_the_settings_they_change() {
        assert_eq!(Sampling::preset("pip").unwrap(), Sampling::rwkv());
        assert_eq!(Sampling::preset("glm").unwrap(), Sampling::glm());
        for (name, origin, sets) in Sampling::presets() {
            Sampling::preset(name).unwrap().check(65536).unwrap();
            assert!(!origin.is_empty() && (sets.is_empty() || sets.contains(' ')), "{name}");
        }
        let chat = Sampling::presets().find(|(name, ..)| *name == "chat").unwrap();
        assert_eq!(chat.2, "temperature 1.2, top-p 0.5, presence-penalty 0.4, frequency-penalty 0.4, penalty-decay 0.996");
    }
}
