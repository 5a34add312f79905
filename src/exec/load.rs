//! What both executors do with a source: choose formats, pack vectors, encode rows in small blocks.

use super::Executor;
use crate::error::{Error, Result};
use crate::quant::{self, Format, padded};
use crate::tape::{Initial, Part, Source, State, StateSpec, Tape, VectorSpec};
use crate::tensor::{DType, View};
use half::f16;
use rayon::prelude::*;
use std::collections::HashMap;

/// Bytes done and bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Floats that a block of rows has at the most: loading needs no more host memory than a few of these.
const BLOCK: usize = 1 << 18;
/// The same where rows become columns, and a multiple of how many numbers of a row are read together there: a block of any block type.
const TURNED: usize = 1 << 21;
const RUN: usize = 256;

/// Chooses the format of every matrix: `f32` keeps every bit, `f16` insists, `auto` takes f16 where each number of the stack
/// fits its range and f32 elsewhere.
pub fn assign_formats(tape: &mut Tape, source: &dyn Source, dtype: &str) -> Result<()> {
    let (f16, f32) = (quant::find("f16")?, quant::find("f32")?);
    // Several parts may be slices of one tensor, which is read once.
    let mut known = HashMap::new();
    let mut fits = |part: &Part| match known.get(&part.tensor) {
        Some(&fits) => Ok(fits),
        None => fits_f16(part, source).inspect(|&fits| {
            known.insert(part.tensor.clone(), fits);
        }),
    };
    for matrix in &mut tape.matrices {
        matrix.format = match dtype {
            "f32" => f32,
            "f16" => f16,
            "auto" if matrix.parts.iter().map(&mut fits).collect::<Result<Vec<_>>>()?.iter().all(|&fits| fits) => f16,
            "auto" => {
                log::info!("{}: outside the range of f16, kept in f32", matrix.parts[0].tensor);
                f32
            }
            other => return Err(Error::usage(format!("unknown --dtype {other:?}, expected auto, f16 or f32"))),
        };
    }
    Ok(())
}

fn fits_f16(part: &Part, source: &dyn Source) -> Result<bool> {
    if source.dtype(&part.tensor).is_none_or(|d| d == DType::F16) {
        return Ok(true);
    }
    let mut fits = true;
    source.with(&part.tensor, &part.shape(), &mut |view| {
        let mut block = vec![0.0; BLOCK.min(view.len())];
        let mut at = 0;
        while at < view.len() && fits {
            let n = block.len().min(view.len() - at);
            view.read_f32(at, &mut block[..n])?;
            fits = block[..n].iter().all(|v| !v.is_finite() || v.abs() <= f16::MAX.to_f32());
            at += n;
        }
        Ok(())
    })?;
    Ok(fits)
}

/// Calls `write(rows, bytes)` with consecutive rows `first..first + rows` of a part, encoded; the width is padded to whole
/// units.
pub fn encode_part(
    part: &Part,
    first: usize,
    rows: usize,
    format: &dyn Format,
    source: &dyn Source,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let k = padded(part.k);
    let block_rows = (BLOCK / k).clamp(1, rows.max(1));
    if part.optional && !source.has(&part.tensor) {
        let zeros = vec![0; format.size_bytes(k) * block_rows];
        let mut left = rows;
        while left > 0 {
            let n = left.min(block_rows);
            write(&zeros[..format.size_bytes(k) * n])?;
            left -= n;
        }
        return Ok(());
    }
    let first = part.first_row() + first;
    // Rows of a tensor that lies the other way come from a little of each of its own: the more at once, the more of what is read.
    let block_rows = if part.transposed { (TURNED / k).next_multiple_of(RUN).clamp(1, rows.max(1)) } else { block_rows };
    source.with(&part.tensor, &part.shape(), &mut |stored| {
        let view = if part.transposed { stored.clone().transposed() } else { stored.clone() };
        if let Some(bytes) = as_stored(&view, part, format) {
            let row = format.size_bytes(k);
            for chunk in bytes[first * row..(first + rows) * row].chunks(block_rows * row) {
                write(chunk)?;
            }
            return Ok(());
        }
        let (mut numbers, mut bytes) = (vec![0.0; block_rows * k], Vec::new());
        let mut row = first;
        while row < first + rows {
            let n = block_rows.min(first + rows - row);
            bytes.clear();
            if part.transposed {
                read_turned(stored, part, row, &mut numbers[..n * k])?;
            } else {
                for (i, padded_row) in numbers[..n * k].chunks_exact_mut(k).enumerate() {
                    view.read_f32((row + i) * part.k, &mut padded_row[..part.k])?;
                }
            }
            format.encode(&numbers[..n * k], &mut bytes).map_err(|e| e.at(&part.tensor))?;
            write(&bytes)?;
            row += n;
        }
        Ok(())
    })
}

/// Rows `first ..` of a part, `[n, padded k]`, from a tensor that lies the other way, by several threads.
fn read_turned(view: &View<'_>, part: &Part, first: usize, out: &mut [f32]) -> Result<()> {
    out.par_chunks_mut(RUN * padded(part.k)).enumerate().try_for_each(|(i, out)| turn(view, part, first + i * RUN, out))
}

/// The same by one: a few of the tensor's own rows at a time, so that neither what is read nor what is written jumps about in memory.
fn turn(view: &View<'_>, part: &Part, first: usize, out: &mut [f32]) -> Result<()> {
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

/// The file's own bytes, where they are what the format would write.
fn as_stored<'v>(view: &View<'v>, part: &Part, format: &dyn Format) -> Option<&'v [u8]> {
    let same = matches!((view.dtype(), format.name()), (DType::F16, "f16") | (DType::F32, "f32"));
    (same && part.k == padded(part.k)).then(|| view.dense_bytes()).flatten()
}

/// Packed vectors, padded with zeros.
pub fn pack_vectors(spec: &VectorSpec, source: &dyn Source) -> Result<Vec<f32>> {
    let mut packed = vec![0.0; spec.parts.len() * spec.stride()];
    for (part, row) in spec.parts.iter().zip(packed.chunks_exact_mut(spec.stride())) {
        if part.optional && !source.has(&part.tensor) {
            continue;
        }
        let len = spec.len(part);
        let mut numbers = vec![0.0; len / part.repeat];
        source.with(&part.tensor, &spec.shape(part), &mut |view| view.read_f32(0, &mut numbers))?;
        let map = part.map.unwrap_or(|x| x);
        for (to, from) in row[..len].chunks_mut(part.repeat).zip(numbers) {
            to.fill(map(from));
        }
    }
    Ok(packed)
}

/// What every state is before the first token; none where that is zero.
pub fn initial_states(tape: &Tape, source: &dyn Source) -> Result<Vec<Option<Vec<f32>>>> {
    let numbers = |spec: &StateSpec| match &spec.initial {
        Initial::Zeros => Ok(None),
        Initial::Rows(rows) => Ok(Some(rows.iter().flat_map(|&row| vec![row; spec.len() / rows.len()]).collect())),
        Initial::Tensor(name) => {
            let mut numbers = vec![0.0; spec.len()];
            source.with(name, &spec.shape, &mut |view| view.read_f32(0, &mut numbers))?;
            Ok(Some(numbers))
        }
    };
    tape.states.iter().map(numbers).collect()
}

/// Writes them to page 0, which no slot ever changes; vectors in halves to both.
pub fn write_initial(executor: &mut dyn Executor, tape: &Tape, initial: &[Option<Vec<f32>>]) -> Result<()> {
    for (i, numbers) in initial.iter().enumerate() {
        let pages = if tape.states[i].halves { 2 } else { 1 };
        for page in 0..numbers.as_ref().map_or(0, |_| pages) {
            executor.write_state(State(i), page, numbers.as_deref().unwrap_or_default())?;
        }
    }
    Ok(())
}
