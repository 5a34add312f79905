//! Models that load on first use and leave memory when they are idle: `ServeOptions::keep_alive`.

use super::app::App;
use super::failure::Answer;
use super::hosted::{Hosted, Stage};
use std::sync::Arc;
use std::time::Duration;
use wingbeat::engine::Engine;

/// How often the server looks for idle models.
const LOOK: Duration = Duration::from_millis(250);

impl App {
    /// Returns the engine of a model and its number. Loads the model first if it has left memory, and waits until it is ready.
    ///
    /// # Errors
    /// 503 if the model is not ready: it loads at the start of the server, or could not be loaded.
    pub async fn started(self: &Arc<Self>, model: &Arc<Hosted>) -> Answer<(Engine, u32)> {
        let model = model.root();
        model.touch();
        let mut has_waited = false;
        loop {
            let changed = model.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            match model.stage() {
                Stage::Ready => return model.engine(),
                Stage::Failed if has_waited => return model.engine(),
                _ if self.options.keep_alive.is_none() => return model.engine(),
                Stage::Loading => {}
                Stage::Unloaded | Stage::Failed => {
                    if model.begin_load() {
                        let (app, model) = (self.clone(), model.clone());
                        tokio::task::spawn_blocking(move || app.load_now(&model));
                    }
                }
            }
            has_waited = true;
            changed.await;
        }
    }

    /// Loads a model. If memory is short, unloads idle models and tries again.
    pub fn load_now(&self, model: &Arc<Hosted>) {
        log::info!("model {}: loading", model.name);
        match model.load_with(|| self.unload_others(model)) {
            Ok(()) => log::info!("model {}: ready", model.name),
            Err(e) => log::warn!("model {}: {e}", model.name),
        }
    }

    /// Unloads all idle models except `kept`. Returns false if no other model was idle.
    fn unload_others(&self, kept: &Arc<Hosted>) -> bool {
        let others = self.roots().filter(|model| !Arc::ptr_eq(model, kept));
        let engines: Vec<Engine> = others.filter_map(|model| model.unload_if_idle(Duration::ZERO)).collect();
        // The engines end here, and free their memory before the model is loaded again.
        !engines.is_empty()
    }

    /// Unloads models that no request has used for the time `keep_alive`. Runs until the server ends.
    pub async fn unload_idle(self: Arc<Self>) {
        let Some(keep_alive) = self.options.keep_alive else { return };
        loop {
            tokio::time::sleep(LOOK).await;
            for model in self.roots() {
                if let Some(engine) = model.unload_if_idle(keep_alive) {
                    log::info!("model {}: unloaded, because it was idle for {} s", model.name, keep_alive.as_secs());
                    // Dropping the last handle waits for the engine's thread.
                    tokio::task::spawn_blocking(move || drop(engine));
                }
            }
        }
    }
}
