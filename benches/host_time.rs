//! Measures the CPU time that the host needs per decoded token. The model has 24 layers on the null device, which computes nothing: every
//! submission is complete at once.
//!
//! `cargo bench --bench host_time`

#[path = "../tests/support/made.rs"]
mod made;
#[path = "../tests/support/null.rs"]
mod null;

use std::ops::ControlFlow;
use std::time::Instant;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Limits, Session, Text};

const TOKENS: usize = 4000;
const ROUNDS: usize = 7;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let model = null::model(folder.path());
    let mut session = Session::new(&model, 1).unwrap();
    let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(TOKENS) };
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let slot = session.open().unwrap();
            session.prefill(slot, &[1]).unwrap();
            let mut continuations = [Text::after(slot, Sampler::new(Sampling::greedy(0)), &limits)];
            let started = Instant::now();
            session.continue_many(&mut continuations, &mut |_| ControlFlow::Continue(())).unwrap();
            let took = started.elapsed().as_secs_f64();
            session.close(slot).unwrap();
            took / TOKENS as f64 * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("host time per token: median {:.4} ms, {:.4} to {:.4}", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
}
