//! Weight formats: how a row of a matrix is stored, on the host and on the device.
//!
//! One file a format here, one `shaders/weight/<name>.wgsl` that decodes the same bytes, one line in [`FORMATS`]. Rows are
//! padded with zeros to a multiple of [`PAD`] elements, so that a kernel reads whole 16-byte words and never a tail. Knows
//! nothing of models, files or devices.

mod dot;
mod f16;
mod f32;
pub mod product;

use crate::error::{Error, Result};

/// Every row of a matrix, and every row of activations, is padded with zeros to a multiple of this many elements.
pub const PAD: usize = 8;

/// `n` rounded up to whole [`PAD`]s.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(PAD) * PAD
}

/// How numbers of a matrix are stored.
pub trait Format: Send + Sync {
    /// Name in `--quant`, in JSON and of `shaders/weight/<name>.wgsl`.
    fn name(&self) -> &'static str;

    /// Bytes of `n` elements; `n` is a multiple of [`PAD`].
    fn size_bytes(&self, n: usize) -> usize;

    /// The largest number that fits.
    fn largest(&self) -> f32;

    /// Appends the encoding of a row. Fails where a finite number does not fit.
    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()>;

    /// The inverse of `encode`, to the last bit what the shader computes.
    fn decode(&self, bytes: &[u8], out: &mut [f32]);

    /// Σ row·x, accumulated in f32, always in the same order for the same length.
    fn dot(&self, bytes: &[u8], x: &[f32]) -> f32;
}

/// All formats. Parser, help, tests and benches walk this list.
pub static FORMATS: &[&dyn Format] = &[&f16::F16, &f32::F32];

/// A row, with what does not fit as large as can be: keys and values, of which an infinite one would end all attention to come.
pub fn encode_within(format: &dyn Format, row: &[f32]) -> Vec<u8> {
    let largest = format.largest();
    let within: Vec<f32> = row.iter().map(|x| x.clamp(-largest, largest)).collect();
    let mut out = Vec::with_capacity(format.size_bytes(row.len()));
    format.encode(&within, &mut out).expect("all of these fit");
    out
}

/// The format of that name.
pub fn find(name: &str) -> Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|f| f.name() == name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|f| f.name()).collect();
        Error::usage(format!("unknown weight format {name:?}, expected one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic numbers of many magnitudes.
    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 2654435761 % 1000) as f32 - 500.0) * 1.5f32.powi((i % 9) as i32 - 6)).collect()
    }

    #[test]
    fn decoding_inverts_encoding_and_dot_agrees() {
        for format in FORMATS {
            for n in [8, 16, 24, 40, 72, 256, 1000] {
                let (row, x) = (numbers(n), numbers(n + 3));
                let mut bytes = Vec::new();
                format.encode(&row, &mut bytes).unwrap();
                assert_eq!(bytes.len(), format.size_bytes(n), "{}", format.name());
                let mut back = vec![0.0; n];
                format.decode(&bytes, &mut back);
                let error = row.iter().zip(&back).map(|(a, b)| ((a - b) / a.abs().max(1e-3)).abs()).fold(0.0, f32::max);
                assert!(error <= 1.0 / 2048.0, "{} {n}: {error}", format.name());
                let expected: f64 = back.iter().zip(&x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                let scale: f64 = back.iter().zip(&x).map(|(&a, &b)| (f64::from(a) * f64::from(b)).abs()).sum();
                let got = f64::from(format.dot(&bytes, &x[..n]));
                assert!((got - expected).abs() <= 1e-6 * scale, "{} {n}: {got} {expected}", format.name());
            }
        }
    }

    #[test]
    fn a_number_too_large_for_f16_is_refused() {
        assert!(find("f16").unwrap().encode(&[70000.0; 8], &mut Vec::new()).is_err());
        assert!(find("f17").is_err());
        let within = encode_within(find("f16").unwrap(), &[70000.0, f32::NEG_INFINITY, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let mut back = [0.0; 8];
        find("f16").unwrap().decode(&within, &mut back);
        assert_eq!(back[..3], [65504.0, -65504.0, 1.0]);
    }
}
