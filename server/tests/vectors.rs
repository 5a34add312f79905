//! `/v1/embeddings` and `/v1/rerank`, with a model that generates text and with a model for vectors.

use super::{Server, keys};
use serde_json::{Value, json};
use wingbeat::engine::EngineOptions;
use wingbeat_server::{ServeOptions, ServedModel, ServedTask};

#[test]
fn vectors_have_the_length_1() {
    let server = Server::start();
    let both = server.post("/v1/embeddings", &json!({"input": ["light", "darkness"], "model": "tiny"})).ok();
    let vector = |i: usize| both["data"][i]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert!((dot(&vector(0), &vector(0)) - 1.0).abs() < 1e-5 && dot(&vector(0), &vector(1)) < 0.999);
    let coded = server.post("/v1/embeddings", &json!({"input": "light", "encoding_format": "base64"})).ok();
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), (vector(0).len() * 4).div_ceil(3) * 4);
    // A shorter vector is the beginning of the whole vector, scaled to the length 1.
    let short = server.post("/v1/embeddings", &json!({"input": "light", "dimensions": 3})).ok()["data"][0]["embedding"].clone();
    let short: Vec<f64> = short.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let ratio = vector(0)[0] / short[0];
    assert!((dot(&short, &short) - 1.0).abs() < 1e-5 && short.len() == 3);
    assert!(short.iter().zip(vector(0)).all(|(short, whole)| (short * ratio - whole).abs() < 1e-6));
    assert_eq!(server.post("/v1/embeddings", &json!({"input": "light", "dimensions": 0})).json()["error"]["param"], "dimensions");
    assert_eq!(server.post("/v1/rerank", &json!({"query": "a", "documents": ["b"]})).status, 400);
}

#[test]
fn token_ids_give_the_vector_of_their_text() {
    for server in [Server::start(), Server::with_vectors()] {
        let vector = |input: Value| {
            let answer = server.post("/v1/embeddings", &json!({"input": input})).ok();
            answer["data"].as_array().unwrap().iter().map(|one| one["embedding"].clone()).collect::<Vec<_>>()
        };
        // A model for vectors has no `/tokenize`, so a server for text with the same vocabulary tokenizes the text.
        let ids = Server::start().post("/tokenize", &json!({"content": "In the"})).ok()["tokens"].clone();
        let text = vector(json!("In the"));
        assert_eq!((vector(ids.clone()), vector(json!([ids, [1, 2]]))[0].clone()), (text.clone(), text[0].clone()));
        for (input, param, want) in [
            (json!([1, 2, 99999]), "input[2]", "found 99999"),
            (json!([[1], [2, 99999]]), "input[1][1]", "found 99999"),
            (json!([[1], []]), "input[1]", "at least one token"),
            (json!(["a", ""]), "input[1]", ""),
            (json!(""), "input", ""),
            (json!([]), "input", "expected 1 to 2048"),
            (json!([1, "a"]), "input", "found another type"),
            (json!([-1]), "input[0]", "found another type"),
        ] {
            let answer = server.post("/v1/embeddings", &json!({"input": input}));
            let error = &answer.json()["error"];
            assert_eq!((answer.status, &error["param"]), (400, &json!(param)), "{input}: {error}");
            assert!(error["message"].as_str().unwrap().contains(want), "{input}: {error}");
        }
    }
}

#[test]
fn a_model_for_vectors_is_described_and_counted() {
    let server = Server::with_vectors();
    let model = server.get("/v1/models/vectors").ok();
    assert_eq!((&model["task"], &model["architecture"], &model["slots"]), (&json!("embedding"), &json!("rwkv7"), &json!(2)));
    let n_tokens = server.post("/v1/embeddings", &json!({"input": "light"})).ok()["usage"]["prompt_tokens"].clone();
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains(&format!("wingbeat_prompt_tokens_total{{model=\"vectors\"}} {n_tokens}\n")), "{metrics}");
    assert!(metrics.contains("wingbeat_slots{model=\"vectors\"} 2\n"), "{metrics}");
}

#[test]
fn requests_for_vectors_are_shown_and_end_when_their_client_leaves() {
    let server = Server::with_vectors();
    let body = json!({"input": vec!["In the beginning God created the heaven and the earth. ".repeat(20); 2048]});
    let (first, second) = (server.open("/v1/embeddings", &body), server.open("/v1/embeddings", &body));
    // The texts of two requests take turns in the slots, so both requests run.
    server.until(|slots| slots["running"] == 2 && slots["waiting"] == 0 && slots["requests"].as_array().unwrap().len() == 2);
    server.until(|slots| slots["requests"][0]["prompt_tokens"].as_u64() > Some(2048));
    assert_eq!(server.get("/slots").ok()[0]["requests"][0]["endpoint"], "/v1/embeddings");
    drop((first, second));
    server.until(|slots| slots["free_slots"] == 2 && slots["requests"] == json!([]));
    server.post("/v1/embeddings", &json!({"input": "light"})).ok();
    server.end().unwrap();
}

#[test]
fn a_model_for_vectors_has_the_limits_of_the_queue() {
    let options = ServeOptions { keys: keys(), ..ServeOptions::default() };
    let server = Server::with_vectors_and(options, EngineOptions { queue: 8, queue_per_namespace: Some(1), ..EngineOptions::default() });
    let (ada, bob) = (server.as_caller("key-of-ada"), server.as_caller("key-of-bob"));
    let body = json!({"input": vec!["In the beginning God created the heaven and the earth. ".repeat(20); 2048]});
    let _open = ada.open("/v1/embeddings", &body);
    ada.until(|slots| slots["free_slots"] == 0);
    let refused = ada.post("/v1/embeddings", &json!({"input": "light"}));
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{}", refused.text);
    bob.post("/v1/embeddings", &json!({"input": "light"})).ok();
    assert_eq!((ada.get("/slots").ok()[0]["running"].clone(), bob.get("/slots").ok()[0]["requests"].clone()), (json!(1), json!([])));
}

#[test]
fn dimensions_are_checked_before_the_vectors_are_computed() {
    let server = Server::with_vectors();
    let wrong = server.post("/v1/embeddings", &json!({"input": "light", "dimensions": 129}));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("dimensions")));
    assert!(!server.get("/metrics").text.contains("wingbeat_prompt_tokens_total{"));
    server.post("/v1/embeddings", &json!({"input": "light", "dimensions": 128})).ok();
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "light"})).status, 404);
}

#[test]
fn documents_are_sorted_for_a_query() {
    let Some((load, package)) = super::reranking() else { return };
    let server = Server::hosting(ServeOptions::default(), vec![ServedModel { name: "emb".into(), task: ServedTask::Embedding, load }]);
    server.wait();
    let asked = |more: Value| {
        let mut body = json!({"query": package["query"], "documents": package["documents"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/rerank", &body)
    };
    let found = asked(json!({"return_documents": true})).ok();
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.iter().map(|result| result["index"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 0, 1]);
    let logit = package["logits"][2].as_f64().unwrap();
    assert!((results[0]["relevance_score"].as_f64().unwrap() - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-5, "{found}");
    assert_eq!(results[0]["document"]["text"], package["documents"][2]);
    let best = asked(json!({"top_n": 1})).ok();
    assert!(best["results"].as_array().unwrap().len() == 1 && best["results"][0]["document"].is_null(), "{best}");
    for (wrong, param) in
        [(json!({"query": ""}), "query"), (json!({"documents": ["a", ""]}), "documents[1]"), (json!({"documents": []}), "documents")]
    {
        let refused = asked(wrong);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{}", refused.text);
    }
    // The same model computes vectors, and refuses a pooling.
    server.post("/v1/embeddings", &json!({"input": ["light", "a"]})).ok();
    let refused = server.post("/v1/embeddings", &json!({"input": "light", "pooling": "mean"}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("pooling")));
}
