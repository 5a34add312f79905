//! Provokes errors with wrong lines of `batch` and wrong requests to the library.

use super::files::{Files, MODEL};
use super::printed;
use crate::batch::request_of;
use wingbeat::engine::{Engine, EngineOptions, Request};
use wingbeat::error::Result;
use wingbeat::low_level::front_end::Preparer;

/// Input lines of `batch` with wrong fields.
const LINES: &str = r##"{
[1]
{"prompt":"x"}
{"id":1.5,"prompt":"x"}
{"id":[1],"prompt":"x"}
{"id":1}
{"id":1,"prompt":"x","tokens":[1]}
{"id":1,"prompt":7}
{"id":1,"prompt":"x","temprature":1}
{"id":1,"prompt":"x","priority":2}
{"id":1,"prompt":"x","state":"base"}
{"id":1,"tokens":[]}
{"id":1,"tokens":["x"]}
{"id":1,"tokens":[-1]}
{"id":1,"tokens":[99999]}
{"id":1,"prompt":"x","max_tokens":-2}
{"id":1,"prompt":"x","max_tokens":"many"}
{"id":1,"prompt":"x","n":0}
{"id":1,"prompt":"x","n":5000}
{"id":1,"prompt":"x","logprobs":-1}
{"id":1,"prompt":"x","logprobs":100}
{"id":1,"prompt":"x","echo":1}
{"id":1,"prompt":"x","stop":[7]}
{"id":1,"prompt":"x","stop":[""]}
{"id":1,"prompt":"x","typical":0}
{"id":1,"prompt":"x","ignore_eos":"yes"}
{"id":1,"prompt":"x","seed":1.5}
{"id":1,"prompt":"x","top_p":7}
{"id":1,"prompt":"x","temperature":"warm"}
{"id":1,"prompt":"x","preset":"best"}
{"id":1,"prompt":"x","sampler_order":"up"}
{"id":1,"prompt":"x","ban":[99999]}
{"id":1,"prompt":"x","ban":["x"]}
{"id":1,"prompt":"x","logit_bias":{"x":1}}
{"id":1,"prompt":"x","logit_bias":[1]}
{"id":1,"prompt":"x","grammar":"root ::= [a"}
{"id":1,"prompt":"x","grammar":"root ::= \"a"}
{"id":1,"prompt":"x","grammar":"root ::= word"}
{"id":1,"prompt":"x","grammar":"root ::= \"a\"\nroot ::= \"b\""}
{"id":1,"prompt":"x","grammar":"root ::= \"a\"{3,2}"}
{"id":1,"prompt":"x","grammar":"root ::= [z-a]"}
{"id":1,"prompt":"x","grammar":"root ::= (\"a\""}
{"id":1,"prompt":"x","grammar":"root ::= \"\\q\""}
{"id":1,"prompt":"x","grammar":"root \"a\""}
{"id":1,"prompt":"x","grammar":""}
{"id":1,"prompt":"x","grammar":7}
{"id":1,"prompt":"x","json_schema":"{"}
{"id":1,"prompt":"x","json_schema":7}
{"id":1,"prompt":"x","json_schema":{"type":"strin"}}
{"id":1,"prompt":"x","json_schema":{"$ref":"#"}}
{"id":1,"prompt":"x","json_schema":{"$ref":"#/$defs/none"}}
{"id":1,"prompt":"x","json_schema":{"pattern":"["}}
{"id":1,"prompt":"x","json_schema":{"minItems":2,"maxItems":1,"type":"array"}}
{"id":1,"prompt":"x","json_schema":false}
{"id":1,"prompt":"x","grammar":"root ::= \"a\"","json_object":true}
{"id":1,"prompt":"x","close":7}
{"id":1,"messages":[]}
{"id":1,"messages":"x"}
{"id":1,"messages":[{"role":"robot","content":"x"}]}
{"id":1,"messages":[{"role":"assistant","content":"x"}]}
{"id":1,"messages":[{"role":"user","content":7}]}
{"id":1,"messages":[{"role":"user","content":"x"},{"role":"user"}]}
{"id":1,"messages":[{"content":"x"}]}
{"id":1,"messages":[{"role":"tool","content":"x"}]}
{"id":1,"messages":[{"role":"user","content":"x"}],"format":"best"}
{"id":1,"messages":[{"role":"user","content":"x"}],"thinking":"deep"}
{"id":1,"messages":[{"role":"user","content":"x"}],"format":"world","thinking":"on"}
{"id":1,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]}
{"id":1,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}"##;

/// Returns each line of `LINES` with its error. Also returns requests that only the library can make, with their errors.
pub fn all(files: &Files) -> Vec<(String, String)> {
    let mut preparer = Preparer::new(&MODEL, None);
    let mut found: Vec<(String, String)> = Vec::new();
    let defaults = Request::text("").max_tokens(4);
    for line in LINES.lines() {
        let prepared = request_of(line.as_bytes()).and_then(|request| preparer.prepare(&request.over(&defaults)).map(drop));
        found.push((line.into(), prepared.map_or_else(|e| printed(&e), |()| "accepted".into())));
    }
    let engine = Engine::start(&MODEL, EngineOptions { slots: 2, queue: 1, ..EngineOptions::default() }).unwrap();
    let mut put = |name: &str, result: Result<()>| found.push((name.into(), result.map_or_else(|e| printed(&e), |()| "accepted".into())));
    let with = |set: fn(&mut Request)| {
        let mut request = Request::text("x");
        set(&mut request);
        request
    };
    let submit = |request: Request| engine.submit(request.clone()).map(drop);
    put("submit: more continuations than slots", submit(with(|request| request.n = 3)));
    put("submit: an unknown state", submit(with(|request| request.state = Some("none".into()))));
    put("submit: a state without a name", submit(with(|request| request.state = Some(String::new()))));
    put("submit: an empty prompt", submit(Request::text("")));
    put("submit: a token out of range", submit(Request::tokens([99_999])));
    put("fork_state: an unknown state", engine.fork_state("", "none", "new").map(drop));
    put("delete_state: an unknown state", engine.delete_state("", "none"));
    put("export_state: an unknown state", engine.export_state("", "none", &files.path("new")));
    put("load_state: a model", engine.load_state("", "new", &files.path("lacking.safetensors")).map(drop));
    put("load_state: a name that is too long", engine.load_state("", &"x".repeat(200), &files.path("saved.state")).map(drop));
    engine.load_state("", "saved", &files.path("saved.state")).unwrap();
    put("export_state: another file has the name", engine.export_state("", "saved", &files.path("notes.txt")));
    engine.drain();
    put("submit: after drain", submit(Request::text("x")));
    found
}
