//! Tickets. A ticket is a request that an engine runs for a caller. The ticket has the events of the request, the state to store, and the entry in
//! the list of open requests.

use super::app::App;
use super::budget::Claim;
use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::hosted::{Hosted, Lease};
use super::ids::new_id;
use super::ledger::OpenRequestGuard;
use super::states::check_new_name;
use axum::http::StatusCode;
use futures_util::StreamExt;
use std::sync::Arc;
use wingbeat::engine::{Completion, Engine, Event, Generation, Request, is_unknown_state};
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::sample::Sampling;

/// How often a state is loaded again after other states have displaced it from the engine's memory.
const MAX_ATTEMPTS: usize = 3;

/// Names of two states of a session or a kept response: the state to continue, and the state to save. The request's own fields `state` and
/// `save_state` have precedence.
#[derive(Debug, Clone, Default)]
pub struct SessionStates {
    /// The name of the state from which the conversation continues if the conversation's text begins with the text of the state.
    pub resume: Option<String>,
    /// The name under which the state after the answer is saved.
    pub save: Option<String>,
    /// True if the prompt is the whole conversation. A kept state can then cover the beginning of the prompt.
    pub is_conversation: bool,
}

impl SessionStates {
    /// Returns the names for a model. If the model has a tuned initial state, the names of a session's states end with the digest of the initial state:
    /// other models may have a session with the same id.
    ///
    /// # Errors
    /// 400 if the id of the session is too long for a name with the digest.
    fn of(&self, model: &Hosted, engine: &Engine) -> Answer<SessionStates> {
        const MOST: usize = 80;
        let mut states = self.clone();
        let (Some(initial), Some(session)) = (model.initial(), &self.resume) else { return Ok(states) };
        if self.save.as_ref() == Some(session)
            && let Some(digest) = engine.initial_digest(&initial)
        {
            if session.len() > MOST {
                return Err(Failure::field("session_id", format!("expected at most {MOST} bytes for this model, found {}", session.len())));
            }
            let name = format!("{session}.{digest}");
            (states.resume, states.save) = (Some(name.clone()), Some(name));
        }
        Ok(states)
    }
}

/// A request that runs. Dropping the ticket cancels the request.
pub struct Ticket {
    app: Arc<App>,
    pub model: Arc<Hosted>,
    pub engine: Engine,
    number: u32,
    caller: Caller,
    /// Keeps the model in memory.
    _lease: Lease,
    generation: Generation,
    /// The memory of the request.
    _claim: Arc<Claim>,
    open_request: OpenRequestGuard,
    /// The name under which the state after the text is stored. `None` stores no state.
    save_as: Option<String>,
    /// The error because of which the state was not stored.
    pub refused: Option<Failure>,
}

impl Ticket {
    /// Submits a request to a model's engine. The ticket keeps `claim`, the request's memory.
    ///
    /// # Errors
    /// 400 if a field is wrong; 404 if the named state is unknown, or is deleted before the request begins; 429 if the queue or the memory of
    /// requests is full, for all callers or for this caller; 503 if the model is not ready or the server ends.
    pub async fn open(
        app: &Arc<App>,
        model: &Arc<Hosted>,
        caller: &Caller,
        endpoint: &'static str,
        mut request: Request,
        states: &SessionStates,
        claim: &Arc<Claim>,
    ) -> Answer<Ticket> {
        if app.is_stopping() {
            return Err(Failure::stopping());
        }
        let lease = Lease::of(model);
        let (engine, number) = app.started(model).await?;
        let states = states.of(model, &engine)?;
        let open_request = OpenRequestGuard::open(&app.ledger, caller, endpoint, &model.name);
        request.namespace.clone_from(&caller.namespace);
        request.state_is_prefix = states.is_conversation && request.state.is_none();
        request.initial = model.initial();
        let is_named = request.state.is_some();
        if is_named || states.resume.is_some() {
            // A busy server refuses a request before it reads a state for it.
            engine.check_room(&caller.namespace)?;
        }
        if let Some(name) = &request.state {
            if !app.states.bring(&engine, caller, name).await.map_err(|e| e.in_field("state"))? {
                return Err(unknown_state(name).in_field("state"));
            }
        } else if let Some(name) = &states.resume {
            match app.states.bring(&engine, caller, name).await {
                Ok(true) => request.state = Some(name.clone()),
                Ok(false) => {}
                // The request has the whole conversation, so it needs no state. The answer replaces the damaged file.
                Err(failure) if states.is_conversation => {
                    log::warn!(
                        "{}: the state {name:?} cannot be read, so the conversation is prefilled again: {}",
                        caller.request_id,
                        failure.in_log()
                    );
                }
                Err(failure) => return Err(failure.in_field("session_id")),
            }
        }
        if let Some(name) = &request.save_state {
            check_new_name(name, "save_state")?;
        }
        let save_as = request.save_state.take().or_else(|| states.save.clone());
        if save_as.is_some() {
            // The engine saves the state under a temporary name. The state gets the caller's name only when it is in the storage.
            request.save_state = Some(new_id("saving-"));
        }
        let submit = |request: Request| {
            let engine = engine.clone();
            app.worker_pools.run(&claim.namespace, claim.n_bytes(), move || engine.submit(request))
        };
        // A request without a state is submitted once, so it need not be copied.
        let mut again = request.state.is_some().then(|| request.clone());
        let mut generation = submit(request).await;
        let in_field = |failure: Failure| failure.in_field(if is_named { "state" } else { "session_id" });
        for attempt in 0.. {
            let Some(request) = again.as_mut().filter(|_| generation.as_ref().is_err_and(is_unknown_state)) else { break };
            let Some(name) = &request.state else { break };
            // The engine's own error is not returned, because it lists temporary names.
            if attempt == MAX_ATTEMPTS {
                return Err(in_field(Failure::unavailable("out_of_memory", "other states displace this state from memory")));
            }
            let found = match app.states.bring(&engine, caller, name).await {
                // As before the first attempt, a session whose file is damaged begins anew.
                Err(e) if !is_named => {
                    log::warn!("session: {}", e.message());
                    false
                }
                found => found.map_err(in_field)?,
            };
            match found {
                // Other states had displaced this state from the engine's memory. `bring` has loaded it again.
                true => {}
                false if is_named => return Err(unknown_state(name).in_field("state")),
                // Another request has deleted the session, so it begins anew.
                false => request.state = None,
            }
            generation = submit(request.clone()).await;
        }
        if let Err(e) = &generation
            && e.kind == Kind::Device
        {
            app.on_device_error(model, number, e);
        }
        let generation = generation?;
        claim.add(4 * generation.n_tokens())?;
        Ok(Ticket {
            app: app.clone(),
            model: model.clone(),
            engine,
            number,
            caller: caller.clone(),
            _lease: lease,
            generation,
            _claim: claim.clone(),
            open_request,
            save_as,
            refused: None,
        })
    }

    /// Returns the sampler settings with which the request runs.
    pub fn sampling(&self) -> &Sampling {
        self.generation.sampling()
    }

    /// Returns the next event, or `None` after the last. A state is stored before the event [`Event::Done`] is returned.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        let mut event = match self.generation.next().await? {
            Ok(event) => event,
            Err(e) => {
                if e.kind == Kind::Device {
                    self.app.on_device_error(&self.model, self.number, &e);
                }
                return Some(Err(e));
            }
        };
        match &mut event {
            Event::Started { prompt_tokens, cached_tokens } => {
                self.open_request.update(|entry| (entry.prompt_tokens, entry.cached_tokens) = (*prompt_tokens, *cached_tokens));
            }
            Event::Text { .. } | Event::Thought { .. } | Event::Arguments { .. } => self.open_request.update(|entry| entry.events += 1),
            Event::Done(done) => {
                if let (Some(Ok(info)), Some(name)) = (&done.state, &self.save_as) {
                    let stored = self.app.states.keep(&self.engine, &self.caller, &info.name, name).await;
                    done.state = Some(stored.map_err(|failure| {
                        if failure.status.is_server_error() {
                            log::warn!("{}: the state was not stored: {}", self.caller.request_id, failure.in_log());
                        }
                        self.refused = Some(failure.clone());
                        *failure.error
                    }));
                }
                self.app.metrics.on_done(&self.model.name, done);
                self.app.log_done(&self.caller.request_id, &self.model.name, done);
            }
            _ => {}
        }
        Some(Ok(event))
    }

    /// Waits until the request, which must have one continuation, is complete. Calls `each` with every event except the last, and returns the
    /// continuation.
    ///
    /// # Errors
    /// The error of the request; 503 if the server ends.
    pub async fn finish(mut self, mut each: impl FnMut(Event)) -> Answer<Completion> {
        while let Some(event) = self.next().await {
            match event {
                Ok(Event::Done(done)) => return Ok(*done),
                Ok(event) => each(event),
                Err(_) if self.app.is_stopping() => break,
                Err(e) => return Err(e.into()),
            }
        }
        Err(Failure::stopping())
    }
}

/// Returns the failure for a state that does not exist, or belongs to another caller.
pub fn unknown_state(name: &str) -> Failure {
    let e = Error::input(format!("unknown state {:?}", wingbeat::low_level::front_end::short(name, 100)));
    let e = e.hint("GET /v1/states lists the states of this key and model");
    Failure::new(StatusCode::NOT_FOUND, "state_not_found", e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServeOptions;
    use crate::hosted::{LoadEngine, ServedModel, ServedTask};
    use std::time::Instant;
    use wingbeat::engine::{EngineOptions, Input};
    use wingbeat::low_level::session::{Model, ModelSource, Options, Output};

    #[tokio::test]
    async fn a_lost_model_for_vectors_is_loaded_again() {
        let load: LoadEngine = Box::new(|| {
            let options = Options { device: "cpu".parse()?, output: Output::Hidden, ..Options::default() };
            Engine::start(&Model::load(&ModelSource::Embedded, &options, &mut |_, _| ())?, EngineOptions::default())
        });
        let models = vec![ServedModel { name: "x".into(), task: ServedTask::Embedding, load }];
        let app = Arc::new(App::new(ServeOptions::default(), models).unwrap());
        let (model, caller, states) = (app.models[0].clone(), Caller::default(), SessionStates::default());
        model.load().unwrap();
        let claim = Arc::new(app.budget.claim(""));
        let open =
            || Ticket::open(&app, &model, &caller, "/v1/embeddings", Request::vectors([Input::Text("light".into())]), &states, &claim);
        // An engine that was interrupted refuses requests with the error of a lost device.
        model.ready().unwrap().interrupt();
        assert_eq!(open().await.err().unwrap().code, Some("device_error"));
        let began = Instant::now();
        while model.ready().is_none() {
            assert!(began.elapsed().as_secs() < 60, "the model was not loaded again");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let mut n = 0;
        open().await.unwrap().finish(|event| n += usize::from(matches!(event, Event::Vector { .. }))).await.unwrap();
        assert_eq!((n, app.ledger.len()), (1, 0));
        // A second loss within ten minutes ends the server.
        model.ready().unwrap().interrupt();
        open().await.err().unwrap();
        assert!(app.fatal.lock().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_state_that_is_deleted_before_the_request_begins_is_unknown() {
        let load: LoadEngine = Box::new(|| {
            let options = Options { device: "cpu".parse()?, ..Options::default() };
            Engine::start(&Model::load(&ModelSource::Embedded, &options, &mut |_, _| ())?, EngineOptions::default())
        });
        let models = vec![ServedModel { name: "x".into(), task: ServedTask::Text, load }];
        let app = Arc::new(App::new(ServeOptions::default(), models).unwrap());
        let (model, caller) = (app.models[0].clone(), Caller::default());
        model.load().unwrap();
        let engine = model.ready().unwrap();
        let claim = Arc::new(app.budget.claim(""));
        let mut named = Request::text(" the").max_tokens(1);
        named.state = Some("intro".into());
        let session = SessionStates { resume: Some("intro".into()), ..SessionStates::default() };
        for (request, states, is_named) in [(named, SessionStates::default(), true), (Request::text("a").max_tokens(1), session, false)] {
            for name in ["intro", "other"] {
                let mut save = Request::text("In the beginning").max_tokens(1);
                save.save_state = Some("new".into());
                engine.run(save).unwrap();
                app.states.keep(&engine, &caller, "new", name).await.unwrap();
            }
            // All threads for requests are busy, so the request waits after its state was found.
            let (go_on, waits) = std::sync::mpsc::channel::<()>();
            let waits = Arc::new(std::sync::Mutex::new(waits));
            let busy: Vec<_> = (0..4)
                .map(|_| {
                    let (app, waits) = (app.clone(), waits.clone());
                    tokio::spawn(async move {
                        app.worker_pools.run("", 0, move || waits.lock().unwrap().recv().map_err(|_| Error::input("x"))).await
                    })
                })
                .collect();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let open = {
                let (app, model, caller, claim) = (app.clone(), model.clone(), caller.clone(), claim.clone());
                tokio::spawn(
                    async move { Ticket::open(&app, &model, &caller, "/v1/completions", request, &states, &claim).await.map(drop) },
                )
            };
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            assert!(!open.is_finished() && app.states.delete(&engine, &caller, "intro").await.unwrap());
            (0..4).for_each(|_| go_on.send(()).unwrap());
            let opened = open.await.unwrap();
            for task in busy {
                task.await.unwrap().unwrap();
            }
            if is_named {
                let failure = opened.err().unwrap();
                assert_eq!((failure.status, failure.code), (StatusCode::NOT_FOUND, Some("state_not_found")), "{}", failure.message());
                assert!(failure.message().starts_with("state: unknown state \"intro\"") && !failure.message().contains("other"));
            } else {
                opened.unwrap();
            }
        }
    }
}
