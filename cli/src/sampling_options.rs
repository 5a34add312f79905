//! The options of sampling: flags that override the default sampling settings of the model.

use super::ExitCode;
use super::output::Output;
use super::values::suggested;
use super::{Outcome, flags};
use clap::builder::{NonEmptyStringValueParser, PossibleValue};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use wingbeat::error::Result;
use wingbeat::low_level::sample::{RANDOM_SEED, Sampling, Setting, random_seed};
use wingbeat::low_level::session::Model;

#[derive(clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct SamplingArgs {
    #[command(flatten)]
    asked: SamplingFlags,
    /// End the text as soon as the model generates TEXT, which is not printed; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Continue after the end-of-text token
    #[arg(long, hide_short_help = true)]
    pub ignore_eos: bool,
}

/// The sampling settings that were given as flags: names and values. [`Setting::all`] defines these flags.
struct SamplingFlags(Vec<(&'static str, Vec<String>)>);

/// The heading of the options about sampling in `--help`.
const HEADING: &str = "Sampling";

/// The settings that `--help` shows. `--help-all` shows all settings.
const BASICS: [&str; 5] = ["preset", "temperature", "top-p", "top-k", "seed"];

/// The value of `--preset` that lists the presets.
const LIST: &str = "list";

impl clap::Args for SamplingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(Setting::all().iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SamplingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<SamplingFlags, clap::Error> {
        let given = |s: &Setting| Some((s.name, matches.get_many::<String>(s.name)?.map(|text| settled(s.name, text)).collect()));
        Ok(SamplingFlags(Setting::all().iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = SamplingFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the value of a setting. For `seed`, -1 is replaced by a random number, so that every later use gets the same seed.
fn settled(name: &str, text: &str) -> String {
    if name == "seed" && text.trim() == RANDOM_SEED { random_seed().to_string() } else { text.to_owned() }
}

/// Returns the flag of a setting. Its parser rejects values that no model accepts. Other limits are checked when the model is known.
fn flag(setting: &'static Setting) -> Arg {
    let name = setting.name;
    let check = move |text: &str| match Sampling::rwkv().set(name, text) {
        Err(e) if name != "preset" || text != LIST => {
            Err([Some(e.message), e.hint.as_deref().map(flags::in_text)].into_iter().flatten().collect::<Vec<_>>().join("; hint: "))
        }
        _ => Ok(text.to_string()),
    };
    let action = if setting.is_list() { ArgAction::Append } else { ArgAction::Set };
    let flag = Arg::new(name).long(name).value_name(setting.value).help(setting.meaning).action(action);
    let flag = flag.hide_short_help(!BASICS.contains(&name)).hide_possible_values(true);
    let flag = match name {
        "preset" => flag.value_parser(suggested(check, preset_values())),
        "sampler-order" => flag.value_parser(suggested(check, ["pip", "hf"])),
        _ => flag.value_parser(check),
    };
    match name {
        "temperature" => flag.visible_alias("temp").allow_negative_numbers(true),
        "seed" => flag.short('s').allow_negative_numbers(true),
        // The text may begin with a hyphen.
        "dry-breaker" => flag.allow_hyphen_values(true),
        _ => flag.allow_negative_numbers(true),
    }
}

/// Returns a flag of `chat`. A sampling flag has no default in its help text, because the defaults depend on the chat format. The flags `--stop`
/// and `--ignore-eos` are hidden, because the chat format determines where an answer ends.
pub fn for_chat(flag: Arg) -> Arg {
    if ["stop", "ignore_eos"].contains(&flag.get_id().as_str()) {
        // `--help` shows the number of flags with `hide_short_help`. A flag that is hidden everywhere must not count.
        return flag.hide(true).hide_short_help(false);
    }
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default:") {
        Some((about, _)) if flag.get_help_heading() == Some(HEADING) => flag.help(about.to_owned()),
        _ => flag,
    }
}

impl SamplingArgs {
    /// Returns the model's default settings, overridden by the given flags as [`over`](Self::over) does.
    ///
    /// # Errors
    /// `Usage` if a setting does not fit the model's vocabulary.
    pub fn sampling(&self, model: &Model) -> Result<Sampling> {
        self.over(model.sampling().clone(), model)
    }

    /// Returns `defaults`, overridden by the given flags. Without `--seed`, the seed is a random number.
    ///
    /// # Errors
    /// The errors of [`sampling`](Self::sampling).
    pub fn over(&self, defaults: Sampling, model: &Model) -> Result<Sampling> {
        let s = Sampling { seed: random_seed(), ..defaults }.with_kept(&self.asked.0)?;
        s.check(model.facts().n_vocab)?;
        Ok(s)
    }

    /// Returns the names and values of the flags that were given.
    pub fn selected(&self) -> Vec<(String, Vec<String>)> {
        self.asked.0.iter().map(|(name, values)| ((*name).to_owned(), values.clone())).collect()
    }

    /// Prints all presets and returns the outcome of the subcommand, if `--preset list` is given. Otherwise returns `None`.
    pub fn list_presets(&self) -> Option<Outcome> {
        (self.given("preset")? == LIST).then(presets)
    }

    /// Returns the seed that `--seed` sets, or `None` without the flag.
    pub fn seed(&self) -> Option<u64> {
        self.given("seed").and_then(|seed| seed.parse().ok())
    }

    fn given(&self, name: &str) -> Option<&str> {
        let (_, values) = self.asked.0.iter().find(|(given, _)| *given == name)?;
        values.last().map(String::as_str)
    }
}

/// Returns the values of `--preset` that shells complete: every preset with its origin, and `list`.
fn preset_values() -> impl Iterator<Item = PossibleValue> {
    let presets = Sampling::presets().map(|(name, origin, _)| PossibleValue::new(name).help(origin));
    presets.chain([PossibleValue::new(LIST).help("show all presets")])
}

fn presets() -> Outcome {
    let mut out = Output::new(true);
    for (name, origin, sets) in Sampling::presets() {
        let sets = if sets.is_empty() { "nothing" } else { &sets };
        out.line(format_args!("{name:<13} {origin}"))?;
        out.line(format_args!("{:<13} sets {sets}", ""))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_flag() {
        use clap::Args;
        let command = || SamplingArgs::augment_args(Command::new("x").no_binary_name(true));
        command().debug_assert();
        let parse = |line: &[&str]| SamplingArgs::from_arg_matches(&command().try_get_matches_from(line.to_vec()).unwrap()).unwrap();
        let args = parse(&["--temp", "0.5", "--ban", "3", "--ban", "4,5", "-s", "7", "--repeat-last-n", "-1", "--dry-breaker", "--"]);
        assert_eq!((args.given("temperature"), args.given("repeat-last-n"), args.seed()), (Some("0.5"), Some("-1"), Some(7)));
        assert!(args.asked.0.contains(&("ban", vec!["3".into(), "4,5".into()])));
        assert!(args.asked.0.contains(&("dry-breaker", vec!["--".into()])));
        assert!(args.list_presets().is_none());
        let random = parse(&["--seed", "-1"]);
        assert!(random.seed().is_some() && random.seed() == random.seed() && random.seed() != parse(&["--seed", "-1"]).seed());
        for wrong in [["--typical", "1.1"], ["--min-p", "nan"], ["--preset", "best"], ["--dry-base", "x"]] {
            let said = command().try_get_matches_from(wrong).unwrap_err().to_string();
            assert!(said.contains(wrong[0]) && ["expected", "unknown preset"].iter().any(|fault| said.contains(fault)), "{said}");
        }
    }
}
