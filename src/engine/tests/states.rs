//! Tests of named states.

use super::*;
use crate::engine::states::{State, States};
use crate::sample::Sampler;

fn saved(request: Request, name: &str) -> Request {
    Request { save_state: Some(name.into()), ..request }
}

fn from(name: &str, request: Request) -> Request {
    Request { state: Some(name.into()), ..request }
}

fn done(engine: &Engine, request: &Request) -> Completion {
    engine.submit(request.clone()).unwrap().wait().unwrap().remove(0)
}

#[test]
fn a_text_continues_exactly_from_its_state() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let states = StateOptions { folder: Some(folder.path().join("states")), bytes: 1, ..StateOptions::default() };
    for options in [EngineOptions::default(), EngineOptions { slots: 1, states, cache: CacheOptions::off(), ..EngineOptions::default() }] {
        let engine = Engine::start(&model, options.clone()).unwrap();
        let first = Request::text("In the beginning").max_tokens(5).set("seed", 3).set("presence_penalty", 0.5);
        let one = done(&engine, &saved(first.clone(), "a"));
        let info = one.state.unwrap().unwrap();
        assert_eq!((info.name.as_str(), info.n_tokens), ("a", one.usage.prompt_tokens + 5));
        // A request without a prompt and a seed continues the text exactly.
        let rest = Request::tokens([]).max_tokens(6).set("presence_penalty", 0.5);
        let two = done(&engine, &saved(from("a", rest.clone()), "b"));
        let whole = done(&engine, &first.clone().max_tokens(11));
        assert_eq!([one.tokens.clone(), two.tokens.clone()].concat(), whole.tokens);
        assert_eq!(one.text + &two.text, whole.text);
        // A request does not change the state from which it begins. Such a request may have a prompt and a seed.
        assert_eq!(done(&engine, &from("a", rest)).tokens, two.tokens);
        let text = from("a", Request::text(" and the").max_tokens(6).set("seed", 9));
        assert_eq!(done(&engine, &text).text, done(&engine, &text).text);
        // A state file works in another engine and in a session.
        let path = folder.path().join("a.state");
        engine.export_state("", "a", &path).unwrap();
        let mut session = Session::new(&model, 1).unwrap();
        let (slot, loaded) = session.load(&path, false).unwrap();
        assert_eq!((session.n_tokens(slot).unwrap(), loaded.tokens.unwrap().len()), (info.n_tokens, info.n_tokens));
        let other = Engine::start(&model, EngineOptions::default()).unwrap();
        other.load_state("mine", "c", &path).unwrap();
        let from_file = Request { namespace: "mine".into(), ..from("c", Request::tokens([]).max_tokens(6).set("presence_penalty", 0.5)) };
        assert_eq!(done(&other, &from_file).tokens, two.tokens);
        engine.fork_state("", "b", "c").unwrap();
        let names = |engine: &Engine| engine.states("").unwrap().into_iter().map(|state| state.name).collect::<Vec<_>>();
        assert_eq!(names(&engine), ["a", "b", "c"]);
        engine.delete_state("", "b").unwrap();
        assert_eq!(names(&engine), ["a", "c"]);
        assert!(engine.delete_state("", "b").is_err() && engine.states("mine").unwrap().is_empty());
        drop(engine);
        // States in a folder outlive the engine.
        let again = Engine::start(&model, options.clone()).unwrap();
        let is_kept = options.states.folder.is_some();
        assert_eq!(names(&again), if is_kept { vec!["a", "c"] } else { vec![] });
    }
}

#[test]
fn wrong_names_and_full_memory_are_errors() {
    let model = model();
    let engine = Engine::start(
        &model,
        EngineOptions { states: StateOptions { folder: None, bytes: 10, ..StateOptions::default() }, ..EngineOptions::default() },
    )
    .unwrap();
    let place = |request: &Request| engine.submit(request.clone()).unwrap_err().field_name().unwrap().to_string();
    assert_eq!(place(&from("x", Request::text("a"))), "state");
    assert_eq!(place(&from("../x", Request::text("a"))), "state");
    assert_eq!(place(&saved(Request::text("a"), ".x")), "save_state");
    assert_eq!(place(&saved(Request { n: 2, ..Request::text("a") }, "x")), "save_state");
    // A text whose state has no room is not lost.
    let one = done(&engine, &saved(Request::text("a").max_tokens(2), "x"));
    let e = one.state.unwrap().unwrap_err();
    assert!(e.kind == Kind::Memory && !one.text.is_empty() && e.field_name() == Some("save_state"), "{e}");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(engine.load_state("", "y", file.path()).is_err() && engine.states("").unwrap().is_empty());
}

#[test]
fn a_state_is_found_while_its_file_is_written() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let options = StateOptions { folder: Some(folder.path().into()), bytes: 1, ..StateOptions::default() };
    let (wake, woken) = async_channel::bounded(1);
    let states = States::new(&model, &options, wake).unwrap();
    let mut session = Session::new(&model, 1).unwrap();
    let slot = session.open().unwrap();
    let mut state = |tokens: &[u32]| {
        session.prefill(slot, tokens).unwrap();
        State::new(session.snapshot(slot).unwrap(), Sampler::new(Sampling::greedy(0)).memory(), Vec::new(), None)
    };
    let n_files = || walk(folder.path());
    let n_tokens = || states.get("", "a").map(|state| state.snapshot.n_tokens());
    let held = states.hold_writer();
    let all = [states.begin_put("", "a", state(&[5, 6])), states.begin_put("", "a", state(&[7]))];
    assert_eq!((n_tokens().unwrap(), states.list("").unwrap()[0].n_tokens, n_files()), (3, 3, 0));
    assert!(states.get("other", "a").is_err() && all.iter().all(|saved| saved.try_recv().is_err()));
    drop(held);
    for (saved, n) in all.iter().zip([2, 3]) {
        assert_eq!(saved.recv_blocking().unwrap().unwrap().n_tokens, n);
    }
    woken.recv_blocking().unwrap();
    assert_eq!((n_tokens().unwrap(), n_files()), (3, 1));
    // A deleted state does not come back, even if it was deleted while its file was written.
    let _ = states.begin_put("", "a", state(&[8]));
    states.delete("", "a").unwrap();
    assert!(n_tokens().is_err() && n_files() == 0 && states.list("").unwrap().is_empty());
}

/// Counts the files below a folder.
fn walk(folder: &std::path::Path) -> usize {
    let all = std::fs::read_dir(folder).unwrap().flatten();
    all.map(|file| if file.path().is_dir() { walk(&file.path()) } else { usize::from(file.path().extension() == Some("state".as_ref())) })
        .sum()
}

#[test]
fn a_state_whose_file_cannot_be_written_leaves_the_text() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let states = StateOptions { folder: Some(folder.path().into()), bytes: 1 << 30, ..StateOptions::default() };
    let engine = Engine::start(&model, EngineOptions { slots: 1, states, ..EngineOptions::default() }).unwrap();
    let request = saved(Request::text("a").max_tokens(3).set("seed", 1), "x");
    let info = done(&engine, &request).state.unwrap().unwrap();
    // A file takes the place of the model's folder, so the state cannot be written.
    let of_model = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(&of_model).unwrap();
    std::fs::write(&of_model, "").unwrap();
    let completion = done(&engine, &request);
    let e = completion.state.unwrap().unwrap_err();
    assert!(e.kind == Kind::File && e.field_name() == Some("save_state") && completion.tokens.len() == 3, "{e}");
    // The state that was saved before is still listed.
    assert_eq!(engine.states("").unwrap(), [info]);
    engine.drain();
}
