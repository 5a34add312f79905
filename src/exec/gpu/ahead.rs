//! Several steps in one submission, a draw after each, and the ids read back together.
//!
//! What a submission of that many steps says is the same every time: where it starts stands in the cursor. So the next one is
//! encoded while the device works on the last.

use super::Device;
use super::draws::{DrawSizes, Draws};
use super::plan::Plan;
use super::readback::Readback;
use super::size::Size;
use crate::error::Result;
use crate::exec::nothing_begun;
use crate::sample::Sampler;

/// What a submission plays: `n` steps of a size, and draws for so many slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    pub size: Size,
    pub n: usize,
    pub n_slots: usize,
}

pub struct Ahead {
    draws: Draws,
    /// The ids of [`Draws`], for the host.
    readback: Readback,
    /// Draws since [`Ahead::begin`].
    n_drawn: usize,
    next: Option<(Steps, wgpu::CommandBuffer)>,
    /// What was submitted and not taken, and how many draws came before.
    under_way: Option<(usize, Steps)>,
}

impl Ahead {
    pub fn new(device: &Device, sizes: DrawSizes, logits: wgpu::BindingResource<'_>, cursor: &wgpu::Buffer) -> Result<Ahead> {
        let draws = Draws::new(device, sizes, logits, cursor)?;
        let readback = Readback::new(device, draws.ids().size() as usize)?;
        Ok(Ahead { draws, readback, n_drawn: 0, next: None, under_way: None })
    }

    pub fn n_slots(&self) -> usize {
        self.draws.sizes().n_slots
    }

    pub fn begin(&mut self, device: &Device, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        self.n_drawn = 0;
        self.draws.begin(device, samplers, exempt)
    }

    /// What the ids come back in.
    pub fn readback(&self) -> &Readback {
        &self.readback
    }

    /// Begins to play the steps.
    pub fn submit(&mut self, device: &Device, plan: &Plan, steps: Steps) {
        self.cancel();
        let ready = self.next.take().filter(|(of, _)| *of == steps);
        let commands = ready.map_or_else(|| self.encode(device, plan, steps), |(_, commands)| commands);
        let submission = device.queue.submit([commands]);
        self.readback.ask(self.draws.ids().size() as usize, submission);
        self.under_way = Some((self.n_drawn, steps));
        self.n_drawn += steps.n;
        self.next = Some((steps, self.encode(device, plan, steps)));
    }

    /// Ends what was submitted and is done: `ids` becomes `[n, slots]`.
    pub fn take(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        let (first, steps) = self.under_way.take().ok_or_else(nothing_begun)?;
        let sizes = self.draws.sizes();
        self.readback.take(|view| {
            ids.clear();
            for step in first..first + steps.n {
                let at = sizes.ids_at(step).start as usize;
                let row = view[at..at + 4 * steps.n_slots].chunks_exact(4);
                ids.extend(row.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            }
        })
    }

    /// Drops what was submitted and not taken.
    pub fn cancel(&mut self) {
        self.under_way = None;
        self.readback.cancel();
    }

    fn encode(&self, device: &Device, plan: &Plan, steps: Steps) -> wgpu::CommandBuffer {
        let mut encoder = device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..steps.n {
            plan.encode(&mut pass, true);
            self.draws.encode(&mut pass, steps.n_slots);
        }
        drop(pass);
        let ids = self.draws.ids();
        self.readback.copy(&mut encoder, ids, 0, ids.size() as usize, 0);
        encoder.finish()
    }
}
