//! Submits the words of a step in stages. Each stage has the words whose matrices are on the device at the same time.

use super::GpuExecutor;
use crate::error::Result;
use crate::exec::gpu::stream::StreamTurn;
use crate::exec::gpu::weights::Stage;
use std::ops::Range;

impl GpuExecutor {
    /// Calls `encode` for the part of each stage that is in `words`, and submits all stages but the last. A stage is a range of words that are
    /// submitted together. Returns the encoder of the last stage. `turn` is the reservation of the buffers for streamed layers, or `None` if no
    /// layer is streamed. The output head is played only if `with_head` is true.
    pub(super) fn play(
        &mut self,
        turn: &mut Option<StreamTurn<'_>>,
        words: &Range<usize>,
        with_head: bool,
        mut encode: impl FnMut(&mut Self, &Range<usize>) -> Result<wgpu::CommandEncoder>,
    ) -> Result<wgpu::CommandEncoder> {
        let model = self.model.clone();
        let own = |stage: &Stage| stage.words.start.max(words.start)..stage.words.end.min(words.end);
        let all = &model.section.tape.words;
        let is_played = |s: &&Stage| own(s).any(|word| with_head || !all[word].is_head());
        let mut last: Option<(wgpu::CommandEncoder, Option<usize>)> = None;
        for stage in model.weights.stages.iter().filter(is_played) {
            if let Some((encoder, streamed)) = last.take() {
                let submission = model.device.queue.submit([encoder.finish()]);
                if let (Some(turn), Some(layer)) = (turn.as_mut(), streamed) {
                    turn.submitted(layer, submission);
                }
            }
            if let (Some(turn), Some(layer)) = (turn.as_mut(), stage.streamed) {
                turn.write(&model.device, layer)?;
            }
            last = Some((encode(self, &own(stage))?, stage.streamed));
        }
        Ok(last.map_or_else(|| self.encoder(), |(encoder, _)| encoder))
    }
}
