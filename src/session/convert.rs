//! Converts a checkpoint to quantised formats. Loading the original checkpoint with the same quantisation plan gives bit-identical quantised
//! weights.

use super::adapted::Adapted;
use super::importance::{assign, file_places};
use super::{Definition, Options};
use crate::error::{Error, Result};
use crate::exec::{FloatChoice, QuantPlan, assign_formats, encode_part, survey};
use crate::quant::{Coding, Float, Scaling, padded};
use crate::tape::{MatrixPart, MatrixSpec, Source};
use crate::weights::{Calibration, Checkpoint, CodedTensors, Conversion, convert};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Writes the checkpoint `input` to the safetensors file `out`, with matrices quantised to the formats of `plan`. `what` determines the formats of
/// all other tensors. It may also have a LoRA adapter to merge into the weights, and the importance of columns. Calls
/// `progress(bytes done so far, total bytes)`.
///
/// # Errors
/// `Usage` if the plan does not fit the matrices; an error if a weight is outside the range of its format; the errors of [`convert()`].
pub fn convert_coded(
    input: &Checkpoint,
    out: &Path,
    plan: &QuantPlan,
    what: &Conversion<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let definition = planned(input, plan, what.calibration)?;
    let parts = coded_parts(&definition.tape.matrices, input);
    let codings = parts.iter().map(|(name, (coding, _))| (name.clone(), *coding)).collect();
    let plain: &dyn Source = input;
    let adapted = what.lora.map(|lora| Adapted { source: plain, lora });
    let source = adapted.as_ref().map_or(plain, |adapted| adapted);
    let write = |name: &str, out: &mut dyn Write| write_coded(&parts[name], source, out);
    convert(input, out, &Conversion { coded: Some(&CodedTensors { codings, write: &write }), ..*what }, progress)
}

/// For each quantised tensor, by name: its coding (format, axis of the scales, transposition) and its matrices, in the order of their rows.
type Parts<'a> = BTreeMap<String, (Coding, Vec<&'a MatrixPart>)>;

/// Returns the definition of a checkpoint's model. Its matrices have the formats of `plan` and the importance of `calibration`. Matrices that are not
/// quantised are f32 here; the caller chooses the format in which it writes them.
pub(super) fn planned(input: &Checkpoint, plan: &QuantPlan, calibration: Option<&Calibration>) -> Result<Definition> {
    let mut definition = Definition::of(input.clone(), &Options::default())?;
    assign_formats(&mut definition.tape.matrices, input, FloatChoice::Exactly(Float::F32), plan)?;
    if let Some(calibration) = calibration {
        assign(&mut definition.tape.matrices, &file_places(Some(input)), calibration)?;
    }
    Ok(definition)
}

fn coded_parts<'a>(matrices: &'a [MatrixSpec], source: &dyn Source) -> Parts<'a> {
    let mut found: Parts<'a> = BTreeMap::new();
    for (spec, part) in matrices.iter().flat_map(|spec| spec.parts.iter().map(move |part| (spec, part))) {
        let slices = part.slice.map_or(1, |s| s.of);
        let coding = Coding { format: part.format, axis: spec.axis(), transposed: part.transposed, slices };
        if source.has(&part.tensor) {
            found.entry(part.tensor.clone()).or_insert((coding, Vec::new())).1.push(part);
        }
    }
    // Leaves out tensors of float formats, tensors with matrices of different formats, and tensors with padded heads, because the file lacks the
    // padding.
    found.retain(|_, (coding, parts)| {
        let alike = |p: &&MatrixPart| p.format == coding.format && p.transposed == coding.transposed && !p.has_padded_heads();
        coding.format.scaling() != Scaling::None && parts.len() == coding.slices && parts.iter().all(alike)
    });
    found.values_mut().for_each(|(_, parts)| parts.sort_by_key(|p| p.first_row()));
    found
}

/// Writes a quantised tensor: first the codes of all its matrices, then the scales of all its matrices.
fn write_coded((coding, parts): &(Coding, Vec<&MatrixPart>), source: &dyn Source, out: &mut dyn Write) -> Result<()> {
    let io = |e: std::io::Error| Error::io(e, Path::new("output"));
    let mut scales = Vec::new();
    for part in parts {
        let affine = survey(part, source)?;
        encode_part(part, coding.axis, affine.as_ref(), 0, part.rows, source, &mut |_, encoded| {
            scales.extend_from_slice(&encoded.scales);
            out.write_all(&encoded.codes).map_err(io)
        })?;
        scales.extend(affine.iter().flat_map(|a| a.stored(0, part.rows, padded(part.k))));
        source.release(&part.tensor);
    }
    let bytes: Vec<u8> = scales.iter().flat_map(|h| h.to_le_bytes()).collect();
    out.write_all(&bytes).map_err(io)
}
