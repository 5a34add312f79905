//! Tests the order of operations, ties, penalties and the random stream. Compares distributions with the official RWKV package's.

use super::fixed::ONE;
use super::*;
use crate::error::Kind;

mod dry;
mod filters;
mod mirostat;
mod twin;

const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/golden/sampler_pip.json"));

/// Returns settings with all filters and penalties off.
fn plain(order: Order) -> Sampling {
    Sampling { temperature: 1.0, order, ..Sampling::greedy(0) }
}

fn p_of(settings: &Sampling, logits: &[f32]) -> Vec<f32> {
    Sampler::new(settings.clone()).distribution(logits).unwrap()
}

/// Returns the ids that may be drawn.
fn kept(settings: &Sampling, logits: &[f32]) -> Vec<u32> {
    let p = p_of(settings, logits);
    assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    (0..).zip(&p).filter(|(_, p)| **p > 0.0).map(|(id, _)| id).collect()
}

/// Returns `n` pseudo-random logits, roughly normal with standard deviation `sigma`.
fn noise(n: usize, seed: u64, sigma: f32) -> Vec<f32> {
    let u = |i: usize| (stream::number(seed, i as u64) >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    (0..n).map(|i| (0..6).map(|j| u(6 * i + j)).sum::<f32>() * sigma * 1.414).collect()
}

/// Returns the largest difference between two probabilities of the same id.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Returns how far the counts of drawn ids are from the distribution `p`: (chi-square - degrees) / sqrt(2 degrees). The result is roughly standard
/// normal if the ids were drawn from `p`.
fn surprise(counts: &[usize], p: &[f32]) -> f64 {
    let n: usize = counts.iter().sum();
    let (mut chi_square, mut degrees) = (0.0f64, -1.0f64);
    for (&count, &p) in counts.iter().zip(p) {
        if p == 0.0 {
            assert_eq!(count, 0, "an impossible id was drawn");
            continue;
        }
        let expected = f64::from(p) * n as f64;
        chi_square += (count as f64 - expected).powi(2) / expected;
        degrees += 1.0;
    }
    // `degrees` is 0 if only one token is possible
    (chi_square - degrees) / (2.0 * degrees.max(1.0)).sqrt()
}

fn draw(sampler: &mut Sampler, logits: &[f32], n: usize) -> Vec<u32> {
    (0..n).map(|_| sampler.sample(logits).unwrap()).collect()
}

fn tally(ids: &[u32], n_vocab: usize) -> Vec<usize> {
    let mut counts = vec![0; n_vocab];
    for &id in ids {
        counts[id as usize] += 1;
    }
    counts
}

fn floats(v: &serde_json::Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

#[test]
fn pip_matches_the_golden_distributions() {
    let cases: Vec<serde_json::Value> = serde_json::from_str(GOLDEN).unwrap();
    assert!(cases.len() > 20);
    for case in &cases {
        let settings = Sampling {
            temperature: case["temperature"].as_f64().unwrap() as f32,
            top_p: case["top_p"].as_f64().unwrap() as f32,
            top_k: case["top_k"].as_u64().unwrap() as usize,
            ..plain(Order::Pip)
        };
        let (got, want) = (p_of(&settings, &floats(&case["logits"])), floats(&case["probs"]));
        let d = difference(&got, &want);
        assert!(d < 1e-6, "{settings:?}: {d}");
        // a token that is less than 2^-31 times as likely as the most likely token has mass 0 in the sampler
        let least = want.iter().copied().fold(0.0, f32::max) * 1e-9;
        assert!(got.iter().zip(&want).all(|(&g, &w)| if g > 0.0 { w > 0.0 } else { w < least }), "{settings:?}");
    }
}

#[test]
fn the_comparers_find_wrong_distributions() {
    let logits = noise(50, 1, 2.0);
    let p = p_of(&plain(Order::Pip), &logits);
    let mut wrong = p.clone();
    wrong.swap(0, 1);
    assert!(difference(&p, &wrong) > 1e-4);

    let ids = draw(&mut Sampler::new(plain(Order::Pip)), &logits, 20_000);
    let tempered = p_of(&Sampling { temperature: 1.1, ..plain(Order::Pip) }, &logits);
    assert!(surprise(&tally(&ids, 50), &tempered) > 6.0);
}

#[test]
fn draws_follow_the_distribution() {
    let logits = noise(50, 1, 2.0);
    let all = [
        plain(Order::Pip),
        Sampling::rwkv(),
        Sampling::glm(),
        Sampling { temperature: 1.7, top_p: 0.9, top_k: 20, min_p: 0.01, ..plain(Order::Pip) },
        Sampling { temperature: 0.6, top_p: 0.95, top_k: 20, min_p: 0.05, logit_bias: vec![(3, 2.0)], ..plain(Order::Hf) },
    ];
    for settings in all {
        let p = p_of(&settings, &logits);
        let ids = draw(&mut Sampler::new(settings.clone()), &logits, 20_000);
        let s = surprise(&tally(&ids, 50), &p);
        assert!(s.abs() < 4.0, "{settings:?}: {s}");
    }
}

#[test]
fn greedy_in_every_way() {
    let mut logits = noise(1000, 5, 3.0);
    logits[700] = 30.0;
    logits[701] = 30.0;
    for order in [Order::Pip, Order::Hf] {
        let s = plain(order);
        assert_eq!(kept(&Sampling { temperature: 0.0, top_p: 0.9, ..s.clone() }, &logits), [700]);
        assert_eq!(kept(&Sampling { top_k: 1, ..s.clone() }, &logits), [700]);
        assert_eq!(kept(&Sampling { min_p: 1.0, ..s.clone() }, &logits), [700, 701]);
        assert_eq!(kept(&Sampling { temperature: 1e-30, ..s.clone() }, &logits), [700, 701]);
    }
    // a top_p of 0 keeps all tokens with the largest logit in order `Pip`, and one of these tokens in order `Hf`
    assert_eq!(kept(&Sampling { top_p: 0.0, ..plain(Order::Pip) }, &logits), [700, 701]);
    assert_eq!(kept(&Sampling { top_p: 0.0, ..plain(Order::Hf) }, &logits), [700]);
}

#[test]
fn filters_off_leave_the_softmax() {
    let logits = noise(300, 6, 4.0);
    let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    let softmax: Vec<f32> = logits.iter().map(|&x| (f64::from(x).exp() / total) as f32).collect();
    for order in [Order::Pip, Order::Hf] {
        for s in [plain(order), Sampling { top_k: 300, top_p: 1.0, ..plain(order) }] {
            assert!(difference(&p_of(&s, &logits), &softmax) < 1e-6);
        }
    }
}

/// The logits of the probabilities 0.15, 0.4, 0.15, 0.3.
const FOUR: [f32; 4] = [-1.897_12, -0.916_290_7, -1.897_12, -1.203_972_8];

#[test]
fn top_p_keeps_ties_in_pip_order_only() {
    let top_p = |p: f32, order| kept(&Sampling { top_p: p, ..plain(order) }, &FOUR);
    assert_eq!(top_p(0.39, Order::Pip), [1]);
    assert_eq!(top_p(0.41, Order::Pip), [1, 3]);
    assert_eq!(top_p(0.75, Order::Pip), [0, 1, 2, 3]);
    assert_eq!(top_p(0.39, Order::Hf), [1]);
    assert_eq!(top_p(0.41, Order::Hf), [1, 3]);
    assert_eq!(top_p(0.75, Order::Hf), [0, 1, 3]);
}

#[test]
fn filters_come_in_their_order() {
    // Pip: the temperature comes after top_p, so it does not change which tokens stay
    for temperature in [0.1, 1.0, 10.0] {
        assert_eq!(kept(&Sampling { temperature, top_p: 0.6, ..plain(Order::Pip) }, &FOUR), [1, 3]);
    }
    assert_eq!(kept(&Sampling { temperature: 0.1, top_p: 0.6, ..plain(Order::Hf) }, &FOUR), [1]);
    assert_eq!(kept(&Sampling { temperature: 100.0, top_p: 0.6, ..plain(Order::Hf) }, &FOUR), [0, 1, 3]);
    // Pip: top_p counts all tokens, and top_k applies later. Hf: top_p counts only the two tokens that top_k kept, and 0.4 / 0.7 > 0.5
    assert_eq!(kept(&Sampling { top_p: 0.5, top_k: 2, ..plain(Order::Pip) }, &FOUR), [1, 3]);
    assert_eq!(kept(&Sampling { top_p: 0.5, top_k: 2, ..plain(Order::Hf) }, &FOUR), [1]);
    // min_p applies before the temperature in Pip, and after the temperature in Hf. Temperature 3 raises the ratio 0.15 / 0.4 from 0.375 to 0.72
    let min_p = |order, temperature| kept(&Sampling { min_p: 0.5, temperature, ..plain(order) }, &FOUR);
    assert_eq!((min_p(Order::Pip, 3.0), min_p(Order::Hf, 3.0)), (vec![1, 3], vec![0, 1, 2, 3]));
    // the kept probabilities are p^(1/T), normalised
    let p = p_of(&Sampling { temperature: 0.5, top_p: 0.6, ..plain(Order::Pip) }, &FOUR);
    assert!(difference(&p, &[0.0, 0.64, 0.0, 0.36]) < 1e-5);
}

/// Applies the filters to a sorted list of all tokens. Returns the ids that may be drawn.
fn by_sorting(s: &Sampling, logits: &[f32]) -> Vec<u32> {
    let t = if s.order == Order::Hf { f64::from(s.temperature) } else { 1.0 };
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let mut sorted: Vec<(f64, u32)> = (0..).zip(logits).map(|(id, x)| ((f64::from(max - x) / t), id)).collect();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let top_k = |v: &mut Vec<(f64, u32)>| v.truncate(if s.top_k == 0 { v.len() } else { s.top_k });
    if s.order == Order::Hf {
        top_k(&mut sorted);
    }
    let total: f64 = sorted.iter().map(|(d, _)| (-d).exp()).sum();
    let mut sum = 0.0;
    let cut = sorted.iter().position(|(d, _)| {
        sum += (-d).exp();
        sum >= f64::from(s.top_p) * total
    });
    if let (Some(cut), true) = (cut, s.top_p < 1.0) {
        let edge = sorted[cut].0;
        let n = if s.order == Order::Pip { sorted.iter().filter(|(d, _)| *d <= edge).count() } else { cut + 1 };
        sorted.truncate(n);
    }
    if s.order == Order::Pip {
        top_k(&mut sorted);
    }
    sorted.retain(|(d, _)| (-d).exp() >= f64::from(s.min_p));
    // drop tokens whose integer mass is 0; the most likely token has mass 2^31
    let left = if s.order == Order::Pip { f64::from(s.temperature) } else { 1.0 };
    sorted.retain(|(d, _)| (-d / left).exp() * f64::from(1u32 << 31) >= 1.0);
    let mut ids: Vec<u32> = sorted.into_iter().map(|(_, id)| id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn the_chain_agrees_with_sorting() {
    for (seed, sigma) in [(1, 0.001), (2, 0.3), (3, 2.0), (4, 30.0)] {
        for n in [1, 2, 17, 1000, 5003] {
            let mut logits = noise(n, seed, sigma);
            // round to fixed point, so that the sampler and the sorted list have the same ties
            logits.iter_mut().for_each(|x| *x = (*x * ONE).trunc() / ONE);
            if seed == 3 {
                logits.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0); // many ties
            }
            for order in [Order::Pip, Order::Hf] {
                for (top_p, top_k, min_p, temperature) in [
                    (0.3, 0, 0.0, 1.0),
                    (0.85, 0, 0.0, 1.3),
                    (0.999, 40, 0.0, 0.7),
                    (1.0, 13, 0.0, 1.0),
                    (0.9, 700, 0.03, 1.5),
                    (0.123, 3, 0.0, 2.0),
                ] {
                    let s = Sampling { temperature, top_p, top_k, min_p, ..plain(order) };
                    assert_eq!(kept(&s, &logits), by_sorting(&s, &logits), "{s:?} on {n} logits of {sigma}");
                }
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_stream() {
    let logits = noise(200, 9, 1.0);
    let of = |seed: u64| draw(&mut Sampler::new(Sampling { seed, ..Sampling::glm() }), &logits, 60);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    assert_ne!(of(7), of(7 << 32));
    // the published keystream of ChaCha8 for a key of zeros begins with the words 3e00ef2f 895f40d6
    assert_eq!(stream::number(0, 0), 0xd640_5f89_2fef_003e);
    assert_ne!(stream::number(1, u64::MAX), stream::number(1, u64::MAX - 1));
}

#[test]
fn memory_restores_exactly() {
    let logits = noise(200, 9, 1.0);
    let step = |s: &mut Sampler| {
        let id = s.sample(&logits).unwrap();
        s.accept(id, 1.0);
        id
    };
    let mirostat = Sampling { mirostat: 3.0, dry_multiplier: 1.0, repeat_penalty: 1.2, repeat_last_n: Some(7), ..Sampling::rwkv() };
    for settings in [Sampling::rwkv(), mirostat] {
        restores(settings, &step);
    }
}

fn restores(settings: Sampling, step: &dyn Fn(&mut Sampler) -> u32) {
    let mut original = Sampler::new(Sampling { seed: 5, ..settings.clone() });
    original.read(&[1, 2, 3]);
    for _ in 0..30 {
        step(&mut original);
    }
    let mut restored = Sampler::new(settings);
    restored.restore(original.memory());
    assert_eq!(restored.memory(), original.memory());
    assert_eq!(original.memory().draws, 30);
    let mut copy = original.clone();
    let mut fork = original.reseeded(6);
    assert_eq!((fork.memory().counts, fork.memory().seed, fork.memory().draws), (original.memory().counts, 6, 0));
    let next: Vec<u32> = (0..30).map(|_| step(&mut original)).collect();
    assert_eq!((0..30).map(|_| step(&mut restored)).collect::<Vec<_>>(), next);
    assert_eq!((0..30).map(|_| step(&mut copy)).collect::<Vec<_>>(), next);
    assert_ne!((0..30).map(|_| step(&mut fork)).collect::<Vec<_>>(), next);
}

#[test]
fn a_distribution_draws_nothing() {
    let logits = noise(200, 9, 1.0);
    let mut sampler = Sampler::new(Sampling::rwkv());
    let memory = sampler.memory();
    sampler.distribution(&logits).unwrap();
    assert_eq!(sampler.memory(), memory);
}

#[test]
fn penalties_follow_the_official_loop() {
    let s = Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, penalty_decay: 0.9, ..plain(Order::Pip) };
    let mut sampler = Sampler::new(s);
    sampler.accept(2, 1.0);
    sampler.accept(1, 0.0); // a digit has weight 0: only the presence penalty applies
    sampler.accept(2, 1.0);
    let counts = sampler.memory().counts;
    assert_eq!(counts.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 1]);
    assert!(counts[0].1.abs_diff(count(0.9 * 0.9 + 1.0)) <= 2 && counts[1].1 == 0, "{counts:?}");
    let p = sampler.distribution(&[0.0; 4]).unwrap();
    let want = p_of(&plain(Order::Pip), &[0.0, -0.5, -(0.5 + 1.81 * 0.25), 0.0]);
    assert!(difference(&p, &want) < 1e-6);
    // the presence penalty stays, although the counts have decayed to 0
    (0..3000).for_each(|_| sampler.accept(3, 0.0));
    let p = sampler.distribution(&[0.0; 4]).unwrap();
    assert!(difference(&p, &p_of(&plain(Order::Pip), &[0.0, -0.5, -0.5, -0.5])) < 1e-6);
}

#[test]
fn repeat_penalty_divides_and_multiplies() {
    let mut sampler = Sampler::new(Sampling { repeat_penalty: 2.0, ..plain(Order::Hf) });
    sampler.accept(0, 1.0);
    sampler.accept(1, 1.0);
    let p = sampler.distribution(&[3.0, -1.0, 1.0]).unwrap();
    assert!(difference(&p, &p_of(&plain(Order::Hf), &[1.5, -2.0, 1.0])) < 1e-6);
}

#[test]
fn bans_beat_bias_and_greedy_obeys_both() {
    let logits = [0.0, 1.0, 2.0, 3.0];
    let s = Sampling { ban: vec![3], logit_bias: vec![(3, 100.0), (0, 5.0), (2, f32::NEG_INFINITY)], ..plain(Order::Pip) };
    assert_eq!(kept(&s, &logits), [0, 1]);
    assert_eq!(kept(&Sampling { temperature: 0.0, ..s }, &logits), [0]);
    let all = Sampling { ban: vec![0, 1, 2, 3], ..plain(Order::Pip) };
    assert_eq!(Sampler::new(all).sample(&logits).unwrap_err().kind, Kind::Usage);
    // ids beyond the logits are ignored
    let beyond = Sampling { ban: vec![9], logit_bias: vec![(9, 1.0)], ..Sampling::rwkv() };
    let mut sampler = Sampler::new(beyond);
    sampler.accept(9, 1.0);
    assert!(sampler.sample(&logits).unwrap() < 4);
}

#[test]
fn logits_that_are_not_finite() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let all = [Sampling::rwkv(), Sampling::glm(), Sampling::greedy(0)];
    for settings in all {
        let mut sampler = Sampler::new(settings);
        for bad in [&[][..], &[nan; 40], &[-inf; 3], &[inf, nan]] {
            let e = sampler.sample(bad).unwrap_err();
            assert_eq!(e.kind, Kind::Model);
            assert!(e.to_string().contains("NaN"));
        }
        assert_eq!(sampler.memory().draws, 0);
        for _ in 0..20 {
            assert_eq!(sampler.sample(&[nan, -inf, -3.0, inf, nan]).unwrap(), 2);
        }
        // a difference of logits that overflows f32 does not panic
        assert_eq!(sampler.sample(&[f32::MIN, f32::MAX]).unwrap(), 1);
    }
}

#[test]
fn settings_are_checked_by_name() {
    let ok = [Sampling::rwkv(), Sampling::glm(), Sampling::greedy(1)];
    assert!(ok.iter().all(|s| s.check(10).is_ok()));
    let base = Sampling::rwkv;
    let cases = [
        ("temperature", Sampling { temperature: f32::NAN, ..base() }),
        ("temperature", Sampling { temperature: -0.1, ..base() }),
        ("temperature", Sampling { temperature: f32::INFINITY, ..base() }),
        ("top_p", Sampling { top_p: 1.01, ..base() }),
        ("top_p", Sampling { top_p: -0.01, ..base() }),
        ("min_p", Sampling { min_p: f32::NAN, ..base() }),
        ("presence_penalty", Sampling { presence_penalty: f32::NAN, ..base() }),
        ("frequency_penalty", Sampling { frequency_penalty: f32::INFINITY, ..base() }),
        ("penalty_decay", Sampling { penalty_decay: 1.5, ..base() }),
        ("repeat_penalty", Sampling { repeat_penalty: 0.0, ..base() }),
        ("typical", Sampling { typical: f32::NAN, ..base() }),
        ("typical", Sampling { typical: 1.1, ..base() }),
        ("top_n_sigma", Sampling { top_n_sigma: -1.0, ..base() }),
        ("top_n_sigma", Sampling { top_n_sigma: f32::INFINITY, ..base() }),
        ("mirostat", Sampling { mirostat: -1.0, ..base() }),
        ("mirostat", Sampling { mirostat: f32::NAN, ..base() }),
        ("mirostat_rate", Sampling { mirostat: 3.0, mirostat_rate: f32::NAN, ..base() }),
        ("dry_multiplier", Sampling { dry_multiplier: f32::NAN, ..base() }),
        ("dry_multiplier", Sampling { dry_multiplier: f32::INFINITY, ..base() }),
        ("dry_base", Sampling { dry_multiplier: 1.0, dry_base: f32::NAN, ..base() }),
        ("logit_bias", Sampling { logit_bias: vec![(10, 0.0)], ..base() }),
        ("logit_bias", Sampling { logit_bias: vec![(1, f32::NAN)], ..base() }),
        ("ban", Sampling { ban: vec![10], ..base() }),
    ];
    for (setting, settings) in cases {
        let e = settings.check(10).unwrap_err();
        assert_eq!((e.kind, e.field_name()), (Kind::Usage, Some(setting)), "{e}");
        // unchecked settings must not panic either
        let mut sampler = Sampler::new(settings);
        sampler.read(&[0, 1, 0, 1, 9, 0, 1]);
        for _ in 0..3 {
            let _ = sampler.sample(&[0.0, 1.0]);
        }
    }
}

#[test]
fn spaces_and_digits_weigh_nothing() {
    for exempt in ["", " ", "\t", " \t", "0", "7", "12", "0123", "\t0", " \t0123456789"] {
        assert_eq!(penalty_weight(exempt.as_bytes()), 0.0, "{exempt:?}");
    }
    for counted in ["a", "\n", "21", "00", "  ", "1 ", " 1", "0123456789 "] {
        assert_eq!(penalty_weight(counted.as_bytes()), 1.0, "{counted:?}");
    }
}

#[test]
fn a_guard_draws_its_id_while_a_logit_is_not_finite() {
    let fine = [1.0, 3.0, 2.0];
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for logits in [[wrong, 3.0, 2.0], [1.0, 3.0, wrong], [wrong; 3]] {
            for settings in [Sampling::glm(), Sampling::rwkv(), Sampling::greedy(0)] {
                // the guard ignores bans
                let mut sampler = Sampler::new(Sampling { guard: Some(2), ban: vec![2], ..settings.clone() });
                assert_eq!((sampler.guarded(&logits), sampler.sample(&logits).unwrap(), sampler.n_guarded()), (Some(2), 2, 1));
                assert_eq!(sampler.distribution(&logits).unwrap(), [0.0, 0.0, 1.0]);
                assert_eq!((sampler.draws(), sampler.n_guarded()), (1, 1));
                assert_ne!(sampler.sample(&fine).unwrap(), 2, "the guard drew although all logits are finite");
                // guard off
                let mut sampler = Sampler::new(settings);
                assert_eq!(sampler.guarded(&logits), None);
                assert_eq!(sampler.sample(&logits).is_err(), logits[1] != 3.0);
                assert_eq!(sampler.n_guarded(), 0);
            }
        }
    }
    // a banned logit does not trigger the guard; a guard id beyond the logits is ignored
    let banned = Sampler::new(Sampling { guard: Some(2), logit_bias: vec![(0, f32::NEG_INFINITY)], ..Sampling::greedy(0) });
    assert_eq!(banned.guarded(&fine), None);
    let beyond = Sampler::new(Sampling { guard: Some(3), ..Sampling::greedy(0) });
    assert_eq!(beyond.guarded(&[f32::NAN; 3]), None);
    assert!(Sampling { guard: Some(3), ..Sampling::greedy(0) }.check(3).unwrap_err().to_string().starts_with("guard: "));
}
