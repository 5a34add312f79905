//! The roles of matrices.

/// The role of a matrix in its model. In the option `quant`, an exception such as `head=i8` chooses the format of all matrices of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixKind {
    /// A projection of time mix or attention, or a receptance, key or gate matrix of the ffn.
    Plain,
    /// The last matrix of an ffn.
    Value,
    /// One matrix of a low-rank pair: two small matrices whose product replaces a large matrix.
    LowRank,
    /// A table whose rows are looked up, never multiplied.
    Embedding,
    /// The matrix that computes logits.
    Head,
    /// The matrix of a router, which scores experts. It is always stored as f32, because a small error may choose another expert.
    Router,
}
