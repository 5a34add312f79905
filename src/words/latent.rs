//! The inputs of latent attention, whose keys and values are one latent per token. The value RMS(c) is the last part of the key:
//!
//!   k = [rotary channels | RMS(c)]    q_h = [rotary channels | W_h x_h]
//! c is the latent, `[T, C]`. x_h are the channels of query head h that are not rotary. W_h, `[C, channels of x_h]`, maps them to the space of
//! latents, so that scores are products with latents (*absorbed* form). In GLM-4.7-Flash, a query and a key take 1088 multiplications per head. With
//! the keys and values of each head (*expanded* form) they would take 512, but every step would spend 229 000 to expand each earlier key. Source:
//! DeepSeek-V2, arXiv 2405.04434, section 2.1.

use super::HeadPlaces;
use super::norm::Norm;
use super::testing::{Case, batches, steps};
use crate::tape::{Binding, Dispatch, Host, Lowering, MatrixPart, Rows, Tape, Var, Word, row_grid, vector};

/// The activations that [`Tape::latent_qk`] reads, and their sizes. All numbers of channels are multiples of 8.
pub struct LatentInputs {
    /// The queries of all heads, `[T, heads * head]`, the first column of the activation. The last `rotary` channels of a head are rotary.
    pub queries: Var,
    /// The latent and, after it, the rotary channels of the key, `[T, C + rotary]`, the last column of the activation.
    pub latent: Var,
    /// The norm of the latent.
    pub norm: Norm,
    /// The number of channels of a query head.
    pub head: usize,
    /// The number of rotary channels.
    pub rotary: usize,
}

struct Latent {
    of: LatentInputs,
    n_heads: usize,
    /// The columns are q and k.
    qk: Var,
}

impl Tape {
    /// Records q and k of latent attention. Returns qk, which has the columns q and k. `absorbed` are the matrices W_h, one per query head.
    pub fn latent_qk(&mut self, of: LatentInputs, absorbed: Vec<MatrixPart>) -> Var {
        let (n_heads, width, rotary) = (absorbed.len(), of.norm.width(self), of.rotary);
        let size = rotary + width;
        let qk = self.scratch("latent_qk", Rows::Tokens, &[n_heads * size, size]);
        let from = (of.queries, HeadPlaces { first: 0, stride: of.head });
        self.record(Latent { of, n_heads, qk });
        self.head_products(absorbed, from, (qk, HeadPlaces { first: rotary, stride: size }));
        qk
    }
}

fn last_column(tape: &Tape, var: Var) -> usize {
    let spec = tape.var_spec(var);
    spec.column(spec.columns.len() - 1)
}

impl Word for Latent {
    fn name(&self) -> &'static str {
        "latent"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let LatentInputs { queries, latent, norm, head, rotary } = self.of;
        let stride = |v: Var| cx.tape.var_spec(v).stride().into();
        vec![Dispatch {
            shader: "attention/latent",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("n_heads", self.n_heads.into()),
                ("head", head.into()),
                ("rotary", rotary.into()),
                ("width", norm.width(cx.tape).into()),
                ("queries_stride", stride(queries)),
                ("latent_stride", stride(latent)),
                ("latent_at", last_column(cx.tape, latent).into()),
                ("stride", stride(self.qk)),
                ("eps", norm.eps.into()),
            ],
            bindings: vec![
                ("queries", Binding::Var(queries)),
                ("latent", Binding::Var(latent)),
                ("norm", Binding::Vector(norm.vectors)),
                ("qk", Binding::Var(self.qk)),
            ],
            grid: row_grid(cx.tokens),
        }]
    }

    fn twin(&self, host: &mut Host) {
        let LatentInputs { queries, latent, norm, head, rotary } = self.of;
        let width = norm.width(&host.tape);
        let size = rotary + width;
        let [q_stride, c_stride, stride] = [queries, latent, self.qk].map(|v| host.stride(v));
        let latent_at = last_column(&host.tape, latent);
        let mut qk = host.take(self.qk);
        let mut normed = vec![0.0; width];
        for (t, row) in qk.chunks_exact_mut(stride).enumerate().take(host.step.tokens.len()) {
            let q = host.var(queries)[t * q_stride..].chunks_exact(head);
            for (to, q) in row.chunks_exact_mut(size).zip(q).take(self.n_heads) {
                to[..rotary].copy_from_slice(&q[head - rotary..]);
            }
            let (c, key) = host.var(latent)[t * c_stride + latent_at..][..size].split_at(width);
            norm.apply(host, c, &mut normed);
            let k = &mut row[self.n_heads * size..][..size];
            k[..rotary].copy_from_slice(key);
            k[rotary..].copy_from_slice(&normed);
        }
        host.put(self.qk, qk);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n_heads, plain, rotary, width, steps) in [
        (1, 8, 8, 8, steps(2)),
        (3, 16, 8, 72, steps(2)),
        (2, 56, 8, 264, steps(2)),
        (9, 8, 24, 40, steps(2)),
        (20, 24, 16, 128, batches()),
    ] {
        let mut tape = Tape::new();
        let queries = tape.var("queries", Rows::Tokens, &[n_heads * (plain + rotary)]);
        let columns = [3, width + rotary];
        let latent = tape.var("c", Rows::Tokens, if n_heads == 3 { &columns } else { &columns[1..] });
        let norm = Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-5);
        let absorbed = (0..n_heads).map(|h| MatrixPart::new(format!("w{h}"), width, plain)).collect();
        tape.latent_qk(LatentInputs { queries, latent, norm, head: plain + rotary, rotary }, absorbed);
        cases.push(Case::new(format!("latent/{n_heads}/{plain}/{rotary}/{width}"), tape, steps, 1e-10));
    }
    cases
}
