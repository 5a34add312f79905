//! Code that RWKV-4 to 7 share: sizes, embedding, names of tensors and states, channel mix, and head.

use super::detect::dims;
use super::{Facts, Purpose, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Initial, Matrix, MatrixPart, State, Tape, Var, VectorPart, optional_vector, vector};
use crate::weights::{GROUP_NORM_EPS, LAYER_NORM_EPS, layer_of};
use crate::words::{self, Activation, Norm, Projection};

/// The names of the sizes of the published World models: RWKV models with a multilingual vocabulary of 65 536 ids.
pub const SIZES: &[&str] = &["0.1b", "0.4b", "1.5b", "2.9b", "7.2b"];

/// The sizes that models of RWKV-4 to 7 have in common.
#[derive(Debug, Clone)]
pub struct Base {
    pub n_layer: usize,
    /// The width C of the residual stream.
    pub n_embd: usize,
    /// The width A of the time mix. A equals C in every published model.
    pub n_att: usize,
    /// The width F of the channel mix.
    pub n_ffn: usize,
    /// The number of rows of the embedding matrix.
    pub n_vocab: usize,
    /// The number S of channels per head. The time mix, whose width is A, has A / S heads. In RWKV-4, every channel has its own state, so S is
    /// 1.
    pub head_size: usize,
    /// The epsilon of the group norm in the time mix. The heads are the groups.
    pub group_norm_eps: f32,
    /// The epsilon of all norms of the residual stream.
    pub layer_norm_eps: f32,
    /// True if these norms are RMS norms, as in models with the body of Qwen2. False if they are layer norms.
    pub has_rms_norms: bool,
    /// True if the layer norms have biases.
    pub has_norm_bias: bool,
    /// True if the group norm in the time mix has a bias.
    pub has_group_norm_bias: bool,
    /// True if the model has a norm after the embedding. False if the file stores an embedding that is already normalised.
    pub has_ln0: bool,
    /// True if the file has tuned initial values of the recurrent state (tensors `time_state`).
    pub has_time_state: bool,
    /// True if the file has tuned initial values of the token-shift state (tensors `ts_state`).
    pub has_ts_state: bool,
    /// The purpose of the model: to compute logits, vectors or scores. Models of RWKV-4 to 6 always compute logits.
    pub purpose: Purpose,
}

/// The default epsilon of the group norm, head_size_divisor² × 1e-5. The official divisor is 8 for every head size.
const DEFAULT_GROUP_NORM_EPS: f32 = 64e-5;

impl Base {
    /// Reads the sizes from the tensors' shapes. `n_head` is the number of heads, which the caller reads from a tensor that depends on the
    /// version.
    ///
    /// # Errors
    ///
    /// `Model` if a tensor is missing or empty, or if widths disagree. `Model` also if a head has more than 128 channels, if a layer in the middle
    /// has no tensors, or if an epsilon is not a positive number.
    pub fn read(shapes: &dyn Shapes, n_head: usize) -> Result<Base> {
        Base::read_from(shapes, n_head, ["blocks.0.att.key.weight", "blocks.0.ffn.key.weight"])
    }

    /// Does what [`read`](Self::read) does. `att` and `ffn` name the matrices whose numbers of rows are the widths of time mix and ffn.
    pub fn read_from(shapes: &dyn Shapes, n_head: usize, [att, ffn]: [&str; 2]) -> Result<Base> {
        let [n_vocab, n_embd] = dims(shapes, "emb.weight")?;
        // The columns of both matrices are checked below. A matrix with 0 columns takes no bytes, so a damaged file could claim any number of
        // rows for it.
        let [n_att, att_width] = dims(shapes, att)?;
        let [n_ffn, ffn_width] = dims(shapes, ffn)?;
        let text = |what: String| Err(Error::model(what));
        if n_head == 0 || n_vocab == 0 || n_embd == 0 || n_att == 0 || n_ffn == 0 {
            return text(format!(
                "expected sizes of at least 1, found width {n_embd}, time mix {n_att}, {n_head} heads, ffn {n_ffn}, vocabulary {n_vocab}"
            ));
        }
        if att_width != n_embd || ffn_width != n_embd {
            return text(format!("expected matrices of {n_embd} columns, found {att_width} in {att} and {ffn_width} in {ffn}"));
        }
        if !n_att.is_multiple_of(n_head) || n_att / n_head > 128 {
            return text(format!("expected heads of equal size with 1 to 128 channels each, found {n_head} heads for {n_att} channels"));
        }
        let eps = |key: &str, default: f32| match shapes.metadata(key) {
            Some(text) => text
                .parse()
                .ok()
                .filter(|e: &f32| *e > 0.0 && e.is_finite())
                .ok_or_else(|| Error::model(format!("expected a positive number as metadata value {key}, found {text:?}"))),
            None => Ok(default),
        };
        let n_layer = shapes.n_layer();
        let is_beyond = |name: &str| layer_of(name).is_some_and(|layer| layer >= n_layer);
        if let Some(name) = shapes.find(&is_beyond) {
            return text(format!("expected layers without a gap, found {name} but no tensor of layer {n_layer}"));
        }
        // Weight or bias is enough evidence. If only the weight or only the bias is present, the file is broken, and a later check reports the
        // missing tensor.
        let has_ln0 = ["weight", "bias"].iter().any(|n| shapes.shape(&format!("blocks.0.ln0.{n}")).is_some());
        // All norms of a list have biases, or no norm has a bias. So one bias is enough evidence, and a file that lacks other biases is broken.
        let has_bias = |norms: &[&str]| shapes.find(&|name| norms.iter().any(|norm| name.ends_with(norm))).is_some();
        Ok(Base {
            n_layer,
            n_att,
            layer_norm_eps: eps(LAYER_NORM_EPS, words::LAYER_NORM_EPS)?,
            has_norm_bias: has_bias(&["ln0.bias", "ln1.bias", "ln2.bias", "ln_out.bias"]),
            has_group_norm_bias: has_bias(&["ln_x.bias"]),
            group_norm_eps: eps(GROUP_NORM_EPS, DEFAULT_GROUP_NORM_EPS)?,
            has_ln0,
            has_time_state: shapes.has_att("time_state"),
            has_ts_state: shapes.has_att("ts_state"),
            ..Base::new(n_embd, n_ffn, n_att / n_head, n_vocab)
        })
    }

    /// Returns the sizes of the published World model of this size, with heads of 64 channels. `n_ffn` computes the width of the channel mix
    /// from the width of the residual stream. Returns `None` if `size` is unknown.
    pub fn published(size: &str, n_ffn: fn(usize) -> usize) -> Option<Base> {
        let (n_layer, n_embd) = match size {
            "0.1b" => (12, 768),
            "0.4b" => (24, 1024),
            "1.5b" => (24, 2048),
            "2.9b" => (32, 2560),
            "7.2b" => (32, 4096),
            "13.3b" | "14b" => (61, 4096),
            _ => return None,
        };
        Some(Base { n_layer, ..Base::new(n_embd, n_ffn(n_embd), 64, 65536) })
    }

    /// Returns the sizes of a model of one layer, with a norm after the embedding and without tuned initial states.
    pub fn new(n_embd: usize, n_ffn: usize, head_size: usize, n_vocab: usize) -> Base {
        Base {
            n_layer: 1,
            n_embd,
            n_att: n_embd,
            n_ffn,
            n_vocab,
            head_size,
            layer_norm_eps: words::LAYER_NORM_EPS,
            has_rms_norms: false,
            has_norm_bias: true,
            has_group_norm_bias: true,
            group_norm_eps: DEFAULT_GROUP_NORM_EPS,
            has_ln0: true,
            has_time_state: false,
            has_ts_state: false,
            purpose: Purpose::Logits,
        }
    }

    /// Returns the number of heads.
    pub fn n_head(&self) -> usize {
        self.n_att / self.head_size
    }

    /// Returns the model's facts for reports. Token 0 ends a text in every RWKV model.
    pub fn facts(&self, architecture: &'static str, version: &'static str) -> Facts {
        Facts {
            architecture,
            version,
            n_layer: self.n_layer,
            n_embd: self.n_embd,
            n_ffn: self.n_ffn,
            n_head: self.n_head(),
            head_size: self.head_size,
            n_vocab: self.n_vocab,
            context: None,
            stop_ids: vec![0],
            labels: None,
            purpose: self.purpose.clone(),
        }
    }

    /// Returns the weight and the bias of a norm. `prefix` is the name of both tensors without the ending. An RMS norm has no bias, so zeros take its
    /// place.
    fn norm_parts(&self, prefix: &str) -> [VectorPart; 2] {
        if self.has_rms_norms {
            let weight = || vector(format!("{prefix}.weight"));
            return [weight(), weight().map(|_| 0.0)];
        }
        norm(prefix, self.has_norm_bias)
    }

    /// Declares a norm over the width C. `parts` are weight and bias, then further vectors that a word reads. The bias of an RMS norm is zero.
    pub fn norm(&self, t: &mut Tape, parts: Vec<VectorPart>) -> Norm {
        let vectors = t.vectors(self.n_embd, parts);
        if self.has_rms_norms { Norm::rms(vectors, self.layer_norm_eps) } else { Norm::layer(vectors, self.layer_norm_eps) }
    }

    /// Records `x = LN0(E[token])`, or `x = E[token]` if the model has no norm after the embedding. Calls `block` for each layer. Then records
    /// `logits = W LN_out(x)`. A model that computes vectors or scores has no matrix W, and its tape ends with LN_out(x).
    pub fn record(&self, t: &mut Tape, block: &mut dyn FnMut(&mut Tape, &Layer<'_>, Var)) {
        t.ends_hidden |= self.purpose != Purpose::Logits;
        let table = t.table(MatrixPart::new("emb.weight", self.n_vocab, self.n_embd));
        let ln0 = self.has_ln0.then(|| self.norm(t, self.norm_parts("blocks.0.ln0").into()));
        let x = t.embed(table, ln0);
        t.carry(x);
        for index in 0..self.n_layer {
            t.begin_layer();
            block(t, &Layer { base: self, index, table, ln0 }, x);
        }
        t.begin_layer();
        let ln_out = self.norm(t, self.norm_parts("ln_out").into());
        t.head(x, ln_out, MatrixPart::new("head.weight", self.n_vocab, self.n_embd), None);
    }
}

/// Returns the vectors `PREFIX.weight` and `PREFIX.bias` of a norm. If `has_bias` is false, the file may lack the bias, and then the bias is zero.
fn norm(prefix: &str, has_bias: bool) -> [VectorPart; 2] {
    let bias = format!("{prefix}.bias");
    [vector(format!("{prefix}.weight")), if has_bias { vector(bias) } else { optional_vector(bias) }]
}

/// One layer of an RWKV model. Its methods return the names of the layer's tensors, declare the layer's states, and record words (fused
/// operations) that several versions share.
pub struct Layer<'a> {
    base: &'a Base,
    index: usize,
    /// The embedding matrix.
    table: Matrix,
    /// The norm after the embedding, or `None` if the model has no such norm.
    ln0: Option<Norm>,
}

impl Layer<'_> {
    /// Records x0 = LN0(E[token]), the embedding of each token, and returns it, `[tokens, C]`. No later word changes it, so all layers can read
    /// it.
    pub fn embedding(&self, t: &mut Tape) -> Var {
        let x0 = t.embed_into("x0", self.table, self.ln0);
        t.carry(x0);
        x0
    }

    /// Returns the full name of a tensor of this layer, `blocks.N.TENSOR`.
    pub fn name(&self, tensor: &str) -> String {
        format!("blocks.{}.{tensor}", self.index)
    }

    /// Returns a vector of the time mix, `blocks.N.att.TENSOR`.
    pub fn att(&self, tensor: &str) -> VectorPart {
        vector(self.name(&format!("att.{tensor}")))
    }

    /// Returns a vector of the channel mix, `blocks.N.ffn.TENSOR`.
    pub fn ffn(&self, tensor: &str) -> VectorPart {
        vector(self.name(&format!("ffn.{tensor}")))
    }

    /// Returns the weight and the bias of the group norm `att.ln_x`. Both vectors have the width of the time mix.
    pub fn ln_x(&self) -> [VectorPart; 2] {
        norm(&self.name("att.ln_x"), self.base.has_group_norm_bias)
    }

    /// Declares the layer's norm `name`, for a word such as [`Tape::norm_shift_linear`]. Its vectors are weight, bias and the lerp weights `mixes`.
    pub fn norm_and(&self, t: &mut Tape, name: &str, mixes: Vec<VectorPart>) -> Norm {
        let parts = self.base.norm_parts(&self.name(name)).into_iter().chain(mixes).collect();
        self.base.norm(t, parts)
    }

    /// Returns an empty list, to which [`Lerps::project`] adds projections. Each projection reads a lerp between the normalised x of this token and
    /// of the previous token. `norm` is the name of the norm within the layer, such as `ln1`.
    pub fn lerps(&self, norm: &str) -> Lerps<'_> {
        Lerps { layer: self, norm: norm.into(), mixes: Vec::new(), projections: Vec::new() }
    }

    /// Returns the matrix `att.NAME.weight`. Its inputs are the C channels of the residual stream, its outputs the A channels of the time mix.
    pub fn matrix(&self, name: &str) -> MatrixPart {
        MatrixPart::new(self.name(&format!("att.{name}.weight")), self.base.n_att, self.base.n_embd)
    }

    /// Returns the first matrix of a low-rank pair: the tensor `att.NAME`, which the file stores as `[C, rank]`. C is the width of the residual
    /// stream.
    pub fn reduce(&self, name: &str, rank: usize) -> MatrixPart {
        MatrixPart::in_out(self.name(&format!("att.{name}")), rank, self.base.n_embd)
    }

    /// Returns the second matrix of a low-rank pair: the tensor `att.NAME`, which the file stores as `[rank, A]`. A is the width of the time
    /// mix.
    pub fn expand(&self, name: &str, rank: usize) -> MatrixPart {
        MatrixPart::in_out(self.name(&format!("att.{name}")), self.base.n_att, rank)
    }

    /// Records x += W_o y, the output of the time mix. W_o is the matrix of [`output_part`](Self::output_part).
    pub fn output(&self, t: &mut Tape, y: Var, x: Var) {
        t.linear_add(self.output_part(), y, x);
    }

    /// Returns the matrix W_o of the time mix, `att.output.weight`. Its inputs are the A channels of the time mix, its outputs the C channels of
    /// the residual stream.
    pub fn output_part(&self) -> MatrixPart {
        MatrixPart::new(self.name("att.output.weight"), self.base.n_embd, self.base.n_att)
    }

    /// Declares the token-shift state of the time mix: LN1(x) of the previous token, a vector as wide as the residual stream x.
    pub fn att_shift(&self, t: &mut Tape) -> State {
        let shift = t.state(self.name("att.shift"), &[self.base.n_embd], true);
        self.begin_with(t, shift, "att.ts_state", self.base.has_ts_state)
    }

    /// Declares the token-shift state of the channel mix: LN2(x) of the previous token, a vector as wide as the residual stream x.
    pub fn ffn_shift(&self, t: &mut Tape) -> State {
        t.state(self.name("ffn.shift"), &[self.base.n_embd], true)
    }

    /// Declares the recurrent state of the time mix, `[heads, S, S]`. S is the number of channels per head. Each head has a matrix with a row
    /// for each value channel and a column for each key channel.
    pub fn wkv_state(&self, t: &mut Tape) -> State {
        let size = self.base.head_size;
        let wkv = t.state(self.name("att.wkv"), &[self.base.n_head(), size, size], false);
        self.begin_with(t, wkv, "att.time_state", self.base.has_time_state)
    }

    fn begin_with(&self, t: &mut Tape, state: State, tensor: &str, is_there: bool) -> State {
        if is_there {
            t.begin_with(state, Initial::Tensor(self.name(tensor)));
        }
        state
    }

    /// Records the channel mix of RWKV-4 to 6: x += σ(W_r X_r) ⊙ W_v relu²(W_k X_k), where X_m = x̂ + (x̂₋ − x̂) ⊙ mix_m and x̂ = LN2(x).
    pub fn channel_mix(&self, t: &mut Tape, x: Var, mix_k: VectorPart, mix_r: VectorPart) {
        let (c, f) = (self.base.n_embd, self.base.n_ffn);
        let mut lerps = self.lerps("ln2");
        lerps.project(mix_k, MatrixPart::new(self.name("ffn.key.weight"), f, c), Activation::ReluSquared);
        let gate = lerps.project(mix_r, MatrixPart::new(self.name("ffn.receptance.weight"), c, c), Activation::Sigmoid);
        let shift = self.ffn_shift(t);
        let kr = lerps.record(t, "ffn", x, shift);
        t.linear_add_sparse_gated(MatrixPart::new(self.name("ffn.value.weight"), c, f), kr, gate, x);
    }
}

/// A list of projections y = activation(W X) of lerps X = x̂ + (x̂₋ − x̂) ⊙ mix. x̂ is the normalised x, x̂₋ is x̂ of the previous token.
pub struct Lerps<'a> {
    layer: &'a Layer<'a>,
    norm: String,
    mixes: Vec<VectorPart>,
    projections: Vec<Projection>,
}

impl Lerps<'_> {
    /// Adds a projection. Returns the index of its column in the result of [`record`](Self::record). Projections with the same mix share one
    /// lerp.
    pub fn project(&mut self, mix: VectorPart, matrix: MatrixPart, activation: Activation) -> usize {
        let known = self.mixes.iter().position(|m| m.tensor == mix.tensor);
        let mix = known.unwrap_or_else(|| {
            self.mixes.push(mix);
            self.mixes.len() - 1
        });
        self.push(mix, matrix, activation)
    }

    /// Adds a projection that reads x̂ itself, not a lerp. Returns the index of its column, as [`project`](Self::project) does. x̂ is the lerp with a
    /// mix of zeros. Files have no such mix, so the mix `full` is loaded with zeros in place of its elements. Call this function after all calls of
    /// `project`, which finds known mixes by name and would take the zeros for the mix `full`.
    pub fn project_unshifted(&mut self, full: VectorPart, matrix: MatrixPart, activation: Activation) -> usize {
        self.mixes.push(full.map(|_| 0.0));
        self.push(self.mixes.len() - 1, matrix, activation)
    }

    fn push(&mut self, mix: usize, part: MatrixPart, activation: Activation) -> usize {
        self.projections.push(Projection { part, mix, activation, bias: None });
        self.projections.len() - 1
    }

    /// Records one word (fused operation) that computes all projections. `shift` is the state that holds x̂₋. Returns the word's result, which
    /// has one column per projection.
    pub fn record(self, t: &mut Tape, name: &'static str, x: Var, shift: State) -> Var {
        let norm = self.layer.norm_and(t, &self.norm, self.mixes);
        t.norm_shift_linear(name, x, norm, self.projections, shift)
    }
}

/// Returns the width of the channel mix of RWKV-5 and 6: 3.5 times the width of the residual stream, rounded down to a multiple of 32.
pub fn seven_halves(n_embd: usize) -> usize {
    n_embd * 7 / 2 / 32 * 32
}

/// Returns 1 − `mu`, the share of the previous token in a lerp. Files of RWKV-4 and 5 store `mu`, the share of the current token.
pub fn of_current(mu: f32) -> f32 {
    1.0 - mu
}
