//! Tests every filter in both orders against its twin (the reference implementation): kept tokens, probabilities and frequencies of drawn ids.

use super::super::fixed::ONE;
use super::*;

/// Returns pseudo-random logits, rounded to fixed point, so that the sampler and the twin have the same ties.
fn logits(n: usize, seed: u64, sigma: f32) -> Vec<f32> {
    noise(n, seed, sigma).into_iter().map(|x| (x * ONE).trunc() / ONE).collect()
}

/// Returns the distribution of a text's first token, computed by the twin.
fn exact(s: &Sampling, logits: &[f32]) -> Vec<f32> {
    twin::distribution(s, logits, 2.0 * f64::from(s.mirostat)).into_iter().map(|p| p as f32).collect()
}

/// Returns settings with one filter each, and settings with several filters.
fn settings(order: Order) -> Vec<Sampling> {
    let plain = || plain(order);
    vec![
        plain(),
        Sampling { temperature: 0.7, ..plain() },
        Sampling { top_p: 0.8, temperature: 1.3, ..plain() },
        Sampling { top_k: 11, ..plain() },
        Sampling { min_p: 0.07, temperature: 1.6, ..plain() },
        Sampling { typical: 0.2, temperature: 0.8, ..plain() },
        Sampling { typical: 0.6, temperature: 1.4, ..plain() },
        Sampling { typical: 0.95, ..plain() },
        Sampling { top_n_sigma: 0.7, ..plain() },
        Sampling { top_n_sigma: 1.5, temperature: 2.0, ..plain() },
        Sampling { mirostat: 2.0, ..plain() },
        Sampling { mirostat: 1.2, temperature: 1.5, ..plain() },
        Sampling { top_n_sigma: 2.1, typical: 0.9, top_p: 0.9, top_k: 20, min_p: 0.02, temperature: 0.8, ..plain() },
        Sampling { typical: 0.5, top_p: 0.7, min_p: 0.3, temperature: 1.2, ..plain() },
    ]
}

#[test]
fn every_filter_matches_its_twin() {
    for order in [Order::Pip, Order::Hf] {
        for s in settings(order) {
            for (seed, sigma) in [(1, 0.3), (2, 2.0), (3, 6.0)] {
                for n in [1, 2, 3, 17, 1000] {
                    let logits = logits(n, seed, sigma);
                    let d = difference(&p_of(&s, &logits), &exact(&s, &logits));
                    assert!(d < 1e-5, "{s:?} on {n} logits of {sigma}: {d}");
                }
            }
        }
    }
}

#[test]
fn draws_follow_the_twin() {
    let logits = logits(60, 1, 2.0);
    for order in [Order::Pip, Order::Hf] {
        for s in settings(order) {
            // with a rate of 0 mirostat keeps mu, so that all draws have the same distribution
            let s = Sampling { mirostat_rate: 0.0, seed: 3, ..s };
            let ids = draw(&mut Sampler::new(s.clone()), &logits, 20_000);
            let surprise = surprise(&tally(&ids, 60), &exact(&s, &logits));
            assert!(surprise.abs() < 4.5, "{s:?}: {surprise}");
        }
    }
}

/// Tests the values at which a setting keeps all tokens, and the values at which it keeps the fewest tokens.
#[test]
fn filters_at_extreme_values() {
    let mut many = logits(500, 5, 3.0);
    (many[300], many[301]) = (11.0, 11.0);
    let all: Vec<u32> = (0..500).collect();
    for order in [Order::Pip, Order::Hf] {
        let kept = |change: &dyn Fn(&mut Sampling)| {
            let mut s = plain(order);
            change(&mut s);
            kept(&s, &many)
        };
        let possible = kept(&|_| ());
        assert!(possible.len() > 400 && possible.iter().all(|id| all.contains(id)));
        // values that turn the filter off
        for off in [1.0, f32::NAN, 1.5] {
            assert_eq!(kept(&|s| s.typical = off), possible);
        }
        for off in [0.0, f32::NAN, -1.0] {
            assert_eq!(kept(&|s| s.top_n_sigma = off), possible);
            assert_eq!(kept(&|s| s.mirostat = off), possible);
        }
        // values that keep the fewest tokens: one token, or all tokens with the largest logit
        assert_eq!(kept(&|s| s.top_n_sigma = 1e-9), [300, 301]);
        assert_eq!(kept(&|s| s.mirostat = 1e-5), [300]);
        assert_eq!(kept(&|s| s.typical = 0.0).len(), 1);
    }
}

#[test]
fn filters_handle_equal_logits() {
    let equal = [1.5; 9];
    for order in [Order::Pip, Order::Hf] {
        let first = |n: u32| (0..n).collect::<Vec<u32>>();
        // all tokens are equally typical, so the lower ids are kept
        assert_eq!(kept(&Sampling { typical: 0.5, ..plain(order) }, &equal), first(5));
        // the standard deviation is 0
        assert_eq!(kept(&Sampling { top_n_sigma: 1.0, ..plain(order) }, &equal), first(9));
        assert_eq!(kept(&Sampling { mirostat: 1.0, ..plain(order) }, &equal), first(1));
        assert_eq!(kept(&Sampling { mirostat: 2.0, ..plain(order) }, &equal), first(9));
    }
}

#[test]
fn excluded_tokens_do_not_count_in_filters() {
    let fine = logits(40, 8, 2.0);
    for order in [Order::Pip, Order::Hf] {
        for s in settings(order) {
            // a grammar's mask excludes every other id
            let masked: Vec<f32> = fine.iter().flat_map(|&x| [f32::NEG_INFINITY, x]).collect();
            let spread: Vec<f32> = p_of(&s, &fine).into_iter().flat_map(|p| [0.0, p]).collect();
            assert_eq!(p_of(&s, &masked), spread, "{s:?}");
            let banned = Sampling { ban: (0..40).map(|i| 2 * i).collect(), ..s.clone() };
            let all: Vec<f32> = fine.iter().flat_map(|&x| [x + 9.0, x]).collect();
            assert_eq!(p_of(&banned, &all), spread, "{s:?}");
        }
    }
}

#[test]
fn filters_come_in_their_places() {
    // the probabilities are 0.4, 0.3, 0.15 and 0.15, and the entropy is 1.30; the closest surprise is 1.20, of the token with probability 0.3
    assert_eq!(kept(&Sampling { typical: 0.2, ..plain(Order::Pip) }, &FOUR), [3]);
    // typical applies before top_p, so top_p counts only the tokens that typical kept
    assert_eq!(kept(&Sampling { typical: 0.5, top_p: 0.5, ..plain(Order::Pip) }, &FOUR), [1]);
    assert_eq!(kept(&Sampling { typical: 0.2, top_p: 0.1, ..plain(Order::Pip) }, &FOUR), [3]);
    // top_k applies before typical in Hf, and after typical in Pip
    assert_eq!(kept(&Sampling { typical: 0.2, top_k: 1, ..plain(Order::Hf) }, &FOUR), [1]);
    assert_eq!(kept(&Sampling { typical: 0.2, top_k: 1, ..plain(Order::Pip) }, &FOUR), [3]);
    // min_p is relative to the most likely of the kept tokens
    assert_eq!(kept(&Sampling { typical: 0.2, min_p: 1.0, ..plain(Order::Pip) }, &FOUR), [3]);
    // top_n_sigma does not depend on the temperature, which scales logits and deviation alike
    let many = logits(300, 4, 3.0);
    let sigma = |temperature, order| kept(&Sampling { top_n_sigma: 1.0, temperature, ..plain(order) }, &many);
    assert_eq!(sigma(2.0, Order::Hf), sigma(1.0, Order::Pip));
    // mirostat replaces all filters, and applies after the temperature in both orders
    let of = |order| p_of(&Sampling { mirostat: 1.0, temperature: 2.0, top_k: 1, top_p: 0.1, typical: 0.1, ..plain(order) }, &FOUR);
    assert_eq!(of(Order::Pip), of(Order::Hf));
    assert!(of(Order::Pip).iter().filter(|p| **p > 0.0).count() > 1);
    // greedy sampling ignores all filters
    let greedy = Sampling { typical: 0.1, mirostat: 3.0, temperature: 0.0, ..plain(Order::Pip) };
    assert_eq!(kept(&greedy, &FOUR), [1]);
}

#[test]
fn the_repeat_penalty_looks_back_at_its_window() {
    let zero = [1.0f32; 6];
    let kept = |last: Option<usize>| {
        let mut sampler = Sampler::new(Sampling { repeat_penalty: 1e6, repeat_last_n: last, ..plain(Order::Pip) });
        sampler.read(&[0, 1]);
        [2, 3, 2].into_iter().for_each(|id| sampler.accept(id, 1.0));
        let p = sampler.distribution(&zero).unwrap();
        (0..6u32).filter(|&id| p[id as usize] > 0.11).collect::<Vec<u32>>()
    };
    // None: all generated tokens. Some(n): the last n tokens, including tokens of the prompt
    assert_eq!(kept(None), [0, 1, 4, 5]);
    assert_eq!(kept(Some(0)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kept(Some(1)), [0, 1, 3, 4, 5]);
    assert_eq!(kept(Some(2)), [0, 1, 4, 5]);
    assert_eq!(kept(Some(4)), [0, 4, 5]);
    assert_eq!(kept(Some(usize::MAX)), [4, 5]);
    // the presence penalty applies to all generated tokens, whatever `repeat_last_n` is
    let s = Sampling { repeat_penalty: 2.0, repeat_last_n: Some(1), presence_penalty: 0.5, ..plain(Order::Pip) };
    let mut sampler = Sampler::new(s);
    [0, 1].into_iter().for_each(|id| sampler.accept(id, 1.0));
    let p = sampler.distribution(&zero).unwrap();
    assert!(difference(&p, &p_of(&plain(Order::Pip), &[0.5, 0.0, 1.0, 1.0, 1.0, 1.0])) < 1e-6);
}

#[test]
fn a_device_draws_with_supported_settings() {
    let fits = |change: &dyn Fn(&mut Sampling)| {
        let mut s = Sampling::rwkv();
        change(&mut s);
        Sampler::new(s).fits_device()
    };
    assert!(fits(&|_| ()) && fits(&|s| s.top_n_sigma = 1.0) && fits(&|s| s.repeat_penalty = 1.1));
    assert!(fits(&|s| s.repeat_last_n = Some(3)) && fits(&|s| s.dry_base = 3.0) && fits(&|s| s.mirostat_rate = 0.2));
    assert!(!fits(&|s| s.typical = 0.9) && !fits(&|s| s.mirostat = 5.0));
    assert!(!fits(&|s| s.dry_multiplier = 0.8) && !fits(&|s| (s.repeat_penalty, s.repeat_last_n) = (1.1, Some(64))));
    // greedy sampling ignores filters, but penalties apply
    assert!(fits(&|s| (s.temperature, s.typical) = (0.0, 0.5)) && !fits(&|s| (s.temperature, s.dry_multiplier) = (0.0, 1.0)));
}

#[test]
fn the_twin_differs_for_another_setting() {
    let logits = logits(1000, 2, 2.0);
    let plain = || plain(Order::Pip);
    let pairs = [
        (Sampling { typical: 0.6, ..plain() }, Sampling { typical: 0.5, ..plain() }),
        (Sampling { top_n_sigma: 1.5, ..plain() }, Sampling { top_n_sigma: 1.2, ..plain() }),
        (Sampling { mirostat: 3.5, ..plain() }, Sampling { mirostat: 3.8, ..plain() }),
        (Sampling { typical: 0.5, top_k: 20, ..plain() }, Sampling { typical: 0.5, top_k: 20, order: Order::Hf, ..plain() }),
    ];
    for (one, other) in pairs {
        let d = difference(&p_of(&one, &logits), &exact(&other, &logits));
        assert!(d > 1e-4, "{one:?}: {d}");
    }
}
