//! Which matrix is kept in which format: `--dtype` and `--quant`.

use crate::error::{Error, Result};
use crate::quant::{self, Format};
use crate::tape::{Kind, MatrixSpec, Part, Source};
use crate::tensor::DType;
use half::f16;
use std::collections::HashMap;

/// Formats by kind of matrix. Made from text: a name, or a format and exceptions, `i4,head=i8,low-rank=f16`.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One a kind of [`KINDS`]; none: a float, as `--dtype` says.
    formats: [Option<&'static dyn Format>; KINDS.len()],
}

/// Kinds of matrices and what a plan calls them.
const KINDS: [(Kind, &str); 5] =
    [(Kind::Plain, "plain"), (Kind::Value, "value"), (Kind::LowRank, "low-rank"), (Kind::Embedding, "embedding"), (Kind::Head, "head")];

/// Plans that have a name of their own.
pub const NAMED: [(&str, &str); 1] = [("i4-mixed", "i4,value=i8,low-rank=f16,embedding=i8,head=i8")];

impl Plan {
    /// Everything as floats.
    pub const FLOATS: Plan = Plan { formats: [None; KINDS.len()] };

    pub fn parse(text: &str) -> Result<Plan> {
        let text = NAMED.iter().find(|(name, _)| *name == text).map_or(text, |(_, plan)| plan);
        let mut formats = [None; KINDS.len()];
        for (i, word) in text.split(',').enumerate() {
            match word.split_once('=') {
                None if i == 0 => formats = [format(word)?; KINDS.len()],
                None => return Err(unknown(word)),
                Some((kind, word)) => {
                    let at = KINDS.iter().position(|(_, name)| *name == kind).ok_or_else(|| unknown(kind))?;
                    formats[at] = format(word)?;
                }
            }
        }
        Ok(Plan { formats })
    }

    /// Formats that are no floats, for help and for tables.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let coded = quant::FORMATS.iter().map(|f| f.name()).filter(|name| !["f16", "f32"].contains(name));
        coded.chain(NAMED.iter().map(|(name, _)| *name))
    }

    fn of(&self, part: &Part) -> Option<&'static dyn Format> {
        KINDS.iter().zip(self.formats).find(|((kind, _), _)| *kind == part.kind).and_then(|(_, format)| format)
    }
}

/// `f16`: as `--dtype` says.
fn format(name: &str) -> Result<Option<&'static dyn Format>> {
    if name == "f16" {
        return Ok(None);
    }
    Plan::names().find(|n| *n == name).and_then(|n| quant::find(n).ok()).map(Some).ok_or_else(|| unknown(name))
}

fn unknown(word: &str) -> Error {
    let kinds: Vec<_> = KINDS.iter().map(|(_, name)| *name).collect();
    let names: Vec<_> = Plan::names().collect();
    let text = format!("expected one of {}, or such with exceptions (i4,head=i8), found {word:?}", names.join(", "));
    Error::usage(text).at("--quant").hint(format!("exceptions are for {}", kinds.join(", ")))
}

/// Chooses the format of every matrix. Where the plan has none: `f32` keeps every bit, `f16` insists, `auto` takes f16 where each
/// number of the stack fits its range and f32 elsewhere.
pub fn assign_formats(matrices: &mut [MatrixSpec], source: &dyn Source, dtype: &str, plan: &Plan) -> Result<()> {
    let (f16, f32) = (quant::find("f16")?, quant::find("f32")?);
    // Several parts may be slices of one tensor, which is read once.
    let mut known = HashMap::new();
    let mut fits = |part: &Part| match known.get(&part.tensor) {
        Some(&fits) => Ok(fits),
        None => fits_f16(part, source).inspect(|&fits| {
            known.insert(part.tensor.clone(), fits);
        }),
    };
    for matrix in matrices {
        let coded: Vec<_> = matrix.parts.iter().map(|part| plan.of(part)).collect();
        let plain = || matrix.parts.iter().zip(&coded).filter(|(_, coded)| coded.is_none()).map(|(part, _)| part);
        let float = match dtype {
            "f32" => f32,
            "f16" => f16,
            "auto" if plain().map(&mut fits).collect::<Result<Vec<_>>>()?.iter().all(|&fits| fits) => f16,
            "auto" => {
                log::info!("{}: outside the range of f16, kept in f32", matrix.parts[0].tensor);
                f32
            }
            other => return Err(Error::usage(format!("unknown --dtype {other:?}, expected auto, f16 or f32"))),
        };
        matrix.parts.iter_mut().zip(coded).for_each(|(part, coded)| part.format = coded.unwrap_or(float));
    }
    Ok(())
}

fn fits_f16(part: &Part, source: &dyn Source) -> Result<bool> {
    if source.dtype(&part.tensor).is_none_or(|d| d == DType::F16) {
        return Ok(true);
    }
    let mut fits = true;
    source.with(&part.tensor, &part.shape(), &mut |view| {
        let mut block = vec![0.0; (1 << 18).min(view.len())];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_a_format_and_exceptions() {
        let of = |plan: &str, kind: Kind| {
            let part = Part::new("w", 1, 1).of(kind);
            Plan::parse(plan).unwrap().of(&part).map(|f| f.name())
        };
        assert_eq!(of("i8", Kind::Head), Some("i8"));
        assert_eq!(of("i4,head=i8,low-rank=f16", Kind::Plain), Some("i4"));
        assert_eq!(of("i4,head=i8,low-rank=f16", Kind::Head), Some("i8"));
        assert_eq!(of("i4,head=i8,low-rank=f16", Kind::LowRank), None);
        assert_eq!(of("head=i8", Kind::Plain), None);
        for name in Plan::names() {
            Plan::parse(name).unwrap();
        }
        for wrong in ["", "i3", "f32", "i8,i4", "i8,foot=i4", "i8,head=i3", "I8"] {
            let error = Plan::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("i4-mixed"), "{error}");
        }
    }
}
