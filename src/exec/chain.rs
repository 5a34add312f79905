//! A model in several parts. A part has consecutive layers, all on one device. The parts play a step in order. Each part passes its carried variables
//! (`Tape::carried`), the activations that later layers read, to the next part.
//!
//! Activations pass through host memory. So the devices may have different makers and drivers, and the CPU may be one of the devices.

use super::{Excerpt, Executor, Loaded, WordTime, draws_on_device, nothing_begun};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::tape::{Cache, Capacity, Extent, Section, State, Step, Tape, Var};
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A model in several parts, in the order of their layers. Together, the parts have all layers of the model.
pub struct Chain {
    links: Vec<Link>,
    whole: Section,
}

/// A part of a model, and the name of the part's device. Errors mention this name.
pub struct Link {
    pub device: String,
    pub part: Arc<dyn Loaded>,
}

impl Chain {
    /// Creates a chain of parts, in the order of their layers. The parts' sections must be cut from one tape by [`Section::cut`].
    ///
    /// # Errors
    /// `Usage` if `links` is empty, or if the sections together are not the whole tape.
    pub fn new(links: Vec<Link>) -> Result<Arc<Chain>> {
        let layers: Vec<Range<usize>> = links.iter().map(|l| l.part.section().layers.clone()).collect();
        let tape = links.first().ok_or_else(|| Error::usage("expected at least 1 part of the model, found no part"))?.part.tape().clone();
        Section::cut(&tape, &layers)?;
        Ok(Arc::new(Chain { links, whole: tape.into() }))
    }

    fn parts(&self) -> impl Iterator<Item = &dyn Loaded> {
        self.links.iter().map(|l| l.part.as_ref())
    }
}

impl Loaded for Chain {
    fn section(&self) -> &Section {
        &self.whole
    }

    fn executor(self: Arc<Self>, capacity: Capacity) -> Result<Box<dyn Executor>> {
        let player = |link: &Link| {
            let executor = link.part.clone().executor(capacity).map_err(|e| e.at(&link.device))?;
            Ok(Player { device: link.device.clone(), own: link.part.section().own.clone(), executor })
        };
        let players = self.links.iter().map(player).collect::<Result<_>>()?;
        let tape = self.whole.tape.clone();
        Ok(Box::new(ChainExecutor { tape, players, begun: ChainWork::Nothing, step: Step::default(), handed: Vec::new() }))
    }

    fn device_bytes(&self) -> u64 {
        self.parts().map(Loaded::device_bytes).sum()
    }

    fn sparse_bytes(&self) -> u64 {
        self.parts().map(Loaded::sparse_bytes).sum()
    }

    /// Returns `false`: sampling on a device saves no time, because the host passes activations between the devices for every token.
    fn prefers_to_draw(&self, _n_streams: usize) -> Result<bool> {
        draws_on_device(false)?;
        Ok(false)
    }

    fn longest_context(&self) -> usize {
        self.parts().map(Loaded::longest_context).min().unwrap_or(usize::MAX)
    }

    fn rounds(&self) -> bool {
        self.parts().any(Loaded::rounds)
    }

    fn is_watched(&self) -> bool {
        self.parts().any(Loaded::is_watched)
    }
}

/// The executor of one part.
struct Player {
    device: String,
    own: Extent,
    executor: Box<dyn Executor>,
}

impl Player {
    fn act<T>(&mut self, act: impl FnOnce(&mut dyn Executor) -> Result<T>) -> Result<T> {
        act(self.executor.as_mut()).map_err(|e| e.at(&self.device))
    }
}

struct ChainExecutor {
    tape: Arc<Tape>,
    players: Vec<Player>,
    begun: ChainWork,
    /// The step that was begun last.
    step: Step,
    /// The rows that the previous part computed for each variable in `tape.carried`: the input of the part that plays now. Empty while the
    /// first part plays.
    handed: Vec<Vec<f32>>,
}

/// The work that `begin` or `begin_read` started and no `finish` method has finished yet.
#[derive(Default)]
enum ChainWork {
    #[default]
    Nothing,
    /// A step, which the part with this index plays now.
    Part(usize),
    /// A readback of excerpts. For each excerpt, the index of the part that owns it.
    Read(Vec<usize>),
}

impl ChainExecutor {
    /// Stores a step that the parts will play. Finishes an earlier step first.
    fn prepare(&mut self, step: &Step) -> Result<()> {
        self.play_out()?;
        self.begun = ChainWork::Nothing;
        self.step.clone_from(step);
        self.handed.clear();
        Ok(())
    }

    /// Hands the carried variables to part `i` and calls `play`, which plays the step there. Every part but the last then begins to read back
    /// its carried variables.
    fn play_part<T>(&mut self, i: usize, play: impl FnOnce(&mut dyn Executor, &Step) -> Result<T>) -> Result<T> {
        let ChainExecutor { tape, players, step, handed, .. } = self;
        let is_last = i + 1 == players.len();
        players[i].act(|executor| {
            executor.make_room(step)?;
            tape.carried.iter().zip(handed.iter()).try_for_each(|(&var, rows)| executor.write_var(var, rows))?;
            let result = play(executor, step)?;
            if !is_last {
                let rows = |var: Var| tape.var_spec(var).rows.count(step.tokens.len(), step.outputs.len());
                executor.begin_read(&tape.carried.iter().map(|&var| Excerpt::Var(var, rows(var))).collect::<Vec<_>>())?;
            }
            Ok(result)
        })
    }

    /// Calls `play` for each part in order. Returns each part's result.
    fn play<T>(&mut self, step: &Step, play: impl Fn(&mut dyn Executor, &Step) -> Result<T>) -> Result<Vec<T>> {
        self.prepare(step)?;
        let mut results = Vec::new();
        for i in 0..self.players.len() {
            if i > 0 {
                self.handed = self.players[i - 1].act(|executor| executor.finish_read())?;
            }
            results.push(self.play_part(i, &play)?);
        }
        Ok(results)
    }

    /// Begins the step on part `i`.
    fn start(&mut self, i: usize) -> Result<()> {
        self.play_part(i, |executor, step| executor.begin(step))?;
        self.begun = ChainWork::Part(i);
        Ok(())
    }

    /// Calls `ready` for the parts that have begun work. Whenever a part of a step is ready, hands its carried variables to the next part and begins
    /// the step there.
    fn advance(&mut self, mut ready: impl FnMut(&mut dyn Executor) -> Poll<Result<()>>) -> Poll<Result<()>> {
        let mut ready = |player: &mut Player| ready(player.executor.as_mut()).map_err(|e| e.at(&player.device));
        loop {
            let i = match self.begun {
                ChainWork::Nothing => return Poll::Ready(Ok(())),
                ChainWork::Read(_) => {
                    let waits = self.players.iter_mut().map(ready).find(|polled| !matches!(polled, Poll::Ready(Ok(()))));
                    return waits.unwrap_or(Poll::Ready(Ok(())));
                }
                ChainWork::Part(i) => i,
            };
            let polled = ready(&mut self.players[i]);
            if i + 1 == self.players.len() || !matches!(polled, Poll::Ready(Ok(()))) {
                return polled;
            }
            self.begun = ChainWork::Nothing;
            self.handed = self.players[i].act(|executor| executor.finish_read())?;
            self.start(i + 1)?;
        }
    }

    /// Returns the index of the part that owns the state or the cache of an excerpt. Variables are read from the last part.
    fn owner_of(&self, excerpt: &Excerpt<'_>) -> usize {
        let has = |own: &Extent| match excerpt {
            Excerpt::State(state, _) => own.states.contains(&state.0),
            Excerpt::Cache(cache, ..) => own.caches.contains(&cache.0),
            Excerpt::Var(..) => false,
        };
        self.players.iter().position(|player| has(&player.own)).unwrap_or(self.players.len() - 1)
    }

    /// Plays the remaining parts of a step that was begun and not finished. No part may be left out, because the slots already count the
    /// step's tokens. The step's result is dropped.
    fn play_out(&mut self) -> Result<()> {
        match self.begun {
            ChainWork::Part(i) if i + 1 < self.players.len() => self.wait(),
            _ => Ok(()),
        }
    }
}

impl Executor for ChainExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        Ok(self.play(step, |executor, step| executor.profile(step))?.concat())
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        let shares = self.play(step, |executor, step| executor.sparsity(step))?;
        // Each part returns the mean over its words with a sparse input. The number of these words is the weight of the part's mean.
        let n_words =
            |p: &Player| self.tape.words[p.own.words.clone()].iter().filter(|w| w.sparse_input(&self.tape).is_some()).count() as f64;
        let found: Vec<(f64, f64)> = self.players.iter().zip(shares).filter_map(|(p, share)| Some((n_words(p), share?))).collect();
        let n: f64 = found.iter().map(|(n, _)| n).sum();
        Ok((n > 0.0).then(|| found.iter().map(|(n, share)| n * share).sum::<f64>() / n))
    }

    fn n_dispatches(&mut self, step: &Step) -> Result<Option<usize>> {
        let counts = self.players.iter_mut().map(|p| p.act(|executor| executor.n_dispatches(step))).collect::<Result<Vec<_>>>()?;
        Ok(counts.into_iter().flatten().reduce(|a, b| a + b))
    }

    fn begin(&mut self, step: &Step) -> Result<()> {
        self.prepare(step)?;
        self.start(0)
    }

    fn finish(&mut self, logits: &mut Vec<f32>) -> Result<()> {
        self.wait()?;
        let ChainWork::Part(last) = take(&mut self.begun) else { return Err(nothing_begun()) };
        self.players[last].act(|executor| executor.finish(logits))
    }

    fn begin_draws(&mut self, _samplers: &[&Sampler], _exempt: &[u32]) -> Result<()> {
        Err(Error::device("sampling on a device needs the whole model on this device, but the model is on several devices")
            .hint("sample on the host, or put all layers on one device"))
    }

    fn begin_ahead(&mut self, _step: &Step, _n: usize) -> Result<()> {
        self.begin_draws(&[], &[])
    }

    fn finish_ahead(&mut self, _ids: &mut Vec<u32>) -> Result<()> {
        self.begin_draws(&[], &[])
    }

    /// Begins to read back each excerpt from the part that owns the excerpt. Variables are read from the last part. The last part has values only for
    /// the carried variables and for the variables of its own words.
    fn begin_read(&mut self, excerpts: &[Excerpt<'_>]) -> Result<()> {
        self.play_out()?;
        let owners: Vec<usize> = excerpts.iter().map(|excerpt| self.owner_of(excerpt)).collect();
        for (i, player) in self.players.iter_mut().enumerate() {
            let own: Vec<Excerpt<'_>> =
                excerpts.iter().zip(&owners).filter(|(_, owner)| **owner == i).map(|(excerpt, _)| *excerpt).collect();
            player.executor.cancel();
            if !own.is_empty() {
                player.act(|executor| executor.begin_read(&own))?;
            }
        }
        self.begun = ChainWork::Read(owners);
        Ok(())
    }

    fn finish_read(&mut self) -> Result<Vec<Vec<f32>>> {
        let ChainWork::Read(owners) = take(&mut self.begun) else { return Err(nothing_begun()) };
        let mut read = Vec::with_capacity(self.players.len());
        for (i, player) in self.players.iter_mut().enumerate() {
            let own = if owners.contains(&i) { player.act(|executor| executor.finish_read())? } else { Vec::new() };
            read.push(own.into_iter());
        }
        owners.iter().map(|owner| read[*owner].next().ok_or_else(nothing_begun)).collect()
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.advance(|executor| executor.poll_ready(context))
    }

    fn wait(&mut self) -> Result<()> {
        match self.advance(|executor| Poll::Ready(executor.wait())) {
            Poll::Ready(done) => done,
            Poll::Pending => unreachable!("`wait` is never pending"),
        }
    }

    fn cancel(&mut self) {
        // An error here is not lost: the next step fails in the same way.
        let _ = self.play_out();
        self.begun = ChainWork::Nothing;
        self.players.iter_mut().for_each(|player| player.executor.cancel());
    }

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()> {
        let owner = self.owner_of(&Excerpt::State(state, page));
        self.players[owner].act(|executor| executor.write_state(state, page, values))
    }

    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()> {
        let owner = self.owner_of(&Excerpt::Cache(cache, blocks, 0));
        self.players[owner].act(|executor| executor.write_cache(cache, blocks, values))
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.players.iter_mut().for_each(|p| p.executor.copy_block(from, to));
    }

    fn make_room(&mut self, step: &Step) -> Result<()> {
        self.players.iter_mut().try_for_each(|p| p.act(|executor| executor.make_room(step)))
    }

    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()> {
        self.players.iter_mut().try_for_each(|p| p.act(|executor| executor.write_var(var, values)))
    }
}
