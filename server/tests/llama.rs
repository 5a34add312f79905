//! Endpoints of llama-server, `/v1/score`, and other paths of the same endpoints.

use super::Server;
use serde_json::{Value, json};

#[test]
fn a_completion_has_the_text_of_openai() {
    let server = Server::start();
    let of_openai = json!({"prompt": "In the beginning", "max_tokens": 12, "temperature": 0});
    let expected = server.post("/v1/completions", &of_openai).ok()["choices"][0]["text"].clone();
    let ask = |more: Value| {
        let mut body = json!({"prompt": "In the beginning", "n_predict": 12, "temperature": 0});
        more.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        server.post("/completion", &body)
    };
    let whole = ask(json!({"return_tokens": true})).ok();
    assert_eq!((&whole["content"], &whole["stop"], &whole["stop_type"]), (&expected, &json!(true), &json!("limit")), "{whole}");
    assert_eq!((&whole["tokens_predicted"], whole["tokens"].as_array().unwrap().len()), (&json!(12), 12));
    assert_eq!((&whole["generation_settings"]["n_predict"], &whole["timings"]["predicted_n"]), (&json!(12), &json!(12)));
    let streamed = ask(json!({"stream": true, "n_probs": 2}));
    let objects: Vec<Value> =
        streamed.text.lines().filter_map(|line| line.strip_prefix("data: ")).map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: String = objects.iter().map(|object| object["content"].as_str().unwrap()).collect();
    assert_eq!(json!(text), expected);
    assert!(objects.last().unwrap()["stop"] == true && objects[..objects.len() - 1].iter().all(|object| object["stop"] == false));
    assert_eq!(objects[0]["completion_probabilities"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    // The answer names the stop text. The fields that llama-server's page sends by default change nothing.
    let word = expected.as_str().unwrap().split(' ').nth(2).unwrap();
    let stopped = ask(json!({"stop": [word]})).ok();
    assert_eq!((&stopped["stop_type"], &stopped["stopping_word"]), (&json!("word"), &json!(word)));
    // A text that stops at its first token is empty, but not streamed.
    let first = &expected.as_str().unwrap()[..1];
    let empty = ask(json!({"stop": [first], "n_probs": 2})).ok();
    assert_eq!((&empty["content"], empty["completion_probabilities"].as_array().map(Vec::len)), (&json!(""), Some(1)), "{empty}");
    let defaults = json!({"mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "repeat_last_n": -1, "typical_p": 1, "xtc_probability": 0,
        "dynatemp_range": 0, "id_slot": -1, "cache_prompt": false, "samplers": ["top_k"], "timings_per_token": true, "dry_penalty_last_n": -1});
    assert_eq!(ask(defaults).ok()["content"], expected);
    let ids = server.post("/tokenize", &json!({"content": "In the beginning"})).ok()["tokens"].clone();
    assert_eq!(server.post("/completion", &json!({"prompt": ids, "n_predict": 12, "temperature": 0})).ok()["content"], expected);
    for (body, field) in [
        (json!({"prompt": ["a", "b"]}), "prompt"),
        (json!({"prompt": "a", "n_predict": -2}), "n_predict"),
        (json!({"prompt": "a", "n_probs": 99}), "n_probs"),
        (json!({"prompt": "a", "xtc_probability": 0.5}), "xtc_probability"),
    ] {
        let refused = server.post("/completion", &body);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(field)), "{}", refused.text);
    }
}

#[test]
fn a_gap_is_filled_and_a_model_described() {
    let server = Server::start();
    let gap = json!({"input_prefix": "And God said, ", "input_suffix": " and there was light.", "n_predict": 4, "temperature": 0,
        "input_extra": [{"filename": "a.txt", "text": "Genesis"}]});
    let filled = server.post("/infill", &gap).ok();
    let prompt = "✿prefix✿✿suffix✿ and there was light.✿middle✿a.txt\nGenesis\n\nAnd God said, ";
    assert_eq!(filled["prompt"], prompt);
    let same = server.post("/completion", &json!({"prompt": prompt, "n_predict": 4, "temperature": 0})).ok();
    assert_eq!(filled["content"], same["content"]);
    let props = server.get("/props").ok();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(4), &json!("tiny")));
    assert_eq!(props["thinking"], json!(["off"]), "the chat format of the tiny model has no thoughts");
    let params = &props["default_generation_settings"]["params"];
    assert!(params["temperature"].as_f64().unwrap() > 0.0 && params["n_predict"].as_u64().unwrap() > 0, "{props}");
}

#[test]
fn pairs_are_scored_by_their_vectors() {
    let server = Server::start();
    let score = |first: Value, second: Value| server.post("/v1/score", &json!({"text_1": first, "text_2": second}));
    let one = score(json!("light"), json!(["light", "darkness"])).ok();
    let scores: Vec<f64> = one["data"].as_array().unwrap().iter().map(|pair| pair["score"].as_f64().unwrap()).collect();
    assert!((scores[0] - 1.0).abs() < 1e-5 && scores[1] < scores[0], "{one}");
    let pairs = score(json!(["light", "darkness"]), json!(["darkness", "darkness"])).ok();
    assert!((pairs["data"][1]["score"].as_f64().unwrap() - 1.0).abs() < 1e-5);
    assert!((pairs["data"][0]["score"].as_f64().unwrap() - scores[1]).abs() < 1e-6);
    assert_eq!(score(json!(["a", "b"]), json!(["a", "b", "c"])).json()["error"]["param"], "text_1");
    assert_eq!(score(json!("a"), json!([])).json()["error"]["param"], "text_2");
}

#[test]
fn paths_may_end_with_a_slash() {
    let server = Server::start();
    let models = server.get("/v1/models").ok();
    for path in ["/v1/models/", "//v1/models", "/models"] {
        assert_eq!(server.sent("GET", path, &[], &[]).ok(), models, "{path}");
    }
    let ask = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
    for path in ["/v1/chat/completions/", "/chat/completions", "//chat/completions/"] {
        server.sent("POST", path, &[], ask.to_string().as_bytes()).ok();
    }
    assert_eq!(server.get("/v1/nothing/").status, 404);
    // The list also has the fields that Anthropic's client reads.
    let entry = &models["data"][0];
    assert_eq!((&entry["type"], &entry["display_name"], &models["has_more"]), (&json!("model"), &json!("tiny"), &json!(false)));
    assert!(entry["created_at"].as_str().unwrap().ends_with('Z') && models["last_id"] == "tiny");
}
