//! Measures the overhead of the engine, and the effect of its limits and caches, on the embedded model.
//!
//! `cargo bench --bench engine -- [cpu|gpu]`
//!
//! 1. Throughput of 16 requests through `Engine`, compared with 16 jobs in a `Batcher` that this program steps itself, in alternating rounds.
//! 2. Time between tokens of 8 sequences: alone, and while a prompt of 4096 tokens is prefilled, with and without `prefill_slowdown`.
//! 3. Time to the first token of each turn of a conversation, with and without the prefix cache.

use std::time::Instant;
use wingbeat::chat::Message;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Generation, Request};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Batcher, Limits, Model, ModelSource, Options, Session, TextSpec};

const SLOTS: usize = 16;
const TOKENS: usize = 128;
const ROUNDS: usize = 7;
const TURNS: usize = 20;
const PROMPT: &str = "Once upon a time";

fn main() {
    let device = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_else(|| "cpu".into());
    let mut options = Options::default();
    options.device = device.parse().unwrap();
    let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).expect("the embedded model");
    println!("device: {device}");
    throughput(&model);
    for slowdown in [None, Some(2.0)] {
        between_tokens(&model, slowdown);
    }
    conversation(&model);
}

fn throughput(model: &Model) {
    let mut batcher = Batcher::new(Session::new(model, SLOTS).expect("slots"));
    let mut engine = Engine::start(model, engine_options(SLOTS, None)).expect("slots");
    let (mut by_hand, mut through) = (Vec::new(), Vec::new());
    // The first round is a warm-up and does not count.
    for round in 0..=ROUNDS {
        let (a, b) = (steps_by_hand(&mut batcher), through_engine(&mut engine));
        if round > 0 {
            by_hand.push(a);
            through.push(b);
        }
    }
    let (by_hand, through) = (median(by_hand), median(through));
    println!(
        "{SLOTS} texts of {TOKENS} tokens: batcher {by_hand:.0} tokens/s, engine {through:.0} tokens/s, ratio {:.3}",
        through / by_hand
    );
}

fn steps_by_hand(batcher: &mut Batcher) -> f64 {
    let began = Instant::now();
    for i in 0..SLOTS {
        let prompt = batcher.session().encode(&PROMPT.into()).expect("text");
        let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(TOKENS) };
        let sampler = Sampler::new(Sampling { seed: i as u64, ..batcher.session().model().sampling().clone() });
        batcher.add(TextSpec::new(prompt, sampler, limits)).expect("a free slot");
    }
    while batcher.n_running() > 0 {
        batcher.step(&mut |_, _| ()).expect("a step");
    }
    (SLOTS * TOKENS) as f64 / began.elapsed().as_secs_f64()
}

fn through_engine(engine: &mut Engine) -> f64 {
    let began = Instant::now();
    let request = |i: usize| endless(TOKENS).set("seed", i);
    let all: Vec<Generation> = (0..SLOTS).map(|i| engine.submit(request(i)).expect("room")).collect();
    let n: usize = all.into_iter().map(|generation| generation.wait().expect("a text")[0].tokens.len()).sum();
    n as f64 / began.elapsed().as_secs_f64()
}

fn between_tokens(model: &Model, slowdown: Option<f64>) {
    let engine = Engine::start(model, engine_options(9, slowdown)).expect("slots");
    let mut running: Vec<Generation> = (0..8).map(|i| engine.submit(endless(usize::MAX).set("seed", i)).expect("room")).collect();
    let alone = gaps(&mut running[0], |n| n < 100);
    let long = engine.submit(Request::tokens(vec![11; 4096]).max_tokens(1)).expect("room");
    let began = Instant::now();
    let reader = std::thread::spawn(move || long.wait().map(|_| began.elapsed().as_secs_f64()));
    let beside = gaps(&mut running[0], |_| !reader.is_finished());
    let took = reader.join().expect("no panic").expect("a text");
    let name = slowdown.map_or_else(|| "no bound".into(), |slowdown| format!("at most {slowdown} times"));
    let (a, b) = (median(alone), median(beside.clone()));
    let worst = beside.into_iter().fold(0.0, f64::max);
    println!(
        "prefill beside 8 sequences, {name}: {:.2} ms between tokens alone, {:.2} beside ({:.1} times), {:.2} at most; prompt {took:.2} s",
        a * 1e3,
        b * 1e3,
        b / a,
        worst * 1e3,
    );
}

fn conversation(model: &Model) {
    let mut without = engine_options(1, None);
    without.cache = CacheOptions::off();
    let engines = [without, engine_options(1, None)].map(|options| Engine::start(model, options).expect("slots"));
    let mut messages = Vec::new();
    let mut first_tokens: [Vec<f64>; 2] = Default::default();
    let mut prompt_tokens = Vec::new();
    for turn in 0..TURNS {
        messages.push(Message::user(format!("And in turn {turn}: {}", "the king of the land said unto all the people, ".repeat(8))));
        let request = Request::chat(messages.clone()).max_tokens(24).set("seed", turn);
        let mut answer = String::new();
        for (engine, times) in engines.iter().zip(&mut first_tokens) {
            let done = engine.submit(request.clone()).expect("room").wait().expect("an answer").remove(0);
            times.push(done.timings.prefill_ms);
            prompt_tokens.push(done.usage.prompt_tokens);
            answer = done.text;
        }
        messages.push(Message::assistant(answer));
    }
    let [without, with] = first_tokens;
    for turn in [0, 1, TURNS / 2, TURNS - 1] {
        println!(
            "turn {:2}, {:4} tokens: first token after {:6.1} ms, with the prefix cache after {:5.1} ms",
            turn + 1,
            prompt_tokens[2 * turn],
            without[turn],
            with[turn]
        );
    }
}

/// Returns the times in seconds between text events of a generation. Continues while `go_on(number of times so far)` returns true.
fn gaps(generation: &mut Generation, go_on: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut last = Instant::now();
    let mut all = Vec::new();
    while go_on(all.len()) {
        match generation.recv() {
            Some(Ok(Event::Text { .. })) => {
                all.push(last.elapsed().as_secs_f64());
                last = Instant::now();
            }
            Some(event) => drop(event.expect("an event")),
            None => break,
        }
    }
    all
}

fn endless(n: usize) -> Request {
    let mut request = Request::text(PROMPT).max_tokens(n);
    request.ignore_eos = Some(true);
    request
}

fn engine_options(slots: usize, prefill_slowdown: Option<f64>) -> EngineOptions {
    let mut options = EngineOptions::default();
    (options.slots, options.prefill_slowdown) = (slots, prefill_slowdown);
    options
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
