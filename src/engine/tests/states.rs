//! Named states.

use super::*;

fn saved(request: Request, name: &str) -> Request {
    Request { save_state: Some(name.into()), ..request }
}

fn from(name: &str, request: Request) -> Request {
    Request { state: Some(name.into()), ..request }
}

fn done(engine: &Engine, request: &Request) -> Completion {
    engine.submit(request).unwrap().wait().unwrap().remove(0)
}

#[test]
fn a_text_goes_on_from_a_state_as_if_it_had_not_ended() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let states = StateOptions { folder: Some(folder.path().join("states")), bytes: 1 };
    for options in [EngineOptions::default(), EngineOptions { slots: 1, states, cache: CacheOptions::off(), ..EngineOptions::default() }] {
        let engine = Engine::start(&model, options.clone()).unwrap();
        let first = Request::text("In the beginning").max_tokens(5).set("seed", 3).set("presence_penalty", 0.5);
        let one = done(&engine, &saved(first.clone(), "a"));
        let info = one.state.unwrap().unwrap();
        assert_eq!((info.name.as_str(), info.n_tokens), ("a", one.usage.prompt_tokens + 5));
        // Without a prompt and without a seed it goes on exactly.
        let rest = Request::tokens([]).max_tokens(6).set("presence_penalty", 0.5);
        let two = done(&engine, &saved(from("a", rest.clone()), "b"));
        let whole = done(&engine, &first.clone().max_tokens(11));
        assert_eq!([one.tokens.clone(), two.tokens.clone()].concat(), whole.tokens);
        assert_eq!(one.text + &two.text, whole.text);
        // A state stays as it is; another seed and a prompt make another text.
        assert_eq!(done(&engine, &from("a", rest)).tokens, two.tokens);
        let text = from("a", Request::text(" and the").max_tokens(6).set("seed", 9));
        assert_eq!(done(&engine, &text).text, done(&engine, &text).text);
        // Files go from engine to engine, and to a session.
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
fn what_is_wrong_with_a_state_is_said() {
    let model = model();
    let engine =
        Engine::start(&model, EngineOptions { states: StateOptions { folder: None, bytes: 10 }, ..EngineOptions::default() }).unwrap();
    let place = |request: &Request| engine.submit(request).unwrap_err().field_name().unwrap().to_string();
    assert_eq!(place(&from("x", Request::text("a"))), "state");
    assert_eq!(place(&from("../x", Request::text("a"))), "state");
    assert_eq!(place(&saved(Request::text("a"), ".x")), "save_state");
    assert_eq!(place(&saved(Request { n: 2, ..Request::text("a") }, "x")), "save_state");
    // A text whose state finds no room is not lost.
    let one = done(&engine, &saved(Request::text("a").max_tokens(2), "x"));
    let e = one.state.unwrap().unwrap_err();
    assert!(e.kind == Kind::Memory && !one.text.is_empty() && e.field_name() == Some("save_state"), "{e}");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(engine.load_state("", "y", file.path()).is_err() && engine.states("").unwrap().is_empty());
}
