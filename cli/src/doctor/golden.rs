//! Compares the built-in model's logits and greedy text with the golden logits and text of a reference implementation.

use crate::flags;
use serde::Serialize;
use std::fmt;
use std::ops::ControlFlow;
use wingbeat::error::Result;
use wingbeat::low_level::assets::GOLDEN;
use wingbeat::low_level::exec::gpu::Backend;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Session};
use wingbeat::low_level::weights::read_safetensors;
use wingbeat::low_level::words::testing::nmse;

const BOUND: f64 = 1e-7;

#[derive(Debug, Default, Serialize)]
pub struct Golden {
    /// The normalised mean squared error of all logits. `None` if an error prevented the comparison, or if a logit is not finite.
    pub error: Option<f64>,
    pub bound: f64,
    pub same_greedy_text: bool,
    /// The error that prevented the comparison.
    pub failure: Option<String>,
}

impl Golden {
    pub fn is_right(&self) -> bool {
        self.same_greedy_text && self.error.is_some_and(|e| e <= self.bound)
    }
}

impl fmt::Display for Golden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failure, self.error) {
            (Some(failure), _) => write!(f, "WRONG: {failure}"),
            (None, None) => f.write_str("WRONG: the logits are not finite"),
            (None, Some(error)) => {
                let verdict = if self.is_right() { "right" } else { "WRONG" };
                let greedy = if self.same_greedy_text { "the same" } else { "another" };
                write!(f, "{verdict}: error {error:.1e} of {:.0e}, {greedy} greedy text", self.bound)
            }
        }
    }
}

pub fn check(device: &str, backend: Backend) -> Golden {
    compare(device, backend).unwrap_or_else(|e| Golden { bound: BOUND, failure: Some(flags::in_hint(e).to_string()), ..Golden::default() })
}

fn compare(device: &str, backend: Backend) -> Result<Golden> {
    let (tensors, _) = read_safetensors(GOLDEN)?;
    let words = |name: &str| tensors.get(name).map_or(&[][..], |t| t.2).chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
    let tokens: Vec<u32> = words("tokens").map(u32::from_le_bytes).collect();
    let greedy: Vec<u32> = words("greedy").map(u32::from_le_bytes).collect();
    let expected: Vec<f32> = words("logits").map(f32::from_le_bytes).collect();

    let mut options = Options::default();
    (options.device, options.backend) = (device.parse()?, backend);
    let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ())?;
    let mut session = Session::new(&model, 1)?;
    let slot = session.open()?;
    let mut found = Vec::with_capacity(expected.len());
    let mut each = |_: usize, row: &[f32]| {
        found.extend_from_slice(row);
        Ok(())
    };
    session.score(slot, &tokens, &mut each, &mut |_, _| ())?;
    session.close(slot)?;
    let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(greedy.len()) };
    let made = session.generate(tokens.as_slice(), &Sampling::greedy(0), &limits, &mut |_| ControlFlow::Continue(()))?;
    let error = Some(nmse(&found, &expected)).filter(|e| e.is_finite());
    Ok(Golden { error, bound: BOUND, same_greedy_text: made.tokens == greedy, failure: None })
}
