//! Plays steps on a device: makes room for activations, lowers the tape to dispatches once per size of step, encodes the dispatches, and reads
//! results back.

mod excerpts;
mod measure;
mod stages;

use super::ahead::{Ahead, Steps};
use super::draws::DrawSizes;
use super::model::GpuModel;
use super::plan::{Plan, StepSize};
use super::readback::{Readback, SubmittedWork};
use super::weights::write_rows;
use crate::error::{Error, Result};
use crate::exec::{Excerpt, Executor, Loaded, WordTime, check_length, nothing_begun};
use crate::quant;
use crate::sample::Sampler;
use crate::tape::{Binding, CURSOR_WORDS, Cache, Capacity, Lowering, PerHandle, State, Step, TOKENS_PER_BLOCK, Var, WINDOW_BYTES};
use excerpts::floats;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use wgpu::BufferUsages;

/// The usage of activations, which kernels bind as storage or as uniform.
const ACTIVATION: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::UNIFORM).union(BufferUsages::COPY_DST).union(BufferUsages::COPY_SRC);

/// Binds an activation as storage, without the 64 KiB of spare bytes at the end of the buffer. Only bindings of [`window`] read the spare
/// bytes.
fn without_spare(buffer: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    let size = wgpu::BufferSize::new(buffer.size() - WINDOW_BYTES as u64);
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
}

/// Binds a window: 64 KiB of a buffer as a uniform, beginning at byte `at`. Buffers that are bound as windows end with 64 KiB of spare
/// bytes, so that every window is inside the buffer.
fn window(buffer: &wgpu::Buffer, at: usize) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: at as u64, size: wgpu::BufferSize::new(WINDOW_BYTES as u64) })
}

/// Work that a `begin` method started and no `finish` method has finished yet.
enum PendingWork {
    /// A step whose results stay on the device.
    Step(SubmittedWork),
    /// The readback of a step's logits, `[rows, stride]`, and the number of rows.
    Logits(Readback, usize),
    /// Several steps with sampling. The readback of the ids is in [`Ahead`].
    Ahead,
    /// The readback of excerpts, and the excerpts in the order of their bytes.
    Excerpts(Readback, Vec<Excerpt<'static>>),
}

/// Plays steps of a model on a device, with its own states, caches and activations.
pub struct GpuExecutor {
    model: Arc<GpuModel>,
    states: PerHandle<wgpu::Buffer>,
    caches: PerHandle<wgpu::Buffer>,
    /// Scratch for copies of one cache block: WebGPU cannot copy within a buffer.
    passing: wgpu::Buffer,
    /// For each slot of the step, the list of its cache blocks.
    blocks: wgpu::Buffer,
    /// Angles of the rotary embedding for each position.
    angles: wgpu::Buffer,
    cursor: wgpu::Buffer,
    vars: Vec<wgpu::Buffer>,
    /// Buffers for the step's rows of each table in host memory. Empty if the tables are on the device.
    tables: Vec<Vec<wgpu::Buffer>>,
    /// The size of the largest step for which the activations have room.
    capacity: StepSize,
    plans: HashMap<StepSize, Plan>,
    /// Sampling on the device, for the samplers of the last `begin_draws`.
    ahead: Option<Ahead>,
    /// Work that a `begin` method started and no `finish` method has finished yet.
    pending: Option<PendingWork>,
    /// The buffer of an earlier readback, kept for the next readback.
    readback: Option<Readback>,
    /// Scratch for the encoded cursor, which describes a step.
    words: Vec<u32>,
}

impl GpuExecutor {
    /// Creates an executor with zeroed memory.
    ///
    /// # Errors
    /// `Memory` if a buffer exceeds the adapter's limits or the device has no room.
    pub fn new(model: Arc<GpuModel>, capacity: Capacity) -> Result<GpuExecutor> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let memory = |name: &str, bytes: usize, hint: &str| {
            model.device.check_binding(name, bytes, hint)?;
            model.device.buffer(name, bytes, usage)
        };
        let (tape, own) = (&model.section.tape, &model.section.own);
        let states = PerHandle::new(&own.states, |i| {
            memory(&tape.states[i].name, tape.states[i].size_bytes(capacity.pages), "use fewer texts at once")
        })?;
        let size_bytes = |numbers: usize| tape.cache_format.size_bytes(numbers);
        let caches = PerHandle::new(&own.caches, |i| {
            let spec = &tape.caches[i];
            memory(&spec.name, size_bytes(capacity.blocks * spec.block_len()), "use a smaller `context` or fewer texts at once")
        })?;
        let own_caches = &tape.caches[own.caches.clone()];
        let largest = own_caches.iter().map(|c| size_bytes(c.block_len())).max().unwrap_or(4);
        let passing = model.device.buffer("block", largest, BufferUsages::COPY_SRC | BufferUsages::COPY_DST)?;
        let blocks = memory("blocks", capacity.listed.max(1) * 4, "use a smaller `context` or fewer texts at once")?;
        let rotary = tape.rotary.filter(|_| !own_caches.is_empty());
        if let Some(rotary) = rotary {
            model.device.check_binding("angles", capacity.context * rotary.size * 4, "use a smaller `context`")?;
        }
        let table = rotary.map_or_else(|| Ok(vec![0.0; 4]), |r| r.angles(capacity.context))?;
        let angles = memory("angles", table.len() * 4, "use a smaller `context`")?;
        model.device.queue.write_buffer(&angles, 0, bytemuck::cast_slice(&table));
        let usage = BufferUsages::UNIFORM | BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let cursor = model.device.buffer("cursor", CURSOR_WORDS * 4, usage)?;
        let mut executor = GpuExecutor {
            vars: Vec::new(),
            tables: Vec::new(),
            capacity: StepSize { tokens: 0, runs: 0, outputs: 0, context: 0 },
            plans: HashMap::new(),
            ahead: None,
            pending: None,
            readback: None,
            words: Vec::new(),
            states,
            caches,
            passing,
            blocks,
            angles,
            cursor,
            model,
        };
        executor.grow(StepSize::room(1))?;
        Ok(executor)
    }

    /// Makes room for steps of the size `size`. If buffers must grow, drops the activations of earlier steps, and drops all plans and `ahead`,
    /// because they bind the old buffers.
    fn grow(&mut self, size: StepSize) -> Result<()> {
        if size.tokens <= self.capacity.tokens && size.outputs <= self.capacity.outputs {
            return Ok(());
        }
        let capacity = StepSize { tokens: size.tokens.max(self.capacity.tokens), outputs: size.outputs.max(self.capacity.outputs), ..size };
        let device = &self.model.device;
        let mut vars = Vec::new();
        for spec in &self.model.tape().vars {
            let bytes = spec.planes * capacity.rows(spec.rows) * spec.stride() * 4;
            device.check_binding(spec.name, bytes, "use a smaller `chunk` or fewer texts at once")?;
            vars.push(device.buffer(spec.name, bytes + WINDOW_BYTES, ACTIVATION)?);
        }
        self.tables = self.model.weights.tables.iter().map(|table| table.room(device, capacity.tokens)).collect::<Result<_>>()?;
        (self.vars, self.capacity) = (vars, capacity);
        self.plans.clear();
        self.ahead = None;
        Ok(())
    }

    /// Makes a plan for steps of the size `size`, unless `plans` already has such a plan.
    fn plan(&mut self, size: StepSize) -> Result<()> {
        self.grow(size)?;
        if !self.plans.contains_key(&size) {
            let model = &self.model;
            let StepSize { tokens, runs, outputs, context } = size;
            let capacity = self.capacity.tokens;
            let cx = Lowering { tape: model.tape(), caps: &model.device.caps, tokens, runs, outputs, capacity, context };
            let resolve = |binding: Binding| match binding {
                Binding::Var(v) => without_spare(&self.vars[v.0]),
                Binding::Vector(v) => model.vectors[v.0].as_entire_binding(),
                Binding::State(s) => self.states[s.0].as_entire_binding(),
                Binding::Cache(c) => self.caches[c.0].as_entire_binding(),
                Binding::Blocks => self.blocks.as_entire_binding(),
                Binding::Angles => self.angles.as_entire_binding(),
                Binding::Piece(m, i) => match model.weights.tables.iter().position(|t| t.matrix == m) {
                    Some(table) => self.tables[table][i].as_entire_binding(),
                    None => model.weights.matrices[m.0][i].as_entire_binding(),
                },
                Binding::Window(m, buffer, at) => window(&model.weights.matrices[m.0][buffer], at),
                Binding::VarWindow(v, at) => window(&self.vars[v.0], at),
                Binding::Nothing => model.nothing.as_entire_binding(),
                Binding::Spare => model.spare.as_entire_binding(),
            };
            let plan = Plan::new(&model.device, &cx, &model.section, &self.cursor, &resolve)?;
            log::debug!("plan for {size:?}: {} dispatches", plan.n_dispatches());
            self.plans.insert(size, plan);
        }
        Ok(())
    }

    /// Returns the submission of the pending work, or `None` if no work is pending.
    fn submitted(&self) -> Option<&SubmittedWork> {
        match self.pending.as_ref()? {
            PendingWork::Step(submitted) => Some(submitted),
            PendingWork::Logits(readback, _) | PendingWork::Excerpts(readback, _) => readback.submitted(),
            PendingWork::Ahead => self.ahead.as_ref()?.submitted(),
        }
    }

    /// Waits for the pending work, takes the work from `pending` and returns it. After an error, drops the readback and `ahead`, because
    /// the device may still use their buffers.
    fn done(&mut self) -> Result<PendingWork> {
        let waited = self.wait();
        let pending = self.pending.take();
        if waited.is_err() {
            self.ahead = None;
        }
        waited?;
        pending.ok_or_else(nothing_begun)
    }

    /// Makes a plan that suits `n_steps` steps, of which `step` is the first. Writes the cursor of `step` to the device. Returns the plan's
    /// size.
    fn prepare(&mut self, step: &Step, n_steps: usize) -> Result<StepSize> {
        let size = StepSize::of(step, n_steps, self.model.tape());
        self.plan(size)?;
        self.write_cursor(step)?;
        Ok(size)
    }

    fn write_cursor(&mut self, step: &Step) -> Result<()> {
        let mut words = std::mem::take(&mut self.words);
        match self.model.weights.tables.as_slice() {
            [] => step.encode(&mut words)?,
            tables => write_rows(&self.model.device, tables, &self.tables, step).encode(&mut words)?,
        }
        self.model.device.queue.write_buffer(&self.cursor, 0, bytemuck::cast_slice(&words));
        self.words = words;
        if !step.blocks.is_empty() {
            self.model.device.queue.write_buffer(&self.blocks, 0, bytemuck::cast_slice(&step.blocks));
        }
        Ok(())
    }

    fn all(&self) -> Range<usize> {
        self.model.section.own.words.clone()
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.model.device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }
}

impl Executor for GpuExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        self.timed(step, &self.all())
    }

    fn profile_words(&mut self, step: &Step, words: &Range<usize>) -> Result<Vec<WordTime>> {
        self.timed(step, words)
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        self.mean_sparsity(step, &self.all())
    }

    fn sparsity_words(&mut self, step: &Step, words: &Range<usize>) -> Result<Option<f64>> {
        self.mean_sparsity(step, words)
    }

    fn n_dispatches(&mut self, step: &Step) -> Result<Option<usize>> {
        let size = StepSize::of(step, 1, self.model.tape());
        self.plan(size)?;
        Ok(Some(self.plans[&size].n_dispatches()))
    }

    fn begin(&mut self, step: &Step) -> Result<()> {
        self.begin_words(step, &self.all(), &[])
    }

    fn begin_words(&mut self, step: &Step, words: &Range<usize>, reads: &[Excerpt<'_>]) -> Result<()> {
        self.cancel();
        let size = self.prepare(step, 1)?;
        let (model, with_head) = (self.model.clone(), !step.outputs.is_empty());
        let mut turn = model.weights.turn()?;
        let mut encoder = self.play(&mut turn, words, with_head, |own, stage| {
            let mut encoder = own.encoder();
            own.plans[&size].encode_words(&mut encoder, stage, with_head);
            Ok(encoder)
        })?;
        if !reads.is_empty() {
            self.pending = Some(self.read_excerpts(encoder, reads)?);
            return Ok(());
        }
        let (section, device) = (&model.section, &model.device);
        let is_end = section.is_last() && words.end == section.own.words.end;
        self.pending = Some(match section.tape.logits.filter(|_| is_end && with_head) {
            Some(var) => {
                let bytes = step.outputs.len() * section.tape.var_spec(var).stride() * 4;
                let mut readback = self.readback(bytes)?;
                readback.copy(&mut encoder, &self.vars[var.0], 0, bytes, 0);
                readback.ask(bytes, device.queue.submit([encoder.finish()]));
                PendingWork::Logits(readback, step.outputs.len())
            }
            None => PendingWork::Step(SubmittedWork::new(device, device.queue.submit([encoder.finish()]))),
        });
        Ok(())
    }

    fn finish(&mut self, logits: &mut Vec<f32>) -> Result<()> {
        logits.clear();
        let (mut readback, rows) = match self.done()? {
            PendingWork::Logits(readback, rows) => (readback, rows),
            PendingWork::Step(_) => return Ok(()),
            PendingWork::Ahead | PendingWork::Excerpts(..) => return Err(nothing_begun()),
        };
        let tape = self.model.tape();
        let spec = tape.var_spec(tape.logits.expect("the step has outputs"));
        let width = spec.columns[0] * 4;
        readback.take(std::iter::repeat_n(spec.stride() * 4, rows), |_, row| logits.extend(floats(&row[..width])))?;
        self.readback = Some(readback);
        Ok(())
    }

    fn begin_draws(&mut self, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        if self.model.weights.stream.is_some() {
            return Err(Error::device(
                "sampling on a device needs the whole model on this device, but some layers are streamed from the host",
            )
            .hint("sample on the host, or put all layers on the device"));
        }
        let n = samplers.len();
        // Makes room now, because growing later would drop `ahead`.
        self.grow(StepSize::room(n))?;
        let logits = self.model.tape().logits.ok_or_else(|| Error::device("cannot sample: this section has no logits"))?;
        let device = &self.model.device;
        if self.ahead.as_ref().is_none_or(|a| a.n_slots() < n) {
            let sizes = DrawSizes::of(self.model.tape().var_spec(logits), n.next_power_of_two());
            self.ahead = Some(Ahead::new(device, sizes, without_spare(&self.vars[logits.0]), &self.cursor)?);
        }
        self.ahead.as_mut().expect("made above").begin(device, samplers, exempt)
    }

    fn begin_ahead(&mut self, step: &Step, n: usize) -> Result<()> {
        self.cancel();
        let size = self.prepare(step, n)?;
        let ahead = self.ahead.as_mut().ok_or_else(|| Error::device("cannot sample ahead: `begin_draws` was not called"))?;
        ahead.submit(&self.model.device, &self.plans[&size], Steps { size, n, n_slots: step.runs.len() });
        self.pending = Some(PendingWork::Ahead);
        Ok(())
    }

    fn finish_ahead(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        let PendingWork::Ahead = self.done()? else { return Err(nothing_begun()) };
        let taken = self.ahead.as_mut().ok_or_else(nothing_begun)?.take(ids);
        if taken.is_err() {
            // After an error, the readback buffer of `ahead` may stay mapped, so `ahead` cannot be used again.
            self.ahead = None;
        }
        taken
    }

    fn begin_read(&mut self, excerpts: &[Excerpt<'_>]) -> Result<()> {
        self.cancel();
        self.pending = Some(self.read_excerpts(self.encoder(), excerpts)?);
        Ok(())
    }

    fn finish_read(&mut self) -> Result<Vec<Vec<f32>>> {
        let PendingWork::Excerpts(readback, excerpts) = self.done()? else { return Err(nothing_begun()) };
        self.take_excerpts(readback, &excerpts)
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.submitted().map_or(Poll::Ready(Ok(())), |submitted| submitted.poll(&self.model.device, context))
    }

    fn wait(&mut self) -> Result<()> {
        self.submitted().map_or(Ok(()), |submitted| submitted.wait(&self.model.device))
    }

    fn cancel(&mut self) {
        match self.pending.take() {
            Some(PendingWork::Logits(mut readback, _) | PendingWork::Excerpts(mut readback, _)) => {
                readback.cancel();
                self.keep(readback);
            }
            Some(PendingWork::Ahead) => self.ahead.iter_mut().for_each(Ahead::cancel),
            Some(PendingWork::Step(_)) | None => {}
        }
    }

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()> {
        let spec = self.model.tape().state_spec(state);
        check_length(spec, values)?;
        self.model.device.queue.write_buffer(&self.states[state.0], (page * spec.page_bytes()) as u64, &spec.encode(values));
        self.model.device.faults.check()
    }

    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()> {
        let tape = self.model.tape();
        let (spec, format) = (tape.cache_spec(cache), tape.cache_format);
        let width = spec.width();
        for (values, &at) in values.chunks(TOKENS_PER_BLOCK * width).zip(blocks) {
            let mut block = vec![0.0; spec.block_len()];
            values.iter().enumerate().for_each(|(n, &v)| block[spec.offset(n / width, n % width)] = v);
            let bytes = quant::encode_within(format, &block);
            self.model.device.queue.write_buffer(&self.caches[cache.0], (at as usize * bytes.len()) as u64, &bytes);
        }
        self.model.device.faults.check()
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        let mut encoder = self.encoder();
        let section = &self.model.section;
        for i in section.own.caches.clone() {
            let (buffer, spec) = (&self.caches[i], &section.tape.caches[i]);
            let bytes = section.tape.cache_format.size_bytes(spec.block_len()) as u64;
            encoder.copy_buffer_to_buffer(buffer, u64::from(from) * bytes, &self.passing, 0, bytes);
            encoder.copy_buffer_to_buffer(&self.passing, 0, buffer, u64::from(to) * bytes, bytes);
        }
        self.model.device.queue.submit([encoder.finish()]);
    }

    fn make_room(&mut self, step: &Step) -> Result<()> {
        self.grow(StepSize::of(step, 1, self.model.tape()))
    }

    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()> {
        let spec = self.model.tape().var_spec(var);
        let (stride, rows) = (spec.stride(), values.len() / (spec.stride() * spec.planes));
        let kind = spec.rows;
        if self.capacity.rows(kind) < rows {
            self.grow(StepSize::room(rows))?;
        }
        let plane = self.capacity.rows(kind);
        for (p, values) in values.chunks_exact(rows * stride).enumerate() {
            let at = (p * plane * stride * 4) as u64;
            self.model.device.queue.write_buffer(&self.vars[var.0], at, bytemuck::cast_slice(values));
        }
        self.model.device.faults.check()
    }
}
