//! Every word's cases in every weight format and in every family of kernels, against the twins.

use crate::error::Result;
use crate::exec::gpu::{Adapter, Device};
use crate::exec::selftest::{self, Outcome};
use crate::quant::FORMATS;
use crate::tape::{Caps, Class};
use crate::words::WORDS;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What one family of kernels came to.
#[derive(Debug, Serialize)]
pub struct Family {
    /// `groups` or `lanes`.
    pub class: &'static str,
    /// Whether results may not depend on the batch.
    pub deterministic: bool,
    /// Whether sums are taken by subgroups.
    pub subgroups: bool,
    /// Whether products of many tokens use cooperative matrices.
    pub cooperative: bool,
    /// Whether a model would use it here.
    pub is_default: bool,
    pub n_cases: usize,
    /// The case nearest to its bound, with its error.
    pub worst: Option<String>,
    pub wrong: Vec<String>,
}

impl Family {
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = [(self.subgroups, ", subgroups"), (self.cooperative, ", cooperative"), (self.deterministic, ", deterministic")];
        let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
        let name = format!("{}{marks}", self.class);
        let right = self.n_cases - self.wrong.len();
        write!(f, "{name:<30} {right} of {} cases right", self.n_cases)?;
        if let Some(worst) = &self.worst {
            write!(f, ", nearest to its bound {worst}")?;
        }
        Ok(())
    }
}

/// All families. A case that fails to run counts as wrong; a device that cannot be opened is an error.
pub fn check(adapter: &Adapter) -> Result<Vec<Family>> {
    let own = adapter.caps(false)?;
    let opened = Device::open(adapter, false)?;
    // What models use: cooperative matrices that are wrong are left out.
    let settled = selftest::settle(opened.with_caps(opened.caps.clone()))?.caps.cooperative;
    let every = |class, batch_invariant| Caps { class, batch_invariant, subgroups: false, cooperative: None, ..own.clone() };
    let mut variants = Vec::new();
    for class in [Class::Groups, Class::Lanes] {
        variants.extend([false, true].map(|batch_invariant| every(class, batch_invariant)));
    }
    if own.cooperative.is_some() {
        variants.insert(0, Caps { cooperative: own.cooperative, subgroups: own.subgroups, ..every(Class::Groups, false) });
    }
    if own.subgroups {
        variants.insert(0, Caps { subgroups: true, ..every(Class::Groups, false) });
    }
    let family = |caps: Caps| {
        // A model here, deterministic or not.
        let used = Caps { batch_invariant: caps.batch_invariant, ..own.clone() };
        let is_default =
            caps.class == used.class && caps.reduce() == used.reduce() && (caps.batch_invariant || caps.cooperative == settled);
        family(&Arc::new(opened.with_caps(caps)), is_default)
    };
    Ok(variants.into_iter().map(family).collect())
}

fn family(device: &Arc<Device>, is_default: bool) -> Family {
    let class = match device.caps.class {
        Class::Groups => "groups",
        Class::Lanes => "lanes",
    };
    let (deterministic, subgroups, cooperative) = (device.caps.batch_invariant, device.caps.subgroups, device.caps.cooperative.is_some());
    let mut family = Family { class, deterministic, subgroups, cooperative, is_default, n_cases: 0, worst: None, wrong: Vec::new() };
    let mut nearest = 0.0;
    let mut judge = |outcome: Result<Outcome>| match outcome {
        Ok(o) if o.is_right() => {
            if o.error > nearest * o.bound {
                nearest = o.error / o.bound;
                family.worst = Some(text(&o));
            }
        }
        Ok(o) => family.wrong.push(text(&o)),
        Err(e) => family.wrong.push(e.to_string()),
    };
    for entry in WORDS {
        for format in FORMATS {
            for case in selftest::cases(entry, *format) {
                family.n_cases += 1;
                log::debug!("{class}, deterministic {deterministic}: {} as {}", case.name, format.name()); // where a driver crashed
                judge(selftest::run(case, *format, device));
            }
        }
    }
    family.n_cases += 1;
    judge(selftest::draws(device));
    family
}

fn text(o: &Outcome) -> String {
    format!("{}: {:.1e} of {:.0e}", o.case, o.error, o.bound)
}
