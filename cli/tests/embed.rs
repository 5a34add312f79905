//! Tests vectors of texts and scores of documents. Compares these numbers with the package `rwkv-emb` and with `Session::hidden`. Also tests the
//! output of the verbs. `tools/embedding-golden.py` made the models and the package's numbers.

use crate::cli::{feed, json, put, refused, run, stdout};
use crate::embedding::{engine, file, open, package};
use crate::support::{devices, goldens, options, tiny};
use serde_json::Value;
use wingbeat::engine::{CacheOptions, Engine, EngineOptions, Event, Input, Request};
use wingbeat::low_level::arch::Task;
use wingbeat::low_level::sample::Sampling;
use wingbeat::low_level::session::{EmbedOptions, Limits, Model, Output, Pooling, Session, VectorRule};

fn numbers(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Starts an engine for vectors, without a cache.
fn embedder(model: &Model, n_slots: usize, set: impl Fn(&mut EmbedOptions)) -> Engine {
    let mut embed = EmbedOptions::default();
    set(&mut embed);
    Engine::start(model, EngineOptions { slots: n_slots, embed, cache: CacheOptions::off(), ..EngineOptions::default() }).unwrap()
}

fn inputs(texts: &[&str]) -> Vec<Input> {
    texts.iter().map(|text| Input::Text(text.to_string())).collect()
}

fn vectors(engine: &Engine, texts: Vec<Input>) -> Vec<Vec<f32>> {
    engine.submit(Request::vectors(texts)).unwrap().vectors().unwrap()
}

#[test]
fn an_engine_computes_the_same_vectors_and_scores() {
    if file("reranker.pth").is_none() {
        return;
    }
    let package = package();
    for device in devices() {
        let engine = engine(device).unwrap();
        let texts = texts(&package["texts"]);
        let expected = vectors(&embedder(engine.model(), 2, |_| ()), inputs(&texts));
        let documents: Vec<String> = self::texts(&package["documents"]).iter().map(ToString::to_string).collect();
        let vectors = engine.submit(Request::vectors(inputs(&texts))).unwrap();
        let scores = engine.submit(Request::ranking(package["query"].as_str().unwrap(), documents)).unwrap();
        let (mut n_vectors, mut n_scores) = (0, 0);
        for event in vectors.into_iter().chain(scores) {
            match event.unwrap() {
                Event::Vector { index, vector } => {
                    assert!(cosine(&vector, &expected[index]) >= 0.999999, "{device} {index}");
                    n_vectors += 1;
                }
                Event::Score { index, logit } => {
                    assert!((logit - numbers(&package["logits"])[index]).abs() < 1e-4, "{device} {index}: {logit}");
                    n_scores += 1;
                }
                event => assert!(matches!(event, Event::Started { .. } | Event::Done(_)), "{event:?}"),
            }
        }
        assert_eq!((n_vectors, n_scores), (texts.len(), 3));
    }
    let engine = engine("cpu").unwrap();
    let e = engine.submit(Request::text("light")).unwrap_err();
    assert!(e.field_name() == Some("model") && e.to_string().contains("computes vectors of texts and cannot generate text"), "{e}");
    let mut pooled = Request::vectors([Input::Tokens(vec![1])]);
    pooled.pooling = Some(Pooling::Mean);
    let e = engine.submit(pooled.clone()).unwrap_err();
    assert!(e.field_name() == Some("pooling") && e.to_string().contains("its own pooling"), "{e}");
}

#[test]
fn several_texts_are_read_in_one_step() {
    let mut hidden = options("cpu");
    hidden.output = Output::Hidden;
    let texts: Vec<String> = (0..64).map(|i| format!("{i} light")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let steps = [1, 16].map(|n_slots| {
        let (mut n, mut last) = (0, (0, 1));
        let mut request = Request::vectors(inputs(&texts));
        request.return_progress = true;
        for event in embedder(&tiny(&hidden), n_slots, |_| ()).submit(request).unwrap() {
            if let Event::Progress { processed_tokens, prompt_tokens, .. } = event.unwrap() {
                (n, last) = (n + 1, (processed_tokens, prompt_tokens));
            }
        }
        assert_eq!(last.0, last.1);
        n
    });
    assert_eq!(steps, [64, 4]);
}

#[test]
fn vectors_equal_the_vectors_of_the_package() {
    if file("embedding.pth").is_none() {
        return;
    }
    let package = package();
    let texts = texts(&package["texts"]);
    for device in devices() {
        let model = open("embedding.pth", device);
        for task in Task::ALL {
            // Two slots for three texts: the last text is read alone.
            let found = vectors(&embedder(&model, 2, |o| (o.task, o.normalise) = (Some(task), false)), inputs(&texts));
            for (found, expected) in found.iter().zip(package["vectors"][task.name()].as_array().unwrap()) {
                let expected = numbers(expected);
                let similar = cosine(found, &expected);
                assert!(similar >= 0.999999, "{device} {task:?}: {similar}");
                let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(far < 1e-3, "{device} {task:?}: {far}");
            }
        }
        let rule = VectorRule::new(&model, &EmbedOptions::default()).unwrap();
        assert_eq!(rule.encode(&model, texts[0]).unwrap().len(), texts[0].len() + 1);
        let two = &package["two_ends"];
        let tokens: Vec<u32> = two["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect();
        let found = vectors(&embedder(&model, 1, |_| ()), vec![Input::Tokens(tokens)]);
        assert!(cosine(&found[0], &numbers(&two["vector"])) >= 0.999999, "{device}");
        assert!((found[0].iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn scores_equal_the_scores_of_the_package() {
    if file("reranker.pth").is_none() {
        return;
    }
    let package = package();
    let documents = texts(&package["documents"]);
    for device in devices() {
        let options = EngineOptions { slots: 2, ..EngineOptions::default() }.reranker(&open("reranker.pth", device));
        let engine = Engine::start(&open("embedding.pth", device), options).unwrap();
        let ranking = |query: &str| Request::ranking(query, documents.iter().map(ToString::to_string).collect::<Vec<_>>());
        let whole = |query: &str| {
            let mut request = ranking(query);
            request.no_cache = true;
            engine.submit(request).unwrap().scores().unwrap()
        };
        let found = whole(package["query"].as_str().unwrap());
        let far = found.iter().zip(numbers(&package["logits"])).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(found.len() == 3 && far < 1e-4, "{device}: {found:?}");
        // The cache keeps documents that were read once, for further queries.
        engine.submit(ranking("a")).unwrap().wait().unwrap();
        for query in [package["query"].as_str().unwrap(), "light", "?", "\nquery"] {
            let (whole, mut again, mut n_read) = (whole(query), vec![0.0; 3], 0);
            for event in engine.submit(ranking(query)).unwrap() {
                match event.unwrap() {
                    Event::Score { index, logit } => again[index] = logit,
                    Event::Done(done) => n_read = done.usage.prompt_tokens - done.usage.cached_tokens,
                    _ => {}
                }
            }
            let far = again.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{device} {query:?}: {again:?} {whole:?}");
            assert!(n_read <= 3 * (query.len() + 3), "{device} {query:?}: {n_read} tokens were read");
        }
        assert!(engine.stats().cached > 0 && engine.submit(ranking("")).is_err());
    }
}

#[test]
fn a_model_opened_for_hidden_states_returns_them_bit_for_bit() {
    for golden in goldens() {
        for device in devices() {
            let (prompt, mut hidden) = (golden.golden().prompt(5, 1), options(device));
            let mut session = Session::new(&golden.load(&hidden), 1).unwrap();
            let slot = session.open().unwrap();
            let expected: Vec<Vec<f32>> = prompt.iter().map(|t| session.hidden(slot, &[*t]).unwrap()).collect();
            hidden.output = Output::Hidden;
            let model = golden.load(&hidden);
            let mut session = Session::new(&model, 1).unwrap();
            let slot = session.open().unwrap();
            for (token, expected) in prompt.iter().zip(&expected) {
                assert_eq!(session.decode(slot, *token).unwrap(), expected, "{} {device}", golden.name);
            }
            let mean = |options: &mut EmbedOptions| (options.pooling, options.normalise) = (Some(Pooling::Mean), false);
            let found = vectors(&embedder(&model, 1, mean), vec![Input::Tokens(prompt.clone())]);
            let rows = |i: usize| expected.iter().map(|row| row[i]).sum::<f32>() / expected.len() as f32;
            let expected: Vec<f32> = (0..found[0].len()).map(rows).collect();
            assert!(cosine(&found[0], &expected) > 0.99999, "{} {device}", golden.name);
            // A model that was opened for logits gives the same vectors.
            let model = golden.load(&options(device));
            for pooling in [Pooling::Last, Pooling::Mean] {
                let embed = |model: &Model| {
                    let of = |options: &mut EmbedOptions| (options.pooling, options.normalise) = (Some(pooling), false);
                    vectors(&embedder(model, 2, of), [&prompt[..], &prompt[..2], &prompt[1..]].map(|t| Input::Tokens(t.to_vec())).to_vec())
                };
                assert_eq!(embed(&model), embed(&golden.load(&hidden)), "{} {device} {pooling:?}", golden.name);
            }
        }
    }
}

#[test]
fn what_a_model_cannot_compute_is_refused() {
    let model = tiny(&options("cpu"));
    let refused = |model: &Model, set: &dyn Fn(&mut EmbedOptions)| {
        let mut options = EngineOptions::default();
        set(&mut options.embed);
        Engine::start(model, options).err().unwrap().to_string()
    };
    let unfit = |of: &Model, by: &Model| Engine::start(of, EngineOptions::default().reranker(by)).err().unwrap().to_string();
    assert!(refused(&model, &|o| o.task = Some(Task::Similarity)).contains("no tasks"));
    let mut hidden = options("cpu");
    hidden.output = Output::Hidden;
    let model = tiny(&hidden);
    assert!(refused(&model, &|o| o.task = Some(Task::Similarity)).contains("this model has no tasks"));
    let mut session = Session::new(&model, 1).unwrap();
    let e = session.generate("x", &Sampling::rwkv(), &Limits::new(1), &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(e.unwrap_err().to_string().contains("opened for hidden states"));
    let e = embedder(&model, 1, |_| ()).submit(Request::vectors(inputs(&["a", ""]))).unwrap_err();
    assert_eq!((e.field_name(), e.message.as_str()), (Some("input[1]"), "the text is empty"));
    assert!(unfit(&model, &model).contains("a model that predicts tokens"));
    if file("embedding.pth").is_none() {
        return;
    }
    let (embedding, reranker) = (open("embedding.pth", "cpu"), open("reranker.pth", "cpu"));
    assert!(refused(&embedding, &|o| o.pooling = Some(Pooling::Mean)).contains("its own pooling"));
    assert!(refused(&reranker, &|_| ()).contains("is a reranker"));
    assert!(unfit(&reranker, &embedding).contains("found a reranker"));
    assert!(unfit(&embedding, &embedding).contains("found another model"));
    let ended = vectors(&embedder(&embedding, 1, |_| ()), vec![Input::Tokens(vec![1, 2]), Input::Tokens(vec![1, 2, 257])]);
    assert_eq!(ended[0], ended[1]);
}

#[test]
fn the_verb_prints_and_writes_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |output: &std::process::Output| stdout(output).lines().map(|l| serde_json::from_str(l).unwrap()).collect::<Vec<Value>>();
    let texts = ["embed", "In the beginning", "light"];
    let found = lines(&run(&texts));
    let vectors: Vec<Vec<f32>> = found.iter().map(|line| numbers(&line["embedding"])).collect();
    assert!(vectors[0].len() == 128 && (cosine(&vectors[0], &vectors[0]) - 1.0).abs() < 1e-6 && cosine(&vectors[0], &vectors[1]) < 0.999);
    assert_eq!((found[0]["index"].as_u64(), found[1]["index"].as_u64()), (Some(0), Some(1)));
    assert!(found[0]["tokens"].as_u64() > found[1]["tokens"].as_u64());
    // The texts can also be lines of a file, or fields of JSON lines on standard input.
    let plain = put(&folder, "texts.txt", b"In the beginning\r\nlight\n");
    let plain = plain.to_str().unwrap();
    assert_eq!(lines(&run(&["embed", "-f", plain])), found);
    let objects = b"{\"t\":\"In the beginning\"}\n{\"t\":\"light\"}\n";
    assert_eq!(lines(&feed(&["embed", "--field", "t", "--slots", "1"], objects)).len(), 2);
    let report = json(&run(&[&texts[..], &["--json", "--no-normalize"]].concat()));
    assert_eq!((report["dimensions"].as_u64(), report["normalized"].as_bool()), (Some(128), Some(false)));
    let long = numbers(&report["embeddings"][0]["embedding"]);
    assert!(cosine(&long, &vectors[0]) > 0.999999 && long.iter().map(|x| x * x).sum::<f32>() > 1.1);
    // Files hold the same numbers.
    let (npy, tensors) = (folder.path().join("v.npy"), folder.path().join("v.safetensors"));
    for path in [&npy, &tensors] {
        let write = [&texts[..], &["-o", path.to_str().unwrap()]].concat();
        assert_eq!(stdout(&run(&write)), "");
        refused(&run(&write), 1, "--force");
    }
    let bytes = std::fs::read(&npy).unwrap();
    let (header, data) = bytes.split_at(128);
    assert!(
        header.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 128), }")
            && header.ends_with(b"\n")
    );
    let written: Vec<f32> = data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(written, vectors.concat());
    assert!(std::fs::read(&tensors).unwrap().ends_with(&[3, 0, 0, 0]) || found[1]["tokens"].as_u64() != Some(3));
    refused(&run(&["embed", "a", "-o", "v.bin"]), 2, ".npy or .safetensors");
    refused(&run(&["embed", "a", ""]), 1, "text 2: the text is empty");
    refused(&feed(&["embed"], b"a\n\nb\n"), 1, "standard input:2: the text is empty");
    refused(&feed(&["embed", "--field", "t"], b"{\"u\":1}\n"), 1, "standard input:1: expected a text in the field");
    refused(&run(&["embed", "a", "-f", plain]), 2, "cannot be used with");
    refused(&feed(&["embed"], b""), 2, "expected at least one text");
    refused(&run(&["embed", "a", "--task", "similarity"]), 2, "--task");
}

#[test]
fn the_verb_sorts_documents() {
    refused(&run(&["rerank", "a", "b"]), 1, "wingbeat embed");
    let Some(model) = file("embedding.pth") else { return };
    let (model, reranker, vocab) = (model.to_str().unwrap(), file("reranker.pth").unwrap(), file("vocab.txt").unwrap());
    let common = ["rerank", "-m", model, "--vocab", vocab.to_str().unwrap(), "--dtype", "f32"];
    refused(&run(&[&common[..], &["a", "b"]].concat()), 2, "--reranker");
    let purpose = "purpose          embedding (retrieval, similarity, classification), for the command embed";
    assert!(stdout(&run(&["inspect", model])).contains(purpose));
    assert_eq!(json(&run(&["inspect", reranker.to_str().unwrap(), "--json"]))["purpose"], "reranker");
    let common = [&common[..], &["--reranker", reranker.to_str().unwrap()]].concat();
    let package = package();
    let query = package["query"].as_str().unwrap();
    let documents = texts(&package["documents"]);
    let found = json(&run(&[&common[..], &["--json", query], &documents].concat()));
    let order: Vec<u64> = found["results"].as_array().unwrap().iter().map(|r| r["index"].as_u64().unwrap()).collect();
    assert_eq!(order, [2, 0, 1]);
    let best = &found["results"][0];
    let logit = f64::from(numbers(&package["logits"])[2]);
    assert!((best["score"].as_f64().unwrap() - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-5, "{best}");
    let first = stdout(&feed(&[&common[..], &[query, "--top-n", "1"]].concat(), documents.join("\n").as_bytes()));
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap(), *best);
    // Several queries give an object per query, or lines with their query.
    let folder = tempfile::tempdir().unwrap();
    let more = put(&folder, "queries.txt", format!("light\n{query}\n").as_bytes());
    let several = [&common[..], &["--queries", more.to_str().unwrap(), query]].concat();
    let all = json(&run(&[&several[..], &["--json"], &documents].concat()));
    let of = |i: usize, key: &str| all["queries"][i][key].clone();
    assert_eq!((of(0, "query"), of(1, "query"), of(2, "query")), (query.into(), "light".into(), query.into()));
    assert_eq!(of(0, "results"), of(2, "results"));
    assert!((of(0, "results")[0]["logit"].as_f64().unwrap() - logit).abs() < 1e-4);
    let lines = stdout(&feed(&[&several[..], &["--top-n", "2"]].concat(), documents.join("\n").as_bytes()));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 6 && lines[2]["query"] == "light" && lines[0]["index"] == 2);
    let empty = put(&folder, "empty.txt", b"a\n\n");
    refused(&run(&[&common[..], &["--queries", empty.to_str().unwrap(), "a", "b"]].concat()), 1, "empty.txt:2: the query is empty");
    refused(&feed(&[&common[..], &[query]].concat(), b"a\n\n"), 1, "standard input:2: the document is empty");
    refused(&run(&["generate", "x", "-m", model, "--vocab", vocab.to_str().unwrap()]), 1, "wingbeat embed");
}
