//! Sections of a tape, the recorded program of a model. A section is a range of consecutive layers. If several devices share a model, each device
//! holds one section.
//!
//! Handles such as [`Var`] are indices in the whole tape, even on a device that holds only one section. So the words do not depend on the cuts.

use super::{MatrixSpec, Tape, Var, Word};
use crate::error::{Error, Result};
use std::ops::{Index, Range};
use std::sync::Arc;

/// The numbers of words, weights and states that a tape had at one moment of its recording.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    words: usize,
    matrices: usize,
    vectors: usize,
    states: usize,
    caches: usize,
}

/// The words, weights and states of consecutive layers, as ranges of indices in the whole tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    pub words: Range<usize>,
    pub matrices: Range<usize>,
    pub vectors: Range<usize>,
    pub states: Range<usize>,
    pub caches: Range<usize>,
}

impl Tape {
    /// Begins a layer. The records from here to the next call belong to this layer. Records before the first call belong to the first layer.
    ///
    /// Also call this function before the final norm, because norm and head together count as the last layer. If this function is never called, the
    /// tape has one layer.
    pub fn begin_layer(&mut self) {
        self.marks.push(self.mark());
    }

    /// Declares that later layers read the activation `var`, which an earlier layer writes.
    pub fn carry(&mut self, var: Var) {
        self.carried.push(var);
    }

    /// Returns the number of layers. The final norm and the head together count as one layer.
    pub fn n_layers(&self) -> usize {
        self.marks.len().max(1)
    }

    /// Returns which words, weights and states belong to the layers `layers`.
    pub fn extent(&self, layers: &Range<usize>) -> Extent {
        let mark = |layer: usize| match layer {
            0 => Mark::default(),
            end if end == self.n_layers() => self.mark(),
            layer => self.marks[layer],
        };
        let (from, to) = (mark(layers.start), mark(layers.end));
        Extent {
            words: from.words..to.words,
            matrices: from.matrices..to.matrices,
            vectors: from.vectors..to.vectors,
            states: from.states..to.states,
            caches: from.caches..to.caches,
        }
    }

    /// Returns the index of the first layer whose experts are on another device. The other device has the experts of the last `n` layers with experts
    /// in `layers`. Returns `None` if `n` is 0 or no layer of `layers` has experts.
    pub fn experts_from(&self, layers: &Range<usize>, n: usize) -> Option<usize> {
        let has_experts = |layer: &usize| self.matrices[self.extent(&(*layer..*layer + 1)).matrices].iter().any(|m| m.n_used.is_some());
        layers.clone().rev().filter(has_experts).take(n).last()
    }

    /// Returns whether the tables of these layers stay in host memory. The first `n_resident` layers stay on a device, the remaining layers are
    /// streamed. If a streamed layer has a table, all tables stay on the host, and each step copies only the rows of its tokens. A table is a matrix
    /// whose rows are looked up, such as the embedding.
    pub fn has_tables_in_host(&self, layers: &Range<usize>, n_resident: usize) -> bool {
        let streamed = layers.start.saturating_add(n_resident).min(layers.end)..layers.end;
        !streamed.is_empty() && self.matrices[self.extent(&streamed).matrices].iter().any(super::MatrixSpec::is_table)
    }

    fn mark(&self) -> Mark {
        Mark {
            words: self.words.len(),
            matrices: self.matrices.len(),
            vectors: self.vectors.len(),
            states: self.states.len(),
            caches: self.caches.len(),
        }
    }
}

/// The words and matrices that a section has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All words of its layers.
    All,
    /// All words except the experts of this layer and of later layers.
    ExpertsBefore(usize),
    /// Only the experts of this layer and of later layers. The section has no vectors, states or caches.
    ExpertsFrom(usize),
}

/// Consecutive layers of a tape, which run on one device.
#[derive(Clone)]
pub struct Section {
    pub tape: Arc<Tape>,
    pub layers: Range<usize>,
    /// The number of layers, counted from the first, whose weights stay on the device. The other layers are streamed: each step copies their
    /// weights from host memory.
    pub n_resident: usize,
    /// The words, weights and states of the section's layers. Words and matrices of another device are in these ranges, too:
    /// [`has_word`](Self::has_word) and [`has_matrix`](Self::has_matrix) leave them out.
    pub own: Extent,
    /// The words and matrices of `own` that the section has.
    pub held: Held,
}

impl From<Arc<Tape>> for Section {
    /// Returns the section that has all layers of the tape.
    fn from(tape: Arc<Tape>) -> Section {
        let layers = 0..tape.n_layers();
        Section { own: tape.extent(&layers), n_resident: layers.len(), layers, held: Held::All, tape }
    }
}

impl Section {
    /// Cuts a tape into one section per range of layers.
    ///
    /// # Errors
    /// `Usage` if a range is empty, or if the ranges do not cover the layers from 0 to [`Tape::n_layers`] in order, each layer once.
    pub fn cut(tape: &Arc<Tape>, layers: &[Range<usize>]) -> Result<Vec<Section>> {
        let mut next = 0;
        for range in layers {
            if range.start != next || range.end <= next || range.end > tape.n_layers() {
                let text = format!("expected a part with layers from {next} to at most {}, found layers {range:?}", tape.n_layers());
                return Err(Error::usage(text).hint("every layer belongs to one part; the head counts as the last layer"));
            }
            next = range.end;
        }
        if next < tape.n_layers() {
            return Err(Error::usage(format!(
                "expected parts for all {} layers, the head included, found parts for {next} layers",
                tape.n_layers()
            )));
        }
        let section = |layers: &Range<usize>| Section {
            own: tape.extent(layers),
            n_resident: layers.len(),
            layers: layers.clone(),
            held: Held::All,
            tape: tape.clone(),
        };
        Ok(layers.iter().map(section).collect())
    }

    /// Divides a section between two devices. The second section has the experts of the last `n` layers that have experts, or of all if `n` is
    /// larger. The first section has the rest.
    ///
    /// # Errors
    /// `Usage` if the section has no experts or streams layers, or if `n` is 0.
    pub fn split_experts(self, n: usize) -> Result<(Section, Section)> {
        let Range { start, end } = self.layers;
        if self.n_resident < self.layers.len() {
            return Err(Error::usage(format!("layers {start}..{end} cannot be streamed while their experts are on another device"))
                .hint("keep all layers of this part on its device, or leave out the device of its experts"));
        }
        let Some(from) = self.tape.experts_from(&self.layers, n) else {
            return Err(Error::usage(format!(
                "expected a part with experts for another device, found no experts in layers {start}..{end}"
            ))
            .hint("leave out the device of the experts"));
        };
        let Extent { vectors, states, caches, .. } = &self.own;
        let (vectors, states, caches) = (vectors.start..vectors.start, states.start..states.start, caches.start..caches.start);
        let experts =
            Section { own: Extent { vectors, states, caches, ..self.own.clone() }, held: Held::ExpertsFrom(from), ..self.clone() };
        Ok((Section { held: Held::ExpertsBefore(from), ..self }, experts))
    }

    /// Returns whether the section has a word of the tape, by the word's index. The result is right only for words in the range `own.words`.
    pub fn has_word(&self, word: usize) -> bool {
        self.holds(|| self.tape.words[word].exchange().is_some(), |own| word < own.words.start)
    }

    /// Returns whether the section has a matrix of the tape, by the matrix's index. The result is right only for matrices in the range
    /// `own.matrices`.
    pub fn has_matrix(&self, matrix: usize) -> bool {
        self.holds(|| self.tape.matrices[matrix].n_used.is_some(), |own| matrix < own.matrices.start)
    }

    /// Returns whether the section has a member: a word or a matrix. `is_of_experts` returns whether the member belongs to experts, and
    /// `is_before(extent)` whether the member precedes the extent.
    fn holds(&self, is_of_experts: impl Fn() -> bool, is_before: impl Fn(&Extent) -> bool) -> bool {
        let is_before = |layer: usize| is_before(&self.tape.extent(&(layer..layer + 1)));
        match self.held {
            Held::All => true,
            Held::ExpertsBefore(layer) => is_before(layer) || !is_of_experts(),
            Held::ExpertsFrom(layer) => !is_before(layer) && is_of_experts(),
        }
    }

    /// Returns the indices of the section's matrices.
    pub fn matrices(&self) -> impl Iterator<Item = usize> {
        self.own.matrices.clone().filter(|m| self.has_matrix(*m))
    }

    /// Returns the size of the section's matrices in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.matrices().map(|m| self.tape.matrices[m].size_bytes() as u64).sum()
    }

    /// Returns whether the section has a product that may round its inputs.
    pub fn has_rounded(&self) -> bool {
        let is_rounded = |m: &MatrixSpec| m.parts.iter().any(|p| m.may_round(p, self.tape.activations));
        self.matrices().any(|m| is_rounded(&self.tape.matrices[m]))
    }

    /// Returns the section with at most `n_resident` layers on the device. The other layers are streamed: each step copies their weights from
    /// host memory.
    pub fn resident(self, n_resident: usize) -> Section {
        Section { n_resident: n_resident.min(self.layers.len()), ..self }
    }

    /// Returns the words of the section in order.
    pub fn words(&self) -> impl Iterator<Item = &dyn Word> {
        self.words_in(&self.own.words)
    }

    /// Returns the section's words in a range of the tape's words, in order.
    pub fn words_in(&self, words: &Range<usize>) -> impl Iterator<Item = &dyn Word> {
        words.clone().filter(|i| self.has_word(*i)).map(|i| self.tape.words[i].as_ref())
    }

    /// Returns whether the section has the tape's last layer, which computes the logits.
    pub fn is_last(&self) -> bool {
        self.layers.end == self.tape.n_layers() && !matches!(self.held, Held::ExpertsFrom(_))
    }
}

/// Holds one item for each member of one kind (for example, each matrix or each word) of a section. Items are looked up by the member's index in the
/// whole tape.
#[derive(Clone)]
pub struct PerHandle<T> {
    first: usize,
    items: Vec<T>,
}

impl<T> PerHandle<T> {
    /// Makes each item by calling `make` with its index.
    ///
    /// # Errors
    /// Returns the first error of `make`.
    pub fn new(indices: &Range<usize>, make: impl FnMut(usize) -> Result<T>) -> Result<PerHandle<T>> {
        Ok(PerHandle { first: indices.start, items: indices.clone().map(make).collect::<Result<_>>()? })
    }
}

impl<T> Index<usize> for PerHandle<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.items[index - self.first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{MatrixPart, vector};

    /// Returns a tape with an embedding and three layers of one matrix each.
    fn tape() -> Arc<Tape> {
        let mut t = Tape::new();
        t.table(MatrixPart::new("table", 2, 8));
        for i in 0..3 {
            t.begin_layer();
            t.matrix(vec![MatrixPart::new(format!("w{i}"), 8, 8)]);
            t.vectors(8, vec![vector("v")]);
            if i < 2 {
                t.state(format!("s{i}"), &[8], false);
            }
        }
        Arc::new(t)
    }

    #[test]
    fn sections_own_everything_once() {
        let tape = tape();
        let sections = Section::cut(&tape, &[0..1, 1..3]).unwrap();
        let own = sections.iter().map(|s| (s.own.matrices.clone(), s.own.vectors.clone(), s.own.states.clone(), s.is_last()));
        assert!(own.eq([(0..2, 0..1, 0..1, false), (2..4, 1..3, 1..2, true)]));
        let whole = Section::from(tape.clone());
        assert_eq!((whole.layers.clone(), whole.own.matrices.clone(), whole.is_last()), (0..3, 0..4, true));
        assert_eq!(whole.own, Section::cut(&tape, std::slice::from_ref(&(0..3))).unwrap()[0].own);
        // A tape without layers counts as one layer.
        assert_eq!(Section::from(Arc::new(Tape::new())).layers, 0..1);
    }

    #[test]
    fn experts_of_the_last_layers_are_on_another_device() {
        let mut t = Tape::new();
        for i in 0..5 {
            t.begin_layer();
            t.matrix(vec![MatrixPart::new(format!("w{i}"), 8, 8)]);
            t.vectors(8, vec![vector("v")]);
            // Layers 1 to 3 have experts.
            if (1..4).contains(&i) {
                t.matrix_of_experts(vec![MatrixPart::new(format!("e{i}"), 8, 8), MatrixPart::new(format!("f{i}"), 8, 8)], 1);
            }
        }
        let tape = Arc::new(t);
        assert_eq!([0, 1, 2, 3, 9].map(|n| tape.experts_from(&(0..5), n)), [None, Some(3), Some(2), Some(1), Some(1)]);
        assert_eq!((tape.experts_from(&(0..1), 1), tape.experts_from(&(0..3), 1)), (None, Some(2)));
        let whole = Section::from(tape.clone());
        for (n, rest, away) in [(1, vec![0, 1, 2, 3, 4, 5, 7], vec![6]), (9, vec![0, 1, 3, 5, 7], vec![2, 4, 6])] {
            let (first, second) = whole.clone().split_experts(n).unwrap();
            assert_eq!((first.matrices().collect::<Vec<_>>(), second.matrices().collect::<Vec<_>>()), (rest, away));
            assert_eq!(first.size_bytes() + second.size_bytes(), whole.size_bytes());
            assert_eq!((first.own.vectors.clone(), second.own.vectors.len()), (0..5, 0));
            assert_eq!([first.is_last(), second.is_last()], [true, false]);
        }
        assert!(whole.clone().split_experts(0).is_err());
        assert!(whole.resident(4).split_experts(1).err().unwrap().to_string().contains("cannot be streamed"));
        assert!(Section::cut(&tape, &[0..1, 1..5]).unwrap().remove(0).split_experts(1).err().unwrap().to_string().contains("no experts"));
    }

    #[test]
    fn gaps_and_empty_parts_are_refused() {
        let tape = tape();
        let wrong: [&[(usize, usize)]; 8] =
            [&[], &[(0, 2)], &[(1, 3)], &[(0, 1), (2, 3)], &[(0, 1), (1, 1), (1, 3)], &[(0, 2), (1, 3)], &[(0, 4)], &[(0, 3), (3, 4)]];
        for ends in wrong {
            let wrong: Vec<Range<usize>> = ends.iter().map(|&(start, end)| start..end).collect();
            assert!(Section::cut(&tape, &wrong).is_err(), "{wrong:?}");
        }
    }
}
