//! A turn is the right of one request to use a model for vectors. Such a model runs one request at a time.

use super::app::App;
use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::ledger::Line;
use super::vectors::{HostedVectors, VectorEngine};
use crate::engine::Input;
use crate::error::{Error, Kind, Result};
use crate::session::Embedding;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::OwnedSemaphorePermit;

/// Sets a flag when it is dropped. The future of a request owns this value, so the flag is set when the client has left.
struct Client(Arc<AtomicBool>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The turn of a request. The next request gets its turn when this value is dropped.
pub struct Turn {
    engine: VectorEngine,
    line: Line,
    has_left: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

/// Runs `work` with a model for vectors when it is the request's turn, on a thread that may block. If the client leaves or the server ends, the work
/// ends after its current step.
///
/// # Errors
/// 429 if too many requests wait; 503 if the model is not ready or the server ends; 500 if `work` panics; the errors of `work`.
pub async fn in_turn<T: Send + 'static>(
    app: &Arc<App>,
    model: &Arc<HostedVectors>,
    caller: &Caller,
    endpoint: &'static str,
    work: impl FnOnce(&mut Turn) -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let (engine, number, line) = app.begin(model, caller, endpoint)?;
    let permit = engine.turn().await?;
    let has_left = Arc::new(AtomicBool::new(false));
    let _client = Client(has_left.clone());
    let mut turn = Turn { engine, line, has_left, _permit: permit };
    let done = tokio::task::spawn_blocking(move || work(&mut turn)).await;
    let done = done.unwrap_or_else(|_| Err(Error::file("computing the vectors panicked").into()));
    done.map_err(|failure| match failure.error.kind {
        Kind::Interrupted => Failure::stopping(),
        Kind::Device => {
            app.on_device_error(model, number, &failure.error);
            failure
        }
        _ => failure,
    })
}

impl Turn {
    /// Computes one vector per input. An input is a text or token ids, with its path in the request.
    ///
    /// # Errors
    /// 400 with the path of the input if an input is empty, too long, or has an unknown token id.
    pub fn embed(&mut self, inputs: &[(String, Input)]) -> Answer<Vec<Embedding>> {
        let mut vectors = self.engine.lock();
        let encode = |(path, input): &(String, Input)| {
            let tokens = match input {
                Input::Text(text) => vectors.embedder.encode(text),
                Input::Tokens(tokens) => vectors.embedder.encode_tokens(tokens),
                Input::Messages(_) => Err(Error::input("expected a text or token ids, found messages")),
            };
            tokens.map_err(|e| e.field(path))
        };
        let encoded = inputs.iter().map(encode).collect::<Result<Vec<Vec<u32>>>>()?;
        let tokens: Vec<&[u32]> = encoded.iter().map(Vec::as_slice).collect();
        self.line.update(|entry| entry.prompt_tokens = tokens.iter().map(|tokens| tokens.len()).sum());
        let found = vectors.embedder.embed_tokens(&tokens, &mut self.watch())?;
        Ok(found.into_iter().zip(tokens).map(|(vector, tokens)| Embedding { vector, n_tokens: tokens.len() }).collect())
    }

    /// Computes a logit for each document.
    ///
    /// # Errors
    /// 400 if the model has no reranker, or a text is empty.
    pub fn score(&mut self, query: &str, documents: &[&str]) -> Answer<Vec<f32>> {
        let mut vectors = self.engine.lock();
        match &mut vectors.reranker {
            Some(reranker) => Ok(reranker.score(query, documents, &mut self.watch())?),
            None => Err(Failure::field("model", "this model has no reranker")),
        }
    }

    /// Returns a function to call after each step. The function interrupts the work if the client has left or the server ends.
    fn watch(&self) -> impl FnMut(usize, usize) {
        self.engine.set_stop(false);
        move |_, _| {
            if self.has_left.load(Ordering::SeqCst) || self.engine.is_ending() {
                self.engine.set_stop(true);
            }
        }
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::serve::ServeOptions;
    use crate::serve::hosted::{AnyHosted, Served};
    use crate::serve::vectors::{LoadVectors, Vectors};
    use crate::session::{EmbedOptions, Embedder, Model, ModelSource, Options, Output};

    /// Returns a server with one model for vectors, which is not loaded.
    fn host() -> Arc<App> {
        let load: LoadVectors = Box::new(|| {
            let options = Options { device: "cpu".parse()?, output: Output::Hidden, ..Options::default() };
            let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ())?;
            Ok(Vectors { embedder: Embedder::new(&model, 1, &EmbedOptions::default())?, reranker: None })
        });
        Arc::new(App::new(ServeOptions::default(), Vec::new(), vec![Served { name: "x".into(), load }]).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_request() {
        let app = host();
        let (model, caller) = (app.vectors[0].clone(), Caller::default());
        model.load().unwrap();
        for _ in 0..2 {
            // The panic leaves the model's only slot open.
            let panics = |turn: &mut Turn| Ok(turn.engine.lock().embedder.embed(&["light"], &mut |_, _| panic!("expected by the test"))?);
            let failed = in_turn(&app, &model, &caller, "/v1/embeddings", panics).await.unwrap_err();
            assert_eq!((failed.status.as_u16(), model.state().is_some()), (500, true), "{failed:?}");
            let inputs = vec![("input".to_string(), Input::Text("light".into()))];
            let found = in_turn(&app, &model, &caller, "/v1/embeddings", move |turn| turn.embed(&inputs)).await.unwrap();
            assert_eq!((found.len(), app.ledger.len()), (1, 0));
        }
        assert!(app.fatal.lock().unwrap().is_none());
    }

    #[tokio::test]
    async fn a_lost_model_for_vectors_is_loaded_again() {
        let app = host();
        let model = app.vectors[0].clone();
        model.load().unwrap();
        let (caller, inputs) = (Caller::default(), vec![("input".to_string(), Input::Text("light".into()))]);
        let lost = || in_turn::<()>(&app, &model, &caller, "/v1/embeddings", |_| Err(Error::device("lost").into()));
        assert_eq!(lost().await.unwrap_err().code, Some("device_error"));
        let began = std::time::Instant::now();
        while model.state().is_none() {
            assert!(began.elapsed().as_secs() < 60, "the model was not loaded again");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let found = in_turn(&app, &model, &caller, "/v1/embeddings", move |turn| turn.embed(&inputs)).await.unwrap();
        assert_eq!((found.len(), app.ledger.len()), (1, 0));
        // A second loss within ten minutes ends the server.
        lost().await.unwrap_err();
        assert!(app.fatal.lock().unwrap().is_some());
    }
}
