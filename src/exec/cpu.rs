//! Plays a tape on the CPU. Each word (a fused operation) has a twin, its implementation in Rust. Twins run models without a GPU, and are the
//! reference for kernels.

use super::environment::VECTORS;
use super::load::{FetchedSource, Progress, encode_part, initial_states, pack_vectors, survey, write_initial};
use super::stored::StoredMatrix;
use super::{
    Excerpt, Executor, Loaded, NOTHING, WordTime, check_length, draws_on_device, mean, nothing_begun, share_of_zeros, weight_bytes,
};
use crate::error::{Result, filled, try_alloc};
use crate::quant::limit::{Limit, limit};
use crate::quant::{Axis, Scales, padded, product};
use crate::sample::Sampler;
use crate::tape::{
    AllInputSums, Bytes, Cache, Capacity, Caps, Class, Host, HostCache, HostMatrix, HostPart, Lowering, MatrixPart, Rows, Section, Source,
    State, Step, TOKENS_PER_BLOCK, Tape, Var, Word,
};
use half::f16;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use web_time::Instant;

/// Weights in host memory. Matrices that the file stores in the wanted format are read from the mapped file.
pub struct CpuModel {
    section: Section,
    /// One entry per matrix of the tape. If only a section is loaded, the entries of all other matrices are empty.
    matrices: Vec<HostMatrix>,
    vectors: Vec<Vec<f32>>,
    initial: Vec<(State, Vec<f32>)>,
}

impl CpuModel {
    /// Loads the weights of a tape, or of a section of a tape.
    ///
    /// # Errors
    /// `File` or `Model` if a tensor is missing or has the wrong shape; `Usage` if [`VECTORS`] has an unknown value; `Memory` if the host has no room.
    pub async fn load_async(section: impl Into<Section>, source: &dyn Source, progress: Progress<'_>) -> Result<Arc<CpuModel>> {
        if let Some(vectors) = VECTORS.value()? {
            limit(if vectors == "plain" { Limit::Plain } else { Limit::Avx2 });
        }
        let section = section.into();
        let (tape, own) = (&section.tape, &section.own);
        let (mut done, total) = (0, section.size_bytes());
        let mut matrices: Vec<HostMatrix> = tape.matrices.iter().map(|_| HostMatrix::default()).collect();
        for m in section.matrices() {
            let spec = &tape.matrices[m];
            let source = FetchedSource::matrix(source, spec).await?;
            let rounds = |p: &MatrixPart| spec.may_round(p, tape.activations);
            matrices[m].parts = spec.parts.iter().map(|p| host_part(p, spec.axis(), rounds(p), &*source)).collect::<Result<Vec<_>>>()?;
            done += spec.size_bytes() as u64;
            progress(done, total);
        }
        let fetched = FetchedSource::vectors(source, &section).await?;
        let mut vectors = vec![Vec::new(); tape.vectors.len()];
        for v in own.vectors.clone() {
            vectors[v] = pack_vectors(&tape.vectors[v], &*fetched)?;
        }
        let initial = initial_states(&section, &*fetched)?;
        drop(fetched);
        Ok(Arc::new(CpuModel { section, matrices, vectors, initial }))
    }
}

/// Loads a matrix. If `rounds` is true, all its products have rounded activations.
fn host_part(part: &MatrixPart, axis: Axis, rounds: bool, source: &dyn Source) -> Result<HostPart> {
    let scales = |halves: &[f16]| Arc::new(Scales::new(part.format, axis, halves, part.rows));
    let stored = match StoredMatrix::of(part, axis, source)? {
        StoredMatrix::Floats => Some((part.k, Arc::default())),
        StoredMatrix::Coded(halves) => Some((padded(part.k), scales(&halves))),
        StoredMatrix::Otherwise | StoredMatrix::Transposed(_) | StoredMatrix::Blocks => None,
    };
    if let Some((k, scales)) = stored
        && let Some(Bytes { owner, range }) = source.share(&part.tensor, &part.shape())?
    {
        // If the matrix is a slice of a tensor, its rows are consecutive rows of the tensor. So its codes are one range of bytes.
        let row = part.format.size_bytes(k);
        let start = range.start + part.first_row() * row;
        let codes = Bytes { owner, range: start..start + part.rows * row };
        return Ok(HostPart { format: part.format, k, codes, is_striped: false, scales });
    }
    let k = padded(part.k);
    let affine = survey(part, source)?;
    let (mut codes, mut halves) = (try_alloc(part.rows * part.format.size_bytes(k), &part.tensor)?, Vec::new());
    encode_part(part, axis, affine.as_ref(), 0, part.rows, source, &mut |_, encoded| {
        codes.extend_from_slice(&encoded.codes);
        halves.extend_from_slice(&encoded.scales);
        Ok(())
    })?;
    if let Some(affine) = affine {
        halves = affine.stored(0, part.rows, k);
    }
    source.release(&part.tensor);
    let row_bytes = part.format.size_bytes(k);
    // Only products with rounded activations can read striped codes, so the codes of all other matrices stay row-major.
    let strip_bytes = product::strip_bytes(part.format, row_bytes).filter(|_| rounds);
    if let Some(bytes) = strip_bytes {
        let mut striped = filled(0, part.rows.div_ceil(product::STRIPED_ROWS) * bytes, &part.tensor)?;
        product::stripe(part.format, row_bytes, &codes, &mut striped);
        codes = striped;
        halves = product::stripe_items(&halves, part.format.blocks().per_row(k));
    }
    Ok(HostPart { format: part.format, k, codes: Bytes::owned(codes), is_striped: strip_bytes.is_some(), scales: scales(&halves) })
}

impl Loaded for CpuModel {
    fn section(&self) -> &Section {
        &self.section
    }

    fn executor(self: Arc<Self>, capacity: Capacity) -> Result<Box<dyn Executor>> {
        let (tape, own) = (self.section.tape.clone(), &self.section.own);
        let mut states = vec![Vec::new(); tape.states.len()];
        for i in own.states.clone() {
            states[i] = filled(0.0, tape.states[i].total(capacity.pages), &tape.states[i].name)?;
        }
        let mut caches: Vec<HostCache> = tape.caches.iter().map(|_| HostCache::default()).collect();
        for i in own.caches.clone() {
            caches[i] = HostCache::new(&tape.caches[i], tape.cache_format, capacity.blocks)?;
        }
        let host = Host {
            matrices: self.matrices.clone(),
            vectors: self.vectors.clone(),
            states,
            caches,
            angles: tape.rotary.map_or_else(|| Ok(Vec::new()), |r| r.angles(capacity.context))?,
            vars: vec![Vec::new(); tape.vars.len()],
            step: Step::default(),
            capacity: 0,
            sums: None,
            tape,
        };
        let mut executor = CpuExecutor {
            host,
            section: self.section.clone(),
            samplers: Vec::new(),
            exempt: Vec::new(),
            begun: CpuWork::Nothing,
            logits: Vec::new(),
            ids: Vec::new(),
        };
        write_initial(&mut executor, self.tape(), &self.initial)?;
        Ok(Box::new(executor))
    }

    fn device_bytes(&self) -> u64 {
        let matrices: usize = self.matrices.iter().flat_map(|m| &m.parts).map(|p| p.codes.as_slice().len() + p.scales.size_bytes()).sum();
        (matrices + self.vectors.iter().map(|v| v.len() * 4).sum::<usize>()) as u64
    }

    fn sparse_bytes(&self) -> u64 {
        0
    }

    fn prefers_to_draw(&self, _n_streams: usize) -> Result<bool> {
        draws_on_device(false)
    }

    fn rounds(&self) -> bool {
        self.section.has_rounded()
    }

    fn is_watched(&self) -> bool {
        false
    }
}

struct CpuExecutor {
    host: Host,
    section: Section,
    /// One sampler per run. `begin_draws` sets the samplers.
    samplers: Vec<Sampler>,
    /// One bit per id. A set bit means that the token does not count in penalties.
    exempt: Vec<u32>,
    begun: CpuWork,
    /// The logits of the begun step. `finish` returns them.
    logits: Vec<f32>,
    /// The ids that `begin_ahead` sampled. `finish_ahead` returns them.
    ids: Vec<u32>,
}

/// The work that a `begin` method started and no `finish` method has finished yet.
#[derive(Default)]
enum CpuWork {
    #[default]
    Nothing,
    Step,
    Ahead,
    /// One list of values per excerpt.
    Read(Vec<Vec<f32>>),
}

impl CpuExecutor {
    /// Makes room for steps of `tokens` tokens and `outputs` outputs. The activations of earlier steps are undefined afterwards, because
    /// planes may move within their buffers.
    fn grow(&mut self, tokens: usize, outputs: usize) {
        self.host.capacity = self.host.capacity.max(tokens);
        for (var, spec) in self.host.vars.iter_mut().zip(&self.host.tape.vars) {
            let rows = spec.rows.count(self.host.capacity, outputs);
            let len = if spec.device_only { 0 } else { spec.planes * rows * spec.stride() };
            if var.len() < len {
                var.resize(len, 0.0);
            }
        }
    }

    /// Makes room for the step and stores it in `host`, where twins read it. Returns the tape.
    fn prepare(&mut self, step: &Step) -> Arc<Tape> {
        self.grow(step.tokens.len(), step.outputs.len());
        self.host.step.clone_from(step);
        self.host.tape.clone()
    }

    fn all(&self) -> Range<usize> {
        self.section.own.words.clone()
    }

    /// Plays words of a step. `logits` becomes `[outputs, vocab]`, or empty if the step has no outputs or the words do not end with the model's last
    /// word.
    fn play(&mut self, step: &Step, words: &Range<usize>, logits: &mut Vec<f32>) {
        let tape = self.prepare(step);
        let (section, host) = (&self.section, &mut self.host);
        // Enters the thread pool once per step. Otherwise, each word would wake a thread of the pool and wait for it.
        rayon::scope(|_| section.words_in(words).filter(|w| !w.is_head() || !step.outputs.is_empty()).for_each(|word| word.twin(host)));
        logits.clear();
        if let Some(var) = tape.logits.filter(|_| self.section.is_last() && words.end == section.own.words.end) {
            let spec = tape.var_spec(var);
            let rows = self.host.var(var).chunks_exact(spec.stride()).take(step.outputs.len());
            rows.for_each(|row| logits.extend_from_slice(&row[..spec.columns[0]]));
        }
    }

    fn excerpt(&self, excerpt: &Excerpt<'_>) -> Vec<f32> {
        match *excerpt {
            Excerpt::State(state, page) => {
                let spec = self.host.tape.state_spec(state);
                self.host.states[state.0][page * spec.stride()..][..spec.len()].to_vec()
            }
            Excerpt::Cache(cache, blocks, n) => self.host.cache(cache).rows(self.host.tape.cache_format, blocks, n),
            Excerpt::Var(var, _) if self.host.tape.var_spec(var).device_only => Vec::new(),
            Excerpt::Var(var, rows) => {
                let (stride, plane) = (self.host.stride(var), self.plane(var));
                let planes = 0..self.host.tape.var_spec(var).planes;
                planes.flat_map(|p| &self.host.vars[var.0][p * plane * stride..][..rows * stride]).copied().collect()
            }
        }
    }

    /// Returns the number of rows in one plane of a variable. A variable is `[planes, rows, stride]`.
    fn plane(&self, var: Var) -> usize {
        self.host.tape.var_spec(var).rows.count(self.host.capacity, 0)
    }
}

impl Executor for CpuExecutor {
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>> {
        self.profile_words(step, &self.all())
    }

    fn profile_words(&mut self, step: &Step, words: &Range<usize>) -> Result<Vec<WordTime>> {
        let tape = self.prepare(step);
        // The capabilities do not matter here, because a word reads the same matrices in every lowering.
        let caps = Caps::plain(Class::Groups, usize::MAX);
        let (tokens, runs, outputs) = (step.tokens.len(), step.runs.len(), step.outputs.len());
        let cx = Lowering { tape: &tape, caps: &caps, tokens, runs, outputs, capacity: tokens, context: step.context() };
        let host = &mut self.host;
        let one = |word: &dyn Word| {
            let dispatches = word.lower(&cx);
            let started = Instant::now();
            word.twin(host);
            WordTime {
                word: word.name(),
                dispatches: 0,
                seconds: started.elapsed().as_secs_f64(),
                weight_bytes: weight_bytes(&tape, &dispatches),
            }
        };
        let words = self.section.words_in(words).filter(|w| !w.is_head() || outputs > 0);
        Ok(rayon::scope(|_| words.map(one).collect()))
    }

    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>> {
        self.sparsity_words(step, &self.all())
    }

    fn sparsity_words(&mut self, step: &Step, words: &Range<usize>) -> Result<Option<f64>> {
        let tape = self.prepare(step);
        let mut shares = Vec::new();
        for word in self.section.words_in(words).filter(|w| !w.is_head()) {
            if let Some((var, range)) = word.sparse_input(&tape) {
                let stride = self.host.stride(var);
                shares.push(share_of_zeros(&self.host.var(var)[..step.tokens.len() * stride], stride, &range));
            }
            word.twin(&mut self.host);
        }
        Ok(mean(&shares))
    }

    fn n_dispatches(&mut self, _step: &Step) -> Result<Option<usize>> {
        Ok(None)
    }

    fn input_sums(&mut self) -> Option<&mut Option<AllInputSums>> {
        Some(&mut self.host.sums)
    }

    /// Plays the whole step before it returns.
    fn begin(&mut self, step: &Step) -> Result<()> {
        self.begin_words(step, &self.all(), &[])
    }

    fn begin_words(&mut self, step: &Step, words: &Range<usize>, reads: &[Excerpt<'_>]) -> Result<()> {
        let mut logits = take(&mut self.logits);
        self.play(step, words, &mut logits);
        self.logits = logits;
        self.begun = CpuWork::Step;
        if reads.is_empty() { Ok(()) } else { self.begin_read(reads) }
    }

    fn finish(&mut self, logits: &mut Vec<f32>) -> Result<()> {
        let CpuWork::Step = take(&mut self.begun) else { return Err(nothing_begun()) };
        // The swap keeps the caller's allocation for the next step.
        std::mem::swap(logits, &mut self.logits);
        Ok(())
    }

    fn begin_draws(&mut self, samplers: &[&Sampler], exempt: &[u32]) -> Result<()> {
        self.samplers = samplers.iter().map(|&s| s.clone()).collect();
        self.exempt = exempt.to_vec();
        Ok(())
    }

    fn begin_ahead(&mut self, step: &Step, n: usize) -> Result<()> {
        let (mut step, mut logits, mut ids) = (step.clone(), Vec::new(), take(&mut self.ids));
        ids.clear();
        let words = self.all();
        for _ in 0..n {
            self.play(&step, &words, &mut logits);
            let rows = logits.chunks_exact(logits.len() / step.runs.len());
            for (sampler, logits) in self.samplers.iter_mut().zip(rows) {
                let drawn = if sampler.guarded(logits).is_some() { None } else { sampler.sample(logits).ok() };
                let id = drawn.unwrap_or(NOTHING);
                let is_exempt = self.exempt.get(id as usize / 32).is_some_and(|bits| bits >> (id % 32) & 1 == 1);
                if id != NOTHING {
                    sampler.accept(id, if is_exempt { 0.0 } else { 1.0 });
                }
                ids.push(id);
            }
            let drawn: Vec<u32> = ids[ids.len() - step.runs.len()..].iter().map(|&id| if id == NOTHING { 0 } else { id }).collect();
            step.advance(&drawn);
        }
        self.ids = ids;
        self.begun = CpuWork::Ahead;
        Ok(())
    }

    fn finish_ahead(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        let CpuWork::Ahead = take(&mut self.begun) else { return Err(nothing_begun()) };
        std::mem::swap(ids, &mut self.ids);
        Ok(())
    }

    fn begin_read(&mut self, excerpts: &[Excerpt<'_>]) -> Result<()> {
        self.begun = CpuWork::Read(excerpts.iter().map(|excerpt| self.excerpt(excerpt)).collect());
        Ok(())
    }

    fn finish_read(&mut self) -> Result<Vec<Vec<f32>>> {
        if let CpuWork::Read(values) = take(&mut self.begun) { Ok(values) } else { Err(nothing_begun()) }
    }

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn cancel(&mut self) {
        self.begun = CpuWork::Nothing;
    }

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()> {
        let spec = self.host.tape.state_spec(state);
        check_length(spec, values)?;
        let at = page * spec.stride();
        let to = &mut self.host.states[state.0][at..at + values.len()];
        to.copy_from_slice(values);
        spec.round(to);
        Ok(())
    }

    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()> {
        let (format, width) = (self.host.tape.cache_format, self.host.tape.cache_spec(cache).width());
        for (i, row) in values.chunks_exact(width).enumerate() {
            self.host.caches[cache.0].write(format, blocks[i / TOKENS_PER_BLOCK], i % TOKENS_PER_BLOCK, row);
        }
        Ok(())
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.host.caches.iter_mut().for_each(|cache| cache.copy_block(from, to));
    }

    fn make_room(&mut self, step: &Step) -> Result<()> {
        self.grow(step.tokens.len(), step.outputs.len());
        Ok(())
    }

    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()> {
        let (spec, stride) = (self.host.tape.var_spec(var), self.host.stride(var));
        if spec.device_only {
            return Ok(());
        }
        let rows = values.len() / (spec.planes * stride);
        match spec.rows {
            Rows::Tokens => self.grow(rows, 0),
            Rows::Outputs => self.grow(0, rows),
            Rows::Fixed(_) => {}
        }
        let plane = self.plane(var);
        for (p, values) in values.chunks_exact(rows * stride).enumerate() {
            self.host.vars[var.0][p * plane * stride..][..rows * stride].copy_from_slice(values);
        }
        Ok(())
    }
}
