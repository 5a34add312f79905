//! The router of experts, which chooses the experts of each token:
//!
//!   x̂ = norm(x)    s = sigmoid(W x̂)    the chosen experts have the n largest s_e + b_e    w_e = f s_e / Σ s over the chosen experts
//! x is `[T, width]`, W is `[experts, width]`, b has one element per expert, f is a factor. If experts have groups, only the experts of the best
//! groups compete. The score of a group is the sum of its two largest s + b. Source: DeepSeek-V3, arXiv 2412.19437, section 2.1.2.

use super::norm::Norm;
use super::stack::{Segment, Stack, Store, fuses};
use super::testing::{Case, batches, steps};
use crate::tape::{
    Binding, Class, Dispatch, Host, Lowering, MatrixKind, MatrixPart, Rows, Tape, Var, Vector, VectorPart, Word, row_grid, vector,
};

/// How a router chooses experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Router {
    pub n_experts: usize,
    /// The number of experts that a token uses.
    pub n_used: usize,
    /// The number of groups. All groups have equally many experts.
    pub n_groups: usize,
    /// The number of groups whose experts compete.
    pub n_used_groups: usize,
    /// The factor f of all weights.
    pub scale: f32,
    /// True if the weights are divided by their sum.
    pub normalises: bool,
}

/// The activations that [`Tape::route`] writes.
#[derive(Debug, Clone, Copy)]
pub struct Routed {
    /// The normalised rows x̂, `[T, width]`.
    pub x: Var,
    /// The logits W x̂, one per expert.
    pub logits: Var,
    /// The columns are the indices of the chosen experts, the best first, and their weights w.
    pub chosen: Var,
}

struct Route {
    of: Router,
    x: Var,
    norm: Norm,
    routed: Routed,
    logits: Stack,
    bias: Vector,
}

impl Router {
    /// Returns the chosen experts and their weights, the best first. `logits` are W x̂, `bias` is b.
    pub fn choose(&self, logits: &[f32], bias: &[f32]) -> Vec<(usize, f32)> {
        let s: Vec<f32> = logits.iter().map(|z| 1.0 / (1.0 + (-z.clamp(-80.0, 80.0)).exp())).collect();
        let mut scores: Vec<f32> = s.iter().zip(bias).map(|(s, b)| s + b).collect();
        if self.n_groups > 1 {
            let groups = scores.chunks_exact(self.n_experts / self.n_groups);
            let sums: Vec<f32> = groups.map(|group| ranked(group).iter().take(2).map(|&e| group[e]).sum()).collect();
            for &group in ranked(&sums).iter().skip(self.n_used_groups) {
                scores.chunks_exact_mut(self.n_experts / self.n_groups).nth(group).expect("a group").fill(f32::NEG_INFINITY);
            }
        }
        let chosen = &ranked(&scores)[..self.n_used];
        let sum = chosen.iter().map(|&e| s[e]).sum::<f32>() + 1e-20;
        let factor = if self.normalises { self.scale / sum } else { self.scale };
        chosen.iter().map(|&e| (e, factor * s[e])).collect()
    }
}

/// Returns the indices of the scores, the largest score first. Of equal scores, the first comes first.
fn ranked(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
}

impl Tape {
    /// Records the choice of experts for each row of `x`. `gate` is W, `bias` is b.
    pub fn route(&mut self, x: Var, norm: Norm, gate: MatrixPart, bias: VectorPart, of: Router) -> Routed {
        let normed = self.scratch("routed", Rows::Tokens, &[norm.width(self)]);
        let logits = self.scratch("expert_logits", Rows::Tokens, &[of.n_experts]);
        let chosen = self.scratch("chosen", Rows::Tokens, &[of.n_used, of.n_used]);
        let bias = self.vectors(of.n_experts, vec![bias]);
        let matrix = self.matrix(vec![gate.of(MatrixKind::Router)]);
        let segments = vec![Segment::of(0)];
        let logits = Stack { matrix, x: normed, y: logits, bias: None, segments, store: Store::Set, rows: Rows::Tokens };
        let routed = Routed { x: normed, logits: logits.y, chosen };
        self.record(Route { of, x, norm, routed, logits, bias });
        routed
    }
}

impl Word for Route {
    fn name(&self) -> &'static str {
        "route"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let (of, chosen) = (&self.of, cx.tape.var_spec(self.routed.chosen));
        let sizes = [("EXPERTS", of.n_experts), ("USED", of.n_used), ("GROUPS", of.n_groups), ("USED_GROUPS", of.n_used_groups)];
        let lanes = if cx.caps.class == Class::Lanes { 8 } else { 64 };
        let choose = Dispatch {
            shader: "experts/choose",
            modules: vec![],
            constants: sizes.into_iter().chain([("LANES", lanes)]).map(|(name, n)| (name, n as u32)).collect(),
            params: vec![
                ("stride", cx.tape.var_spec(self.logits.y).stride().into()),
                ("chosen_stride", chosen.stride().into()),
                ("weights", chosen.column(1).into()),
                ("scale", of.scale.into()),
                ("normalises", of.normalises.into()),
            ],
            bindings: vec![
                ("logits", Binding::Var(self.logits.y)),
                ("bias", Binding::Vector(self.bias)),
                ("chosen", Binding::Var(self.routed.chosen)),
            ],
            grid: row_grid(cx.tokens),
        };
        if fuses(cx) {
            // The first dispatch also stores x̂, because the experts read it, too.
            let input = |is_first: bool| self.norm.input(cx, self.x, is_first.then_some(self.routed.x));
            return self.logits.lower_from(cx, &input).into_iter().chain([choose]).collect();
        }
        let norm = self.norm.lower(cx, self.x, self.routed.x, false);
        std::iter::once(norm).chain(self.logits.lower(cx)).chain([choose]).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.norm.twin(host, self.x, self.routed.x, false);
        self.logits.twin(host);
        let weights = host.tape.var_spec(self.routed.chosen).column(1);
        let (stride, logits_stride) = (host.stride(self.routed.chosen), host.stride(self.logits.y));
        let mut chosen = host.take(self.routed.chosen);
        for (t, row) in chosen.chunks_exact_mut(stride).enumerate().take(host.step.tokens.len()) {
            let logits = &host.var(self.logits.y)[t * logits_stride..][..self.of.n_experts];
            for (i, (expert, weight)) in self.of.choose(logits, host.vector(self.bias, 0)).into_iter().enumerate() {
                (row[i], row[weights + i]) = (expert as f32, weight);
            }
        }
        host.put(self.routed.chosen, chosen);
    }
}

pub fn cases() -> Vec<Case> {
    let of = |n_experts, n_used| Router { n_experts, n_used, n_groups: 1, n_used_groups: 1, scale: 1.8, normalises: true };
    let grouped = |n_groups, n_used_groups| Router { n_groups, n_used_groups, normalises: false, ..of(24, 3) };
    let all = [(8, of(1, 1)), (42, of(7, 2)), (96, of(64, 4)), (64, of(130, 16)), (40, grouped(4, 2)), (40, grouped(12, 5))];
    all.into_iter()
        .map(|(width, of)| {
            let mut tape = Tape::new();
            let x = tape.var("x", Rows::Tokens, &[width]);
            let norm = Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-5);
            tape.route(x, norm, MatrixPart::new("gate", of.n_experts, width), vector("bias"), of);
            let steps = if of.n_experts == 64 { batches() } else { steps(2) };
            Case::new(format!("route/{}/{}/{}", of.n_experts, of.n_used, of.n_groups), tape, steps, 1e-9)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Router = Router { n_experts: 4, n_used: 2, n_groups: 1, n_used_groups: 1, scale: 2.0, normalises: true };

    #[test]
    fn the_bias_chooses_and_does_not_weigh() {
        assert_eq!(EVEN.choose(&[0.0, 0.0, 1.0, 0.0], &[0.0, 0.5, 0.0, 0.1]).iter().map(|c| c.0).collect::<Vec<_>>(), [1, 2]);
        let [(_, first), (_, second)] = EVEN.choose(&[0.0; 4], &[0.0, 0.5, 0.0, 0.1])[..] else { panic!() };
        assert_eq!((first, second), (1.0, 1.0));
    }

    #[test]
    fn of_equal_experts_the_first_is_chosen() {
        assert_eq!(EVEN.choose(&[0.5; 4], &[0.0; 4]).iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn only_the_best_groups_compete() {
        let of = Router { n_groups: 2, n_used_groups: 1, ..EVEN };
        // The second group has the larger sum of two, although the first group has the best expert.
        assert_eq!(of.choose(&[3.0, -9.0, 1.0, 1.0], &[0.0; 4]).iter().map(|c| c.0).collect::<Vec<_>>(), [2, 3]);
    }
}
