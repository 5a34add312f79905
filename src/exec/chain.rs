//! A model in several parts. A part has consecutive layers, all on one device. The parts play a step in order. Each part passes its carried variables
//! (`Tape::carried`), the activations that later layers read, to the next part.
//!
//! Experts of a part may be on another device. Then a second part has them, and the two parts take turns: in each layer with experts, the first part
//! passes the experts' inputs to the second part, and gets the sum of the experts' outputs back (`Word::exchange`).
//!
//! Activations pass through host memory. So the devices may have different makers and drivers, and the CPU may be one of the devices.

use super::{Excerpt, Executor, Loaded, WordTime, draws_on_device, nothing_begun};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::tape::{Cache, Capacity, Extent, Held, Section, State, Step, Tape, Var};
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A model in several parts, in the order of their layers. Together, the parts have all layers of the model.
pub struct Chain {
    links: Vec<Link>,
    whole: Section,
    turns: Arc<[Turn]>,
}

/// Consecutive words that one part plays.
#[derive(Debug, PartialEq)]
struct Turn {
    /// The index of the part.
    part: usize,
    words: Range<usize>,
    /// The activations that the part passes to the part of the next turn. Empty for the last turn.
    passes: Vec<Var>,
}

/// A part of a model, and the name of the part's device. Errors mention this name.
pub struct Link {
    pub device: String,
    pub part: Arc<dyn Loaded>,
}

impl Chain {
    /// Creates a chain of parts, in the order of their layers. The parts' sections must be cut from one tape by [`Section::cut`]. If a section is
    /// divided by [`Section::split_experts`], its two halves follow each other.
    ///
    /// # Errors
    /// `Usage` if `links` is empty, or if the sections together are not the whole tape.
    pub fn new(links: Vec<Link>) -> Result<Arc<Chain>> {
        let sections: Vec<&Section> = links.iter().map(|l| l.part.section()).collect();
        let tape = sections.first().ok_or_else(|| Error::usage("expected at least 1 part of the model, found no part"))?.tape.clone();
        let layers = sections.iter().filter(|s| !matches!(s.held, Held::ExpertsFrom(_))).map(|s| s.layers.clone());
        Section::cut(&tape, &layers.collect::<Vec<_>>())?;
        let turns = turns(&sections)?.into();
        Ok(Arc::new(Chain { links, whole: tape.into(), turns }))
    }

    fn parts(&self) -> impl Iterator<Item = &dyn Loaded> {
        self.links.iter().map(|l| l.part.as_ref())
    }
}

/// Divides the words of all sections into turns.
///
/// # Errors
/// `Usage` if a section without some of its experts is not followed by the section of these experts, or if experts follow another section.
fn turns(sections: &[&Section]) -> Result<Vec<Turn>> {
    let mut turns = Vec::new();
    for (part, section) in sections.iter().enumerate() {
        let (tape, own) = (&section.tape, &section.own.words);
        let (before, after) = (part.checked_sub(1).map(|i| sections[i]), sections.get(part + 1));
        let has_both_halves = match section.held {
            Held::All => true,
            Held::ExpertsBefore(layer) => after.is_some_and(|s| s.held == Held::ExpertsFrom(layer) && s.layers == section.layers),
            Held::ExpertsFrom(layer) => before.is_some_and(|s| s.held == Held::ExpertsBefore(layer) && s.layers == section.layers),
        };
        if !has_both_halves {
            let text = format!("expected layers {:?} and then their experts, found only one of these parts", section.layers);
            return Err(Error::usage(text).hint("both parts come from one call of `split_experts`"));
        }
        if matches!(section.held, Held::ExpertsFrom(_)) {
            continue;
        }
        let mut start = own.start;
        for word in own.clone().filter(|word| !section.has_word(*word)) {
            let exchange = tape.words[word].exchange().expect("only words with an exchange are on another device");
            turns.push(Turn { part, words: start..word, passes: exchange.reads });
            turns.push(Turn { part: part + 1, words: word..word + 1, passes: exchange.writes });
            start = word + 1;
        }
        turns.push(Turn { part, words: start..own.end, passes: tape.carried.clone() });
    }
    turns.last_mut().expect("the tape has a layer").passes.clear();
    Ok(turns)
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
        let (tape, turns) = (self.whole.tape.clone(), self.turns.clone());
        Ok(Box::new(ChainExecutor { tape, turns, players, begun: ChainWork::Nothing, step: Step::default(), handed: Vec::new() }))
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
    turns: Arc<[Turn]>,
    players: Vec<Player>,
    begun: ChainWork,
    /// The step that was begun last.
    step: Step,
    /// The rows of each variable that the previous turn passed: the input of the turn that is played now. Empty during the first turn.
    handed: Vec<Vec<f32>>,
}

/// The work that `begin` or `begin_read` started and no `finish` method has finished yet.
#[derive(Default)]
enum ChainWork {
    #[default]
    Nothing,
    /// A step. The turn with this index is played now.
    Turn(usize),
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

    /// Prepares the part of turn `i`: makes room, and writes the variables that the previous turn passed. Then calls `play` with the turn's words, and
    /// with excerpts of the variables that the turn passes on.
    fn play_turn<T>(
        &mut self,
        i: usize,
        play: impl FnOnce(&mut dyn Executor, &Step, &Range<usize>, &[Excerpt<'_>]) -> Result<T>,
    ) -> Result<T> {
        let ChainExecutor { tape, turns, players, step, handed, .. } = self;
        let (turn, before) = (&turns[i], i.checked_sub(1).map_or(&[][..], |before| turns[before].passes.as_slice()));
        let rows = |var: Var| tape.var_spec(var).rows.count(step.tokens.len(), step.outputs.len());
        let passes: Vec<Excerpt<'_>> = turn.passes.iter().map(|&var| Excerpt::Var(var, rows(var))).collect();
        players[turn.part].act(|executor| {
            executor.make_room(step)?;
            before.iter().zip(handed.iter()).try_for_each(|(&var, rows)| executor.write_var(var, rows))?;
            play(executor, step, &turn.words, &passes)
        })
    }

    /// Takes the variables that turn `i` passes.
    fn take_passed(&mut self, i: usize) -> Result<()> {
        self.handed.clear();
        if self.turns[i].passes.is_empty() {
            return Ok(());
        }
        self.handed = self.players[self.turns[i].part].act(|executor| executor.finish_read())?;
        Ok(())
    }

    /// Calls `play` with the words of each turn in order. Returns the result of each turn.
    fn play<T>(&mut self, step: &Step, play: impl Fn(&mut dyn Executor, &Step, &Range<usize>) -> Result<T>) -> Result<Vec<T>> {
        self.prepare(step)?;
        let mut results = Vec::new();
        for i in 0..self.turns.len() {
            if i > 0 {
                self.take_passed(i - 1)?;
            }
            results.push(self.play_turn(i, |executor, step, words, passes| {
                let result = play(executor, step, words)?;
                if passes.is_empty() { Ok(result) } else { executor.begin_read(passes).map(|()| result) }
            })?);
        }
        Ok(results)
    }

    /// Begins turn `i` of the step.
    fn start(&mut self, i: usize) -> Result<()> {
        self.play_turn(i, |executor, step, words, passes| executor.begin_words(step, words, passes))?;
        self.begun = ChainWork::Turn(i);
        Ok(())
    }

    /// Calls `ready` for the parts that have begun work. Whenever the part of a turn is ready, hands the variables that the turn passes to the next
    /// turn and begins that turn.
    fn advance(&mut self, mut ready: impl FnMut(&mut dyn Executor) -> Poll<Result<()>>) -> Poll<Result<()>> {
        let mut ready = |player: &mut Player| ready(player.executor.as_mut()).map_err(|e| e.at(&player.device));
        loop {
            let i = match self.begun {
                ChainWork::Nothing => return Poll::Ready(Ok(())),
                ChainWork::Read(_) => {
                    let waits = self.players.iter_mut().map(ready).find(|polled| !matches!(polled, Poll::Ready(Ok(()))));
                    return waits.unwrap_or(Poll::Ready(Ok(())));
                }
                ChainWork::Turn(i) => i,
            };
            let polled = ready(&mut self.players[self.turns[i].part]);
            if i + 1 == self.turns.len() || !matches!(polled, Poll::Ready(Ok(()))) {
                return polled;
            }
            self.begun = ChainWork::Nothing;
            self.take_passed(i)?;
            self.start(i + 1)?;
        }
    }

    /// Returns the index of the part that owns the state or the cache of an excerpt. Variables are read from the part of the last turn.
    fn owner_of(&self, excerpt: &Excerpt<'_>) -> usize {
        let has = |own: &Extent| match excerpt {
            Excerpt::State(state, _) => own.states.contains(&state.0),
            Excerpt::Cache(cache, ..) => own.caches.contains(&cache.0),
            Excerpt::Var(..) => false,
        };
        self.players.iter().position(|player| has(&player.own)).unwrap_or_else(|| self.turns.last().map_or(0, |turn| turn.part))
    }

    /// Plays the remaining turns of a step that was begun and not finished. No turn may be left out, because the slots already count the
    /// step's tokens. The step's result is dropped.
    fn play_out(&mut self) -> Result<()> {
        match self.begun {
            ChainWork::Turn(i) if i + 1 < self.turns.len() => self.wait(),
            _ => Ok(()),
        }
    }
}

impl Executor for ChainExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        Ok(self.play(step, |executor, step, words| executor.profile_words(step, words))?.concat())
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        let shares = self.play(step, |executor, step, words| executor.sparsity_words(step, words))?;
        // Each turn returns the mean over its words with a sparse input. The number of these words is the weight of the turn's mean.
        let n_words = |t: &Turn| self.tape.words[t.words.clone()].iter().filter(|w| w.sparse_input(&self.tape).is_some()).count() as f64;
        let found: Vec<(f64, f64)> = self.turns.iter().zip(shares).filter_map(|(t, share)| Some((n_words(t), share?))).collect();
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
        let ChainWork::Turn(last) = take(&mut self.begun) else { return Err(nothing_begun()) };
        self.players[self.turns[last].part].act(|executor| executor.finish(logits))
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

    /// Begins to read back each excerpt from the part that owns the excerpt. Variables are read from the part of the last turn. This part has values
    /// only for the variables that were passed to it, and for the variables of its own words.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{MatrixPart, Rows, vector};
    use crate::words::{ExpertMatrices, Norm, Router};

    /// Returns a tape with three layers. The first two layers have three words each, and the third of these words is the experts. The last layer has
    /// one word.
    fn tape() -> Arc<Tape> {
        let mut t = Tape::new();
        let (x, y) = (t.var("x", Rows::Tokens, &[8]), t.var("y", Rows::Tokens, &[8]));
        t.carry(x);
        for _ in 0..2 {
            t.begin_layer();
            t.linear_add(MatrixPart::new("w", 8, 8), y, x);
            let norm = Norm::rms(t.vectors(8, vec![vector("g")]), 1e-5);
            let of = Router { n_experts: 4, n_used: 2, n_groups: 1, n_used_groups: 1, scale: 1.0, normalises: true };
            let routed = t.route(x, norm, MatrixPart::new("router", 4, 8), vector("bias"), of);
            let parts = || (0..4).map(|e| MatrixPart::new(format!("e{e}"), 8, 8)).collect();
            t.experts(routed, ExpertMatrices { gate: parts(), up: parts(), down: parts() }, x);
        }
        t.begin_layer();
        t.linear_add(MatrixPart::new("w", 8, 8), y, x);
        Arc::new(t)
    }

    /// Returns the part, the words and the number of passed variables of each turn.
    fn shown(sections: &[&Section]) -> Vec<(usize, Range<usize>, usize)> {
        turns(sections).unwrap().into_iter().map(|turn| (turn.part, turn.words, turn.passes.len())).collect()
    }

    #[test]
    fn experts_and_the_rest_take_turns() {
        let tape = tape();
        let (rest, experts) = Section::from(tape.clone()).split_experts(9).unwrap();
        assert_eq!(shown(&[&rest, &experts]), [(0, 0..2, 3), (1, 2..3, 1), (0, 3..5, 3), (1, 5..6, 1), (0, 6..7, 0)]);
        let (rest, experts) = Section::from(tape.clone()).split_experts(1).unwrap();
        assert_eq!(shown(&[&rest, &experts]), [(0, 0..5, 3), (1, 5..6, 1), (0, 6..7, 0)]);
        // The first part has no words after its last experts, and still passes the carried variable.
        let [first, last] = Section::cut(&tape, &[0..2, 2..3]).unwrap().try_into().ok().unwrap();
        assert_eq!(shown(&[&first, &last]), [(0, 0..6, 1), (1, 6..7, 0)]);
        let (rest, experts) = first.split_experts(1).unwrap();
        assert_eq!(shown(&[&rest, &experts, &last]), [(0, 0..5, 3), (1, 5..6, 1), (0, 6..6, 1), (2, 6..7, 0)]);
    }

    #[test]
    fn half_a_section_is_refused() {
        let tape = tape();
        let (rest, experts) = Section::from(tape.clone()).split_experts(2).unwrap();
        let (_, of_one) = Section::from(tape.clone()).split_experts(1).unwrap();
        let whole = Section::from(tape);
        for sections in [vec![&rest], vec![&experts], vec![&experts, &rest], vec![&rest, &of_one], vec![&whole, &experts]] {
            assert!(turns(&sections).unwrap_err().to_string().contains("found only one of these parts"));
        }
    }
}
