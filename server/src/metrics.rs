//! Counters and gauges for Prometheus.

use super::hosted::Hosted;
use super::store::Traffic;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::sync::Arc;
use wingbeat::engine::Completion;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: String,
    status: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Model {
    model: String,
}

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<Route, Counter>,
    prompt_tokens: Family<Model, Counter>,
    cached_tokens: Family<Model, Counter>,
    generated_tokens: Family<Model, Counter>,
    drafted_tokens: Family<Model, Counter>,
    accepted_tokens: Family<Model, Counter>,
    first_token: Family<Model, Histogram>,
    per_token: Family<Model, Histogram>,
    queued: Family<Model, Histogram>,
    slots: Family<Model, Gauge>,
    free_slots: Family<Model, Gauge>,
    running: Family<Model, Gauge>,
    waiting: Family<Model, Gauge>,
    swapped: Family<Model, Gauge>,
    cached: Family<Model, Gauge>,
    pub lost_devices: Counter,
}

/// Returns a histogram of durations in seconds, with buckets from 1 ms to 65 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

/// Adds a metric to the registry and returns it.
fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Returns metrics that also show what the storage of states reads and writes.
    pub fn new(traffic: &Traffic) -> Metrics {
        let mut registry = Registry::with_prefix("wingbeat");
        let all = &mut registry;
        let histogram = || Family::<Model, Histogram>::new_with_constructor(seconds);
        let cached_tokens = "Tokens of prompts that were not prefilled, because a cached or kept state contained them";
        let first_token = "Time from the moment when a request gets its slots to its first token";
        register(all, "state_reads", "Files read from the storage of states", traffic.reads.clone());
        register(all, "state_read_bytes", "Bytes read from the storage of states", traffic.read_bytes.clone());
        register(all, "state_writes", "Files written to the storage of states", traffic.writes.clone());
        register(all, "state_written_bytes", "Bytes written to the storage of states", traffic.written_bytes.clone());
        Metrics {
            requests: register(all, "requests", "Requests by route and status", Family::default()),
            prompt_tokens: register(all, "prompt_tokens", "Tokens of prompts, cached tokens included", Family::default()),
            cached_tokens: register(all, "cached_tokens", cached_tokens, Family::default()),
            generated_tokens: register(all, "generated_tokens", "Generated tokens", Family::default()),
            drafted_tokens: register(all, "drafted_tokens", "Guessed tokens that steps have checked", Family::default()),
            accepted_tokens: register(all, "accepted_tokens", "Guessed tokens that were right", Family::default()),
            first_token: register(all, "time_to_first_token_seconds", first_token, histogram()),
            per_token: register(all, "time_per_token_seconds", "Mean time between the tokens of an answer", histogram()),
            queued: register(all, "queue_seconds", "Time in the queue", histogram()),
            slots: register(all, "slots", "Slots", Family::default()),
            free_slots: register(all, "free_slots", "Slots without a request", Family::default()),
            running: register(all, "running_requests", "Requests with slots", Family::default()),
            waiting: register(all, "waiting_requests", "Requests that wait for slots", Family::default()),
            swapped: register(all, "swapped_texts", "Texts that gave up their slots because others wait", Family::default()),
            cached: register(all, "cache_entries", "Entries of the prefix cache", Family::default()),
            lost_devices: register(all, "lost_devices", "Devices that failed", Counter::default()),
            registry,
        }
    }

    pub fn on_response(&self, route: &str, status: u16) {
        self.requests.get_or_create(&Route { route: route.into(), status: status.into() }).inc();
    }

    /// Adds a complete continuation to the metrics. The continuations of a request share one prompt, so only the first continuation counts the
    /// prompt.
    pub fn on_done(&self, model: &str, done: &Completion) {
        let model = &Model { model: model.into() };
        if done.index == 0 {
            self.prompt_tokens.get_or_create(model).inc_by(done.usage.prompt_tokens as u64);
            self.cached_tokens.get_or_create(model).inc_by(done.usage.cached_tokens as u64);
            self.queued.get_or_create(model).observe(done.timings.queue_ms / 1e3);
            self.first_token.get_or_create(model).observe(done.timings.prefill_ms / 1e3);
        }
        let n = done.usage.completion_tokens;
        self.generated_tokens.get_or_create(model).inc_by(n as u64);
        self.drafted_tokens.get_or_create(model).inc_by(done.timings.drafted_tokens as u64);
        self.accepted_tokens.get_or_create(model).inc_by(done.timings.accepted_tokens as u64);
        if n > 1 {
            self.per_token.get_or_create(model).observe(done.timings.decode_ms / 1e3 / (n - 1) as f64);
        }
    }

    /// Reads the current counts of `models`, and returns all metrics in the text format of OpenMetrics.
    pub fn text(&self, models: &[Arc<Hosted>]) -> String {
        for model in models.iter().filter(|model| model.base.is_none()) {
            let label = &Model { model: model.name.clone() };
            let Some(stats) = model.ready().map(|engine| engine.stats()) else { continue };
            self.slots.get_or_create(label).set(stats.slots as i64);
            self.free_slots.get_or_create(label).set(stats.free_slots as i64);
            self.running.get_or_create(label).set(stats.running as i64);
            self.waiting.get_or_create(label).set(stats.waiting as i64);
            self.swapped.get_or_create(label).set(stats.swapped as i64);
            self.cached.get_or_create(label).set(stats.cached as i64);
        }
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
