//! A model in several parts, each on a device of its own: they play a step in turn and hand over what later layers read.
//!
//! Everything goes through host memory, so the devices may be of different makers and drivers, and the host's own cores among them.

use super::{Executor, Loaded, WordTime, draws_on_device};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::tape::{Cache, Extent, Room, Section, State, Step, Tape, Var};
use std::ops::Range;
use std::sync::Arc;

/// Parts in order, whose sections make up a tape.
pub struct Chain {
    links: Vec<Link>,
    whole: Section,
}

/// A part, and where it is: errors say so.
pub struct Link {
    pub device: String,
    pub part: Arc<dyn Loaded>,
}

impl Chain {
    /// The parts hold sections as [`Section::cut`] gives them.
    pub fn new(links: Vec<Link>) -> Result<Arc<Chain>> {
        let layers: Vec<Range<usize>> = links.iter().map(|l| l.part.section().layers.clone()).collect();
        let tape = links.first().ok_or_else(|| Error::usage("expected at least one part, found none"))?.part.tape().clone();
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

    fn executor(self: Arc<Self>, room: Room) -> Result<Box<dyn Executor>> {
        let player = |link: &Link| {
            let executor = link.part.clone().executor(room).map_err(|e| e.at(&link.device))?;
            Ok(Player { device: link.device.clone(), own: link.part.section().own.clone(), executor })
        };
        let players = self.links.iter().map(player).collect::<Result<_>>()?;
        Ok(Box::new(ChainExecutor { tape: self.whole.tape.clone(), players }))
    }

    fn device_bytes(&self) -> u64 {
        self.parts().map(Loaded::device_bytes).sum()
    }

    fn sparse_bytes(&self) -> u64 {
        self.parts().map(Loaded::sparse_bytes).sum()
    }

    /// Never: between two tokens the host has to hand over.
    fn prefers_to_draw(&self, _n_streams: usize) -> Result<bool> {
        draws_on_device(false)?;
        Ok(false)
    }

    fn longest_context(&self) -> usize {
        self.parts().map(Loaded::longest_context).min().unwrap_or(usize::MAX)
    }

    fn is_watched(&self) -> bool {
        self.parts().any(Loaded::is_watched)
    }
}

/// Plays one part.
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
}

impl ChainExecutor {
    /// Plays a step part by part, `play` being what each does. What is carried goes from one to the next, the step's rows of it only.
    fn play<T>(&mut self, step: &Step, mut play: impl FnMut(&mut dyn Executor) -> Result<T>) -> Result<Vec<T>> {
        let (mut results, mut handed) = (Vec::new(), Vec::new());
        let last = self.players.len() - 1;
        for (i, player) in self.players.iter_mut().enumerate() {
            player.act(|executor| {
                executor.make_room(step)?;
                self.tape.carried.iter().zip(&handed).try_for_each(|(&var, rows): (_, &Vec<f32>)| executor.write_var(var, rows))?;
                results.push(play(executor)?);
                if i < last {
                    let rows = |var: &Var| self.tape.var_spec(*var).rows.count(step.tokens.len(), step.outputs.len());
                    handed = self.tape.carried.iter().map(|var| executor.read_var(*var, rows(var))).collect::<Result<_>>()?;
                }
                Ok(())
            })?;
        }
        Ok(results)
    }

    /// Who has it.
    fn owner(&mut self, has: impl Fn(&Extent) -> bool) -> &mut Player {
        self.players.iter_mut().find(|p| has(&p.own)).expect("the parts make up the tape")
    }

    fn last(&mut self) -> &mut Player {
        self.players.last_mut().expect("there is a part")
    }
}

impl Executor for ChainExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        Ok(self.play(step, |executor| executor.profile(step))?.concat())
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        let shares = self.play(step, |executor| executor.sparsity(step))?;
        // Of each part the mean of its words: as many as there are behind it count.
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

    fn run(&mut self, step: &Step, logits: &mut Vec<f32>) -> Result<()> {
        self.play(step, |executor| executor.run(step, logits)).map(drop)
    }

    fn begin_draws(&mut self, _samplers: &[&Sampler], _exempt: &[u32]) -> Result<()> {
        Err(Error::device("a model on several devices draws its tokens on the host"))
    }

    fn draw_ahead(&mut self, _step: &Step, _n: usize, _ids: &mut Vec<u32>) -> Result<()> {
        self.begin_draws(&[], &[])
    }

    fn read_state(&mut self, state: State, page: usize) -> Result<Vec<f32>> {
        self.owner(|own| own.states.contains(&state.0)).act(|executor| executor.read_state(state, page))
    }

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()> {
        self.owner(|own| own.states.contains(&state.0)).act(|executor| executor.write_state(state, page, values))
    }

    fn read_cache(&mut self, cache: Cache, blocks: &[u32], n: usize) -> Result<Vec<f32>> {
        self.owner(|own| own.caches.contains(&cache.0)).act(|executor| executor.read_cache(cache, blocks, n))
    }

    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()> {
        self.owner(|own| own.caches.contains(&cache.0)).act(|executor| executor.write_cache(cache, blocks, values))
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.players.iter_mut().for_each(|p| p.executor.copy_block(from, to));
    }

    fn make_room(&mut self, step: &Step) -> Result<()> {
        self.players.iter_mut().try_for_each(|p| p.act(|executor| executor.make_room(step)))
    }

    /// As the last part has it: what the head saw, and what was carried there.
    fn read_var(&mut self, var: Var, rows: usize) -> Result<Vec<f32>> {
        self.last().act(|executor| executor.read_var(var, rows))
    }

    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()> {
        self.players.iter_mut().try_for_each(|p| p.act(|executor| executor.write_var(var, values)))
    }
}
