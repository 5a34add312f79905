//! The table of all formats of lines (`Name: text`). The first row whose `fits` returns true for a model is the model's format.

use super::super::Settings;
use super::first_prompt;
use super::lines::{Lines, ReplyEnd};
use super::{Format, FormatKind, Thinking};
use crate::assets::ENGLISH_2;
use crate::sample::Sampling;
use crate::session::{EMBEDDED, Model};
use crate::template::Profile;
use std::sync::Arc;

/// A format of lines: a row of the table [`KNOWN`].
pub struct Known {
    pub name: &'static str,
    /// A description in one line, for lists of formats.
    pub about: &'static str,
    user: &'static str,
    bot: &'static str,
    init_prompt: Init,
    opening: &'static str,
    ending: ReplyEnd,
    pub settings: fn() -> Settings,
    /// The profile of the format's answers: with or without a thought. The checkpoint's sampler settings for this profile override `settings`. `None`
    /// if the format ignores the checkpoint's generation settings.
    pub profile: Option<Profile>,
    fits: fn(&Seen<'_>) -> bool,
}

/// The text with which each conversation begins.
enum Init {
    Nothing,
    Text(&'static str),
    /// The conversation of Bob and Alice in the built-in prompt file `English-2.toml`.
    TwoFriends,
}

/// The properties of a model by which its format is chosen.
pub struct Seen<'a> {
    pub n_vocab: usize,
    /// The name of the model's file or folder.
    pub name: &'a str,
    /// True for the embedded model and for files converted from it, which were trained on G1's formats.
    pub is_small_world: bool,
}

impl Seen<'_> {
    fn is_called(&self, is: impl Fn(&str) -> bool) -> bool {
        words(self.name).any(|word| is(&word))
    }
}

/// The number of rows of the embedding table in the models that `tests/models/train.py` trains.
const TINY_ROWS: usize = 2048;

/// The possible numbers of rows of the embedding table in models with GPT-NeoX-20B's vocabulary.
const PILE_ROWS: [usize; 2] = [50277, 50304];

/// Defaults for the table's formats with replies of several paragraphs. The names are `User:` and `Assistant:`.
const PARAGRAPHS: Known = Known {
    name: "",
    about: "",
    user: "User",
    bot: "Assistant",
    init_prompt: Init::Nothing,
    opening: "",
    ending: ReplyEnd::NextTurn,
    settings: || g1("g1"),
    profile: None,
    fits: |_| false,
};

/// Defaults for the table's formats whose replies end at a blank line, as in ChatRWKV. The names are `User:` and `Assistant:`.
const BLANK_LINE: Known = Known { ending: ReplyEnd::BlankLine, settings: Settings::default, ..PARAGRAPHS };

pub const KNOWN: &[Known] = &[
    Known {
        name: "g1-think",
        about: "User, Assistant, a thought in <think> tags before each reply; for G1 models",
        opening: " <think",
        settings: || g1("g1-think"),
        profile: Some(Profile::Think),
        fits: |seen| seen.is_called(is_g1),
        ..PARAGRAPHS
    },
    Known {
        name: "g1-fast",
        about: "User, Assistant, an empty thought before each reply; for G1 models, better than no thought",
        opening: " <think></think",
        settings: || g1("g1-fast"),
        profile: Some(Profile::Fast),
        ..PARAGRAPHS
    },
    Known {
        name: "g1",
        about: "User, Assistant, replies of several paragraphs, no thought; for G1 models and the embedded model",
        profile: Some(Profile::Fast),
        fits: |seen| seen.is_small_world,
        ..PARAGRAPHS
    },
    Known {
        name: "instruct",
        about: "Instruction, Response; for models that were tuned on instructions",
        user: "Instruction",
        bot: "Response",
        settings: instruct,
        fits: |seen| seen.is_called(|word| word == "instruct"),
        ..PARAGRAPHS
    },
    Known {
        name: "raven",
        about: "Bob, Alice; for Raven and other models with the vocabulary of GPT-NeoX-20B",
        user: "Bob",
        bot: "Alice",
        init_prompt: Init::TwoFriends,
        fits: |seen| seen.is_called(|word| word == "raven") || PILE_ROWS.contains(&seen.n_vocab),
        ..BLANK_LINE
    },
    Known {
        name: "tiny",
        about: "User: a word, Assistant: a verse; for the tiny models of the project's tests",
        init_prompt: Init::Text("User: light\n\nAssistant: And God said, Let there be light: and there was light."),
        settings: tiny,
        fits: |seen| seen.n_vocab == TINY_ROWS && !seen.is_small_world,
        ..BLANK_LINE
    },
    Known {
        name: "world",
        about: "User, Assistant; for World models and all other models",
        init_prompt: Init::Text(
            "User: hello\n\nAssistant: Hello! I am your assistant. Ask me anything, and I will answer as fully and as exactly as I can.",
        ),
        fits: |_| true,
        ..BLANK_LINE
    },
];

impl Known {
    pub fn of(model: &Model) -> &'static Known {
        let facts = model.facts();
        Self::seen(&Seen { n_vocab: facts.n_vocab, name: model.name(), is_small_world: is_small_world(model) })
    }

    pub fn seen(seen: &Seen<'_>) -> &'static Known {
        KNOWN.iter().find(|known| (known.fits)(seen)).expect("the last row fits every model")
    }

    pub fn format(&self) -> Format {
        let thinking = Thinking::of_lines(self.name);
        Format {
            name: self.name,
            kind: FormatKind::Lines(self.lines()),
            profiles: Arc::default(),
            thinking,
            is_for_tools: false,
            has_bos: false,
        }
    }

    pub fn lines(&self) -> Lines {
        let init_prompt = match self.init_prompt {
            Init::Nothing => String::new(),
            Init::Text(text) => first_prompt(text),
            Init::TwoFriends => first_prompt(&two_friends()),
        };
        let Known { user, bot, opening, ending, .. } = *self;
        Lines { user: user.into(), bot: bot.into(), interface: ":".into(), init_prompt, opening, ending }
    }
}

/// Returns true for the embedded model, and for a file that was converted from it and kept its name.
pub fn is_small_world(model: &Model) -> bool {
    model.kind() == "embedded" || model.name().starts_with(EMBEDDED) && model.facts().n_vocab == TINY_ROWS
}

/// Returns the words of a name in lower case: `rwkv7`, `g1a`, `0` and `4b` for `rwkv7-g1a-0.4b`.
pub fn words(name: &str) -> impl Iterator<Item = String> {
    name.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase)
}

/// Returns `true` for `g0` and `g1`, also with a version of up to two characters, such as `g1a` and `g1c2`.
fn is_g1(word: &str) -> bool {
    let rest = word.strip_prefix("g0").or_else(|| word.strip_prefix("g1"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_lowercase()) && rest.len() <= 2)
}

/// Returns the settings for G1 models, with the sampler settings of the preset `name`.
fn g1(name: &str) -> Settings {
    Settings { sampling: preset(name), ..instruct() }
}

/// Returns chat settings with replies of up to 4096 tokens and without an `avoid_repeat` list.
fn instruct() -> Settings {
    Settings { chat_len_max: 4096, avoid_repeat: String::new(), ..Settings::default() }
}

/// Returns the chat settings of the tests' tiny models: the preset `chat` with temperature 0.8.
fn tiny() -> Settings {
    Settings { sampling: Sampling { temperature: 0.8, ..preset("chat") }, ..Settings::default() }
}

fn preset(name: &str) -> Sampling {
    Sampling::preset(name).expect("it is one of the presets")
}

fn two_friends() -> String {
    ENGLISH_2.split("\"\"\"").nth(1).unwrap_or_default().replace("\\\n", "")
}
