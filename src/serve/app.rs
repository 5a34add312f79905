//! Data that all handlers share.

use super::ServeOptions;
use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::hosted::{AnyHosted, Hosted, Runs, ServedModel};
use super::ledger::{Entry, Ledger, Line};
use super::metrics::Metrics;
use super::states::States;
use super::store::Store;
use super::vectors::{HostedVectors, ServedVectors};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, Semaphore};

/// The most requests that are tokenized and checked at the same time.
const PREPARING: usize = 4;

/// Data that all requests share.
pub struct App {
    pub options: ServeOptions,
    pub models: Vec<Arc<Hosted>>,
    /// Models that compute vectors and scores.
    pub vectors: Vec<Arc<HostedVectors>>,
    pub states: States,
    pub metrics: Metrics,
    /// The requests that are being answered.
    pub ledger: Arc<Ledger>,
    /// Limits how many requests are tokenized and checked at the same time.
    pub preparing: Arc<Semaphore>,
    /// Bounds how many states are uploaded at the same time, because an upload is in memory.
    pub uploads: Semaphore,
    /// True after the server was asked to end. New requests are refused.
    pub is_stopping: AtomicBool,
    /// The error with which the server ends. `has_failed` signals that the error is set.
    pub fatal: Mutex<Option<Error>>,
    pub has_failed: Notify,
}

impl App {
    /// Returns the data of a server with these models, which are not loaded yet.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn new(options: ServeOptions, models: Vec<ServedModel>, vectors: Vec<ServedVectors>) -> Result<App> {
        let store = Store::open(options.states.as_deref())?;
        Ok(App {
            models: models.into_iter().map(|model| Arc::new(Hosted::new(model))).collect(),
            vectors: vectors.into_iter().map(|model| Arc::new(Hosted::of_vectors(model))).collect(),
            states: States::new(store, options.state_quota),
            options,
            metrics: Default::default(),
            ledger: Arc::default(),
            preparing: Arc::new(Semaphore::new(PREPARING)),
            uploads: Semaphore::new(1),
            is_stopping: Default::default(),
            fatal: Default::default(),
            has_failed: Default::default(),
        })
    }

    /// Returns all models: first the models that generate text, then the models for vectors.
    pub fn all(&self) -> impl Iterator<Item = &dyn AnyHosted> {
        let models = self.models.iter().map(|model| &**model as &dyn AnyHosted);
        models.chain(self.vectors.iter().map(|model| &**model as &dyn AnyHosted))
    }

    /// Begins a request: enters it in the list of open requests. Returns the model's engine, the number of the engine, and the entry.
    ///
    /// # Errors
    /// 503 if the model is not ready or the server ends.
    pub fn begin<R: Runs>(&self, model: &Hosted<R>, caller: &Caller, endpoint: &'static str) -> Answer<(R, u32, Line)> {
        if self.is_stopping() {
            return Err(Failure::stopping());
        }
        let (engine, number) = model.engine()?;
        let entry = Entry {
            request_id: caller.request_id.clone(),
            namespace: caller.namespace.clone(),
            endpoint,
            model: model.name.clone(),
            prompt_tokens: 0,
            cached_tokens: 0,
            events: 0,
            began: Instant::now(),
        };
        Ok((engine, number, Line::open(&self.ledger, entry)))
    }

    /// Returns the model with this name, or the first model if `name` is `None`. If the server has only one model, any name selects this model.
    ///
    /// # Errors
    /// 404 if the server has no model that generates text, or several models but no model with this name.
    pub fn model(&self, name: Option<&str>) -> Answer<Arc<Hosted>> {
        let named = name.and_then(|name| self.models.iter().find(|model| model.name == name));
        match (named, name, self.models.as_slice()) {
            (Some(model), ..) => Ok(model.clone()),
            (None, None, [first, ..]) | (None, Some(_), [first]) => Ok(first.clone()),
            (None, name, _) => {
                let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
                let known = if names.is_empty() {
                    "this server has no model that generates text".into()
                } else {
                    format!("models: {}", names.join(", "))
                };
                let e = Error::input(format!("unknown model {:?}", crate::error::short(name.unwrap_or_default(), 60)));
                Err(Failure {
                    code: Some("model_not_found"),
                    status: axum::http::StatusCode::NOT_FOUND,
                    ..e.hint(known).field("model").into()
                })
            }
        }
    }

    /// Returns the model for vectors with this name. `None` as a name selects the first of these models.
    pub fn vectors_named(&self, name: Option<&str>) -> Option<&Arc<HostedVectors>> {
        self.vectors.iter().find(|model| name.is_none_or(|name| model.name == name))
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Ends the server with an error.
    pub fn fail(&self, e: Error) {
        self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(e);
        self.has_failed.notify_one();
    }

    /// Handles the failure of the device of `model`'s engine. Loads the model again, or ends the server if a device failed within the last ten
    /// minutes. `number` is the number of the engine. Does nothing if a newer engine has replaced this engine.
    pub fn on_device_error<R: Runs>(self: &Arc<Self>, model: &Arc<Hosted<R>>, number: u32, e: &Error) {
        if self.is_stopping() {
            return;
        }
        let Some(lost) = model.lose(number) else { return };
        log::warn!("model {}: {e}", model.name);
        self.metrics.lost_devices.inc();
        let may_reopen = model.losses.may_reopen();
        match may_reopen {
            true => log::warn!("model {}: the device is opened again", model.name),
            false => self.fail(Error::device(format!("the device failed twice within ten minutes: {e}"))),
        }
        let (app, model) = (self.clone(), model.clone());
        tokio::task::spawn_blocking(move || {
            drop(lost);
            if may_reopen && let Err(e) = model.load() {
                app.fail(Error { kind: crate::error::Kind::Device, ..e });
            }
        });
    }
}
