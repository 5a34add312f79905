//! The settings that only the host supports, converted to integers. [`Row`](super::Row) holds the settings that the kernel supports.

use super::dry::Dry;
use super::fixed::share;
use super::mirostat::Mirostat;
use super::settings::Sampling;

/// The settings that only the host supports. `None` means that the setting is off.
#[derive(Debug, Clone, Default)]
pub(super) struct OnHost {
    /// The smallest share of the total probability that the filter `typical` keeps, in units of 2^-32.
    pub typical: Option<u32>,
    pub mirostat: Option<Mirostat>,
    pub dry: Option<Dry>,
    /// The repeat penalty applies to this many tokens at the end of the text. Also `None` if the penalty applies to all generated tokens, because the
    /// kernel supports this case.
    pub repeat_last_n: Option<usize>,
}

impl OnHost {
    /// Returns the settings of `s` that only the host supports. Never panics, even if the settings are unchecked.
    pub fn of(s: &Sampling) -> OnHost {
        // greedy sampling needs no filters
        let filters = if s.is_greedy() {
            OnHost::default()
        } else {
            let mirostat = Mirostat::of(s);
            let below_one = |x: f32| (x < 1.0 && mirostat.is_none()).then(|| share(x));
            OnHost { typical: below_one(s.typical), mirostat, ..OnHost::default() }
        };
        OnHost { dry: Dry::of(s), repeat_last_n: s.repeat_last_n.filter(|_| s.repeat_penalty != 1.0), ..filters }
    }

    /// Returns whether all settings that only the host supports are off. The kernel can then draw.
    pub fn is_off(&self) -> bool {
        let OnHost { typical, mirostat, dry, repeat_last_n } = self;
        typical.is_none() && mirostat.is_none() && dry.is_none() && repeat_last_n.is_none()
    }

    /// Returns how many tokens at the end of the text DRY and the repeat penalty examine: the larger of the two numbers.
    pub fn looks_back(&self) -> usize {
        self.dry.map_or(0, |dry| dry.range()).max(self.repeat_last_n.unwrap_or(0))
    }
}
