//! Tests DRY against its definition, implemented as loops over every position of the text.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns, for each id, the length in tokens of the longest repetition that the id would extend. Each occurrence of the id in the text gives one
/// repetition: the longest common suffix of the whole text and of the text before the occurrence. A repetition ends before a breaker. Leaves out
/// repetitions shorter than `allowed` and ids of breakers.
fn lengths(text: &[u32], breakers: &[u32], allowed: usize) -> BTreeMap<u32, usize> {
    let mut longest = BTreeMap::new();
    for (next, &id) in text.iter().enumerate().skip(1) {
        let mut length = 0;
        while length < next
            && !breakers.contains(&text[text.len() - 1 - length])
            && text[next - 1 - length] == text[text.len() - 1 - length]
        {
            length += 1;
        }
        if length >= allowed && !breakers.contains(&id) {
            let most = longest.entry(id).or_insert(0);
            *most = length.max(*most);
        }
    }
    longest
}

#[test]
fn dry_matches_its_definition() {
    for case in 0..3000u64 {
        let random = |i: u64, below: u64| stream::number(case, i) % below;
        let n_vocab = 2 + random(0, 6);
        let n = random(1, 80) as usize;
        let text: Vec<u32> = (0..n as u64).map(|i| random(10 + i, n_vocab) as u32).collect();
        let breakers: Vec<u32> = (0..n_vocab as u32).filter(|&id| random(100 + u64::from(id), 4) == 0).collect();
        let allowed = 1 + random(2, 4) as usize;
        let range = [None, Some(5), Some(20)][random(3, 3) as usize];
        let (multiplier, base) = ([0.5, 0.8, 3.0][random(4, 3) as usize], [1.0, 1.75, 2.5][random(5, 3) as usize]);
        let s = Sampling { dry_multiplier: multiplier, dry_base: base, dry_allowed_length: allowed, dry_range: range, ..plain(Order::Pip) };
        let mut sampler = Sampler::new(s.clone());
        // the first `n_prompt` tokens of the text are the prompt
        let n_prompt = random(6, n as u64 + 1) as usize;
        sampler.read(&text[..n_prompt]);
        text[n_prompt..].iter().for_each(|&id| sampler.accept(id, 1.0));
        sampler.break_at(breakers.clone().into());

        let seen = &text[n - range.unwrap_or(n).min(n)..];
        let mut logits = vec![0.0f32; n_vocab as usize];
        for (id, length) in lengths(seen, &breakers, allowed) {
            logits[id as usize] -= (f64::from(multiplier) * f64::from(base).powi((length - allowed) as i32)).min(1999.0) as f32;
        }
        let d =
            difference(&sampler.distribution(&logits.iter().map(|_| 0.0).collect::<Vec<_>>()).unwrap(), &p_of(&plain(Order::Pip), &logits));
        assert!(d < 1e-5, "{s:?} after {text:?}, broken at {breakers:?}: {d}");
    }
}

#[test]
fn a_repetition_costs_more_the_longer_it_is() {
    let text = |n: usize| [&[1, 2, 3, 4, 5, 6][..], &[9], &[1, 2, 3, 4, 5, 6][..n]].concat();
    let logit_of_next = |n: usize, change: &dyn Fn(&mut Sampling)| {
        let mut s = Sampling { dry_multiplier: 0.8, ..plain(Order::Pip) };
        change(&mut s);
        let mut sampler = Sampler::new(s);
        sampler.read(&text(n));
        let p = sampler.distribution(&[0.0; 10]).unwrap();
        (p[n + 1] / p[0]).ln()
    };
    for (n, want) in [(1, 0.0), (2, -0.8), (3, -0.8 * 1.75), (4, -0.8 * 1.75 * 1.75)] {
        assert!((logit_of_next(n, &|_| ()) - want).abs() < 1e-4, "{n}");
    }
    assert_eq!(logit_of_next(4, &|s| s.dry_allowed_length = 5), 0.0);
    assert_eq!(logit_of_next(4, &|s| s.dry_range = Some(0)), 0.0);
    assert_eq!(logit_of_next(4, &|s| s.dry_range = Some(4)), 0.0);
    // an allowed length of 0 counts as 1
    assert_eq!(logit_of_next(2, &|s| s.dry_allowed_length = 0), logit_of_next(2, &|s| s.dry_allowed_length = 1));
    // a huge penalty is clamped
    let p = logit_of_next(4, &|s| (s.dry_base, s.dry_multiplier) = (f32::MAX, f32::MAX));
    assert_eq!(p, f32::NEG_INFINITY);
}

#[test]
fn breakers_are_requested_once() {
    let mut sampler = Sampler::new(Sampling { dry_multiplier: 1.0, ..plain(Order::Pip) });
    assert_eq!(sampler.wants_breakers().unwrap(), DRY_BREAKERS);
    sampler.break_at(Arc::new([3, 4]));
    assert!(sampler.wants_breakers().is_none() && sampler.reseeded(1).wants_breakers().is_none());
    assert!(Sampler::new(plain(Order::Pip)).wants_breakers().is_none());
}

#[test]
fn the_memory_holds_only_the_tokens_to_look_back_at() {
    let mut sampler = Sampler::new(Sampling { dry_multiplier: 1.0, dry_range: Some(5), ..plain(Order::Pip) });
    for id in 0..100 {
        sampler.accept(id, 1.0);
    }
    assert_eq!(sampler.memory().recent, [95, 96, 97, 98, 99]);
    sampler.read(&(0..50).collect::<Vec<u32>>());
    assert_eq!(sampler.memory().recent, [45, 46, 47, 48, 49]);
    let mut plain = Sampler::new(plain(Order::Pip));
    plain.accept(3, 1.0);
    assert!(plain.memory().recent.is_empty());
}
