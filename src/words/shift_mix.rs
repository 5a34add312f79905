//! Layer norm, token shift and lerps: the first part of RWKV's time mix and channel mix, shared by several words.
//!
//!   x̂ = LN(x)   p = x̂ of the previous token   X_m = x̂ + (p − x̂) ⊙ mix_m
//! x and X_m are `[T, C]`. T is the number of tokens, C the width of x. The *twin* is the reference implementation on the CPU.

use super::norm::Norm;
use super::stack::Input;
use crate::tape::{Binding, Dispatch, Host, Lowering, State, Tape, Var};

/// Norm, token shift and lerps, with their weights and activations.
pub struct ShiftMix {
    x: Var,
    /// The layer norm. Its vectors are the weight g, the bias b, then the mixes.
    norm: Norm,
    n_mixes: usize,
    /// The state with x̂ of the previous token, `[width]`. Its pages have two halves: a step reads one half and writes the other half.
    shift: State,
    inputs: Inputs,
    /// The lerps, one plane per mix. A plane has one row per token. If the inputs are kept, two more planes follow: x̂, and p, which is x̂
    /// of the previous token.
    pub mixed: Var,
}

/// Determines whether x̂ and p are stored beside the lerps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Inputs {
    Dropped,
    Kept,
}

impl ShiftMix {
    /// Declares the activation `mixed`. The vectors of `norm` are weight and bias, then the mixes. `shift` is the state with x̂ of
    /// the previous token. Its pages must have two halves, one that a step reads and one that the step writes.
    pub fn new(tape: &mut Tape, x: Var, norm: Norm, shift: State, inputs: Inputs) -> ShiftMix {
        let spec = tape.vector_spec(norm.vectors);
        let (width, n_mixes) = (spec.width, spec.parts.len() - 2);
        let mixed = tape.planes("mixed", width, n_mixes + if inputs == Inputs::Kept { 2 } else { 0 });
        ShiftMix { x, norm, n_mixes, shift, inputs, mixed }
    }

    /// Returns the index of the plane of `mixed` that holds x̂. The next plane holds p, x̂ of the previous token. Both planes exist only if
    /// the inputs are kept.
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

    /// Returns the input of a product of few tokens whose workgroups compute norm, token shift and lerp themselves. If `keeps` is `true`,
    /// the dispatch also stores the new state.
    pub fn input(&self, cx: &Lowering<'_>, keeps: bool) -> Input {
        let spec = cx.tape.vector_spec(self.norm.vectors);
        let (kept, capacity) = match self.inputs {
            Inputs::Kept => (Binding::Var(self.mixed), cx.capacity),
            Inputs::Dropped => (Binding::Spare, 0),
        };
        Input {
            module: "linear::input_shift",
            params: vec![
                ("width", spec.width.into()),
                ("stride", (spec.stride() / 4).into()),
                ("plane", self.x_hat().into()),
                ("capacity", capacity.into()),
                ("keeps", keeps.into()),
                ("eps", self.norm.eps.into()),
            ],
            bindings: vec![
                ("x", Binding::Var(self.x)),
                ("vectors", Binding::Vector(self.norm.vectors)),
                ("shift", Binding::State(self.shift)),
                ("kept", kept),
            ],
        }
    }

    /// Computes norm, token shift and lerps on the host.
    pub fn twin(&self, host: &mut Host) {
        let (x_stride, stride) = (host.stride(self.x), host.tape.vector_spec(self.norm.vectors).stride());
        let width = host.tape.vector_spec(self.norm.vectors).width;
        let mut mixed = host.take(self.mixed);
        let mut shift = host.take_state(self.shift);
        for run in &host.step.runs {
            let mut p = shift[run.shift_in as usize * stride..][..width].to_vec();
            let mut x_hat = vec![0.0; width];
            for t in (run.first_row as usize..).take(run.len as usize) {
                let x = &host.var(self.x)[t * x_stride..][..width];
                self.norm.apply(host, x, &mut x_hat);
                let mut plane = |i: usize, value: &dyn Fn(usize) -> f32| {
                    let out = &mut mixed[(i * host.capacity + t) * stride..][..width];
                    out.iter_mut().enumerate().for_each(|(i, o)| *o = value(i));
                };
                for m in 0..self.n_mixes {
                    let mix = host.vector(self.norm.vectors, 2 + m);
                    plane(m, &|i| x_hat[i] + (p[i] - x_hat[i]) * mix[i]);
                }
                if self.inputs == Inputs::Kept {
                    plane(self.n_mixes, &|i| x_hat[i]);
                    plane(self.n_mixes + 1, &|i| p[i]);
                }
                std::mem::swap(&mut p, &mut x_hat);
            }
            shift[run.shift_out as usize * stride..][..width].copy_from_slice(&p);
        }
        host.put(self.mixed, mixed);
        host.put_state(self.shift, shift);
    }
}
