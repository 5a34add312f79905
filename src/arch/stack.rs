//! What all RWKV share: the table and its norm, the names of a block's norms, the head.

use crate::tape::{Part, Tape, Var, Vector, VectorPart, vector};

/// Weight and bias of a layer norm.
pub fn norm(prefix: &str) -> [VectorPart; 2] {
    [vector(format!("{prefix}.weight")), vector(format!("{prefix}.bias"))]
}

/// Packed vectors that begin with a norm: what `norm_shift_linear` takes.
pub fn norm_and(t: &mut Tape, width: usize, prefix: &str, rest: Vec<VectorPart>) -> Vector {
    t.vectors(width, norm(prefix).into_iter().chain(rest).collect())
}

/// x = LN0(E[token]).
pub fn embed(t: &mut Tape, n_vocab: usize, width: usize, has_ln0: bool) -> Var {
    let table = t.table(Part::new("emb.weight", n_vocab, width));
    let ln0 = has_ln0.then(|| t.vectors(width, norm("blocks.0.ln0").into()));
    t.embed(table, ln0)
}

/// logits = W LN_out(x).
pub fn head(t: &mut Tape, x: Var, n_vocab: usize, width: usize) -> Var {
    let ln_out = t.vectors(width, norm("ln_out").into());
    t.head(x, ln_out, Part::new("head.weight", n_vocab, width))
}
