//! Tests that mirostat's limit mu agrees with the paper's loop in floats, and that the mean surprise approaches tau.

use super::*;

/// Returns logits of a Zipf distribution. Every step has a different order of ids and different noise.
fn zipf(n: usize, step: u64) -> Vec<f32> {
    noise(n, 1000 + step, 0.7)
        .iter()
        .enumerate()
        .map(|(i, x)| x - 1.1 * (1.0 + ((i * 7919 + step as usize * 31) % n) as f32).ln())
        .collect()
}

#[test]
fn the_surprise_becomes_tau() {
    for (tau, temperature) in [(2.0, 1.0), (4.0, 1.0), (4.0, 0.8)] {
        let s = Sampling { mirostat: tau, temperature, seed: 1, ..plain(Order::Pip) };
        let mut sampler = Sampler::new(s.clone());
        let mut mu = 2.0 * f64::from(tau);
        let mut surprises = Vec::new();
        for step in 0..1500 {
            let logits = zipf(400, step);
            let p = twin::distribution(&s, &logits, mu);
            let id = sampler.sample(&logits).unwrap() as usize;
            let surprise = -p[id].log2();
            assert!(surprise.is_finite(), "the twin would not draw that");
            mu -= f64::from(s.mirostat_rate) * (surprise - f64::from(tau));
            surprises.push(surprise);
            // the sampler's mu, converted from fixed point
            let own = f64::from(sampler.memory().mu.unwrap()) / f64::from(1 << 20);
            assert!((own - mu).abs() < 1e-3, "step {step}: {own}, not {mu}");
        }
        let mean = surprises[300..].iter().sum::<f64>() / 1200.0;
        assert!((mean - f64::from(tau)).abs() < 0.1, "{mean} bits, not {tau}");
    }
}

#[test]
fn a_rate_of_0_learns_nothing_and_the_guard_neither() {
    let s = Sampling { mirostat: 3.0, mirostat_rate: 0.0, guard: Some(0), ..plain(Order::Pip) };
    let mut sampler = Sampler::new(s);
    sampler.sample(&[f32::NAN, 1.0]).unwrap();
    assert_eq!(sampler.memory().mu, None);
    sampler.sample(&zipf(50, 0)).unwrap();
    assert_eq!(sampler.memory().mu, Some(6 << 20));
}
