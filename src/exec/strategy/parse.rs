//! Parses strategies. An error marks the wrong part of the text.

use super::{DTYPES, Experts, Layers, Segment, Strategy, quants};
use crate::error::{Error, Result, short};
use crate::exec::{DeviceChoice, FloatChoice};
use std::ops::Range;

const ARROW: &str = "->";
/// Precedes the place of a segment's experts.
const COMMA: &str = ",";
/// Names of `gpu` in strategies that were written for the `rwkv` package.
const ALIASES: [&str; 3] = ["cuda", "mps", "dml"];

/// Parses a strategy.
pub fn strategy(text: &str) -> Result<Strategy> {
    if text.trim_ascii().is_empty() {
        let e = Error::usage("expected a device and a number type, as in gpu fp16, found an empty text").field("strategy");
        return Err(e.hint("leave out `strategy`, or name the devices and their layers, as in gpu fp16 *10 -> cpu fp32"));
    }
    let mut reader = StrategyReader { text, at: 0, aliases: Vec::new() };
    let mut segments = vec![reader.segment()?];
    while reader.arrow(segments.last())? {
        let begin = reader.at;
        let segment = reader.segment()?;
        if segment.streams() && segments.iter().any(Segment::streams) {
            let plus = begin + text[begin..reader.at].rfind('+').unwrap_or(0);
            let error = reader.refuse(plus..plus + 1, "only one segment can have a +, which streams the remaining layers");
            return Err(error.hint("keep the + of one segment only"));
        }
        segments.push(segment);
    }
    let notes = notes(&segments, &reader.aliases);
    Ok(Strategy { segments, notes })
}

/// Returns the notes for [`Strategy::notes`]. `aliases` are the other names that the text uses for `gpu`.
fn notes(segments: &[Segment], aliases: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    if !aliases.is_empty() {
        let verb = if aliases.len() == 1 { "means" } else { "mean" };
        notes.push(format!("{} {verb} gpu here; `wingbeat devices` lists the numbers of gpu:N", aliases.join(" and ")));
    }
    let of_experts = || segments.iter().filter_map(|s| s.experts.as_ref());
    if segments.iter().map(|s| s.quant).chain(of_experts().map(|e| e.quant)).any(|quant| quant == Some("i8")) {
        notes.push(
            "i8 is symmetric here, with a scale for every 64 numbers; the i8 of the rwkv package is called i8rc, as in fp16i8rc".into(),
        );
    }
    if segments.iter().map(|s| s.dtype).chain(of_experts().map(|e| e.dtype)).any(|dtype| dtype == FloatChoice::Auto) {
        notes.push("bf16: weights are stored as f16 if their range allows it, otherwise as f32; sums are in f32".into());
    }
    notes
}

struct StrategyReader<'t> {
    text: &'t str,
    at: usize,
    /// Aliases of `gpu` found so far, each once.
    aliases: Vec<&'static str>,
}

impl<'t> StrategyReader<'t> {
    fn segment(&mut self) -> Result<Segment> {
        let device = self.device()?;
        let (dtype, quant) = self.dtype()?;
        let layers = self.layers(device == DeviceChoice::Cpu)?;
        let mut segment = Segment { device, dtype, quant, layers, experts: None };
        let before = self.at;
        let comma = self.word();
        if &self.text[comma.clone()] != COMMA {
            self.at = before;
            return Ok(segment);
        }
        if segment.streams() {
            let error = self.refuse(comma, "a segment that streams layers has their experts on its own device");
            return Err(error.hint("leave out the + or the experts"));
        }
        segment.experts = Some(self.experts((dtype, quant))?);
        Ok(segment)
    }

    /// Reads the place of experts after a comma. `format` is the weight format of the segment. The experts have this format unless the text names
    /// another.
    fn experts(&mut self, format: (FloatChoice, Option<&'static str>)) -> Result<Experts> {
        let word = self.word();
        if !self.text[word.clone()].eq_ignore_ascii_case("experts") {
            return Err(self.expected("experts and their device after the comma, as in gpu fp16, experts cpu", word));
        }
        let device = self.device()?;
        let before = self.at;
        let next = self.word();
        self.at = before;
        let is_format = !matches!(self.text[next.clone()].chars().next(), None | Some('*' | ',')) && &self.text[next] != ARROW;
        let (dtype, quant) = if is_format { self.dtype()? } else { format };
        let layers = match self.layers(false)? {
            Layers::Share => None,
            Layers::Fixed(0) => return Err(self.refuse(self.at - 1..self.at, "expected the experts of at least 1 layer")),
            Layers::Fixed(n) => Some(n),
            Layers::Streamed(_) => {
                let error = self.refuse(self.at - 1..self.at, "experts on a device of their own cannot be streamed");
                return Err(error.hint("leave out the +"));
            }
        };
        Ok(Experts { device, dtype, quant, layers })
    }

    /// Reads `->` or the end of the text after the segment `last`. Returns `true` for `->`, after which another segment follows.
    fn arrow(&mut self, last: Option<&Segment>) -> Result<bool> {
        let next = self.word();
        match &self.text[next.clone()] {
            "" => Ok(false),
            ARROW => Ok(true),
            _ if last.is_some_and(|s| s.experts.is_some()) => Err(self.expected("-> or the end after the experts", next)),
            _ if last.is_some_and(|s| matches!(s.layers, Layers::Share)) => {
                Err(self.expected("a number of layers (*N or *N+), -> or the end", next))
            }
            _ => Err(self.expected("-> or the end after the number of layers", next)),
        }
    }

    fn device(&mut self) -> Result<DeviceChoice> {
        let word = self.word();
        let lower = self.text[word.clone()].to_ascii_lowercase();
        let (name, number) = lower.split_once(':').map_or((lower.as_str(), None), |(name, n)| (name, Some(n)));
        let alias = ALIASES.into_iter().find(|a| *a == name);
        if name != "cpu" && name != "gpu" && alias.is_none() {
            return Err(self.expected("a device: gpu, gpu:N or cpu (cuda, mps and dml mean gpu)", word));
        }
        self.aliases.extend(alias.filter(|a| !self.aliases.contains(a)));
        let Some(number) = number else {
            return Ok(if name == "cpu" { DeviceChoice::Cpu } else { DeviceChoice::Gpu(None) });
        };
        let after = word.start + name.len() + 1..word.end;
        match name {
            "gpu" | "cuda" => {
                let n = digits(number).ok_or_else(|| self.expected(&format!("the number of a GPU after {name}:"), after))?;
                Ok(DeviceChoice::Gpu(Some(n)))
            }
            "cpu" => Err(self.refuse(after.start - 1..after.end, "cpu takes no number, because a machine has only one CPU device")),
            _ => Err(self.refuse(after.start - 1..after.end, &format!("{name} takes no number: only gpu and cuda do"))),
        }
    }

    fn dtype(&mut self) -> Result<(FloatChoice, Option<&'static str>)> {
        let word = self.word();
        let lower = self.text[word.clone()].to_ascii_lowercase();
        let known = DTYPES.iter().find_map(|(name, dtype)| lower.strip_prefix(name).map(|suffix| (*name, *dtype, suffix)));
        let Some((name, dtype, suffix)) = known else {
            let formats = quants().collect::<Vec<_>>().join(", ");
            let e = self.expected("a number type: fp32, fp16 or bf16", word);
            return Err(e.hint(format!("to quantise, add a weight format without a space, as in fp16i8; formats: {formats}")));
        };
        let quant = quants().find(|q| *q == suffix);
        if quant.is_none() && !suffix.is_empty() {
            let all: Vec<String> = [""].into_iter().chain(quants()).map(|quant| format!("{name}{quant}")).collect();
            return Err(self.expected(&format!("one of {}", all.join(", ")), word.start + name.len()..word.end));
        }
        Ok((dtype, quant))
    }

    fn layers(&mut self, is_on_cpu: bool) -> Result<Layers> {
        let before = self.at;
        let word = self.word();
        let Some(asked) = self.text[word.clone()].strip_prefix('*') else {
            self.at = before;
            return Ok(Layers::Share);
        };
        if word.start == before {
            return Err(self.refuse(word.start..word.start + 1, "expected a space before *"));
        }
        let (number, streams) = asked.strip_suffix('+').map_or((asked, false), |number| (number, true));
        let Some(n) = digits(number) else {
            return Err(self.expected("a number of layers after *, as in *10 or *10+", word.start + 1..word.end));
        };
        if streams && is_on_cpu {
            let error = self.refuse(word.end - 1..word.end, "cpu segments cannot stream layers: all layers of the CPU are in memory");
            return Err(error.hint("write + after the *N of a gpu segment"));
        }
        Ok(if streams { Layers::Streamed(n) } else { Layers::Fixed(n) })
    }

    /// Reads the next word: an arrow, a comma, or the text up to a space, a comma, a `*` or an arrow. Returns an empty range at the end of the text.
    fn word(&mut self) -> Range<usize> {
        let rest = &self.text[self.at..];
        let begin = self.text.len() - rest.trim_ascii_start().len();
        let rest = &self.text[begin..];
        let ends = |(i, c): (usize, char)| c.is_ascii_whitespace() || i > 0 && (matches!(c, '*' | ',') || rest[i..].starts_with(ARROW));
        let len = match [ARROW, COMMA].into_iter().find(|sign| rest.starts_with(sign)) {
            Some(sign) => sign.len(),
            None => rest.char_indices().find(|c| ends(*c)).map_or(rest.len(), |(i, _)| i),
        };
        self.at = begin + len;
        begin..self.at
    }

    fn expected(&self, what: &str, part: Range<usize>) -> Error {
        let found = match &self.text[part.clone()] {
            "" if self.text[part.end..].trim_ascii().is_empty() => "the end of the strategy".into(),
            "" => "nothing".into(),
            found => format!("{:?}", short(found, 40)),
        };
        self.refuse(part, &format!("expected {what}; found {found}"))
    }

    fn refuse(&self, part: Range<usize>, message: &str) -> Error {
        let column = self.text[..part.start].chars().count() + 1;
        Error::usage(message).field(&format!("strategy, column {column}")).within(self.text, part)
    }
}

/// Parses a text of decimal digits. Returns `None` if the text has other characters or the number does not fit 32 bits.
fn digits(text: &str) -> Option<usize> {
    let n: u32 = text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))?;
    Some(n as usize)
}
