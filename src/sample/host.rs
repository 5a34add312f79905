//! The settings that only the host draws with, in integers: what `Row` is to the kernel.

use super::dry::Dry;
use super::fixed::share;
use super::mirostat::Mirostat;
use super::settings::Sampling;

/// None of them is off. Shares are in units of 2^-32.
#[derive(Debug, Clone, Default)]
pub(super) struct OnHost {
    pub typical: Option<u32>,
    pub mirostat: Option<Mirostat>,
    pub dry: Option<Dry>,
    /// The repeat penalty looks at the last so many tokens.
    pub repeat_last_n: Option<usize>,
}

impl OnHost {
    /// Unchecked settings never panic.
    pub fn of(s: &Sampling) -> OnHost {
        // greedy, there is nothing to filter
        let filters = if s.is_greedy() {
            OnHost::default()
        } else {
            let mirostat = Mirostat::of(s);
            let below_one = |x: f32| (x < 1.0 && mirostat.is_none()).then(|| share(x));
            OnHost { typical: below_one(s.typical), mirostat, ..OnHost::default() }
        };
        OnHost { dry: Dry::of(s), repeat_last_n: s.repeat_last_n.filter(|_| s.repeat_penalty != 1.0), ..filters }
    }

    /// Whether there is nothing that the kernel does not know.
    pub fn is_nothing(&self) -> bool {
        let OnHost { typical, mirostat, dry, repeat_last_n } = self;
        typical.is_none() && mirostat.is_none() && dry.is_none() && repeat_last_n.is_none()
    }

    /// How many tokens of the text it looks back at.
    pub fn looks_back(&self) -> usize {
        self.dry.map_or(0, |dry| dry.range()).max(self.repeat_last_n.unwrap_or(0))
    }
}
