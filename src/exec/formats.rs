//! Chooses the formats of matrices: the options `dtype` and `quant`.

use super::stored::has_blocks_of;
use crate::error::{Error, Result};
use crate::quant::{self, Float, Format, Scaling};
use crate::tape::{MatrixKind, MatrixPart, MatrixSpec, Source};
use crate::tensor::DType;
use half::f16;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The float format of the matrices that a [`QuantPlan`] does not quantise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FloatChoice {
    /// For each stack of matrices ([`MatrixSpec`]): f16 if all finite elements of its unquantised matrices are in the range of f16, otherwise f32.
    #[default]
    Auto,
    Exactly(Float),
}

impl fmt::Display for FloatChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FloatChoice::Auto => f.pad("auto"),
            FloatChoice::Exactly(float) => float.fmt(f),
        }
    }
}

impl FromStr for FloatChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<FloatChoice> {
        match text {
            "auto" => Ok(FloatChoice::Auto),
            _ => text
                .parse()
                .map(FloatChoice::Exactly)
                .map_err(|_| Error::usage(format!("expected auto, f16 or f32, found {text:?}")).field("dtype")),
        }
    }
}

/// Determines the format of each matrix. A plan is parsed from a name and optional exceptions, such as `i4,head=i8,att.output=f16`.
///
/// The default plan (an empty option `quant`) keeps the format of matrices that the file stores in a quantised format of [`quant::FORMATS`]. A block
/// type of GGUF files counts, too, if a format has the same name. All other matrices become floats.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QuantPlan {
    /// The text that the plan was parsed from, or an empty text.
    text: String,
    /// The format of the matrices without an exception. `Some(None)` means floats. `None` keeps the format of matrices that the file stores
    /// quantised, and stores all other matrices as floats.
    others: Option<FormatChoice>,
    /// Exceptions that come with a named value of the option `quant`, such as `i4-mixed`.
    named: Vec<Exception>,
    /// Limit on the average number of bits per weight, or `None` for no limit. An exception in `named` is left out if the average would exceed
    /// the limit with this exception.
    budget: Option<f64>,
    /// Exceptions that the user wrote. They take precedence over `named`.
    asked: Vec<Exception>,
    /// The only tensor that the plan quantises, or `None` if the plan quantises all tensors.
    only: Option<String>,
}

/// A quantised format. `None` means floats; the option `dtype` sets their format.
type FormatChoice = Option<&'static dyn Format>;

/// A set of matrices, and the format of these matrices. If several exceptions apply to a matrix, the last exception counts.
type Exception = (Which, FormatChoice);

#[derive(Debug, Clone, PartialEq)]
enum Which {
    Kind(MatrixKind),
    /// Matrices whose tensor has this text in its name.
    Named(String),
}

/// The kinds of matrices that an exception can name.
const KINDS: [(&str, MatrixKind); 4] =
    [("embedding", MatrixKind::Embedding), ("head", MatrixKind::Head), ("value", MatrixKind::Value), ("low-rank", MatrixKind::LowRank)];

/// Named plans. Each entry has the plan's name, and the plan written as a format with exceptions.
const NAMED: [(&str, &str); 2] = [
    // 4 bits, but 8 bits for the matrices that lose most accuracy per byte. The order was measured matrix by matrix in trained models. An exception
    // that would raise the average above 5.5 bits per weight is left out. A GLM's keys and values come first: they are small, because heads share
    // them. The first layer matters, too: in RWKV-7, all layers mix its values into their own values. docs/quantisation.md lists the result.
    (
        "i4-mixed",
        "i4,self_attn.v_proj=i8,self_attn.k_proj=i8,layers.0.self_attn.o_proj=i8,embedding=i8,layers.0.mlp.=i8,head=i8,blocks.0.ffn.key=i8,\
         blocks.0.att.value=i8,blocks.0.att.output=i8,blocks.0.att.g=i8,blocks.0.ffn.value=i8",
    ),
    // Quantises the same matrices as the official `rwkv` package.
    ("i8rc", "i8rc,embedding=f16,low-rank=f16"),
];

/// The plan `i4-mixed` limits the average number of bits per weight to this number.
const BUDGET: f64 = 5.5;

impl QuantPlan {
    /// The name of the default plan, which keeps the formats of the file.
    pub const KEEP: &'static str = "keep";

    /// Returns the names of all plans that quantise matrices, without [`KEEP`](Self::KEEP).
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::described().map(|(name, _)| name)
    }

    /// Returns the names that [`names`](Self::names) returns, each with a short description, which may be empty.
    pub fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
        let coded = quant::FORMATS.iter().filter(|f| f.scaling() != Scaling::None).map(|f| (f.name(), f.about()));
        coded.chain([("i4-mixed", "4 bits, and 8 bits for the most sensitive matrices")])
    }

    /// Returns the plan with one more exception: matrices of the kind `kind` are floats.
    pub fn but(mut self, kind: MatrixKind) -> QuantPlan {
        self.asked.push((Which::Kind(kind), None));
        self
    }

    /// Returns a plan that quantises only this tensor, as the original plan does, and keeps all other tensors as floats. Used to measure the error
    /// that one matrix adds.
    pub fn only(self, tensor: impl Into<String>) -> QuantPlan {
        QuantPlan { only: Some(tensor.into()), ..self }
    }

    /// Returns the quantised format of the matrix `part`, or `None` if it is stored as floats. If the plan has no format for the matrix, returns the
    /// quantised format in which `source` stores it.
    pub fn of(&self, part: &MatrixPart, source: &dyn Source) -> FormatChoice {
        if self.only.as_ref().is_some_and(|only| *only != part.tensor) { None } else { self.of_all(part, source) }
    }

    /// Returns the format as [`of`](Self::of) does, for a plan that quantises all tensors.
    fn of_all(&self, part: &MatrixPart, source: &dyn Source) -> FormatChoice {
        if part.kind == MatrixKind::Router {
            return None;
        }
        let exceptions = self.asked.iter().rev().chain(self.named.iter().rev());
        let said = exceptions.into_iter().find(|(which, _)| which.is(part)).map(|(_, choice)| *choice).or(self.others);
        said.unwrap_or_else(|| match source.dtype(&part.tensor)? {
            DType::Coded(name) => quant::find(name).ok(),
            dtype => kept(part, dtype),
        })
    }

    /// Fits a plan to the limit on the average number of bits per weight of `matrices`. Adds the exceptions in `named` one by one, and leaves out
    /// each exception with which the average would exceed the limit. Returns the resulting plan.
    ///
    /// # Errors
    /// A `Usage` error that names the option `quant`, if an exception of the user matches no tensor.
    fn fitted(mut self, matrices: &[MatrixSpec], source: &dyn Source) -> Result<QuantPlan> {
        let parts = || matrices.iter().flat_map(|m| &m.parts);
        for (which, _) in &self.asked {
            if let Which::Named(name) = which
                && !parts().any(|p| which.is(p))
            {
                return Err(Error::usage(format!("no matrix of the model has {name:?} in its name")).field("quant"));
            }
        }
        let Some(budget) = self.budget else { return Ok(self) };
        let most = budget * parts().map(|p| p.rows * p.k).sum::<usize>() as f64 / 8.0;
        let f16 = Float::F16.format();
        for exception in std::mem::take(&mut self.named) {
            self.named.push(exception);
            let bytes: usize = matrices.iter().map(|m| m.size_in(&|part| self.of_all(part, source).unwrap_or(f16))).sum();
            if bytes as f64 > most {
                self.named.pop();
            }
        }
        Ok(self)
    }
}

impl FromStr for QuantPlan {
    type Err = Error;

    fn from_str(text: &str) -> Result<QuantPlan> {
        let mut plan = QuantPlan { text: text.into(), ..QuantPlan::default() };
        let mut words = text.split(',').peekable();
        match words.next_if(|word| !word.contains('=')) {
            None => {}
            Some(QuantPlan::KEEP) => {}
            Some(name) => {
                let mut meant = NAMED.iter().find(|(known, _)| *known == name).map_or(name, |(_, plan)| plan).split(',');
                plan.others = Some(format(meant.next().unwrap_or_default())?);
                plan.named = meant.map(exception).collect::<Result<_>>()?;
                plan.budget = (name == NAMED[0].0).then_some(BUDGET);
            }
        }
        plan.asked = words.map(exception).collect::<Result<_>>()?;
        Ok(plan)
    }
}

/// Writes the text that the plan was parsed from. The default plan writes nothing.
impl fmt::Display for QuantPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Returns the format that keeps the exact weights of a matrix that a GGUF file stores as `dtype`. Returns `None` if no format keeps them, or if the
/// executor needs the weights in another order than the file's.
fn kept(part: &MatrixPart, dtype: DType) -> FormatChoice {
    quant::FORMATS.iter().copied().find(|format| has_blocks_of(part, *format, dtype))
}

/// Parses an exception, as in `head=i8`.
fn exception(word: &str) -> Result<Exception> {
    let Some((which, name)) = word.split_once('=') else {
        let example = KINDS.iter().map(|(name, _)| *name).find(|name| *name == word).unwrap_or("head");
        let e = Error::usage(format!("expected PART=FORMAT after a comma, found {word:?}")).field("quant");
        return Err(
            e.hint(format!("write {example}=i8, for example; PART is {}, or a piece of a tensor's name that contains a dot", kinds()))
        );
    };
    let which = match KINDS.iter().find(|(name, _)| *name == which) {
        Some((_, kind)) => Which::Kind(*kind),
        // A piece of a tensor's name must contain a dot, so that a misspelt kind is refused.
        None if which.contains('.') => Which::Named(which.into()),
        None => {
            let text =
                format!("unknown part {which:?} of a model, expected {}, or a piece of a tensor's name that contains a dot", kinds());
            return Err(Error::usage(text).field("quant").hint("write PART=FORMAT, such as head=i8 or att.output=f16"));
        }
    };
    Ok((which, format(name)?))
}

impl Which {
    fn is(&self, part: &MatrixPart) -> bool {
        match self {
            Which::Kind(kind) => part.kind == *kind,
            Which::Named(name) => part.tensor.contains(name),
        }
    }
}

/// Parses the name of a quantised format. Returns `None` for `f16`, which means floats.
fn format(name: &str) -> Result<FormatChoice> {
    match quant::find(name) {
        Ok(format) if format.scaling() != Scaling::None => Ok(Some(format)),
        Ok(format) if format.name() == "f16" => Ok(None),
        _ => Err(unknown(name)),
    }
}

/// Returns the names of all kinds of matrices, separated by commas.
fn kinds() -> String {
    KINDS.map(|(name, _)| name).join(", ")
}

/// Returns the error for an unknown weight format.
fn unknown(word: &str) -> Error {
    let names: Vec<&str> = QuantPlan::names().collect();
    let near: Vec<&str> = names.iter().copied().filter(|name| is_near(name, &word.to_ascii_lowercase())).collect();
    let hint: String = match (word, near.as_slice()) {
        ("", _) => "name a format; keep leaves the formats of the file unchanged".into(),
        (_, []) => "i8 and q8_0 have 8 bits; i4, nf4 and q4_k have 4 bits; keep leaves the formats of the file unchanged".into(),
        (_, near) => format!("similar formats: {}", near.join(", ")),
    };
    let (names, keep) = (names.join(", "), QuantPlan::KEEP);
    let text = format!("unknown weight format {word:?}, expected one of f16 (no quantisation), {names}, {keep} (the file's formats)");
    Error::usage(text).field("quant").hint(hint)
}

/// Returns whether two names have the same length and differ in at most one character.
fn is_near(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).filter(|(x, y)| x != y).count() <= 1
}

/// Sets the format of every matrix of the stacks `matrices`. `plan` chooses which matrices are quantised, and their formats. `dtype` chooses the
/// format of all other matrices. With `Auto`, the other matrices of a stack are f16 if all their finite elements are in the range of f16,
/// otherwise f32. The matrices of routers are always f32.
///
/// # Errors
/// A `Usage` error that names the option `quant`, if an exception of the user matches no tensor. Errors of `source` are passed on.
pub fn assign_formats(matrices: &mut [MatrixSpec], source: &dyn Source, dtype: FloatChoice, plan: &QuantPlan) -> Result<()> {
    let (f16, f32) = (Float::F16.format(), Float::F32.format());
    let plan = plan.clone().fitted(matrices, source)?;
    // Several matrices may be slices of one tensor. The answers are kept here, so that each tensor is read once.
    let mut known = HashMap::new();
    let mut fits = |part: &MatrixPart| match known.get(&part.tensor) {
        Some(&fits) => Ok(fits),
        None => fits_f16(part, source).inspect(|&fits| {
            known.insert(part.tensor.clone(), fits);
        }),
    };
    for matrix in matrices {
        let coded: Vec<_> = matrix.parts.iter().map(|part| plan.of(part, source)).collect();
        let plain = || matrix.parts.iter().zip(&coded).filter(|(_, coded)| coded.is_none()).map(|(part, _)| part);
        let float = match dtype {
            FloatChoice::Exactly(float) => float.format(),
            FloatChoice::Auto if plain().map(&mut fits).collect::<Result<Vec<_>>>()?.iter().all(|&fits| fits) => f16,
            FloatChoice::Auto => {
                log::info!("{}: numbers outside the range of f16, stored as f32", matrix.parts[0].tensor);
                f32
            }
        };
        for (part, coded) in matrix.parts.iter_mut().zip(coded) {
            part.format = if part.kind == MatrixKind::Router { f32 } else { coded.unwrap_or(float) };
        }
    }
    Ok(())
}

fn fits_f16(part: &MatrixPart, source: &dyn Source) -> Result<bool> {
    // A source that is fetched in ranges would be fetched twice if the numbers were checked here. Encoding reports a number that does not fit.
    if source.is_ranged() || source.dtype(&part.tensor).is_none_or(|d| d == DType::F16) {
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
    source.release(&part.tensor);
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Source for Nothing {
        fn has(&self, _name: &str) -> bool {
            false
        }
        fn dtype(&self, _name: &str) -> Option<DType> {
            None
        }
        fn with(&self, name: &str, _: &[usize], _: &mut dyn FnMut(&crate::tensor::View<'_>) -> Result<()>) -> Result<()> {
            Err(Error::file(name.to_string()))
        }
    }

    #[test]
    fn plans_are_a_format_and_exceptions() {
        let of = |plan: &str, tensor: &str, kind: MatrixKind| {
            let part = MatrixPart::new(tensor, 1, 1).of(kind);
            plan.parse::<QuantPlan>().unwrap().of(&part, &Nothing).map(|f| f.name())
        };
        assert_eq!(of("i8", "head.weight", MatrixKind::Head), Some("i8"));
        let plan = "i4,head=i8,low-rank=f16,blocks.3.att=nf4";
        assert_eq!(of(plan, "blocks.2.att.key.weight", MatrixKind::Plain), Some("i4"));
        assert_eq!(of(plan, "blocks.3.att.key.weight", MatrixKind::Plain), Some("nf4"));
        assert_eq!(of(plan, "head.weight", MatrixKind::Head), Some("i8"));
        assert_eq!(of(plan, "blocks.2.att.w1", MatrixKind::LowRank), None);
        assert_eq!(of("i8rc,head=f16", "emb.weight", MatrixKind::Embedding), None);
        assert_eq!(of("i8rc,head=f16", "head.weight", MatrixKind::Head), None);
        assert_eq!(of("i4-mixed,embedding=i4", "emb.weight", MatrixKind::Embedding), Some("i4"));
        assert_eq!(of("head=i8", "blocks.2.att.key.weight", MatrixKind::Plain), None);
        assert_eq!(of("keep", "head.weight", MatrixKind::Head), None);
        assert_eq!(of("keep,head=i8", "head.weight", MatrixKind::Head), Some("i8"));
        for name in QuantPlan::names() {
            assert_eq!(name.parse::<QuantPlan>().unwrap().to_string(), name);
        }
        for wrong in ["", "i3", "f32", "i8,i4", "i8,foot=i4", "i8,head=i3", "I8", "i8,", "head", "keep,i8", "i8,keep"] {
            let error = wrong.parse::<QuantPlan>().unwrap_err().to_string();
            let known = match wrong {
                "i8,foot=i4" => "unknown part \"foot\" of a model",
                "i8,i4" | "i8," | "keep,i8" | "i8,keep" => "expected PART=FORMAT after a comma, found",
                _ => "i4-mixed",
            };
            assert!(error.contains(known), "{wrong}: {error}");
        }
        let spec = MatrixSpec { parts: vec![MatrixPart::new("blocks.0.att.key.weight", 1, 1)], has_sparse_input: false, n_used: None };
        let plan = "i8,att.kay=i4".parse::<QuantPlan>().unwrap();
        assert!(plan.fitted(&[spec], &Nothing).unwrap_err().to_string().contains("att.kay"));
    }
}
