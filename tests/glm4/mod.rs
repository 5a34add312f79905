//! Tests GLM-4 with the model types `glm` and `glm4`. Compares a model whose weights come from a formula with golden numbers: results of the official
//! code for the same weights.

mod engine;
mod relatives;
mod session;

use crate::support::{adapter, caps, nmse};
use std::sync::Arc;
use wingbeat::error::Result;
use wingbeat::low_level::arch::{Blueprint, Glm4};
use wingbeat::low_level::exec::cpu::CpuModel;
use wingbeat::low_level::exec::gpu::{Device, GpuModel};
use wingbeat::low_level::exec::{Executor, Loaded};
use wingbeat::low_level::quant;
use wingbeat::low_level::tape::{Capacity, Class, Run, Source, Step, TOKENS_PER_BLOCK, Tape};
use wingbeat::low_level::tensor::{DType, View};
use wingbeat::low_level::weights::Glm;

/// Returns element `i` of tensor number `tensor`: an exact pseudo-random number in -1 .. 1.
fn r(tensor: u32, i: u32) -> f64 {
    let mut x = (tensor + 1).wrapping_mul(0x9E37_79B1).wrapping_add(i.wrapping_mul(0x85EB_CA6B));
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    f64::from(x ^ (x >> 16)) / f64::from(1u32 << 31) - 1.0
}

/// The weights as a formula. The model has width 16, 4 query heads and 2 key heads of size 8, ffn width 24, 2 layers and 16 token ids.
#[derive(Clone, Copy)]
struct Formula;

impl Formula {
    /// Returns the parameters of the formula for a tensor: the tensor's number, the index of its first element, the offset and the scale. q, k and
    /// v are rows of one tensor.
    fn of(name: &str) -> (u32, u32, f64, f64) {
        let Some((layer, part)) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
            return match name {
                "model.embed_tokens.weight" => (0, 0, 0.0, 0.02),
                "model.norm.weight" => (1, 0, 1.0, 0.4),
                _ => (2, 0, 0.0, 1.0),
            };
        };
        let b = 16 * (layer.parse::<u32>().unwrap() + 1);
        match part {
            "input_layernorm.weight" => (b, 0, 1.0, 0.4),
            "self_attn.q_proj.weight" => (b + 1, 0, 0.0, 0.8),
            "self_attn.k_proj.weight" => (b + 1, 32 * 16, 0.0, 0.8),
            "self_attn.v_proj.weight" => (b + 1, 48 * 16, 0.0, 0.8),
            "self_attn.q_proj.bias" => (b + 2, 0, 0.0, 0.5),
            "self_attn.k_proj.bias" => (b + 2, 32, 0.0, 0.5),
            "self_attn.v_proj.bias" => (b + 2, 48, 0.0, 0.5),
            "self_attn.o_proj.weight" => (b + 3, 0, 0.0, 0.3),
            "post_attention_layernorm.weight" => (b + 4, 0, 1.0, 0.4),
            "mlp.gate_up_proj.weight" => (b + 5, 0, 0.0, 0.6),
            "mlp.down_proj.weight" => (b + 6, 0, 0.0, 0.6),
            "post_self_attn_layernorm.weight" => (b + 7, 0, 1.0, 0.4),
            "post_mlp_layernorm.weight" => (b + 8, 0, 1.0, 0.4),
            other => panic!("{other}"),
        }
    }
}

impl Source for Formula {
    fn has(&self, _name: &str) -> bool {
        true
    }
    fn dtype(&self, _name: &str) -> Option<DType> {
        Some(DType::F32)
    }
    fn with(&self, name: &str, shape: &[usize], read: &mut dyn FnMut(&View<'_>) -> Result<()>) -> Result<()> {
        let (tensor, first, offset, scale) = Formula::of(name);
        let n = shape.iter().product::<usize>() as u32;
        let bytes: Vec<u8> = (first..first + n).flat_map(|i| ((offset + scale * r(tensor, i)) as f32).to_le_bytes()).collect();
        read(&View::dense(DType::F32, shape, &bytes)?)
    }
}

fn model(model_type: &str) -> Glm4 {
    let config = Glm {
        model_type: model_type.into(),
        n_head: 4,
        n_kv_head: 2,
        head_size: 8,
        rotary_size: 4,
        rope_theta: 5e6,
        rms_norm_eps: 1.5625e-7,
        attention_bias: true,
        max_context: 128,
        eos: vec![],
        pad: None,
        labels: vec![],
        flash: None,
    };
    Glm4 { n_layer: 2, n_embd: 16, n_ffn: 24, n_vocab: 16, labels: None, config }
}

const TOKENS: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

/// Loads a model in f32 on the CPU, and on an adapter with both kernel families.
fn executors(model: &dyn Blueprint, source: &dyn Source, capacity: Capacity) -> Vec<(&'static str, Arc<Tape>, Box<dyn Executor>)> {
    let mut tape = Tape::new();
    model.record(&mut tape);
    let f32 = quant::find("f32").unwrap();
    tape.store_as(f32);
    tape.cache_format = f32;
    let tape = Arc::new(tape);
    let cpu = CpuModel::load(tape.clone(), source, &mut |_, _| ()).unwrap();
    let mut all = vec![("cpu", tape.clone(), cpu.executor(capacity).unwrap())];
    for (name, class) in [("gpu by lanes", Class::Lanes), ("gpu by groups", Class::Groups)] {
        let Some(adapter) = adapter() else { continue };
        let base = Device::open(&adapter, false).unwrap();
        let device = Arc::new(base.with_caps(caps(base.caps.clone(), class)));
        let gpu = GpuModel::load(device, tape.clone(), source, &mut |_, _| ()).unwrap();
        all.push((name, tape.clone(), gpu.executor(capacity).unwrap()));
    }
    all
}

/// Returns a step with the tokens of one slot. The step requests the logits of all tokens. `position` is the position of the first token.
fn step(position: usize, tokens: &[u32]) -> Step {
    let run = Run { len: tokens.len() as u32, position: position as u32, shift_out: 1, ..Run::default() };
    Step { tokens: tokens.to_vec(), runs: vec![run], outputs: (0..tokens.len() as u32).collect(), blocks: vec![1, 0] }
}

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    best as u32
}

/// The results of the official code, rounded to six decimals.
struct Expected {
    model_type: &'static str,
    /// The first 8 channels of the residual stream after the last layer, at position 7.
    x: [f32; 8],
    first: [f32; 16],
    last: [f32; 16],
    best: [u32; 8],
    greedy: [u32; 12],
}

const EXPECTED: [Expected; 2] = [
    Expected {
        model_type: "glm",
        x: [1.976362, 7.310313, 2.429641, 2.09753, 4.951708, -4.604344, -3.313905, 4.408356],
        first: [
            1.183263, 2.383269, 0.646492, -3.083773, 4.330113, 0.160669, -0.194646, 0.097556, 1.577875, 3.084149, -4.574847, -1.61029,
            -0.255848, 1.272038, 1.192219, 0.489478,
        ],
        last: [
            -0.003977, -1.84001, 4.282692, -2.592351, 1.781163, -0.685229, -1.519536, 0.774121, 4.086743, 0.658482, -3.748995, -1.485802,
            1.201575, -2.348464, -0.926228, 1.435024,
        ],
        best: [4, 2, 4, 15, 11, 4, 9, 2],
        greedy: [2, 0, 2, 11, 9, 1, 12, 2, 0, 2, 11, 8],
    },
    Expected {
        model_type: "glm4",
        x: [-0.455177, 4.570171, -0.739129, 0.396490, 3.523644, -1.856577, -3.105996, 2.091522],
        first: [
            1.614209, 2.312102, 0.968091, -3.977287, 4.050211, -0.367876, -0.349800, 0.107545, 1.357831, 3.513137, -4.549861, -0.878593,
            -0.193558, 1.363883, 0.798110, -0.045077,
        ],
        last: [
            1.565843, -2.472501, 3.522463, -1.458515, -0.426286, 0.619054, -0.689182, -0.340787, 3.807408, -0.757022, -2.809587, -1.580083,
            2.006757, -1.932795, -0.009855, 2.584545,
        ],
        best: [4, 4, 4, 15, 3, 4, 9, 8],
        greedy: [8, 0, 2, 0, 2, 5, 3, 4, 5, 2, 5, 9],
    },
];

#[test]
fn the_formula_is_the_specified_one() {
    for (t, i, expected) in [(0, 0, -0.1459284946), (0, 1, 0.5311488342), (17, 5, -0.6329137054), (33, 200, -0.8462443585)] {
        assert!((r(t, i) - expected).abs() < 1e-10);
    }
}

#[test]
fn a_model_without_a_file_gives_the_official_numbers() {
    let capacity = Capacity { pages: 1, blocks: 2, listed: 2, context: 2 * TOKENS_PER_BLOCK };
    for expected in EXPECTED {
        for (device, tape, mut executor) in executors(&model(expected.model_type), &Formula, capacity) {
            let place = format!("{} on {device}", expected.model_type);
            let near = |found: &[f32], expected: &[f32]| {
                let error = nmse(found, expected);
                assert!(error < 1e-11, "{place}: {error:.1e}: {found:?} {expected:?}");
            };
            let mut logits = Vec::new();
            executor.run(&step(0, &TOKENS), &mut logits).unwrap();
            let rows: Vec<&[f32]> = logits.chunks_exact(16).collect();
            near(rows[0], &expected.first);
            near(rows[7], &expected.last);
            assert_eq!(rows.iter().map(|row| argmax(row)).collect::<Vec<_>>(), expected.best, "{place}");
            let x = executor.read_var(tape.find_var("x").unwrap(), 8).unwrap();
            near(&x[7 * tape.vars[0].stride()..][..8], &expected.x);
            let cache = |name: &str| tape.find_cache(&format!("model.layers.0.self_attn.{name}")).unwrap();
            // The caches are `[token, head, channel]`. The expected numbers belong to position 7.
            let keys = executor.read_cache(cache("k"), &[1, 0], 8).unwrap();
            near(&keys[7 * 16..][..8], &[-0.003804, 0.597535, 1.698772, 1.011889, 0.850572, 1.8943, 3.24151, 2.621917]);
            let values = executor.read_cache(cache("v"), &[1, 0], 8).unwrap();
            near(&values[7 * 16 + 8..][..8], &[0.273701, -1.714894, 1.229781, 2.677598, 0.899905, -0.406359, -0.792690, 2.318062]);

            let mut made = vec![argmax(rows[7])];
            while made.len() < expected.greedy.len() {
                executor.run(&step(7 + made.len(), &made[made.len() - 1..]), &mut logits).unwrap();
                made.push(argmax(&logits));
            }
            assert_eq!(made, expected.greedy, "{place}");
        }
    }
}
