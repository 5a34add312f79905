//! Norm, token shift and lerps: the first part of RWKV's time mix and channel mix, shared by several words.
//!
//!   x̂ = norm(x)   p = x̂ of the previous token   X_m = x̂ + (p − x̂) ⊙ mix_m
//! x and X_m are `[T, C]`. T is the number of tokens, C the width of x.

use super::norm::Norm;
use super::stack::ProductInput;
use crate::tape::{Binding, Dispatch, Host, Lowering, State, Tape, Var};
use rayon::prelude::*;

/// The host uses one thread if x̂ has fewer elements than this.
const ALONE: usize = 1 << 13;

/// Norm, token shift and lerps, with their weights and activations.
pub struct ShiftMix {
    x: Var,
    /// The norm. Its vectors are the weight g, the bias b, then the mixes. The bias of an RMS norm is zero.
    norm: Norm,
    n_mixes: usize,
    /// The state with x̂ of the previous token, `[width]`. The state's pages have two halves: a step reads one half and writes the other half.
    shift: State,
    inputs: Inputs,
    /// The lerps, one plane per mix. A plane has one row per token. If `inputs` is [`Inputs::Kept`], two more planes follow: x̂, and p, which is x̂
    /// of the previous token.
    pub mixed: Var,
}

/// Determines whether the inputs of the lerps, x̂ and p, are stored beside the lerps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    Dropped,
    Kept,
}

impl ShiftMix {
    /// Declares the activation `mixed`. The vectors of `norm` are weight and bias, then the mixes. `shift` is the state with x̂ of the previous
    /// token. Its pages must have two halves ([`StateSpec::halves`](crate::tape::StateSpec::halves)).
    pub fn new(tape: &mut Tape, x: Var, norm: Norm, shift: State, inputs: Inputs) -> ShiftMix {
        let spec = tape.vector_spec(norm.vectors);
        let (width, n_mixes) = (spec.width, spec.parts.len() - 2);
        let mixed = tape.planes("mixed", width, n_mixes + if inputs == Inputs::Kept { 2 } else { 0 });
        ShiftMix { x, norm, n_mixes, shift, inputs, mixed }
    }

    /// Returns the index of the plane of `mixed` that holds x̂. The next plane holds p, x̂ of the previous token. Both planes exist only with
    /// [`Inputs::Kept`].
    pub fn x_hat(&self) -> usize {
        self.n_mixes
    }

    /// Returns the dispatch that computes norm, token shift and lerps.
    pub fn lower(&self, cx: &Lowering<'_>) -> Dispatch {
        let spec = cx.tape.vector_spec(self.norm.vectors);
        Dispatch {
            shader: "norm/shift_mix",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("width", spec.width.into()),
                ("stride", spec.stride().into()),
                ("n_mixes", self.n_mixes.into()),
                ("capacity", cx.capacity.into()),
                ("with_inputs", (self.inputs == Inputs::Kept).into()),
                ("eps", self.norm.eps.into()),
                ("centred", self.norm.is_centred.into()),
            ],
            bindings: vec![
                ("vectors", Binding::Vector(self.norm.vectors)),
                ("x", Binding::Var(self.x)),
                ("shift", Binding::State(self.shift)),
                ("mixed", Binding::Var(self.mixed)),
            ],
            grid: [cx.tokens as u32, 1, 1],
        }
    }

    /// Returns the input of a product whose workgroups compute norm, token shift and lerp themselves. Only steps of few tokens use this input. If
    /// `keeps` is `true`, the dispatch also stores the new state and, with [`Inputs::Kept`], x̂ and p.
    pub fn input(&self, cx: &Lowering<'_>, keeps: bool) -> ProductInput {
        let spec = cx.tape.vector_spec(self.norm.vectors);
        let (kept, capacity) = match self.inputs {
            Inputs::Kept => (Binding::Var(self.mixed), cx.capacity),
            Inputs::Dropped => (Binding::Spare, 0),
        };
        ProductInput {
            module: "linear::input_shift",
            params: vec![
                ("width", spec.width.into()),
                ("stride", (spec.stride() / 4).into()),
                ("plane", self.x_hat().into()),
                ("capacity", capacity.into()),
                ("keeps", keeps.into()),
                ("eps", self.norm.eps.into()),
                ("centred", self.norm.is_centred.into()),
            ],
            bindings: vec![
                ("x", Binding::Var(self.x)),
                ("vectors", Binding::Vector(self.norm.vectors)),
                ("shift", Binding::State(self.shift)),
                ("kept", kept),
            ],
        }
    }

    /// Computes norm, token shift and lerps on the host. Tokens are normalised in parallel, and then the planes are filled in parallel.
    pub fn twin(&self, host: &mut Host) {
        let (x_stride, stride) = (host.stride(self.x), host.tape.vector_spec(self.norm.vectors).stride());
        let width = host.tape.vector_spec(self.norm.vectors).width;
        let mut mixed = host.take(self.mixed);
        let mut shift = host.take_state(self.shift);
        let host_ref: &Host = host;
        let mut x_hat = vec![0.0; host.step.tokens.len() * width];
        let alone = x_hat.len() < ALONE;
        let normalise = |(t, x_hat): (usize, &mut [f32])| self.norm.apply(host_ref, &host_ref.var(self.x)[t * x_stride..][..width], x_hat);
        match alone {
            true => x_hat.chunks_exact_mut(width).enumerate().for_each(normalise),
            false => x_hat.par_chunks_exact_mut(width).enumerate().for_each(normalise),
        }
        // Each token's predecessor: the previous row, or the kept shift vector at the start of a run.
        let row = |t: usize| &x_hat[t * width..][..width];
        let mut p: Vec<&[f32]> = (0..host.step.tokens.len()).map(|t| row(t.saturating_sub(1))).collect();
        for run in host.step.runs.iter().filter(|run| run.len > 0) {
            p[run.first_row as usize] = &shift[run.shift_in as usize * stride..][..width];
        }
        let fill = |(m, plane): (usize, &mut [f32])| {
            for (t, (p, out)) in p.iter().zip(plane.chunks_mut(stride)).enumerate() {
                let (x_hat, out) = (row(t), &mut out[..width]);
                match m.checked_sub(self.n_mixes) {
                    None => {
                        let mix = host_ref.vector(self.norm.vectors, 2 + m);
                        out.iter_mut().zip(x_hat).zip(*p).zip(mix).for_each(|(((o, x), p), mix)| *o = x + (p - x) * mix);
                    }
                    Some(0) => out.copy_from_slice(x_hat),
                    Some(_) => out.copy_from_slice(p),
                }
            }
        };
        let planes = self.n_mixes + if self.inputs == Inputs::Kept { 2 } else { 0 };
        match alone {
            true => mixed.chunks_mut(host.capacity * stride).take(planes).enumerate().for_each(fill),
            false => mixed.par_chunks_mut(host.capacity * stride).take(planes).enumerate().for_each(fill),
        }
        let last: Vec<Vec<f32>> = host
            .step
            .runs
            .iter()
            .map(|run| match run.len {
                0 => shift[run.shift_in as usize * stride..][..width].to_vec(),
                len => row((run.first_row + len) as usize - 1).to_vec(),
            })
            .collect();
        for (run, last) in host.step.runs.iter().zip(last) {
            shift[run.shift_out as usize * stride..][..width].copy_from_slice(&last);
        }
        host.put(self.mixed, mixed);
        host.put_state(self.shift, shift);
    }
}
