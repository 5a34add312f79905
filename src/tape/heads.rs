//! Heads that the tape pads with zeros. Attention kernels need heads whose number of channels is a multiple of [`PAD`]. If a checkpoint has heads of
//! another size, loading adds channels of zeros to each head.

use crate::quant::PAD;

/// The sizes of a head in the checkpoint and on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// The number of channels of a head in the checkpoint.
    pub size: usize,
    /// The number of channels of a head on the tape. The channels after the first `size` are zeros.
    pub padded: usize,
}

impl Heads {
    /// Returns heads of `size` channels, padded to a multiple of [`PAD`] channels, or `None` if they need no padding.
    pub fn padding(size: usize) -> Option<Heads> {
        let padded = size.next_multiple_of(PAD);
        (padded != size).then_some(Heads { size, padded })
    }

    /// Returns how many channels the checkpoint has for `n` channels on the tape. `n` must be a multiple of `padded`, so that the channels are whole
    /// heads.
    pub fn stored(self, n: usize) -> usize {
        n / self.padded * self.size
    }

    /// Returns the index in the checkpoint of channel `i` of the tape, or `None` if the channel is padding.
    pub fn find(self, i: usize) -> Option<usize> {
        let (head, channel) = (i / self.padded, i % self.padded);
        (channel < self.size).then_some(head * self.size + channel)
    }

    /// Copies consecutive heads from `from`, where each head has `size` channels, to `to`, where each head has `padded` channels. Sets the channels
    /// of the padding to zeros.
    pub fn pad(self, from: &[f32], to: &mut [f32]) {
        for (to, from) in to.chunks_exact_mut(self.padded).zip(from.chunks_exact(self.size)) {
            to[..self.size].copy_from_slice(from);
            to[self.size..].fill(0.0);
        }
    }
}
