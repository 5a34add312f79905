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
}

impl Ahead {
    pub fn new(device: &Device, sizes: DrawSizes, logits: wgpu::BindingResource<'_>, cursor: &wgpu::Buffer) -> Result<Ahead> {
        let draws = Draws::new(device, sizes, logits, cursor)?;
        let readback = Readback::new(device, draws.ids().size() as usize)?;
        Ok(Ahead { draws, readback, n_drawn: 0, next: None })
    }

    pub fn n_slots(&self) -> usize {
        self.draws.sizes().n_slots
    }

    pub fn begin(&mut self, device: &Device, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        self.n_drawn = 0;
        self.draws.begin(device, samplers, exempt)
    }

    /// Plays the steps; `ids` becomes `[n, slots]`.
    pub fn submit(&mut self, device: &Device, plan: &Plan, steps: Steps, ids: &mut Vec<u32>) -> Result<()> {
        let ready = self.next.take().filter(|(of, _)| *of == steps);
        let commands = ready.map_or_else(|| self.encode(device, plan, steps), |(_, commands)| commands);
        device.queue.submit([commands]);
        let bytes = self.draws.ids().size() as usize;
        self.readback.ask(bytes);
        self.next = Some((steps, self.encode(device, plan, steps)));
        self.readback.read(device, bytes, |view| {
            ids.clear();
            for step in self.n_drawn..self.n_drawn + steps.n {
                let at = self.draws.sizes().ids_at(step).start as usize;
                let row = view[at..at + 4 * steps.n_slots].chunks_exact(4);
                ids.extend(row.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            }
        })?;
        self.n_drawn += steps.n;
        Ok(())
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
        self.readback.copy(&mut encoder, ids, 0, ids.size() as usize);
        encoder.finish()
    }
}
