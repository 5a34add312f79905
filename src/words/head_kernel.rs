//! The kernel rwkv/head, for steps of few tokens on GPUs. In one dispatch, it computes the time mix of RWKV-5, 6 and 7 from the projections to the
//! gated output.

use super::recurrence::{K, R, Recurrence, StateRule, V};
use super::stack::{Stack, fuses};
use crate::quant::Scaling;
use crate::tape::{Binding, Dispatch, Lowering, Param, Var};

/// How gated linear attention (QRWKV-6) differs from RWKV-6.
#[derive(Clone, Copy)]
pub struct Linear {
    /// The number of heads that share a head of keys and values.
    pub group: usize,
    /// The factor of the output in QRWKV-6, whose keys are k (1 − w) and whose output reads the state after the token. 0 in RWKV-6: there, the output
    /// reads the state before the token, and the bonus adds the token itself.
    pub scale: f32,
}

impl Linear {
    /// The values for RWKV-5, 6 and 7: every head has its own keys and values, and the output has no factor.
    pub const NONE: Linear = Linear { group: 1, scale: 0.0 };
}

/// The inputs of the kernel rwkv/head, beside a [`Recurrence`]. The kernel computes low-rank products, recurrence, norm and gate of a head in
/// one dispatch.
pub struct HeadKernel<'a> {
    /// The WGSL module that fills the shader slot `head`.
    pub module: &'static str,
    pub proj: Var,
    /// The low-rank products, which must all read `proj`, or `None` if the word has no such products.
    pub lora: Option<&'a Stack>,
    /// For each part of `lora`, the index at which `module` expects its product.
    pub places: &'a [usize],
    pub is_first_layer: bool,
    /// The row of [`Recurrence::vectors`] that holds the constant decay, or `None` if the decay depends on the token.
    pub decay: Option<usize>,
    /// How the words of QRWKV-6 differ from RWKV-6.
    pub linear: Linear,
    /// The bindings that `module` has in addition to the bindings of rwkv/head.
    pub bindings: Vec<(&'static str, Binding)>,
}

/// The number of lanes of the kernel rwkv/head. The kernel has one lane per channel, so this is also the largest head size that it
/// supports.
const HEAD_LANES: usize = 64;
/// The number of units (eight weights) of a low-rank matrix that a lane of rwkv/head loads before it uses the first unit. On GPUs with few
/// registers, a lane loads one unit of a quantised matrix.
const AHEAD: usize = 4;
impl Recurrence {
    /// Returns one dispatch that computes whole heads. Returns `None` if the step does not fuse dispatches (see [`fuses`]), if a head is
    /// wider than 64 channels, or if the low-rank matrices are in several pieces.
    pub fn lower_head(&self, cx: &Lowering<'_>, head: HeadKernel<'_>) -> Option<Dispatch> {
        let tape = cx.tape;
        let pieces = head.lora.map(|l| tape.matrix_spec(l.matrix).pieces(cx.caps.max_binding));
        if !fuses(cx) || self.head_size > HEAD_LANES || pieces.as_ref().is_some_and(|p| p.len() > 1) {
            return None;
        }
        let (stride, proj) = (self.stride(tape), tape.var_spec(head.proj));
        let mut lora = vec![[0; 4]; 4];
        let mut modules = vec![("head", head.module.to_string()), self.state_module(tape), cx.caps.reduce()];
        let (mut weight, mut bias) = (Binding::Nothing, Binding::Nothing);
        let mut ahead = AHEAD;
        // Without low-rank matrices, the kernel does not call the following modules. They only fill the shader slots.
        let mut matrix = vec![("weight", "weight::f16".into()), ("scale", "scale::none".into()), ("matrix", "matrix::rows".into())];
        if let (Some(stack), Some(pieces)) = (head.lora, &pieces) {
            let spec = tape.matrix_spec(stack.matrix);
            for ((segment, piece), place) in stack.segments.iter().zip(&pieces[0].segments).zip(head.places) {
                let units = spec.parts[segment.part].units();
                lora[*place] = [piece.codes as u32, units as u32, (segment.x / 4) as u32, piece.scales as u32];
            }
            matrix = pieces[0].segments[0].region.modules();
            // Decoding weights takes registers, and a lane also keeps a row of the state in registers. So the lane then loads only one unit ahead.
            if pieces[0].format.scaling() != Scaling::None && cx.caps.tuning.few_registers {
                ahead = 1;
            }
            weight = Binding::Piece(stack.matrix, 0);
            bias = stack.bias.map_or(Binding::Nothing, Binding::Vector);
        }
        modules.extend(matrix);
        // In RWKV-7, the gate is a low-rank product and not a column of `proj`.
        let gate = self.gate.filter(|g| g.of == head.proj);
        Some(Dispatch {
            shader: "rwkv/head",
            modules,
            constants: vec![
                ("HEAD", self.head_size as u32),
                ("QUARTERS", (self.head_stride() / 4) as u32),
                ("DELTA", u32::from(self.rule == StateRule::Delta)),
                ("AHEAD", ahead as u32),
            ],
            params: vec![
                ("width", self.width.into()),
                ("proj_stride", proj.stride().into()),
                ("stride", stride.into()),
                ("r", proj.column(R).into()),
                ("k", proj.column(K).into()),
                ("v", proj.column(V).into()),
                ("g", gate.map_or(0, |g| proj.column(g.column)).into()),
                ("is_gated", self.gate.is_some().into()),
                ("is_normed", self.norm.is_some().into()),
                ("norm", self.norm.map_or(0, |norm| norm.row * stride).into()),
                ("eps", self.norm.map_or(0.0, |norm| norm.eps).into()),
                ("first_layer", head.is_first_layer.into()),
                ("decay", head.decay.map_or(0, |row| row * stride).into()),
                ("group", head.linear.group.into()),
                ("scale", head.linear.scale.into()),
                ("lora", Param::Rows(lora)),
            ],
            bindings: [
                ("vectors", self.vectors()),
                ("bias", bias),
                ("proj", Binding::Var(head.proj)),
                ("state", Binding::State(self.state)),
                ("y", Binding::Var(self.y)),
                ("w0", weight),
            ]
            .into_iter()
            .chain(head.bindings)
            .collect(),
            grid: [self.n_heads() as u32, cx.runs as u32, 1],
        })
    }
}
