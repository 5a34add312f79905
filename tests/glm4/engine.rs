//! Tests the engine's prefix cache for models with attention. An entry, on the device or on the host, serves every prompt that shares its first
//! tokens.

use crate::support::{devices, glm4, options};
use wingbeat::engine::{CacheOptions, Completion, Engine, EngineOptions, Generation, Request};

fn prompt(n: usize, seed: usize) -> Vec<u32> {
    glm4().unwrap().golden().prompt(n, seed)
}

fn ask(tokens: &[u32]) -> Request {
    Request::tokens(tokens).max_tokens(3).set("temperature", 0)
}

fn done(engine: &Engine, request: &Request) -> (usize, Completion) {
    let done = engine.submit(request.clone()).unwrap().wait().unwrap().remove(0);
    (done.usage.cached_tokens, done)
}

#[test]
fn prompts_with_a_common_prefix_share_cached_tokens() {
    for device in devices() {
        let mut options = options(device);
        options.deterministic = true;
        let Some(tiny) = glm4() else { return };
        let model = tiny.load(&options);
        let per_token = model.slot_bytes() / model.context().unwrap() as u64;
        // Three cases: all entries on the device; two blocks on the device and all other blocks on the host; all entries on the host.
        for (on_device, on_host) in [(64 << 20, 0), (128 * per_token, 64 << 20), (1, 64 << 20)] {
            let cache = CacheOptions { device_bytes: on_device, host_bytes: on_host, ..CacheOptions::off() };
            let mut engine_options = EngineOptions::default();
            (engine_options.slots, engine_options.cache) = (2, cache);
            let engine = Engine::start(&model, engine_options).unwrap();
            let (first, second) = (prompt(150, 1), prompt(30, 2));
            assert_eq!(done(&engine, &ask(&first)).0, 0);
            for (tokens, want) in [([&first[..100], &second[..]].concat(), 100), (first[..70].to_vec(), 69), (second, 0)] {
                let (cached, with) = done(&engine, &ask(&tokens));
                let mut request = ask(&tokens);
                request.no_cache = true;
                let (_, without) = done(&engine, &request);
                assert_eq!((cached, with.tokens), (want, without.tokens), "{device}, {on_device}, {on_host}");
            }
            // Submits more requests at once than the device has room for.
            let all: Vec<Generation> = (0..8).map(|i| engine.submit(ask(&prompt(100 + 7 * i, 3 + i % 3))).unwrap()).collect();
            assert!(all.into_iter().all(|generation| generation.wait().unwrap().len() == 1));
            engine.drain();
            assert_eq!(engine.stats().free_slots, 2, "{device}, {on_device}, {on_host}: {:?}", engine.stats());
        }
    }
}
