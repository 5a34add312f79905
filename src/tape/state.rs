//! Recurrent states. A page holds the states of one slot. The size of a page does not depend on the length of the slot's text.

use super::ROW_PAD;
use crate::quant::{self, Format, padded};

/// The handle of a recurrent state: its index in [`Tape::states`](super::Tape::states). The memory of the state is `[pages, size]`, because every
/// page holds the state of one slot. If pages have two halves, the memory is `[2 pages, size]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State(pub(crate) usize);

/// The declaration of a recurrent state.
#[derive(Clone)]
pub struct StateSpec {
    /// The name of the tensor that holds the state in a state file.
    pub name: String,
    /// The shape of one slot's state. A page stores the state of one slot.
    pub shape: Vec<usize>,
    /// `true` if a page has two halves. A step reads one half and writes the other half. Two halves are needed for a vector that one dispatch both
    /// reads and writes: no workgroup may overwrite an element that another workgroup still reads.
    pub halves: bool,
    /// The value of the state before the first token.
    pub initial: Initial,
    /// The format in which a device stores the state. Twins store the state as f32, with every element rounded to this format.
    pub format: &'static dyn Format,
}

/// The value of a state before the first token.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Initial {
    #[default]
    Zeros,
    /// One initial value per row. All elements of a row begin with this value.
    Rows(Vec<f32>),
    /// The elements of a tensor in the checkpoint. The field is the tensor's name. The tensor has the shape of the state.
    Tensor(String),
}

impl StateSpec {
    /// Returns how many elements the state has per slot. If a page has two halves, this is the number of elements in one half.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the state has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the state consists of one matrix per head, `[heads, size, size]`. Only such a state may be stored as f16. Vectors of token
    /// shift take little memory, and the exponents in the state of RWKV-4 exceed the range of f16.
    pub fn is_matrices(&self) -> bool {
        self.shape.len() == 3
    }

    /// Returns the number of floats from one page to the next, or from one half page to the next. Twins use this stride for all states, devices
    /// only for states without matrices.
    pub fn stride(&self) -> usize {
        if self.halves { self.len().next_multiple_of(ROW_PAD) } else { self.len() }
    }

    /// Returns how many floats the state takes in the memory of twins for `pages` pages.
    pub fn total(&self, pages: usize) -> usize {
        self.stride() * self.n_pages(pages)
    }

    /// Returns `pages`, or twice as many half pages if pages have two halves.
    fn n_pages(&self, pages: usize) -> usize {
        pages * if self.halves { 2 } else { 1 }
    }

    /// Returns the width of a row without padding, and its width on a device. Devices pad rows with zeros. A state without matrices is one row.
    fn row(&self) -> (usize, usize) {
        match self.shape[..] {
            [_, _, size] => (size, padded(size)),
            _ => (self.len(), self.stride()),
        }
    }

    /// Returns how many bytes one page of the state takes on a device. If pages have two halves, returns the bytes of one half.
    pub fn page_bytes(&self) -> usize {
        let (width, stored) = self.row();
        self.len() / width.max(1) * self.format.size_bytes(stored)
    }

    /// Returns how many bytes the state takes on a device for `pages` pages.
    pub fn size_bytes(&self, pages: usize) -> usize {
        self.page_bytes() * self.n_pages(pages)
    }

    /// Encodes the elements of a page or half page for a device. Clamps elements beyond the format's range, because an infinite element would
    /// stay in the state forever.
    pub fn encode(&self, values: &[f32]) -> Vec<u8> {
        let (width, stored) = self.row();
        let mut rows = vec![0.0; values.len() / width.max(1) * stored];
        let pairs = rows.chunks_exact_mut(stored.max(1)).zip(values.chunks_exact(width.max(1)));
        pairs.for_each(|(row, values)| row[..width].copy_from_slice(values));
        quant::encode_within(self.format, &rows)
    }

    /// Returns the elements of a page, or of half a page, that a device stores as `bytes`.
    pub fn decode(&self, bytes: &[u8]) -> Vec<f32> {
        let (width, stored) = self.row();
        let mut rows = vec![0.0; self.len() / width.max(1) * stored];
        self.format.decode(bytes, &mut rows);
        rows.chunks_exact(stored.max(1)).flat_map(|row| &row[..width]).copied().collect()
    }

    /// Rounds each element to the format, as storing it on a device and reading it back would.
    pub fn round(&self, values: &mut [f32]) {
        // f32 needs no rounding.
        if self.format.largest().is_finite() {
            self.format.decode(&quant::encode_within(self.format, values), values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Tape;

    fn spec(size: usize, format: &str) -> StateSpec {
        let mut tape = Tape::new();
        tape.state("wkv".into(), &[2, size, size], false);
        tape.store_states(quant::find(format).unwrap()).unwrap();
        tape.states.remove(0)
    }

    #[test]
    fn pages_read_back_as_they_were_rounded() {
        for (size, format) in [(1, "f16"), (5, "f16"), (33, "f16"), (64, "f16"), (5, "f32"), (64, "f32")] {
            let spec = spec(size, format);
            let mut values: Vec<f32> = (0..spec.len()).map(|i| (i as f32 - 7.3) * 1.7f32.powi(i as i32 % 11 - 6)).collect();
            let bytes = spec.encode(&values);
            assert_eq!(bytes.len(), spec.page_bytes());
            assert_eq!(spec.page_bytes() % 16, 0, "rows must begin at multiples of 16 bytes");
            let plain = values.clone();
            spec.round(&mut values);
            assert_eq!(spec.decode(&bytes), values, "{size} {format}");
            assert_eq!(plain == values, format == "f32");
        }
        assert_eq!(2 * spec(64, "f16").size_bytes(3), spec(64, "f32").size_bytes(3));
    }

    #[test]
    fn nothing_stored_is_infinite() {
        let mut values = [70000.0, f32::NEG_INFINITY, 65519.0, 0.1];
        spec(2, "f16").round(&mut values);
        assert_eq!(values, [65504.0, -65504.0, 65504.0, 0.099975586]);
    }

    #[test]
    fn only_matrices_are_stored_as_f16() {
        let mut tape = Tape::new();
        tape.state("shift".into(), &[8], true);
        tape.wkv4_state("wkv".into(), 8);
        let f16 = quant::find("f16").unwrap();
        assert!(tape.store_states(f16).is_err());
        tape.state("blocks.0.att.wkv".into(), &[1, 8, 8], false);
        tape.store_states(f16).unwrap();
        let names: Vec<_> = tape.states.iter().map(|s| s.format.name()).collect();
        assert_eq!(names, ["f32", "f32", "f16"]);
    }
}
