//! The recurrence of RWKV-5, 6 and 7 in spans of 16 tokens, for prefill on GPUs. One dispatch (rwkv/wkv_span) computes the terms that do not depend
//! on the state, for all spans in parallel. A second dispatch (rwkv/wkv_chain) computes the terms that depend on the state, and the new state. The
//! second dispatch takes the spans of each run in order.
//!
//! Results differ by rounding from the recurrence token by token (rwkv/wkv). Sums have another order, and the state is rounded to its storage format
//! only once per span. The spans of a run begin at the run's first token, so results do not depend on other runs.

use super::recurrence::{BONUS, Recurrence, StateRule};
use super::testing;
use crate::tape::{Binding, Class, Dispatch, Lowering, Run, Step};

/// The words whose recurrence GPUs compute in spans.
pub const IN_SPANS: [&str; 3] = ["wkv6", "wkv_linear", "wkv7"];
/// The number of tokens of a span: the constant SPAN of rwkv/spans.
pub const SPAN: usize = 16;
/// Steps use spans if [`Lowering::tokens`] is at least this number. `tokens` is a power of two and an upper bound, so such a step has at least 65
/// tokens. Spans need one more dispatch. By estimate, they are faster from about 54 tokens on.
const LEAST: usize = 128;
/// The number of rows of the state per workgroup: the constant ROWS of rwkv/wkv_chain.
const ROWS: usize = 16;
/// The largest head size that the kernels support.
const LARGEST_HEAD: usize = 64;

impl Recurrence {
    /// Returns the dispatches of the recurrence in spans. Returns `None` if the step needs exact results, if the device uses no spans, or if
    /// heads are wider than 64 channels. Also returns `None` if spans would be slower: with fewer than 65 tokens, or fewer than 16 per slot on
    /// average.
    pub fn lower_spans(&self, cx: &Lowering<'_>) -> Option<[Dispatch; 2]> {
        let is_allowed = cx.caps.class == Class::Groups && cx.caps.spans && !cx.is_exact() && self.head_size <= LARGEST_HEAD;
        let is_worthwhile = cx.tokens >= LEAST && cx.tokens >= SPAN * cx.runs;
        (is_allowed && is_worthwhile).then(|| [self.within(cx), self.chain(cx)])
    }

    /// Returns the dispatch that computes the terms that do not depend on the state, for all spans in parallel.
    fn within(&self, cx: &Lowering<'_>) -> Dispatch {
        let (feed, values) = (cx.tape.var_spec(self.feed), cx.tape.var_spec(self.values));
        let rule = match self.rule {
            StateRule::Decay => "rwkv::wkv6_span",
            StateRule::Delta => "rwkv::wkv7_span",
        };
        // The last span of every run may be shorter, so each run may add one span.
        let n_spans = cx.tokens / SPAN + cx.runs;
        Dispatch {
            shader: "rwkv/wkv_span",
            modules: vec![("rule", rule.to_string())],
            constants: self.sizes(),
            params: vec![
                ("feed_stride", feed.stride().into()),
                ("values_stride", values.stride().into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
                ("bonus", values.column(BONUS).into()),
            ],
            bindings: vec![("values", Binding::Var(self.values)), ("feed", Binding::Var(self.feed)), ("y", Binding::Var(self.y))],
            grid: [self.n_heads() as u32, n_spans as u32, 1],
        }
    }

    /// Returns the dispatch that takes the spans of each run in order, and computes the terms that depend on the state, and the new state.
    fn chain(&self, cx: &Lowering<'_>) -> Dispatch {
        let mut constants = self.sizes();
        // The number of elements of a row that a lane loads before it uses the first element.
        let ahead = if (self.head_stride() / 4).is_multiple_of(4) { 4 } else { 2 };
        constants.extend([("DELTA", u32::from(self.rule == StateRule::Delta)), ("AHEAD", ahead)]);
        Dispatch {
            shader: "rwkv/wkv_chain",
            modules: vec![self.state_module(cx.tape)],
            constants,
            params: vec![
                ("width", self.width.into()),
                ("feed_stride", (cx.tape.var_spec(self.feed).stride() / 4).into()),
                ("values_stride", cx.tape.var_spec(self.values).stride().into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
            ],
            bindings: vec![
                ("values", Binding::Var(self.values)),
                ("feed", Binding::Var(self.feed)),
                ("state", Binding::State(self.state)),
                ("y", Binding::Var(self.y)),
            ],
            grid: [(self.n_heads() * self.head_size.div_ceil(ROWS)) as u32, cx.runs as u32, 1],
        }
    }

    /// Returns the constants that the kernels rwkv/wkv_span and rwkv/wkv_chain have in common.
    fn sizes(&self) -> Vec<(&'static str, u32)> {
        let quarters = (self.head_stride() / 4) as u32;
        vec![("HEAD", self.head_size as u32), ("QUARTERS", quarters), ("VECTORS", self.rule.n_vectors() as u32)]
    }
}

/// Returns the steps of the cases of `wkv6` and `wkv7`: the steps of [`testing::steps`], then a step of 84 tokens, which GPUs compute in spans.
pub fn steps() -> Vec<Step> {
    let mut steps = testing::steps(2);
    let run = Run { first_row: 0, len: 84, page_in: 0, page_out: 1, shift_in: 0, shift_out: 2, ..Run::default() };
    steps.push(Step { tokens: vec![0; 84], runs: vec![run], outputs: vec![83], ..Step::default() });
    steps
}
