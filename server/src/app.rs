//! Data that all handlers share.

use super::ServeOptions;
use super::budget::Budget;
use super::failure::{Answer, Failure};
use super::hosted::{Hosted, ServedModel, ServedTask};
use super::ledger::Ledger;
use super::metrics::Metrics;
use super::recordings::Recordings;
use super::states::States;
use super::store::Store;
use super::worker_pools::WorkerPools;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use wingbeat::error::{Error, Result};

/// Data that all requests share.
pub struct App {
    pub options: ServeOptions,
    pub models: Vec<Arc<Hosted>>,
    pub states: States,
    pub metrics: Metrics,
    /// The requests that are being answered.
    pub ledger: Arc<Ledger>,
    /// Answers that survive their connection.
    pub recordings: Recordings,
    /// Threads that parse and prepare requests.
    pub worker_pools: WorkerPools,
    /// The memory of bodies, waiting requests and uploads.
    pub budget: Arc<Budget>,
    /// True after the server was asked to end. New requests are refused.
    pub is_stopping: AtomicBool,
    /// The error with which the server ends. `has_failed` signals that the error is set.
    pub fatal: Mutex<Option<Error>>,
    pub has_failed: Notify,
    /// Warnings about request fields that were already logged: the log has each warning once.
    pub logged_warnings: Mutex<BTreeSet<String>>,
}

impl App {
    /// Creates the data of a server. The models are not loaded yet.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn new(options: ServeOptions, models: Vec<ServedModel>) -> Result<App> {
        let store = Store::open(options.states.as_deref())?;
        let mut hosted: Vec<Arc<Hosted>> =
            models.into_iter().map(|model| Arc::new(Hosted::new(model, options.keep_alive.is_some()))).collect();
        if let Some(base) = hosted.iter().find(|model| model.task == ServedTask::Text).cloned() {
            hosted.extend(options.tuned.iter().map(|name| Arc::new(Hosted::tuned(name, &base))));
        }
        Ok(App {
            models: hosted,
            metrics: Metrics::new(&store.traffic),
            states: States::new(store, options.state_quota),
            ledger: Arc::default(),
            recordings: Recordings::default(),
            worker_pools: WorkerPools::new(options.keys.len()),
            budget: Budget::new(options.request_memory, options.keys.len()),
            is_stopping: Default::default(),
            fatal: Default::default(),
            has_failed: Default::default(),
            logged_warnings: Default::default(),
            options,
        })
    }

    /// Returns the models that have engines of their own.
    pub fn roots(&self) -> impl Iterator<Item = &Arc<Hosted>> {
        self.models.iter().filter(|model| model.base.is_none())
    }

    /// Returns the models that have this task.
    pub fn models_for(&self, task: ServedTask) -> Vec<&Arc<Hosted>> {
        self.models.iter().filter(|model| model.task == task).collect()
    }

    /// Returns the model with this name that generates text. `None` selects the first such model. If the server has only one such model, any name
    /// selects it.
    ///
    /// # Errors
    /// 404 if the server has no model that generates text, or several models but no model with this name.
    pub fn model(&self, name: Option<&str>) -> Answer<Arc<Hosted>> {
        let models = self.models_for(ServedTask::Text);
        let named = name.and_then(|name| models.iter().find(|model| model.name == name));
        match (named, name, models.as_slice()) {
            (Some(model), ..) => Ok((*model).clone()),
            (None, None, [first, ..]) | (None, Some(_), [first]) => Ok((*first).clone()),
            (None, name, _) => {
                let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
                let known = if names.is_empty() {
                    "this server has no model that generates text".into()
                } else {
                    format!("models: {}", names.join(", "))
                };
                let e = Error::input(format!("unknown model {:?}", wingbeat::low_level::front_end::short(name.unwrap_or_default(), 60)));
                Err(Failure::new(axum::http::StatusCode::NOT_FOUND, "model_not_found", e.hint(known).field("model")))
            }
        }
    }

    /// Returns the embedding model with this name, or `None` if the server has no such model. Without a name, returns the first embedding model. If
    /// `accepts_any` is true and the server has only one embedding model, any name selects it.
    pub fn vectors(&self, name: Option<&str>, accepts_any: bool) -> Option<Arc<Hosted>> {
        let models = self.models_for(ServedTask::Embedding);
        let named = models.iter().find(|model| name.is_none_or(|name| model.name == name));
        named.or(models.first().filter(|_| accepts_any && models.len() == 1)).map(|model| (*model).clone())
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Ends the server with an error. After an earlier call, the first error stays.
    pub fn fail(&self, e: Error) {
        self.fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(e);
        self.has_failed.notify_one();
    }

    /// Handles a device failure of the engine number `number` of `model`. Loads the model again, or ends the server if this model's device already
    /// failed within the last ten minutes. Does nothing if a newer engine has replaced the engine that failed.
    pub fn on_device_error(self: &Arc<Self>, model: &Arc<Hosted>, number: u32, e: &Error) {
        if self.is_stopping() {
            return;
        }
        let model = model.root();
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
            if may_reopen && app.options.keep_alive.is_some() {
                app.load_now(&model);
            } else if may_reopen && let Err(e) = model.load() {
                app.fail(e.with_kind(wingbeat::error::Kind::Device));
            }
        });
    }
}
