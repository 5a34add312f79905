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
    /// Begins the next layer, to which all later records belong. Records before the first call belong to the first layer.
    ///
    /// Also call this function before the final norm, because norm and head together count as the last layer. A tape without calls has one
    /// layer.
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

    /// Returns whether the tables of these layers stay in host memory. The first `n_resident` layers stay on a device, the others are streamed.
    /// If a streamed layer has a table, all tables stay on the host, and each step copies only the rows of its tokens. A table is a matrix whose
    /// rows are looked up, such as the embedding.
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

/// Consecutive layers of a tape, which run on one device.
#[derive(Clone)]
pub struct Section {
    pub tape: Arc<Tape>,
    pub layers: Range<usize>,
    /// The number of layers, counted from the first, whose weights stay on the device. The other layers are streamed: each step copies their
    /// weights from host memory.
    pub n_resident: usize,
    /// The words, weights and states of the section's layers.
    pub own: Extent,
}

impl From<Arc<Tape>> for Section {
    /// Returns the section that has all layers of the tape.
    fn from(tape: Arc<Tape>) -> Section {
        let layers = 0..tape.n_layers();
        Section { own: tape.extent(&layers), n_resident: layers.len(), layers, tape }
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
            tape: tape.clone(),
        };
        Ok(layers.iter().map(section).collect())
    }

    /// Returns whether the section has a product that may round its inputs.
    pub fn has_rounded(&self) -> bool {
        let is_rounded = |m: &MatrixSpec| m.parts.iter().any(|p| m.may_round(p, self.tape.activations));
        self.tape.matrices[self.own.matrices.clone()].iter().any(is_rounded)
    }

    /// Returns the section with at most `n_resident` layers on the device. The other layers are streamed: each step copies their weights from
    /// host memory.
    pub fn resident(self, n_resident: usize) -> Section {
        Section { n_resident: n_resident.min(self.layers.len()), ..self }
    }

    /// Returns the words of the section in order.
    pub fn words(&self) -> impl Iterator<Item = &dyn Word> {
        self.tape.words[self.own.words.clone()].iter().map(AsRef::as_ref)
    }

    /// Returns whether the section has the tape's last layer, which computes the logits.
    pub fn is_last(&self) -> bool {
        self.layers.end == self.tape.n_layers()
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
