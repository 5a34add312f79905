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
        let name = format!("{}{}", self.class, if self.deterministic { ", deterministic" } else { "" });
        let right = self.n_cases - self.wrong.len();
        write!(f, "{name:<22} {right} of {} cases right", self.n_cases)?;
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
    let mut families = Vec::new();
    for class in [Class::Groups, Class::Lanes] {
        for batch_invariant in [false, true] {
            let caps = Caps { class, batch_invariant, ..own.clone() };
            let device = Arc::new(opened.with_caps(caps));
            families.push(family(&device, class == own.class));
        }
    }
    Ok(families)
}

fn family(device: &Arc<Device>, is_default: bool) -> Family {
    let class = match device.caps.class {
        Class::Groups => "groups",
        Class::Lanes => "lanes",
    };
    let deterministic = device.caps.batch_invariant;
    let mut family = Family { class, deterministic, is_default, n_cases: 0, worst: None, wrong: Vec::new() };
    let mut nearest = 0.0;
    for entry in WORDS {
        for format in FORMATS {
            for case in (entry.cases)() {
                family.n_cases += 1;
                log::debug!("{class}, deterministic {deterministic}: {} as {}", case.name, format.name()); // where a driver crashed
                match selftest::run(case, *format, device) {
                    Ok(o) if o.is_right() => {
                        if o.error / o.bound > nearest {
                            nearest = o.error / o.bound;
                            family.worst = Some(text(&o));
                        }
                    }
                    Ok(o) => family.wrong.push(text(&o)),
                    Err(e) => family.wrong.push(e.to_string()),
                }
            }
        }
    }
    family
}

fn text(o: &Outcome) -> String {
    format!("{}: {:.1e} of {:.0e}", o.case, o.error, o.bound)
}
