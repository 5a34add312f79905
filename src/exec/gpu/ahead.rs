//! Several steps in one submission, each followed by sampling. All ids are read back together.
//!
//! A submission with the same steps has the same commands, because only the content of the cursor (the buffer that describes a step) changes. So the
//! next submission is encoded while the device works on the current one.

use super::Device;
use super::draws::{DrawSizes, Draws};
use super::plan::{Plan, StepSize};
use super::readback::{Readback, SubmittedWork};
use crate::error::Result;
use crate::exec::nothing_begun;
use crate::sample::Sampler;

/// The content of a submission: `n` steps of the same size, each with sampling for `n_slots` slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    pub size: StepSize,
    pub n: usize,
    pub n_slots: usize,
}

/// Submits steps with sampling, for the slots of one executor. A slot is the place of one sequence.
pub struct Ahead {
    draws: Draws,
    /// The buffer through which the host reads the ids of [`Draws`].
    readback: Readback,
    /// The number of steps submitted since [`Ahead::begin`].
    n_drawn: usize,
    /// Commands that were encoded in advance for the next submission. The next submission uses these commands if its `Steps` are equal.
    next: Option<(Steps, wgpu::CommandBuffer)>,
    /// The submission whose ids were not taken yet: the value of `n_drawn` before the submission, and the submission's steps.
    under_way: Option<(usize, Steps)>,
}

impl Ahead {
    /// Creates the buffers for sampling, as [`Draws::new`] does, and the readback of the ids.
    pub fn new(device: &Device, sizes: DrawSizes, logits: wgpu::BindingResource<'_>, cursor: &wgpu::Buffer) -> Result<Ahead> {
        let draws = Draws::new(device, sizes, logits, cursor)?;
        let readback = Readback::new(device, draws.ids().size() as usize)?;
        Ok(Ahead { draws, readback, n_drawn: 0, next: None, under_way: None })
    }

    /// Returns the number of slots that the buffers have room for.
    pub fn n_slots(&self) -> usize {
        self.draws.sizes().n_slots
    }

    /// Sets the samplers, as [`Draws::begin`] does, and counts steps from 0 again.
    pub fn begin(&mut self, device: &Device, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        self.n_drawn = 0;
        self.draws.begin(device, samplers, exempt)
    }

    /// Returns the last submission, or `None` if its ids were taken or dropped.
    pub fn submitted(&self) -> Option<&SubmittedWork> {
        self.readback.submitted()
    }

    /// Submits the steps. Then encodes the commands of the same steps again, while the device works. The next call of `submit` uses these commands if
    /// its `steps` are equal.
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

    /// Takes the ids of the last submission, which the device must have finished. `ids` becomes `[n, n_slots]`.
    pub fn take(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        let (first, steps) = self.under_way.take().ok_or_else(nothing_begun)?;
        let sizes = self.draws.sizes();
        ids.clear();
        let read = |_, bytes: &[u8]| {
            for step in first..first + steps.n {
                let at = sizes.ids_at(step).start as usize;
                let row = bytes[at..at + 4 * steps.n_slots].chunks_exact(4);
                ids.extend(row.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
            }
        };
        self.readback.take([self.draws.ids().size() as usize], read).map(drop)
    }

    /// Drops the ids of the last submission. The device still plays the steps of the submission.
    pub fn cancel(&mut self) {
        self.under_way = None;
        self.readback.cancel();
    }

    fn encode(&self, device: &Device, plan: &Plan, steps: Steps) -> wgpu::CommandBuffer {
        let mut encoder = device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..steps.n {
            plan.encode(&mut pass);
            self.draws.encode(&mut pass, steps.n_slots);
        }
        drop(pass);
        let ids = self.draws.ids();
        self.readback.copy(&mut encoder, ids, 0, ids.size() as usize, 0);
        encoder.finish()
    }
}
