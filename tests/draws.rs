//! Compares the sampling kernel with the host's sampler: ids and penalty counts must be equal for all logits and settings.

use crate::support::adapter;
use wingbeat::low_level::exec::NOTHING;
use wingbeat::low_level::exec::gpu::{Device, DrawSizes, Draws, Recipe, compose};
use wingbeat::low_level::sample::fixed::{Scale, key_of, mass, ordered, share_of, uniform_below};
use wingbeat::low_level::sample::{Order, SEEN, Sampler, Sampling, number};
use wingbeat::low_level::tape::{CURSOR_WORDS, Run, Step};

/// Pseudo-random numbers that are the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Returns a number in -1 .. 1.
    fn unit(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A device, and the buffers that the sampling kernel reads and writes.
struct Bench {
    device: Device,
    sizes: DrawSizes,
    logits: wgpu::Buffer,
    cursor: wgpu::Buffer,
    draws: Draws,
}

const STORAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_DST).union(wgpu::BufferUsages::COPY_SRC);

impl Bench {
    fn new(device: &Device, n_vocab: usize, n_slots: usize, n_steps: usize) -> Bench {
        let device = device.with_caps(device.caps.clone());
        let sizes = DrawSizes { n_vocab, stride: n_vocab.next_multiple_of(64), n_slots, n_steps };
        let logits = device.buffer("logits", n_slots * sizes.stride * 4, STORAGE).unwrap();
        let cursor = device.buffer("cursor", CURSOR_WORDS * 4, STORAGE | wgpu::BufferUsages::UNIFORM).unwrap();
        let draws = Draws::new(&device, sizes, logits.as_entire_binding(), &cursor).unwrap();
        Bench { device, sizes, logits, cursor, draws }
    }

    fn read(&self, buffer: &wgpu::Buffer, words: usize) -> Vec<u32> {
        read(&self.device, buffer, words)
    }

    /// Samples `n_steps` times from the same logits: on the device in one submission, and on the host. Compares ids, counts, positions in the
    /// random stream, and the cursor.
    fn compare(&mut self, samplers: &mut [Sampler], logits: &[Vec<f32>], exempt: &[u32], case: &str) {
        let (sizes, n) = (self.sizes, samplers.len());
        for (slot, row) in logits.iter().enumerate() {
            self.device.queue.write_buffer(&self.logits, (slot * sizes.stride * 4) as u64, bytemuck::cast_slice(row));
        }
        // The outputs are in the reverse order of the rows.
        let run = |i: u32| Run {
            first_row: i,
            len: 1,
            page_in: 10 + i,
            page_out: 20 + i,
            shift_in: 2 * i,
            shift_out: 2 * i + 1,
            ..Run::default()
        };
        let rows = 0..n as u32;
        let step =
            Step { tokens: vec![7; n], runs: rows.clone().map(run).collect(), outputs: rows.clone().rev().collect(), ..Step::default() };
        let mut words = Vec::new();
        step.encode(&mut words).unwrap();
        self.device.queue.write_buffer(&self.cursor, 0, bytemuck::cast_slice(&words));
        self.draws.begin(&self.device, &samplers.iter().collect::<Vec<_>>(), exempt).unwrap();
        let mut encoder = self.device.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            (0..sizes.n_steps).for_each(|_| self.draws.encode(&mut pass, sizes.n_slots));
        }
        self.device.queue.submit([encoder.finish()]);

        let mut last = vec![0; n];
        let all = self.read(self.draws.ids(), self.sizes.ids_at(sizes.n_steps - 1).end as usize / 4);
        for step in 0..sizes.n_steps {
            let at = sizes.ids_at(step).start as usize / 4;
            for (slot, sampler) in samplers.iter_mut().enumerate() {
                let is_guarded = sampler.guarded(&logits[slot]).is_some();
                let want = if is_guarded { NOTHING } else { sampler.sample(&logits[slot]).unwrap_or(NOTHING) };
                assert_eq!(all[at + slot], want, "{case}: step {step}, slot {slot} of {}, {:?}", sizes.n_vocab, sampler.settings());
                last[slot] = want;
                if want != NOTHING {
                    let is_exempt = exempt[want as usize / 32] >> (want % 32) & 1 == 1;
                    sampler.accept(want, if is_exempt { 0.0 } else { 1.0 });
                }
            }
        }
        let quads = sizes.n_vocab.div_ceil(4) * 4;
        let memory = self.read(self.draws.memory(), n * 2 * quads);
        for (slot, sampler) in samplers.iter().enumerate().filter(|(slot, _)| last[*slot] != NOTHING) {
            let mut want = vec![0; quads];
            sampler.counts().iter().for_each(|&(id, count)| want[id as usize] = count | SEEN);
            assert!(memory[2 * slot * quads..][..quads] == want, "{case}: counts of {} {:?}", sizes.n_vocab, sampler.settings());
            assert_eq!(all[4 * slot] as u64, sampler.draws(), "{case}");
        }
        // Every step has read the pages that the previous step wrote.
        let after = self.read(&self.cursor, words.len());
        let half = (sizes.n_steps % 2) as u32;
        let position = sizes.n_steps as u32;
        let runs = rows.map(|i| Run { page_in: 20 + i, shift_in: 2 * i + half, shift_out: 2 * i + (half ^ 1), position, ..run(i) });
        let tokens = last.iter().rev().map(|&id| if id == NOTHING { 0 } else { id }).collect();
        let mut want = Vec::new();
        Step { tokens, runs: runs.collect(), outputs: step.outputs, blocks: vec![] }.encode(&mut want).unwrap();
        assert_eq!(after, want, "{case}: the cursor");
    }
}

/// Returns the first `words` 32-bit words of a buffer.
fn read(device: &Device, buffer: &wgpu::Buffer, words: usize) -> Vec<u32> {
    let to = device.buffer("back", words * 4, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST).unwrap();
    let mut encoder = device.device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &to, 0, words as u64 * 4);
    device.queue.submit([encoder.finish()]);
    to.slice(..).map_async(wgpu::MapMode::Read, |_| ());
    device.wait().unwrap();
    let view = to.slice(..words as u64 * 4).get_mapped_range().unwrap();
    view.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Returns `n` logits. `kind` selects their form: in some forms many logits are equal, in others some logits are not finite.
fn some_logits(n: usize, kind: usize, numbers: &mut Numbers) -> Vec<f32> {
    let sigma = numbers.one_of(&[0.001, 0.5, 3.0, 12.0]);
    let mut logits: Vec<f32> = (0..n).map(|_| (0..4).map(|_| numbers.unit()).sum::<f32>() * sigma).collect();
    match kind % 6 {
        1 => logits.iter_mut().for_each(|x| *x = (*x * 2.0).round() / 2.0),
        2 => logits.iter_mut().for_each(|x| *x = numbers.one_of(&[*x, *x, *x, f32::NAN, f32::INFINITY, f32::NEG_INFINITY])),
        3 => logits.iter_mut().for_each(|x| *x = numbers.one_of(&[0.0, -0.0, 1e-30, -1e-40, *x, 3e3, -3e3, f32::MIN])),
        4 => logits.fill(numbers.one_of(&[0.0, -7.25])),
        _ => {}
    }
    logits
}

/// Returns pseudo-random settings. Together, the settings of many calls use every filter and penalty.
fn some_settings(n_vocab: usize, numbers: &mut Numbers) -> Sampling {
    let id = |numbers: &mut Numbers| numbers.below(n_vocab + 1) as u32; // the largest id has no logit
    let mut s = Sampling {
        temperature: numbers.one_of(&[0.0, 0.01, 0.3, 1.0, 1.0, 1.0, 5.0, 1e-30, 1e30]),
        top_p: numbers.one_of(&[1.0, 1.0, 0.0, 0.3, 0.85, 0.85, 0.999]),
        top_k: numbers.one_of(&[0, 0, 0, 1, 3, 50, 700]),
        min_p: numbers.one_of(&[0.0, 0.0, 0.0, 1e-9, 0.05, 0.7, 1.0]),
        top_n_sigma: numbers.one_of(&[0.0, 0.0, 0.01, 1.0, 2.5, 1e9]),
        guard: numbers.one_of(&[None, None, Some(0)]),
        order: numbers.one_of(&[Order::Pip, Order::Hf]),
        seed: u64::from(numbers.next()) << 20 | u64::from(numbers.next()),
        ..Sampling::greedy(0)
    };
    if numbers.below(2) == 0 {
        s.presence_penalty = numbers.one_of(&[0.0, 0.2, 2.0, -0.5]);
        s.frequency_penalty = numbers.one_of(&[0.0, 0.2, -0.1, 1e9]);
        s.penalty_decay = numbers.one_of(&[1.0, 0.996, 0.5, 0.0]);
        s.repeat_penalty = numbers.one_of(&[1.0, 1.3, 0.7, 1e20]);
    }
    if numbers.below(3) == 0 {
        let bias = |numbers: &mut Numbers| numbers.one_of(&[1.5, -0.3, 100.0, -1e9, f32::NEG_INFINITY]);
        s.logit_bias = (0..n_vocab.min(5)).map(|_| (id(numbers), bias(numbers))).collect();
        s.ban = (0..numbers.below(3)).map(|_| id(numbers)).collect();
    }
    s
}

/// Compares device and host in `cases` cases per vocabulary size. Each case has three slots and three steps.
fn compare_many(vocabularies: &[usize], cases: usize, trusted: bool) {
    let Some(adapter) = adapter() else { return };
    let mut device = Device::open(&adapter, false).unwrap();
    device.trusted = trusted;
    let mut numbers = Numbers(1);
    for &n_vocab in vocabularies {
        let mut bench = Bench::new(&device, n_vocab, 4, 3);
        for case in 0..cases {
            let mut samplers: Vec<Sampler> = (0..3).map(|_| Sampler::new(some_settings(n_vocab, &mut numbers))).collect();
            for sampler in &mut samplers {
                for _ in 0..numbers.below(40) {
                    sampler.skip();
                    sampler.accept(numbers.below(n_vocab) as u32, numbers.one_of(&[0.0, 1.0]));
                }
            }
            let logits: Vec<Vec<f32>> = (0..3).map(|slot| some_logits(n_vocab, case + slot, &mut numbers)).collect();
            let exempt: Vec<u32> = (0..n_vocab.div_ceil(32)).map(|_| numbers.next()).collect();
            bench.compare(&mut samplers, &logits, &exempt, &format!("case {case}"));
        }
    }
}

#[test]
fn the_device_draws_what_the_host_draws() {
    compare_many(&[1, 2, 7, 255, 256, 257, 1000], 60, true);
}

#[test]
fn checked_shaders_draw_what_the_host_draws() {
    compare_many(&[5, 1000], 20, false);
}

#[test]
fn large_vocabularies_draw_what_the_host_draws() {
    compare_many(&[65536], 8, true);
    compare_many(&[151_552], 2, true);
}

/// A kernel that returns the exact bits of the fixed-point functions, such as masses (probabilities that are not normalised, as integers) and random
/// numbers. Comparing ids would not find an error in the last bits, because such an error rarely changes an id. Input: `[n, 4]` words. Output: `[n,
/// 16]` words.
const ARITHMETIC: &str = "
@group(0) @binding(0) var<storage, read> words: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
    let w = words[at.x];
    let s = Scale(w.y | 0x80000000u, w.z % 64u);
    results[4u * at.x] = vec4(times(w.x, s), mass(w.x, s), mass(w.x, Scale(0xb8aa3b29u, 25u)), ordered(w.x));
    results[4u * at.x + 1u] = vec4(share_of(vec2(w.x, w.y >> 12u), w.z), uniform_below(w.xy, vec2(w.z, w.w >> 12u)));
    results[4u * at.x + 2u] = vec4(random_number(w.xy, w.zw), u32(quantised(w.x)), u32(is_finite(w.x)));
    results[4u * at.x + 3u] = vec4(u32(times_signed(bitcast<i32>(w.x), s)), u32(add_saturating(bitcast<i32>(w.x), bitcast<i32>(w.y))),
        u32(subtract_saturating(bitcast<i32>(w.x), bitcast<i32>(w.y))), 0u);
}
";

#[test]
fn the_arithmetic_equals_the_hosts() {
    let Some(adapter) = adapter() else { return };
    let device = Device::open(&adapter, false).unwrap();
    let mut numbers = Numbers(2);
    let edges = [0, 1, 7, 0xffff, 0x10000, 0x7f7f_ffff, 0x7f80_0000, 0x7fff_ffff, 0x8000_0000, 0xff7f_ffff, 0xffff_fffe, 0xffff_ffff];
    let n = 1 << 15;
    let mut word = |i: usize| match i % 4 {
        0 => numbers.one_of(&edges),
        1 => (numbers.unit() * 100.0).to_bits(),
        2 => numbers.next() << 1 >> numbers.below(32),
        _ => numbers.next() << 1 | numbers.next() & 1,
    };
    let words: Vec<[u32; 4]> = (0..n).map(|i| [0, 1, 2, 3].map(|j| word(i >> (2 * j)))).collect();

    let text = |shader| compose(&Recipe { shader, modules: vec![], constants: vec![] }).unwrap();
    let source = wgpu::ShaderSource::Wgsl((text("sample/fixed") + &text("sample/chacha") + ARITHMETIC).into());
    let module = device.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let input = device.buffer("words", n * 16, STORAGE).unwrap();
    let output = device.buffer("results", n * 64, STORAGE).unwrap();
    device.queue.write_buffer(&input, 0, bytemuck::cast_slice(&words));
    let entries = [&input, &output].map(|b| b.as_entire_binding());
    let entries: Vec<_> = (0..).zip(entries).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
    let group = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    let mut encoder = device.device.create_command_encoder(&Default::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(n as u32 / 64, 1, 1);
    }
    device.queue.submit([encoder.finish()]);

    let long = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let split = |x: u64| [x as u32, (x >> 32) as u32];
    for (w, got) in words.iter().zip(read(&device, &output, n * 16).chunks_exact(16)) {
        let (s, x) = (Scale { mantissa: w[1] | 1 << 31, shift: w[2] % 64 }, f32::from_bits(w[0]));
        let (a, b) = (w[0] as i32, w[1] as i32);
        let scaled = [s.times(w[0]), mass(w[0], s), mass(w[0], Scale { mantissa: 0xb8aa_3b29, shift: 25 })];
        assert_eq!(got[..3], scaled, "{w:x?}");
        assert!(x.is_nan() || got[3] == ordered(x), "{w:x?}");
        assert_eq!(got[4..6], split(share_of(long(w[0], w[1] >> 12), w[2])), "{w:x?}");
        assert_eq!(got[6..8], split(uniform_below(long(w[0], w[1]), long(w[2], w[3] >> 12))), "{w:x?}");
        assert_eq!(got[8..10], split(number(long(w[0], w[1]), long(w[2], w[3]))), "{w:x?}");
        assert_eq!(got[11] == 1, x.is_finite(), "{w:x?}");
        assert!(!x.is_finite() || got[10] ^ 1 << 31 == key_of(x), "{w:x?}: {x}");
        let signed = [s.times_signed(a), a.saturating_add(b), a.saturating_sub(b)].map(|x| x as u32);
        assert_eq!(got[12..15], signed, "{w:x?}");
    }
}
