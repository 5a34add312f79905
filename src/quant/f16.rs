//! IEEE half precision: what most checkpoints are, or can be without loss.

use super::{Format, dot};
use crate::error::{Error, Result};
use half::{f16, slice::HalfFloatSliceExt};

pub struct F16;

impl Format for F16 {
    fn name(&self) -> &'static str {
        "f16"
    }

    fn size_bytes(&self, n: usize) -> usize {
        n * 2
    }

    fn largest(&self) -> f32 {
        f16::MAX.to_f32()
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        let mut halves = vec![f16::ZERO; row.len()];
        halves.convert_from_f32_slice(row);
        if let Some((v, _)) = row.iter().zip(&halves).find(|(v, h)| h.is_infinite() && v.is_finite()) {
            return Err(Error::model(format!("{v} does not fit f16")).hint("use --dtype f32"));
        }
        if cfg!(target_endian = "little") {
            out.extend_from_slice(bytemuck::cast_slice(&halves));
        } else {
            out.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        match bytemuck::try_cast_slice::<u8, f16>(bytes) {
            // Uses F16C and NEON where they are.
            Ok(halves) if cfg!(target_endian = "little") && halves.len() == out.len() => halves.convert_to_f32_slice(out),
            _ => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = f16::from_le_bytes([b[0], b[1]]).to_f32()),
        }
    }

    fn dot(&self, bytes: &[u8], x: &[f32]) -> f32 {
        dot::f16(bytes, x)
    }
}
