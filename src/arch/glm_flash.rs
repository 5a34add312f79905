//! The architecture of GLM-4.7-Flash (`glm4_moe_lite`): a transformer with latent attention and experts.
//!
//! x is the residual stream. x̂ = RMS(x) is x after an RMS norm, multiplied by the norm's weight. The equations of one block follow. `Tape::NAME` at
//! the right of a line is the word (fused operation) that computes the equations from this line on:
//!
//! ```text
//! attention                                                                             Tape::norm_linear
//!   a = W_qa x̂    [c | k_rope] = W_kva x̂                 without W_qa: q = W_q x̂
//!                                                                                         Tape::norm_linear
//!   q = W_qb RMS(a)                                       per head h: [q_h | q_rope]
//!                                                                                         Tape::latent_qk
//!   k = [k_rope | RMS(c)]    v = RMS(c)    q_h ← [q_rope | K_h q_h]
//!                                                                                         Tape::latent_attention
//!   q_rope, k_rope ← rotary(…)    y_h = Σ_t softmax_t(q_h · k_t f) v_t
//!                                                                                         Tape::head_products, Tape::linear_add
//!   x ← x + W_o [V_h y_h]
//! mlp of a dense layer                                                                  Tape::swiglu, Tape::linear_add
//!   x ← x + W_down (silu(W_gate x̂) ⊙ W_up x̂)
//! mlp of a sparse layer                                                                 Tape::swiglu, Tape::route
//!   x ← x + the shared expert of x̂ + Σ over the chosen experts e of w_e (expert e of x̂)
//!                                                                                         Tape::experts, Tape::linear_add
//! ```
//!
//! For each head h, W_kvb has two halves, K_h and V_h. The official code computes the keys K_hᵀ c and the values V_h c of every head. Here all heads
//! read the latent c itself (*absorbed* form), and f = 1/√(channels of a query head).

use super::detect::dims;
use super::glm4::{EMBED, HEAD, layer};
use super::{Architecture, Blueprint, Facts, Purpose, Shapes};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tape::{MatrixKind, MatrixPart, Rotary, Rows, Tape, Var, vector};
use crate::weights::{FLASH, Flash, GLM, Glm};
use crate::words::{ExpertMatrices, HeadPlaces, LatentAttention, LatentInputs, Norm, Router};
use std::collections::BTreeMap;

/// The sizes and settings of a GLM-4.7-Flash.
#[derive(Debug, Clone)]
pub struct GlmFlash {
    pub n_layer: usize,
    /// The width of the residual stream.
    pub n_embd: usize,
    /// The width of the mlp of dense layers.
    pub n_ffn: usize,
    /// The number of rows of the embedding matrix.
    pub n_vocab: usize,
    /// Settings that GLM-4.7-Flash shares with other GLMs.
    pub config: Glm,
    /// Settings of latent attention and experts.
    pub flash: Flash,
}

/// The architecture of GLM-4.7-Flash.
pub struct GlmFlashArch;

/// The ε of the norms of both latents. The official code does not set it from `rms_norm_eps`.
const LATENT_EPS: f32 = 1e-6;

impl Architecture for GlmFlashArch {
    fn name(&self) -> &'static str {
        FLASH
    }

    fn about(&self) -> &'static str {
        "GLM-4.7-Flash"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        shapes.metadata(GLM).and_then(|json| Glm::parse(json).ok()).is_some_and(|glm| glm.flash.is_some())
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let config = Glm::parse(shapes.metadata(GLM).unwrap_or_default())?;
        let flash = config.flash.clone().ok_or_else(|| Error::model("the configuration has no experts"))?;
        let [n_vocab, n_embd] = dims(shapes, EMBED)?;
        let n_layer = shapes.n_layer();
        if flash.dense.len() != n_layer {
            let text = format!("expected {} layers as in the configuration, found {n_layer} layers", flash.dense.len());
            return Err(Error::model(text));
        }
        let dense = flash.dense.iter().position(|dense| *dense);
        let n_ffn = match dense {
            Some(index) => dims::<2>(shapes, &layer(index, "mlp.gate_proj.weight"))?[0],
            None => flash.expert_ffn,
        };
        Ok(Box::new(GlmFlash { n_layer, n_embd, n_ffn, n_vocab, config, flash }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["4b", "flash"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        // No model of the size 4b was published. This size exists for benchmarks, and has about an eighth of the weights.
        let (n_layer, n_embd, n_head, n_ffn, expert_ffn) = match size {
            "4b" => (24, 1024, 10, 5120, 768),
            "flash" => (47, 2048, 20, 10240, 1536),
            _ => return None,
        };
        let flash = Flash {
            q_rank: Some(768),
            kv_rank: 512,
            nope_size: 192,
            rope_size: 64,
            value_size: 256,
            n_experts: 64,
            n_used: 4,
            n_groups: 1,
            n_used_groups: 1,
            n_shared: 1,
            expert_ffn,
            scale: 1.8,
            normalises: true,
            dense: (0..n_layer).map(|i| i == 0).collect(),
        };
        let config = Glm {
            model_type: FLASH.into(),
            n_head,
            n_kv_head: n_head,
            head_size: 256,
            rotary_size: 64,
            rope_theta: 1e6,
            rms_norm_eps: 1e-5,
            attention_bias: false,
            max_context: 202_752,
            eos: vec![154_820, 154_827, 154_829],
            pad: Some(154_820),
            labels: vec![],
            flash: Some(flash.clone()),
        };
        Some(Box::new(GlmFlash { n_layer, n_embd, n_ffn, n_vocab: 154_880, config, flash }))
    }
}

impl Blueprint for GlmFlash {
    fn facts(&self) -> Facts {
        Facts {
            architecture: FLASH,
            version: FLASH,
            n_layer: self.n_layer,
            n_embd: self.n_embd,
            n_ffn: self.n_ffn,
            n_head: self.config.n_head,
            head_size: self.config.head_size,
            n_vocab: self.n_vocab,
            context: Some(self.config.max_context),
            stop_ids: self.config.eos.clone(),
            labels: None,
            purpose: Purpose::Logits,
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(GLM.to_string(), self.config.to_json())])
    }

    fn sampling(&self) -> Sampling {
        Sampling::glm()
    }

    /// Records the embedding `x = E[token]`, then each block, then the head: logits = W RMS(x).
    fn record(&self, t: &mut Tape) {
        t.rotary = Some(Rotary { size: self.flash.rope_size, base: self.config.rope_theta });
        let table = t.table(MatrixPart::new(EMBED, self.n_vocab, self.n_embd));
        let x = t.embed(table, None);
        t.carry(x);
        for index in 0..self.n_layer {
            t.begin_layer();
            self.attention(t, &|tensor| layer(index, &format!("self_attn.{tensor}")), &layer(index, "input_layernorm.weight"), x);
            let norm = self.norm(t, layer(index, "post_attention_layernorm.weight"));
            let name = |tensor: &str| layer(index, &format!("mlp.{tensor}"));
            if self.flash.dense[index] {
                let y = self.swiglu(t, "mlp", &name, self.n_ffn, norm, x);
                t.linear_add(self.down(&name, self.n_ffn), y, x);
            } else {
                self.experts(t, &name, norm, x);
            }
        }
        t.begin_layer();
        let norm = self.norm(t, "model.norm.weight".into());
        t.head(x, norm, MatrixPart::new(HEAD, self.n_vocab, self.n_embd), None);
    }
}

impl GlmFlash {
    /// Records x += latent attention of RMS(x). `name` maps a tensor's name within the attention to its full name.
    fn attention(&self, t: &mut Tape, name: &dyn Fn(&str) -> String, norm: &str, x: Var) {
        let (c, h) = (&self.flash, self.config.n_head);
        let (head, width) = (c.nope_size + c.rope_size, c.kv_rank);
        let norm = self.norm(t, norm.into());
        let matrix = |tensor: &str, rows, k| MatrixPart::new(name(&format!("{tensor}.weight")), rows, k);
        let of_heads = |tensor: &str, rows, k| (0..h).map(|i| matrix(&format!("{tensor}.{i}"), rows, k)).collect();
        let of_queries = match c.q_rank {
            Some(rank) => matrix("q_a_proj", rank, self.n_embd),
            None => matrix("q_proj", h * head, self.n_embd),
        };
        let latent = matrix("kv_a_proj_with_mqa", width + c.rope_size, self.n_embd);
        let latents = t.norm_linear("latents", x, norm, vec![of_queries, latent], vec![]);
        let queries = match c.q_rank {
            Some(rank) => {
                let norm = Norm::rms(t.vectors(rank, vec![vector(name("q_a_layernorm.weight"))]), LATENT_EPS);
                t.norm_linear("queries", latents, norm, vec![matrix("q_b_proj", h * head, rank)], vec![])
            }
            None => latents,
        };
        let norm = Norm::rms(t.vectors(width, vec![vector(name("kv_a_layernorm.weight"))]), LATENT_EPS);
        let inputs = LatentInputs { queries, latent: latents, norm, head, rotary: c.rope_size };
        let qk = t.latent_qk(inputs, of_heads("k_b", width, c.nope_size));
        let scale = 1.0 / (head as f32).sqrt();
        let of = LatentAttention { n_heads: h, key_size: c.rope_size + width, value_size: width, scale };
        let y = t.latent_attention(name("").trim_end_matches('.'), qk, of);
        let values = t.scratch("values", Rows::Tokens, &[h * c.value_size]);
        let places = |stride| HeadPlaces { first: 0, stride };
        t.head_products(of_heads("v_b", c.value_size, width), (y, places(width)), (values, places(c.value_size)));
        t.linear_add(matrix("o_proj", self.n_embd, h * c.value_size), values, x);
    }

    /// Records x += the outputs of the shared and the chosen experts. `name` maps a tensor's name within the mlp to its full name.
    fn experts(&self, t: &mut Tape, name: &dyn Fn(&str) -> String, norm: Norm, x: Var) {
        let (c, width) = (&self.flash, self.n_embd);
        let in_shared = |tensor: &str| name(&format!("shared_experts.{tensor}"));
        let shared_ffn = c.n_shared * c.expert_ffn;
        // The experts add to x in place, so all words that read x must be recorded first.
        let shared = (c.n_shared > 0).then(|| self.swiglu(t, "shared_expert", &in_shared, shared_ffn, norm, x));
        let router = Router {
            n_experts: c.n_experts,
            n_used: c.n_used,
            n_groups: c.n_groups,
            n_used_groups: c.n_used_groups,
            scale: c.scale,
            normalises: c.normalises,
        };
        let gate = MatrixPart::new(name("gate.weight"), c.n_experts, width);
        let routed = t.route(x, norm, gate, vector(name("gate.e_score_correction_bias")), router);
        let all = |tensor: &str, rows, k| {
            (0..c.n_experts).map(|e| MatrixPart::new(name(&format!("experts.{e}.{tensor}.weight")), rows, k)).collect::<Vec<_>>()
        };
        let f = c.expert_ffn;
        t.experts(
            routed,
            ExpertMatrices {
                gate: all("gate_proj", f, width),
                up: all("up_proj", f, width),
                down: all("down_proj", width, f).into_iter().map(MatrixPart::wide).collect(),
            },
            x,
        );
        if let Some(y) = shared {
            t.linear_add(self.down(&in_shared, shared_ffn), y, x);
        }
    }

    /// Records silu(W_gate RMS(x)) ⊙ W_up RMS(x) and returns it, `[tokens, ffn]`.
    fn swiglu(&self, t: &mut Tape, var: &'static str, name: &dyn Fn(&str) -> String, ffn: usize, norm: Norm, x: Var) -> Var {
        let [gate, up] = ["gate_proj.weight", "up_proj.weight"].map(|tensor| MatrixPart::new(name(tensor), ffn, self.n_embd));
        t.swiglu(var, x, norm, gate, up)
    }

    fn down(&self, name: &dyn Fn(&str) -> String, ffn: usize) -> MatrixPart {
        MatrixPart::new(name("down_proj.weight"), self.n_embd, ffn).of(MatrixKind::Value).wide()
    }

    /// Declares an RMS norm over the residual stream. `tensor` is the name of the norm's weight, a vector.
    fn norm(&self, t: &mut Tape, tensor: String) -> Norm {
        Norm::rms(t.vectors(self.n_embd, vec![vector(tensor)]), self.config.rms_norm_eps)
    }
}
