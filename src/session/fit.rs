//! The strategy `auto`: from free memory and bytes by layer to a strategy string. Opens nothing; who calls it has measured.
//!
//! The rule, in this order, each step with the widest format first:
//!
//! 1. All layers on the first adapter. A format is narrowed before a second device is taken: a token that stays on one device waits
//!    for nobody.
//! 2. All layers on several adapters, each filled in the order of `devices`.
//! 3. What fits on no adapter, in the narrowest format: streamed through the adapter that holds most, or on the CPU behind all of
//!    them, by which takes less time a token. Streaming costs the streamed bytes at the speed of the bus, the CPU costs its layers'
//!    bytes at its own. Both keep these bytes in the host's memory. A prompt's tokens share what is streamed, so it wins a draw.
//! 4. Without an adapter that holds a layer: all layers on the CPU.
//!
//! A device is filled but for a margin: drivers allocate in large blocks, and other programs come and go.

use super::footprint::Footprint;
use crate::error::{Error, Result, size};

/// A way to keep the weights.
pub struct Candidate {
    /// As a strategy names it: `fp16`, `fp16i8`.
    pub dtype: String,
    /// The bytes of the model by layer.
    pub footprint: Footprint,
}

/// What there is to run on.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Ids of adapters and their free bytes, best first, every physical one once. None where the driver does not say: it is taken to be
    /// enough.
    pub adapters: Vec<(String, Option<u64>)>,
    /// Free bytes of the host's memory; none as above.
    pub host: Option<u64>,
    /// The speeds of memory and transfers.
    pub speeds: Speeds,
}

/// Bytes a second.
#[derive(Debug, Clone, Copy)]
pub struct Speeds {
    /// From host memory to an adapter.
    pub bus: f64,
    /// Of weights, by the CPU's executor.
    pub cpu: f64,
}

impl Default for Speeds {
    /// What PCIe 3.0 with 16 lanes delivers, and a guess at what eight cores decode of weights in few bits. Neither was measured on the
    /// machine; whoever has done that gives better numbers.
    fn default() -> Self {
        Speeds { bus: 12e9, cpu: 5e9 }
    }
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// To be parsed, and printed.
    pub strategy: String,
    /// In one line for people.
    pub why: String,
}

/// Chooses. `candidates`: widest first, of one model. Fails, with kind memory, where the model fits nowhere.
pub fn fit(candidates: &[Candidate], machine: &Machine) -> Result<Fitted> {
    let adapters: Vec<(&str, u64)> = machine.adapters.iter().map(|(id, free)| (id.as_str(), usable(*free))).collect();
    let host = usable(machine.host);
    let fitted = |strategy: String, why: &str| Ok(Fitted { strategy, why: why.into() });
    let narrowest = candidates.last().ok_or_else(|| Error::usage("there is no weight format to choose from"))?;

    if let Some((first, room)) = adapters.first()
        && let Some(c) = candidates.iter().find(|c| c.all() <= *room)
    {
        return fitted(format!("{first} {}", c.dtype), "all layers fit on one adapter");
    }
    for c in candidates {
        let shares = shares(&c.footprint, &adapters);
        if placed(&shares) == c.footprint.layers.len() {
            return fitted(segments(c, &shares), "all layers fit on the adapters together");
        }
    }
    let shares = shares(&narrowest.footprint, &adapters);
    if placed(&shares) > 0 {
        let stream = adapters.iter().filter_map(|adapter| streamed(narrowest, *adapter, host)).min_by_key(|way| way.rest);
        let way = match (stream, beside_cpu(narrowest, &shares, host)) {
            (Some(s), Some(c)) if s.seconds(machine.speeds.bus) <= c.seconds(machine.speeds.cpu) => {
                Some((s, "are streamed, which takes less time than the CPU"))
            }
            (Some(_), Some(c)) => Some((c, "are the CPU's, which takes less time than streaming")),
            (Some(s), None) => Some((s, "are streamed, because the host has no room to compute with the rest")),
            (None, Some(c)) => Some((c, "are the CPU's, because there is no room to stream")),
            (None, None) => None,
        };
        if let Some((way, how)) = way {
            return fitted(way.strategy, &format!("{} of the weights fit on no adapter and {how}", size(way.rest)));
        }
    } else if let Some(c) = candidates.iter().find(|c| c.all() <= host) {
        return fitted(format!("cpu {}", c.dtype), "no adapter holds a layer, and the host holds all");
    }
    Err(too_large(narrowest, machine))
}

impl Candidate {
    /// Bytes of everything on one device.
    fn all(&self) -> u64 {
        let n = self.footprint.layers.len();
        self.footprint.on_device(0..n, n).total()
    }
}

/// What to fill of so many free bytes.
fn usable(free: Option<u64>) -> u64 {
    const BLOCK: u64 = 256 << 20;
    free.map_or(u64::MAX, |free| free - free / 16).saturating_sub(BLOCK)
}

/// Layers of an adapter: id and how many.
type Share<'a> = (&'a str, usize);

/// As many layers as each adapter holds, in order.
fn shares<'a>(footprint: &Footprint, adapters: &[(&'a str, u64)]) -> Vec<Share<'a>> {
    let (mut first, total) = (0, footprint.layers.len());
    let fill = |&(id, room): &(&'a str, u64)| {
        let fits = |n: &usize| footprint.on_device(first..first + n, *n).total() <= room;
        let n = (1..=total - first).rev().find(fits).unwrap_or(0);
        first += n;
        (id, n)
    };
    adapters.iter().map(fill).filter(|(_, n)| *n > 0).collect()
}

fn placed(shares: &[Share<'_>]) -> usize {
    shares.iter().map(|(_, n)| n).sum()
}

/// `gpu:0 fp16 *13 -> gpu:1 fp16`: the last takes what is left.
fn segments(c: &Candidate, shares: &[Share<'_>]) -> String {
    let (last, others) = shares.split_last().expect("somebody has a layer");
    let numbered = others.iter().map(|(id, n)| format!("{id} {} *{n} -> ", c.dtype));
    numbered.chain([format!("{} {}", last.0, c.dtype)]).collect()
}

/// A way that leaves some weights in the host's memory.
struct Way {
    strategy: String,
    /// Bytes of these, which every token reads.
    rest: u64,
}

impl Way {
    /// What they take of a token's time, at so many bytes a second.
    fn seconds(&self, speed: f64) -> f64 {
        self.rest as f64 / speed
    }
}

/// What the adapters do not hold, on the CPU behind them.
fn beside_cpu(c: &Candidate, shares: &[Share<'_>], host: u64) -> Option<Way> {
    let (first, total) = (placed(shares), c.footprint.layers.len());
    let cpu = c.footprint.on_device(first..total, total - first);
    let with_cpu: Vec<Share<'_>> = shares.iter().copied().chain([("cpu", total - first)]).collect();
    (cpu.total() <= host).then(|| Way { strategy: segments(c, &with_cpu), rest: cpu.weights })
}

/// What one adapter does not hold, streamed through it.
fn streamed(c: &Candidate, (id, room): (&str, u64), host: u64) -> Option<Way> {
    let total = c.footprint.layers.len();
    let resident = (0..total).rev().find(|&n| c.footprint.on_device(0..total, n).total() <= room)?;
    let rest = c.footprint.weights(resident..total);
    (rest <= host).then(|| Way { strategy: format!("{id} {} *{resident}+", c.dtype), rest })
}

fn too_large(narrowest: &Candidate, machine: &Machine) -> Error {
    let free = machine.adapters.iter().map(|(id, free)| (id.as_str(), *free)).chain([("cpu", machine.host)]);
    let listed: Vec<String> = free.map(|(id, free)| format!("{id} {}", free.map_or("unknown".into(), size))).collect();
    let text = format!("the model needs {} even as {}; free are {}", size(narrowest.all()), narrowest.dtype, listed.join(", "));
    Error::memory(text).hint("close other programs, or choose a smaller model, fewer slots or a smaller `context`")
}

#[cfg(test)]
mod tests;
