//! Tests thousands of requests, many at once, some cancelled, some wrong. No request is lost, no slot leaks, and every text equals the text of a
//! session with one request. The environment variable `WINGBEAT_STORM` sets the number of requests; the default is 1000.

use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;

const PROMPTS: [&str; 8] = [
    "In the beginning",
    "In the beginning God",
    "In the beginning God created the",
    "And",
    "And Moses said unto",
    "a",
    "Thou shalt not",
    "Thou shalt not, \u{e9}",
];
const SEEDS: u64 = 4;
const LONGEST: usize = 6;
/// The maximum number of tokens of a text that one request begins and a second request continues from the saved state.
const WHOLE: usize = 2 * LONGEST;

/// Returns the generated tokens for each pair of a prompt's index and a seed. Each pair runs in a separate session.
fn naive(model: &Model) -> HashMap<(usize, u64), Vec<u32>> {
    let pairs = (0..PROMPTS.len()).flat_map(|prompt| (0..SEEDS + 2).map(move |seed| (prompt, seed)));
    pairs.map(|(prompt, seed)| ((prompt, seed), alone(model, PROMPTS[prompt], WHOLE, seed).0)).collect()
}

/// The planned end of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Ends,
    /// The caller drops the generation after this many events.
    Dropped(usize),
    /// `submit` refuses the request.
    Refused,
}

/// A submitted request.
struct Asked {
    prompt: usize,
    seed: u64,
    /// The number of tokens of the text that the request's named state already has.
    from: usize,
    n_tokens: usize,
    n: usize,
    fate: Fate,
    saves: Option<String>,
}

#[test]
fn thousands_of_requests_end_as_planned() {
    let requests: usize = std::env::var("WINGBEAT_STORM").map_or(1000, |n| n.parse().unwrap());
    let model = model();
    let want = naive(&model);
    // The cache has room for few entries, so that some are evicted.
    let options = EngineOptions {
        slots: 8,
        queue: 64,
        cache: CacheOptions { device_bytes: 5 * model.slot_bytes(), host_bytes: 0, ..CacheOptions::default() },
        ..EngineOptions::default()
    };
    let engine = Engine::start(&model, options).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(16);
    let mut below = |n: u64| ((u64::from(random.next_u32()) * n) >> 32) as usize;
    let (mut n_ended, mut n_dropped, mut n_refused, mut n_busy, mut n_cached) = (0, 0, 0, 0, 0);
    let mut waiting: Vec<(Generation, Asked)> = Vec::new();
    // Named states. Each value is the prompt, the seed and the number of generated tokens.
    let mut states: HashMap<String, (usize, u64, usize)> = HashMap::new();
    let (mut n_asked, mut n_from_states) = (0, 0);
    while n_asked < requests || !waiting.is_empty() {
        if n_asked < requests && waiting.len() < 60 {
            n_asked += 1;
            let (prompt, seed, n_tokens, n) = (below(8), below(SEEDS) as u64, 1 + below(LONGEST as u64), 1 + below(12) / 10);
            let (mut prompt, mut seed, mut from) = (prompt, seed, 0);
            let fate = match below(20) {
                0..3 => Fate::Dropped(below(4)),
                3 => Fate::Refused,
                _ => Fate::Ends,
            };
            let mut request = Request::text(PROMPTS[prompt]).max_tokens(n_tokens).set("seed", seed);
            (request.n, request.priority) = (n, below(3) as i32);
            let mut n = n;
            match below(5) {
                // Continues from a state. Without a seed the state's random stream continues.
                0 if !states.is_empty() && fate == Fate::Ends => {
                    let name = states.keys().nth(below(states.len() as u64)).unwrap().clone();
                    (prompt, seed, from) = states[&name];
                    (request.input, request.state, request.n, n) = (Input::Tokens(Vec::new()), Some(name), 1, 1);
                    request.sampling.clear();
                    n_from_states += 1;
                }
                1 if n == 1 => request.save_state = Some(format!("s{prompt}-{seed}-{n_tokens}")),
                2 if fate == Fate::Refused => request.state = Some("none".into()),
                _ => {}
            }
            match below(6) {
                0 => request.no_cache = true,
                1 if request.state.is_none() && request.save_state.is_none() => request.namespace = "other".into(),
                _ => {}
            }
            match fate {
                Fate::Refused if below(2) == 0 => request = request.set("temperature", "hot"),
                Fate::Refused => request.input = Input::Tokens(vec![70_000]),
                _ => {}
            }
            match engine.submit(request.clone()) {
                Ok(generation) => waiting.push((generation, Asked { prompt, seed, from, n_tokens, n, fate, saves: request.save_state })),
                Err(e) if e.kind == Kind::Busy => n_busy += 1,
                Err(e) => {
                    assert_eq!(fate, Fate::Refused, "{e}");
                    n_refused += 1;
                }
            }
            continue;
        }
        let (mut generation, Asked { prompt, seed, from, n_tokens, n, fate, saves }) = waiting.swap_remove(below(waiting.len() as u64));
        match fate {
            Fate::Dropped(after) => {
                (0..after).for_each(|_| drop(generation.recv()));
                n_dropped += 1;
            }
            _ => {
                let all = generation.wait().unwrap();
                assert_eq!(all.len(), n);
                for (i, done) in all.iter().enumerate() {
                    let tokens = &want[&(prompt, seed + i as u64)];
                    let end = (from + n_tokens).min(tokens.len());
                    assert_eq!(done.tokens, tokens[from..end], "{:?}, seed {seed} + {i}", PROMPTS[prompt]);
                    assert_eq!(done.state.is_some(), saves.is_some());
                    if let Some(name) = &saves {
                        assert_eq!(done.state.clone().unwrap().unwrap().name, *name);
                        if from == 0 && done.finish == Finish::Length {
                            states.insert(name.clone(), (prompt, seed, n_tokens));
                        }
                    }
                    n_cached += usize::from(done.usage.cached_tokens > 0);
                }
                n_ended += 1;
            }
        }
    }
    assert_eq!(n_ended + n_dropped + n_refused + n_busy, requests);
    let counts =
        format!("{n_ended} ended, {n_dropped} dropped, {n_refused} refused, {n_busy} busy, {n_cached} cached, {n_from_states} from states");
    assert!(n_ended > requests / 2 && n_dropped > requests / 20 && n_refused > requests / 100, "{counts}");
    assert!(n_cached > requests / 20, "{counts}");
    assert!(n_from_states > requests / 50, "{n_from_states}");
    until(&engine, "all is done", |s| s.free_slots == 8 && s.running == 0 && s.waiting == 0);
    engine.drain();
}
