//! Draws tokens under constraints on threads of their own. A slow constraint, such as a large grammar, then delays its own text alone. A browser
//! starts no threads, so there the thread that runs the step draws.

use crate::error::{Error, Result};
use crate::session::caught;
use crate::session::text::{Drawing, Drawn, SLOW, Text};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use web_time::Instant;

/// How long a step waits for the draws of owners that are not slow. A draw that ends later joins a later step. An owner is a caller's namespace
/// ([`TextSpec::owner`](crate::session::TextSpec::owner)). It is slow if the mean time of its draws exceeds [`SLOW`].
const PATIENCE: Duration = Duration::from_millis(5);
/// The largest number of threads. At most one thread at a time draws for slow owners, so that these draws do not take the processor from the steps.
const MAX_THREADS: usize = 32;
/// How long a thread without work lives.
const IDLE: Duration = Duration::from_secs(10);

/// Threads that draw for one batcher.
pub struct ConstraintThreads {
    lanes: Arc<Lanes>,
    /// A function that is called when a draw has ended.
    wake: Arc<dyn Fn() + Send + Sync>,
    /// Limit on the time that the constraint of one text may take in total. `None` means no limit.
    most: Option<Duration>,
    /// The mean time of a draw, for each owner.
    means: HashMap<Arc<str>, Duration>,
}

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Lanes {
    queues: Mutex<Queues>,
    more: Condvar,
    /// The number of draws that have ended and that the batcher has not taken.
    n_ended: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    quick: VecDeque<Task>,
    slow: VecDeque<Task>,
    /// True while a thread runs a draw of a slow owner.
    runs_slow: bool,
    n_threads: usize,
    n_idle: usize,
    is_closed: bool,
}

impl ConstraintThreads {
    /// Creates the queues. The first draws start the threads. `wake` is called after each draw, on the thread that has drawn. `most` limits the time
    /// that the constraint of one text may take in total.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>, most: Option<Duration>) -> ConstraintThreads {
        ConstraintThreads { lanes: Arc::default(), wake, most, means: HashMap::new() }
    }

    /// Returns whether the result of an ended draw waits for [`take`](Self::take).
    pub fn has_ended(&self) -> bool {
        self.lanes.n_ended.load(Ordering::SeqCst) > 0
    }

    /// Begins to draw the next token of `text` from logits `[vocab]`. Returns `None` if the text has no constraint.
    pub fn begin(&self, text: &mut Text, logits: &[f32]) -> Option<Drawing> {
        let mut draw = text.begin_draw(logits)?;
        let (sender, result): (SyncSender<Drawn>, _) = sync_channel(1);
        let (lanes, wake, begun) = (self.lanes.clone(), self.wake.clone(), Instant::now());
        let is_slow = self.means.get(&text.spec.owner).is_some_and(|mean| *mean > SLOW);
        let task = move || {
            let began = Instant::now();
            let result = caught(|| draw.run());
            lanes.n_ended.fetch_add(1, Ordering::SeqCst);
            if sender.send(Drawn { draw, result, took: began.elapsed() }).is_err() {
                // The text has ended meanwhile, so no call of `take` will count this draw down.
                lanes.n_ended.fetch_sub(1, Ordering::SeqCst);
            }
            wake();
        };
        self.lanes.add(Box::new(task), is_slow);
        Some(Drawing { result, begun, is_slow })
    }

    /// Returns the result of a draw that has ended, or `None` if the draw still runs. In the result, `None` in place of a token means that the
    /// constraint allows no further token. If the owner is not slow, waits for the draw until 5 ms after its beginning.
    ///
    /// # Errors
    /// The error of the constraint; `Input` if the constraint has taken too much time.
    pub fn take(&mut self, drawing: &Drawing, text: &mut Text, logits: &[f32]) -> Option<Result<Option<u32>>> {
        // If no thread could be started, `begin` has run the draw, so `try_recv` finds its result. A browser must not reach `recv_timeout`, which
        // needs a clock that a browser does not have.
        let ended = drawing.result.try_recv().or_else(|_| {
            let patience = if drawing.is_slow { Duration::ZERO } else { PATIENCE.saturating_sub(drawing.begun.elapsed()) };
            drawing.result.recv_timeout(patience)
        });
        let Drawn { draw, result, took } = match ended {
            Ok(ended) => ended,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(Err(Error::device("a thread that draws tokens has ended"))),
        };
        self.lanes.n_ended.fetch_sub(1, Ordering::SeqCst);
        let mean = self.means.entry(text.spec.owner.clone()).or_default();
        *mean = (*mean * 3 + took) / 4;
        let result = text.end_draw(draw, result, took, logits);
        Some(self.check_time(text).and(result))
    }

    /// Checks that the constraint of a text has not taken too much time.
    ///
    /// # Errors
    /// `Input` if the constraint has taken too much time.
    pub fn check_time(&self, text: &Text) -> Result<()> {
        let Some(most) = self.most.filter(|most| text.spent() > *most) else { return Ok(()) };
        let (n, most) = (text.tokens.len(), most.as_secs_f64());
        Err(Error::input(format!("the rules of this text took more than {most} s of computing, for {n} tokens"))
            .hint("use a simpler grammar or schema"))
    }
}

impl Drop for ConstraintThreads {
    fn drop(&mut self) {
        self.lanes.lock().is_closed = true;
        self.lanes.more.notify_all();
    }
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a task. If no thread could be started, runs all queued tasks on this thread.
    fn add(self: &Arc<Self>, task: Task, is_slow: bool) {
        let mut queues = self.lock();
        let Queues { quick, slow, .. } = &mut *queues;
        if is_slow {
            slow.push_back(task)
        } else {
            quick.push_back(task)
        }
        if queues.n_idle == 0 && queues.n_threads < MAX_THREADS {
            let lanes = self.clone();
            let thread = std::thread::Builder::new().name("wingbeat rules".into()).spawn(move || lanes.run());
            queues.n_threads += usize::from(thread.is_ok());
        }
        if queues.n_threads == 0 {
            let tasks: Vec<Task> = std::mem::take(&mut queues.quick).into_iter().chain(std::mem::take(&mut queues.slow)).collect();
            drop(queues);
            tasks.into_iter().for_each(|task| task());
            return;
        }
        drop(queues);
        self.more.notify_one();
    }

    fn run(&self) {
        let mut queues = self.lock();
        loop {
            let quick = queues.quick.pop_front();
            let is_slow = quick.is_none() && !queues.runs_slow;
            let task = if is_slow { queues.slow.pop_front() } else { quick };
            if let Some(task) = task {
                queues.runs_slow |= is_slow;
                drop(queues);
                task();
                queues = self.lock();
                if is_slow {
                    queues.runs_slow = false;
                }
                continue;
            }
            if queues.is_closed {
                break;
            }
            queues.n_idle += 1;
            let (woken, timeout) = self.more.wait_timeout(queues, IDLE).unwrap_or_else(PoisonError::into_inner);
            queues = woken;
            queues.n_idle -= 1;
            if timeout.timed_out() && queues.quick.is_empty() && (queues.slow.is_empty() || queues.runs_slow) {
                break;
            }
        }
        queues.n_threads -= 1;
    }
}
