//! Formats facts about a conversation: branch, tokens and speed, settings.

use wingbeat::chat::{Role, Settings};
use wingbeat::conversation::{Conversation, Stats};
use wingbeat::low_level::sample::RANDOM_SEED;
use wingbeat::low_level::session::{Finish, Timings};

/// Returns a line about the current branch: its name, turns and tokens. The chat shows this line after a command that changed the branch.
pub fn branch_line(chat: &Conversation) -> String {
    let stats = chat.stats();
    format!("branch {}, {}, {} tokens", chat.branch(), times(stats.n_turns), stats.n_tokens)
}

/// The maximum number of turns that are shown when a chat is loaded.
const SHOWN_TURNS: usize = 3;
/// The maximum number of characters that are shown of a message. Only the end of a longer message is shown.
const SHOWN_CHARS: usize = 600;

/// Returns the last `SHOWN_TURNS` turns as lines. Each message begins with the speaker's name.
pub fn last_turns(chat: &Conversation) -> Vec<String> {
    let (messages, format) = (chat.transcript(), chat.format());
    let begins: Vec<usize> = (0..messages.len()).filter(|&i| messages[i].role == Role::User).collect();
    let from = begins.iter().rev().nth(SHOWN_TURNS - 1).copied().unwrap_or(0);
    let mut lines = Vec::new();
    if from > 0 {
        lines.push(format!("… {} before", times(begins.iter().filter(|&&i| i < from).count())));
    }
    for message in &messages[from..] {
        let name = match message.role {
            Role::Assistant => format.bot(),
            Role::Observation => "Tool",
            Role::System | Role::User => format.user(),
        };
        let n = message.content.chars().count();
        let cut = if n > SHOWN_CHARS { "…" } else { "" };
        let text: String = message.content.chars().skip(n.saturating_sub(SHOWN_CHARS)).collect();
        lines.extend(format!("{name}{} {cut}{text}", format.interface()).lines().map(Into::into));
    }
    lines
}

/// Returns the names of all branches, one per line, with a star before the current branch.
pub fn branches(chat: &Conversation) -> String {
    let star = |name: &String| format!("{} {name}", if name == chat.branch() { '*' } else { ' ' });
    chat.branches().iter().map(star).collect::<Vec<_>>().join("\n")
}

/// Returns the lines of `/stats`.
pub fn stats(s: &Stats) -> String {
    let room = s.n_left.map_or(String::new(), |n| format!(", room for {n} more"));
    let mut lines = vec![format!("turns: {}", s.n_turns), format!("tokens: {}{room}", s.n_tokens)];
    lines.extend(s.last.as_ref().map(|last| format!("last answer: {}", speed(last))));
    lines.push(format!("all answers: {}", speed(&s.total)));
    lines.join("\n")
}

/// Returns how many guessed tokens were right, or an empty text if there were no guesses.
fn guessed(t: &Timings) -> String {
    t.guesses().map_or_else(String::new, |(drafted, accepted)| format!(", {accepted} of {drafted} guesses right"))
}

fn speed(t: &Timings) -> String {
    let wrote = format!("wrote {} tokens at {:.1}/s{}", t.decode_tokens, t.decode_tokens_per_second(), guessed(t));
    match t.prefill_tokens {
        0 => wrote,
        n => format!("read {n} tokens at {:.1}/s, {wrote}", t.prefill_tokens_per_second()),
    }
}

/// Returns a line with a changed setting and its value. For a random seed, the line has the chosen number, with which the answers can be
/// repeated.
pub fn changed(name: &str, value: &str, settings: &Settings) -> String {
    if name == "seed" && value.trim() == RANDOM_SEED {
        return format!("seed is {}, chosen at random", settings.sampling.seed);
    }
    format!("{name} is {value}")
}

/// Returns the line that is shown below an answer: the length, the speed and, if the answer was cut, the reason. `complete` is
/// `Some(false)` if the answer is incomplete under its grammar or schema.
pub fn spoken(n_tokens: usize, timings: &Timings, finish: Finish, complete: Option<bool>) -> String {
    let why = ending(finish, complete).map_or_else(String::new, |why| format!(", {why}"));
    format!("{n_tokens} tokens, {:.1}/s{}{why}", timings.decode_tokens_per_second(), guessed(timings))
}

/// Returns why an answer was cut, or `None` if the answer ended by itself. `complete` is `Some(false)` if the answer is incomplete under its
/// grammar or schema.
pub fn ending(finish: Finish, complete: Option<bool>) -> Option<String> {
    let why = match finish {
        Finish::Interrupted => "stopped",
        Finish::Length => "cut at the length limit",
        Finish::Context => "the context is full (--context makes it larger)",
        _ => return None,
    };
    let rest = if complete == Some(false) { ", incomplete for its grammar or schema" } else { "" };
    Some(format!("{why}{rest}"))
}

/// Returns the names of all settings.
pub fn names() -> Vec<String> {
    Settings::names().map(|(name, _)| name.to_string()).collect()
}

/// Returns all settings and their values, one per line.
pub fn settings(s: &Settings) -> String {
    // `preset` sets other settings and has no value of its own.
    let rows = Settings::names().filter(|(name, _)| *name != "preset");
    rows.map(|(name, _)| format!("{name:<19} {}", s.get(name).unwrap_or_default())).collect::<Vec<_>>().join("\n")
}

fn times(n: usize) -> String {
    if n == 1 { "1 turn".into() } else { format!("{n} turns") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_seed_is_shown_as_a_number() {
        let mut settings = Settings::default();
        settings.set("seed", "-1").unwrap();
        let seed = settings.sampling.seed;
        assert_eq!(changed("seed", "-1", &settings), format!("seed is {seed}, chosen at random"));
        assert_eq!(changed("seed", "7", &settings), "seed is 7");
        assert_eq!(changed("top-k", "-1", &settings), "top-k is -1");
    }
}
