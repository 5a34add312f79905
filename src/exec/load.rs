//! Loads weights for the executors of CPU and GPU: packs vectors, and encodes matrices in small blocks of rows.

use super::Executor;
use super::stored::StoredMatrix;
use crate::error::{Error, Result, filled};
use crate::quant::{Affine, Axis, Coded, EncodedRows, RowEncoder, Scaling, Survey, WEIGHTS_PER_BLOCK, padded};
use crate::tape::{Initial, MatrixPart, MatrixSpec, Section, Source, State, Tape, VectorSpec};
use crate::tensor::View;
use half::f16;
use rayon::prelude::*;
use std::ops::Deref;

/// A callback with two arguments: the number of bytes that are loaded, and the total number of bytes.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The number of floats in a block of rows, before the number of rows is rounded up. Loading needs host memory for only a few blocks at a time.
const BLOCK_FLOATS: usize = 1 << 18;
/// The number of floats in a block of rows if the tensor is transposed, before the number of rows is rounded up.
const TRANSPOSED: usize = 1 << 21;
/// The number of rows of a matrix that one thread transposes at a time. `RUN` is a multiple of the block length of every GGUF type.
const RUN: usize = 256;

/// A source whose next tensors can be read without fetching.
pub enum FetchedSource<'a> {
    /// The whole source.
    Whole(&'a dyn Source),
    /// Fetched tensors. They leave memory when this value is dropped.
    Fetched(Box<dyn Source>),
}

impl<'a> Deref for FetchedSource<'a> {
    type Target = dyn Source + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            FetchedSource::Whole(source) => *source,
            FetchedSource::Fetched(source) => source.as_ref(),
        }
    }
}

impl<'a> FetchedSource<'a> {
    /// Fetches the tensors `names`, if `source` must fetch tensors before it can read them.
    pub async fn of(source: &'a dyn Source, names: &[&str]) -> Result<FetchedSource<'a>> {
        Ok(source.fetch(names).await?.map_or(FetchedSource::Whole(source), FetchedSource::Fetched))
    }

    /// Fetches the tensors of a matrix.
    pub async fn matrix(source: &'a dyn Source, spec: &MatrixSpec) -> Result<FetchedSource<'a>> {
        Self::of(source, &spec.parts.iter().map(|part| part.tensor.as_str()).collect::<Vec<_>>()).await
    }

    /// Fetches the tensors of all vectors and initial states of a section.
    pub async fn vectors(source: &'a dyn Source, section: &Section) -> Result<FetchedSource<'a>> {
        let (tape, own) = (&section.tape, &section.own);
        let vectors = tape.vectors[own.vectors.clone()].iter().flat_map(|spec| &spec.parts).map(|part| part.tensor.as_str());
        let states = tape.states[own.states.clone()].iter().filter_map(|spec| match &spec.initial {
            Initial::Tensor(name) => Some(name.as_str()),
            _ => None,
        });
        Self::of(source, &vectors.chain(states).collect::<Vec<_>>()).await
    }
}

/// Computes the scales and offsets of all rows and columns of the matrix `part`. Returns `None` if the format of the matrix has no affine scales.
pub fn survey(part: &MatrixPart, source: &dyn Source) -> Result<Option<Affine>> {
    if part.format.scaling() != Scaling::Affine {
        return Ok(None);
    }
    // Affine scales do not depend on the axis, so either axis is right here.
    match StoredMatrix::of(part, Axis::Row, source)? {
        StoredMatrix::Coded(halves) => return Ok(Some(Affine::from_stored(&halves, part.rows, part.k))),
        StoredMatrix::Transposed(halves) => return Ok(Some(Affine::from_stored(&halves, part.k, part.rows).transposed())),
        StoredMatrix::Otherwise | StoredMatrix::Floats | StoredMatrix::Blocks => {}
    }
    let mut survey = Survey::new(part.rows, part.k);
    let k = padded(part.k);
    for look in [Survey::first, Survey::second] {
        read_part(part, MatrixValues::Numbers, 0, part.rows, source, &mut |first, rows| {
            rows.chunks_exact(k).enumerate().for_each(|(i, row)| look(&mut survey, first + i, &row[..part.k]));
            Ok(())
        })?;
    }
    survey.done().map(Some).map_err(|e| e.at(&part.tensor))
}

/// Encodes rows `first..first + rows` of the matrix `part`. Each row is padded with zeros to a multiple of [`PAD`](crate::quant::PAD) weights. Calls
/// `write(first row, encoded)` for consecutive blocks of rows. Every block but the last has a multiple of [`WEIGHTS_PER_BLOCK`] rows.
/// `affine` is the result of [`survey`].
pub fn encode_part(
    part: &MatrixPart,
    axis: Axis,
    affine: Option<&Affine>,
    first: usize,
    rows: usize,
    source: &dyn Source,
    write: &mut dyn FnMut(usize, &EncodedRows) -> Result<()>,
) -> Result<()> {
    let mut encoded = EncodedRows::default();
    if write_stored(part, axis, first, rows, source, &mut encoded, write)? {
        return Ok(());
    }
    let encoder = RowEncoder { format: part.format, axis, affine, importance: part.importance.as_deref() };
    read_part(part, MatrixValues::Numbers, first, rows, source, &mut |row, numbers| {
        encoder.encode(row, numbers, padded(part.k), &mut encoded)?;
        write(row, &encoded)
    })
}

/// Writes rows `first..first + rows` of the matrix `part` as the file stores them, and returns `true`. If the file stores the rows in another
/// format than the matrix needs, writes nothing and returns `false`.
fn write_stored(
    part: &MatrixPart,
    axis: Axis,
    first: usize,
    rows: usize,
    source: &dyn Source,
    encoded: &mut EncodedRows,
    write: &mut dyn FnMut(usize, &EncodedRows) -> Result<()>,
) -> Result<bool> {
    let k = padded(part.k);
    let scales = match StoredMatrix::of(part, axis, source)? {
        StoredMatrix::Blocks => {
            write_blocks(part, first, rows, source, encoded, write)?;
            return Ok(true);
        }
        StoredMatrix::Floats if part.k == k => Vec::new(),
        StoredMatrix::Coded(scales) => scales,
        StoredMatrix::Transposed(scales) => {
            read_part(part, MatrixValues::Codes, first, rows, source, &mut |row, values| {
                encoded.codes.clear();
                part.format.encode(values, &mut encoded.codes)?;
                encoded.scales = own_scales(part, axis, &scales, row, values.len() / k);
                write(row, encoded)
            })?;
            return Ok(true);
        }
        StoredMatrix::Otherwise | StoredMatrix::Floats => return Ok(false),
    };
    let row_bytes = part.format.size_bytes(k);
    let mut is_stored = false;
    source.with(&part.tensor, &part.shape(), &mut |view| {
        let Some(bytes) = view.matrix().map(Coded::codes).or(view.dense_bytes()) else { return Ok(()) };
        is_stored = true;
        let at = part.first_row() + first;
        let own = &bytes[at * row_bytes..(at + rows) * row_bytes];
        for (chunk, row) in own.chunks(rows_at_once(part, rows) * row_bytes).zip((first..).step_by(rows_at_once(part, rows))) {
            encoded.codes.clear();
            encoded.codes.extend_from_slice(chunk);
            encoded.scales = own_scales(part, axis, &scales, row, chunk.len() / row_bytes);
            write(row, encoded)?;
        }
        Ok(())
    })?;
    Ok(is_stored)
}

/// Writes rows `first..first + rows` of the matrix `part`, which a GGUF file stores in the blocks of the same type.
///
/// # Errors
/// `Model` if the scale of a block is not finite.
fn write_blocks(
    part: &MatrixPart,
    first: usize,
    rows: usize,
    source: &dyn Source,
    encoded: &mut EncodedRows,
    write: &mut dyn FnMut(usize, &EncodedRows) -> Result<()>,
) -> Result<()> {
    let blocks = part.format.file_blocks().expect("the format has blocks of files");
    let row_bytes = part.k / part.format.block() * blocks.block_bytes();
    source.with(&part.tensor, &part.shape(), &mut |view| {
        let bytes = view.block_bytes().expect("the file has blocks");
        let own = &bytes[(part.first_row() + first) * row_bytes..][..rows * row_bytes];
        let at_once = rows_at_once(part, rows);
        for (chunk, row) in own.chunks(at_once * row_bytes).zip((first..).step_by(at_once)) {
            encoded.codes.clear();
            encoded.scales.clear();
            let repacked = chunk.par_chunks_exact(row_bytes).map(|row| {
                let mut own = EncodedRows::default();
                row.chunks_exact(blocks.block_bytes()).for_each(|block| blocks.repack(block, &mut own));
                own
            });
            for row in repacked.collect::<Vec<_>>() {
                encoded.codes.extend(row.codes);
                encoded.scales.extend(row.scales);
            }
            if let Some(scale) = part.format.blocks().misfit(&encoded.scales) {
                return Err(
                    Error::model(format!("expected finite scales of blocks, found {scale}")).hint("the file is damaged: download it again")
                );
            }
            write(row, encoded)?;
        }
        Ok(())
    })
}

/// Returns the block scales of rows `first..first + rows`. Returns an empty list for formats without scales, and for affine formats, whose
/// scales belong to the whole matrix.
fn own_scales(part: &MatrixPart, axis: Axis, scales: &[f16], first: usize, rows: usize) -> Vec<f16> {
    match part.format.scaling() {
        Scaling::Blocks => axis.of_rows(scales, first, rows, padded(part.k), part.format).to_vec(),
        Scaling::None | Scaling::Affine => Vec::new(),
    }
}

/// Returns how many rows of the matrix `part` are loaded at once, at most `rows`.
fn rows_at_once(part: &MatrixPart, rows: usize) -> usize {
    // The rows of a transposed matrix are columns of a row-major tensor. Memory delivers whole cache lines of the tensor's rows, and larger blocks
    // use more of each line.
    let n = if part.transposed { (TRANSPOSED / padded(part.k)).next_multiple_of(RUN) } else { BLOCK_FLOATS / padded(part.k) };
    n.next_multiple_of(WEIGHTS_PER_BLOCK).clamp(1, rows.max(1))
}

/// The kind of values to read from a quantised matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatrixValues {
    Numbers,
    /// The values of the codes, before they are multiplied by scales.
    Codes,
}

/// Reads rows `first..first + rows` of the matrix `part`. Calls `read(first row, [n, padded k])` for consecutive blocks of rows. If the tensor
/// is missing and the matrix is optional, the values are zeros.
fn read_part(
    part: &MatrixPart,
    what: MatrixValues,
    first: usize,
    rows: usize,
    source: &dyn Source,
    read: &mut dyn FnMut(usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    let (k, at_once, end) = (padded(part.k), rows_at_once(part, rows), first + rows);
    let mut numbers = filled(0.0, at_once * k, &part.tensor)?;
    if part.optional && !source.has(&part.tensor) {
        return (first..end).step_by(at_once).try_for_each(|row| {
            let rows = &mut numbers[..at_once.min(end - row) * k];
            rows.fill(0.0);
            read(row, rows)
        });
    }
    source.with(&part.tensor, &part.shape(), &mut |stored| {
        let stored = &if what == MatrixValues::Codes { stored.clone().unscaled() } else { stored.clone() };
        let view = if part.transposed { stored.clone().transposed() } else { stored.clone() };
        for row in (first..end).step_by(at_once) {
            let rows = &mut numbers[..at_once.min(end - row) * k];
            let at = part.first_row() + row;
            if part.transposed {
                let strips = rows.par_chunks_mut(RUN * k).enumerate();
                strips.try_for_each(|(i, strip)| transpose(stored, part, at + i * RUN, strip))?;
            } else {
                for (i, padded_row) in rows.chunks_exact_mut(k).enumerate() {
                    read_row(&view, part, at + i, &mut padded_row[..part.k])?;
                    padded_row[part.k..].fill(0.0);
                }
            }
            read(row, rows)?;
        }
        Ok(())
    })
}

/// Reads row `row` of the matrix `part` into `out`, `[k]`. If heads are padded, the rows and columns of the padding, which the tensor lacks, are
/// zeros.
fn read_row(view: &View<'_>, part: &MatrixPart, row: usize, out: &mut [f32]) -> Result<()> {
    let Some(row) = part.row_heads.map_or(Some(row), |heads| heads.find(row)) else {
        out.fill(0.0);
        return Ok(());
    };
    let Some(heads) = part.input_heads else { return view.read_f32(row * part.k, out) };
    let mut stored = vec![0.0; part.stored_k()];
    view.read_f32(row * stored.len(), &mut stored)?;
    heads.pad(&stored, out);
    Ok(())
}

/// Reads n rows of the matrix `part` from a transposed tensor into `out`, `[n, padded k]`, beginning at row `first`. Reads a few rows of the
/// tensor at a time, so that memory access is nearly sequential.
fn transpose(view: &View<'_>, part: &MatrixPart, first: usize, out: &mut [f32]) -> Result<()> {
    const ROWS: usize = 16;
    let shape = part.shape();
    let (k, width) = (padded(part.k), shape[shape.len() - 1]);
    let (n, plane, column) = (out.len() / k, first / width * part.k, first % width);
    let mut strip = vec![0.0; ROWS * n];
    for row in (0..part.k).step_by(ROWS) {
        let rows = ROWS.min(part.k - row);
        for (i, strip) in strip.chunks_exact_mut(n).take(rows).enumerate() {
            view.read_f32((plane + row + i) * width + column, strip)?;
        }
        for (column, out) in out.chunks_exact_mut(k).enumerate() {
            out[row..row + rows].iter_mut().enumerate().for_each(|(i, o)| *o = strip[i * n + column]);
        }
    }
    Ok(())
}

/// Returns the vectors of `spec`, `[parts, stride]`, with zeros as padding. If an optional vector is missing, its elements are zeros.
pub fn pack_vectors(spec: &VectorSpec, source: &dyn Source) -> Result<Vec<f32>> {
    let mut packed = filled(0.0, spec.parts.len() * spec.stride(), "vectors")?;
    for (part, row) in spec.parts.iter().zip(packed.chunks_exact_mut(spec.stride())) {
        if part.optional && !source.has(&part.tensor) {
            continue;
        }
        let len = spec.len(part);
        let stored = part.heads.map_or(len, |heads| heads.stored(len)) / part.repeat;
        let mut numbers = filled(0.0, stored, &part.tensor)?;
        source.with(&part.tensor, &spec.shape(part), &mut |view| view.read_f32(0, &mut numbers))?;
        if let Some(heads) = part.heads {
            let mut whole = filled(0.0, len / part.repeat, &part.tensor)?;
            heads.pad(&numbers, &mut whole);
            numbers = whole;
        }
        let map = part.map.unwrap_or(|x| x);
        for (to, from) in row[..len].chunks_mut(part.repeat).zip(numbers) {
            to.fill(map(from));
        }
    }
    Ok(packed)
}

/// Returns the states of the section that do not begin as zeros, each with its initial values.
pub fn initial_states(section: &Section, source: &dyn Source) -> Result<Vec<(State, Vec<f32>)>> {
    let mut found = Vec::new();
    for i in section.own.states.clone() {
        let spec = &section.tape.states[i];
        let mut numbers = filled(0.0, spec.len(), &spec.name)?;
        match &spec.initial {
            Initial::Zeros => continue,
            Initial::Rows(rows) => numbers.chunks_exact_mut(spec.len() / rows.len()).zip(rows).for_each(|(n, &row)| n.fill(row)),
            Initial::Tensor(name) => source.with(name, &spec.shape, &mut |view| view.read_f32(0, &mut numbers))?,
        }
        found.push((State(i), numbers));
    }
    Ok(found)
}

/// Writes initial values to page 0 of the states. Slots begin from page 0 and never write to this page. If pages of a state have two halves
/// (one that a step reads and one that the step writes), both halves of page 0 receive the values.
pub fn write_initial(executor: &mut dyn Executor, tape: &Tape, initial: &[(State, Vec<f32>)]) -> Result<()> {
    for (state, numbers) in initial {
        let pages = if tape.state_spec(*state).halves { 2 } else { 1 };
        (0..pages).try_for_each(|page| executor.write_state(*state, page, numbers))?;
    }
    Ok(())
}
