//! Plays a tape on a GPU through wgpu. The only folder that names wgpu.

mod ahead;
mod compose;
mod device;
mod draws;
mod kernel;
mod op;
mod plan;
mod reflect;

use super::load::{Progress, encode_part, initial_states, pack_vectors, write_initial};
use super::{Executor, Loaded, WordTime, draws_on_device, mean, share_of_zeros};
use crate::error::{Error, Result};
use crate::quant::PAD;
use crate::sample::Sampler;
use crate::tape::{Binding, CURSOR_WORDS, Class, Lowering, MatrixSpec, Rows, Source, State, Step, Tape, Var, WINDOW_BYTES};
use crate::words::GROUP;
use ahead::{Ahead, Steps};
use plan::Plan;
use std::collections::HashMap;
use std::sync::Arc;
use wgpu::BufferUsages;

pub use compose::{Recipe, compose};
pub use device::{Adapter, AdapterKind, BINDING_LIMIT, Backend, CHECKED, COOPERATIVE, Device, KERNELS, SUBGROUPS, adapters};
pub use draws::{DrawSizes, Draws};
pub use kernel::parse;
pub use reflect::{Access, Signature};

/// Bytes uploaded before we wait for the device: bounds the staging memory that wgpu holds.
const UPLOAD_BATCH: usize = 16 << 20;

/// Weights on a device.
#[derive(Clone)]
pub struct GpuModel {
    device: Arc<Device>,
    tape: Arc<Tape>,
    /// One buffer a piece.
    matrices: Vec<Vec<wgpu::Buffer>>,
    vectors: Vec<wgpu::Buffer>,
    initial: Vec<Option<Vec<f32>>>,
    nothing: wgpu::Buffer,
    spare: wgpu::Buffer,
}

impl GpuModel {
    pub fn load(device: Arc<Device>, tape: Arc<Tape>, source: &dyn Source, progress: Progress<'_>) -> Result<Arc<GpuModel>> {
        let total = tape.matrices.iter().map(MatrixSpec::size_bytes).sum::<usize>() as u64;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let mut upload = Upload { device: &device, pending: 0, done: 0, total, progress };
        let mut matrices = Vec::new();
        for spec in &tape.matrices {
            matrices.push(if device.caps.in_blocks(spec) {
                upload.blocks(spec, source)?
            } else if device.caps.by_columns(spec) {
                upload.columns(spec, source)?
            } else {
                upload.pieces(spec, source)?
            });
        }
        let mut vectors = Vec::new();
        for spec in &tape.vectors {
            let packed = pack_vectors(spec, source)?;
            let buffer = device.buffer(&spec.parts[0].tensor, packed.len() * 4, usage)?;
            upload.write(&buffer, &mut 0, bytemuck::cast_slice(&packed))?;
            vectors.push(buffer);
        }
        let (nothing, spare) = (device.buffer("nothing", 256, usage)?, device.buffer("spare", 256, usage)?);
        device.queue.submit([]);
        device.wait()?;
        let initial = initial_states(&tape, source)?;
        Ok(Arc::new(GpuModel { device, tape, matrices, vectors, initial, nothing, spare }))
    }

    /// The same weights under other caps, which must lay them out alike.
    pub fn on(&self, device: Arc<Device>) -> Arc<GpuModel> {
        Arc::new(GpuModel { device, ..self.clone() })
    }
}

/// Activations can be bound either way.
fn buffer_usage() -> BufferUsages {
    BufferUsages::STORAGE | BufferUsages::UNIFORM | BufferUsages::COPY_DST | BufferUsages::COPY_SRC
}

/// Sends bytes in order and waits now and then.
struct Upload<'a> {
    device: &'a Device,
    pending: usize,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl Upload<'_> {
    /// Rows as they are, a storage buffer a piece.
    fn pieces(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let mut buffers = Vec::new();
        for piece in spec.pieces(self.device.caps.max_binding) {
            let bytes = spec.format.size_bytes(piece.units * PAD);
            let buffer = self.device.buffer(&spec.parts[0].tensor, bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST)?;
            let mut at = 0;
            for s in &piece.segments {
                encode_part(&spec.parts[s.part], s.first_row, s.rows, spec.format, source, &mut |bytes| {
                    self.write(&buffer, &mut at, bytes)
                })?;
            }
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    /// A row an input channel, of which every storage buffer has some columns.
    fn columns(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let part = spec.parts[0].turned();
        let pieces = spec.column_pieces(self.device.caps.max_binding);
        let mut buffers = Vec::new();
        for piece in &pieces {
            let bytes = spec.format.size_bytes(piece.units * PAD);
            buffers.push(self.device.buffer(&part.tensor, bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST)?);
        }
        let bytes_of = |units: usize| spec.format.size_bytes(units * PAD);
        let mut written = vec![0; pieces.len()];
        let mut columns = Vec::new();
        encode_part(&part, 0, part.rows, spec.format, source, &mut |rows| {
            let mut first = 0;
            for ((piece, buffer), at) in pieces.iter().zip(&buffers).zip(&mut written) {
                let units = piece.units / part.rows;
                columns.clear();
                rows.chunks_exact(bytes_of(part.units()))
                    .for_each(|row| columns.extend_from_slice(&row[bytes_of(first)..][..bytes_of(units)]));
                self.write(buffer, at, &columns)?;
                first += units;
            }
            Ok(())
        })?;
        Ok(buffers)
    }

    /// Rows in tiles of 64 KiB.
    fn blocks(&mut self, spec: &MatrixSpec, source: &dyn Source) -> Result<Vec<wgpu::Buffer>> {
        let blocks = spec.blocks(self.device.caps.max_binding, GROUP);
        let mut buffers: Vec<wgpu::Buffer> = Vec::new();
        for group in blocks.chunk_by(|a, b| a.buffer == b.buffer) {
            let bytes = group.last().map_or(0, |b| b.at + b.n_tiles * b.tile_bytes) + WINDOW_BYTES;
            buffers.push(self.device.buffer(&spec.parts[0].tensor, bytes, BufferUsages::UNIFORM | BufferUsages::COPY_DST)?);
        }
        let unit_bytes = spec.format.size_bytes(PAD);
        for group in blocks.chunk_by(|a, b| a.part == b.part) {
            let part = &spec.parts[group[0].part];
            // Rows come in pieces of any length; a block is sent when its last row is there.
            let mut rows = Vec::new();
            let mut left = group.iter();
            let mut next = left.next();
            encode_part(part, 0, part.rows, spec.format, source, &mut |bytes| {
                rows.extend_from_slice(bytes);
                while let Some(block) = next {
                    let size = block.rows * part.units() * unit_bytes;
                    if rows.len() < size {
                        break;
                    }
                    let tiles = block.tiles(&rows[..size], part.units(), unit_bytes);
                    self.write(&buffers[block.buffer], &mut (block.at as u64), &tiles)?;
                    rows.drain(..size);
                    next = left.next();
                }
                Ok(())
            })?;
        }
        Ok(buffers)
    }

    fn write(&mut self, buffer: &wgpu::Buffer, at: &mut u64, bytes: &[u8]) -> Result<()> {
        self.device.queue.write_buffer(buffer, *at, bytes);
        *at += bytes.len() as u64;
        self.done += bytes.len() as u64;
        self.pending += bytes.len();
        if self.pending >= UPLOAD_BATCH {
            self.pending = 0;
            self.device.queue.submit([]);
            self.device.wait()?;
            (self.progress)(self.done.min(self.total), self.total);
        }
        Ok(())
    }
}

impl Loaded for GpuModel {
    fn tape(&self) -> &Arc<Tape> {
        &self.tape
    }

    fn executor(self: Arc<Self>, pages: usize) -> Result<Box<dyn Executor>> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let state = |s: &crate::tape::StateSpec| {
            let bytes = s.total(pages) * 4;
            self.device.check_binding(&s.name, bytes, "use fewer slots")?;
            self.device.buffer(&s.name, bytes, usage)
        };
        let states = self.tape.states.iter().map(state).collect::<Result<Vec<_>>>()?;
        let cursor =
            self.device.buffer("cursor", CURSOR_WORDS * 4, BufferUsages::UNIFORM | BufferUsages::STORAGE | BufferUsages::COPY_DST)?;
        let (tape, initial) = (self.tape.clone(), self.initial.clone());
        let mut executor = GpuExecutor {
            vars: Vec::new(),
            capacity: Size { tokens: 0, runs: 0, outputs: 0 },
            plans: HashMap::new(),
            ahead: None,
            readback: None,
            words: Vec::new(),
            states,
            cursor,
            model: self,
        };
        executor.grow(Size { tokens: 1, runs: 1, outputs: 1 })?;
        write_initial(&mut executor, &tape, &initial)?;
        Ok(Box::new(executor))
    }

    fn sparse_bytes(&self) -> u64 {
        let sparse = self.tape.matrices.iter().filter(|m| self.device.caps.by_columns(m));
        sparse.map(|m| m.size_bytes() as u64).sum()
    }

    fn prefers_to_draw(&self, n_streams: usize) -> Result<bool> {
        let sizes = self.tape.logits.map(|v| DrawSizes::of(self.tape.var_spec(v), n_streams.next_power_of_two()));
        let fits = sizes.is_some_and(|s| s.is_possible() && s.largest_binding() <= self.device.caps.max_binding);
        Ok(draws_on_device(self.device.caps.class == Class::Groups)? && fits)
    }

    fn is_watched(&self) -> bool {
        self.device.is_slow
    }
}

/// An activation as a storage buffer, without what windows may read behind it.
fn without_spare(buffer: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    let size = wgpu::BufferSize::new(buffer.size() - WINDOW_BYTES as u64);
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
}

/// 64 KiB of a buffer as a uniform; buffers that are read so end with as much to spare.
fn window(buffer: &wgpu::Buffer, at: usize) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: at as u64, size: wgpu::BufferSize::new(WINDOW_BYTES as u64) })
}

/// Upper bounds of a step, rounded up to powers of two: what a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Size {
    tokens: usize,
    runs: usize,
    outputs: usize,
}

impl Size {
    fn of(step: &Step) -> Size {
        Size { tokens: step.tokens.len(), runs: step.runs.len(), outputs: step.outputs.len() }.rounded()
    }

    fn rounded(self) -> Size {
        let round = |n: usize| n.max(1).next_power_of_two();
        Size { tokens: round(self.tokens), runs: round(self.runs), outputs: round(self.outputs) }
    }

    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Outputs => self.outputs,
        }
    }
}

struct GpuExecutor {
    model: Arc<GpuModel>,
    states: Vec<wgpu::Buffer>,
    cursor: wgpu::Buffer,
    vars: Vec<wgpu::Buffer>,
    /// Rows that the activations have room for.
    capacity: Size,
    plans: HashMap<Size, Plan>,
    /// Draws of the streams that were begun last.
    ahead: Option<Ahead>,
    readback: Option<wgpu::Buffer>,
    /// The encoded cursor, kept for its memory.
    words: Vec<u32>,
}

impl GpuExecutor {
    /// Makes room for larger steps. Activations live within a step, so nothing is copied; plans are made anew.
    fn grow(&mut self, size: Size) -> Result<()> {
        if size.tokens <= self.capacity.tokens && size.outputs <= self.capacity.outputs {
            return Ok(());
        }
        let capacity =
            Size { tokens: size.tokens.max(self.capacity.tokens), runs: size.runs, outputs: size.outputs.max(self.capacity.outputs) };
        let device = &self.model.device;
        let mut vars = Vec::new();
        for spec in &self.model.tape.vars {
            let bytes = spec.planes * capacity.rows(spec.rows) * spec.stride() * 4;
            device.check_binding(spec.name, bytes, "use a smaller --chunk or fewer slots")?;
            vars.push(device.buffer(spec.name, bytes + WINDOW_BYTES, buffer_usage())?);
        }
        (self.vars, self.capacity) = (vars, capacity);
        self.plans.clear();
        self.ahead = None;
        Ok(())
    }

    fn plan(&mut self, size: Size) -> Result<()> {
        self.grow(size)?;
        if !self.plans.contains_key(&size) {
            let model = &self.model;
            let Size { tokens, runs, outputs } = size;
            let capacity = self.capacity.tokens;
            let cx = Lowering { tape: &model.tape, caps: &model.device.caps, tokens, runs, outputs, capacity };
            let resolve = |binding: Binding| match binding {
                Binding::Var(v) => without_spare(&self.vars[v.0]),
                Binding::Vector(v) => model.vectors[v.0].as_entire_binding(),
                Binding::State(s) => self.states[s.0].as_entire_binding(),
                Binding::Piece(m, i) => model.matrices[m.0][i].as_entire_binding(),
                Binding::Window(m, buffer, at) => window(&model.matrices[m.0][buffer], at),
                Binding::VarWindow(v, at) => window(&self.vars[v.0], at),
                Binding::Nothing => model.nothing.as_entire_binding(),
                Binding::Spare => model.spare.as_entire_binding(),
            };
            let plan = Plan::new(&model.device, &cx, &self.cursor, &resolve)?;
            log::debug!("plan for {size:?}: {} dispatches", plan.n_dispatches());
            self.plans.insert(size, plan);
        }
        Ok(())
    }

    /// Copies `bytes` of a buffer to the host.
    fn read(&mut self, mut encoder: wgpu::CommandEncoder, from: &wgpu::Buffer, at: usize, bytes: usize, out: &mut Vec<f32>) -> Result<()> {
        let device = &self.model.device;
        if self.readback.as_ref().is_none_or(|b| b.size() < bytes as u64) {
            self.readback = Some(device.buffer("readback", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?);
        }
        let readback = self.readback.as_ref().expect("made above");
        encoder.copy_buffer_to_buffer(from, at as u64, readback, 0, bytes as u64);
        device.queue.submit([encoder.finish()]);
        readback.slice(..bytes as u64).map_async(wgpu::MapMode::Read, |_| ());
        if let Err(e) = device.wait() {
            // It may stay mapped: the next step takes a new one.
            self.readback = None;
            return Err(e);
        }
        let view =
            readback.slice(..bytes as u64).get_mapped_range().map_err(|e| Error::device(format!("cannot read results back: {e}")))?;
        out.clear();
        out.extend(view.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        drop(view);
        readback.unmap();
        Ok(())
    }

    fn write_cursor(&mut self, step: &Step) -> Result<()> {
        let mut words = std::mem::take(&mut self.words);
        step.encode(&mut words)?;
        self.model.device.queue.write_buffer(&self.cursor, 0, bytemuck::cast_slice(&words));
        self.words = words;
        Ok(())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.model.device.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn write(&self, buffer: &wgpu::Buffer, at: usize, values: &[f32]) -> Result<()> {
        self.model.device.queue.write_buffer(buffer, at as u64, bytemuck::cast_slice(values));
        self.model.device.faults.check()
    }
}

/// Bytes of a timestamp.
const STAMP: usize = 8;

impl Executor for GpuExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        let device = self.model.device.clone();
        if !device.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(Error::device("this adapter has no timestamps").hint("leave out --profile"));
        }
        let size = Size::of(step);
        self.plan(size)?;
        self.write_cursor(step)?;
        let n = 2 * self.model.tape.words.len();
        let queries =
            device.device.create_query_set(&wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: n as u32 });
        let stamps = device.buffer("timestamps", n * STAMP, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let mut encoder = self.encoder();
        let mut words = self.plans[&size].encode_timed(&mut encoder, &queries, &self.model.tape, !step.outputs.is_empty());
        encoder.resolve_query_set(&queries, 0..2 * words.len() as u32, &stamps, 0);
        let mut raw = Vec::new();
        self.read(encoder, &stamps, 0, words.len() * 2 * STAMP, &mut raw)?;
        let ticks: Vec<u64> =
            bytemuck::cast_slice::<f32, u32>(&raw).chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect();
        let period = f64::from(device.queue.get_timestamp_period()) * 1e-9;
        for (word, ticks) in words.iter_mut().zip(ticks.chunks_exact(2)) {
            word.seconds = ticks[1].saturating_sub(ticks[0]) as f64 * period;
        }
        Ok(words)
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        let size = Size::of(step);
        self.plan(size)?;
        self.write_cursor(step)?;
        let tape = self.model.tape.clone();
        let (mut shares, mut played, mut rows) = (Vec::new(), 0, Vec::new());
        for (i, word) in tape.words.iter().enumerate() {
            let Some((var, range)) = word.sparse_input(&tape) else { continue };
            let mut encoder = self.encoder();
            self.plans[&size].encode_words(&mut encoder, played..i);
            played = i;
            let (from, stride) = (self.vars[var.0].clone(), tape.var_spec(var).stride());
            self.read(encoder, &from, 0, step.tokens.len() * stride * 4, &mut rows)?;
            shares.push(share_of_zeros(&rows, stride, &range));
        }
        Ok(mean(&shares))
    }

    fn n_dispatches(&mut self, step: &Step) -> Result<Option<usize>> {
        let size = Size::of(step);
        self.plan(size)?;
        Ok(Some(self.plans[&size].n_dispatches()))
    }

    fn run(&mut self, step: &Step, logits: &mut Vec<f32>) -> Result<()> {
        let size = Size::of(step);
        self.plan(size)?;
        self.write_cursor(step)?;
        let mut encoder = self.encoder();
        self.plans[&size].encode(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()), !step.outputs.is_empty());
        logits.clear();
        match self.model.tape.logits.filter(|_| !step.outputs.is_empty()) {
            Some(var) => {
                let spec = self.model.tape.var_spec(var);
                let (stride, width, rows) = (spec.stride(), spec.columns[0], step.outputs.len());
                let from = self.vars[var.0].clone();
                self.read(encoder, &from, 0, rows * stride * 4, logits)?;
                if stride != width {
                    for row in 0..rows {
                        logits.copy_within(row * stride..row * stride + width, row * width);
                    }
                    logits.truncate(rows * width);
                }
                Ok(())
            }
            None => {
                self.model.device.queue.submit([encoder.finish()]);
                self.model.device.wait()
            }
        }
    }

    fn begin_draws(&mut self, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        let n = samplers.len();
        // Makes room now: growing would drop what is begun here.
        self.plan(Size { tokens: n, runs: n, outputs: n }.rounded())?;
        let logits = self.model.tape.logits.ok_or_else(|| Error::device("there are no logits to draw from"))?;
        let device = &self.model.device;
        if self.ahead.as_ref().is_none_or(|a| a.n_slots() < n) {
            let sizes = DrawSizes::of(self.model.tape.var_spec(logits), n.next_power_of_two());
            self.ahead = Some(Ahead::new(device, sizes, without_spare(&self.vars[logits.0]), &self.cursor)?);
        }
        self.ahead.as_mut().expect("made above").begin(device, samplers, exempt)
    }

    fn draw_ahead(&mut self, step: &Step, n: usize, ids: &mut Vec<u32>) -> Result<()> {
        let size = Size::of(step);
        self.plan(size)?;
        self.write_cursor(step)?;
        let ahead = self.ahead.as_mut().ok_or_else(|| Error::device("draws were not begun"))?;
        let done = ahead.submit(&self.model.device, &self.plans[&size], Steps { size, n, n_slots: step.runs.len() }, ids);
        if done.is_err() {
            // What it reads back into may stay mapped.
            self.ahead = None;
        }
        done
    }

    fn read_state(&mut self, state: State, page: usize) -> Result<Vec<f32>> {
        let spec = &self.model.tape.states[state.0];
        let (at, len) = (page * spec.stride() * 4, spec.len() * 4);
        let (from, mut out) = (self.states[state.0].clone(), Vec::new());
        self.read(self.encoder(), &from, at, len, &mut out)?;
        Ok(out)
    }

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()> {
        let spec = self.model.tape.state_spec(state);
        if values.len() != spec.len() {
            return Err(Error::input(format!("state {} has {} numbers, not {}", spec.name, spec.len(), values.len())));
        }
        self.write(&self.states[state.0], page * spec.stride() * 4, values)
    }

    fn read_var(&mut self, var: Var, rows: usize) -> Result<Vec<f32>> {
        let spec = self.model.tape.var_spec(var);
        let (stride, planes, plane) = (spec.stride() * 4, spec.planes, self.capacity.rows(spec.rows));
        let (from, mut all, mut out) = (self.vars[var.0].clone(), Vec::new(), Vec::new());
        for p in 0..planes {
            self.read(self.encoder(), &from, p * plane * stride, rows * stride, &mut out)?;
            all.extend_from_slice(&out);
        }
        Ok(all)
    }

    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()> {
        let spec = self.model.tape.var_spec(var);
        let (stride, rows) = (spec.stride(), values.len() / (spec.stride() * spec.planes));
        let n = rows.next_power_of_two();
        let kind = spec.rows;
        self.grow(Size { tokens: n, runs: 1, outputs: n })?;
        let plane = self.capacity.rows(kind);
        for (p, values) in values.chunks_exact(rows * stride).enumerate() {
            self.write(&self.vars[var.0], p * plane * stride * 4, values)?;
        }
        Ok(())
    }
}
