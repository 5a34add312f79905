//! Plain 32-bit floats.

use super::{Format, dot};
use crate::error::Result;

pub struct F32;

impl Format for F32 {
    fn name(&self) -> &'static str {
        "f32"
    }

    fn size_bytes(&self, n: usize) -> usize {
        n * 4
    }

    fn largest(&self) -> f32 {
        f32::INFINITY
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        out.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        Ok(())
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        for (o, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
    }

    fn dot(&self, bytes: &[u8], x: &[f32]) -> f32 {
        dot::f32(bytes, x)
    }
}
