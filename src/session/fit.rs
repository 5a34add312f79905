//! The strategy `auto`: chooses the device and the weight format of each layer from the devices' free memory and the layers' bytes. Opens no
//! device; the caller measures the free memory.
//!
//! The first rule that succeeds determines the strategy. Rules 1, 2 and 4 try the format with the most bits per weight (the widest) first. Rule 3
//! uses only the narrowest.
//!
//! 1. All layers on the first adapter. A narrower format is preferred to a second device, because each further device adds a transfer to
//!    every token.
//! 2. All layers on several adapters, which are filled one after another, in the order of [`Machine::adapters`].
//! 3. In the narrowest format, with some weights in host memory. The faster of these two ways is chosen:
//!    - Streaming: the adapter with room for the most layers runs all layers. Every step copies the layers in host memory to this adapter.
//!    - CPU: if one adapter has room for all weights but some experts, the CPU runs these experts. Otherwise, the adapters are filled in order, and
//!      the CPU runs the remaining layers.
//!
//!    The time per token is estimated: the bytes that a token reads in host memory, divided by the speed of bus (streaming) or CPU. Streaming copies
//!    all experts of a layer; the CPU reads only the experts that the token uses. If the times are equal, streaming is chosen, because all tokens of
//!    a prefill chunk share the copies.
//! 4. All layers on the CPU, if no adapter has room for even one layer or for all weights but experts.
//!
//! On each device, some free memory is left unused: drivers allocate in large blocks, and other programs need memory.

use super::footprint::Footprint;
use crate::error::{Error, Result, size};

/// A weight format that [`fit`] may choose, with the memory that the model needs in this format.
pub struct Candidate {
    /// Name of the weight format in a strategy, such as `fp16` or `fp16i8`.
    pub dtype: String,
    /// The memory that the model needs, by layer.
    pub footprint: Footprint,
}

/// The devices of a machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Ids of the adapters and their free bytes, best adapter first, each physical adapter once. If the driver does not report memory, the free
    /// bytes are `None` and any model fits.
    pub adapters: Vec<(String, Option<u64>)>,
    /// The name of a software adapter that the strategy leaves out. `None` if the machine has none.
    pub software: Option<String>,
    /// Free bytes of host memory. `None` if unknown: then any model fits.
    pub host: Option<u64>,
    /// The speeds of memory and transfers.
    pub speeds: Speeds,
}

/// Speeds in bytes per second.
#[derive(Debug, Clone, Copy)]
pub struct Speeds {
    /// The speed of copies from host memory to an adapter.
    pub bus: f64,
    /// The speed at which the CPU executor reads weights.
    pub cpu: f64,
}

impl Default for Speeds {
    /// Returns the speed of PCIe 3.0 with 16 lanes as `bus`, and an estimate of how fast eight cores decode quantised weights as `cpu`. Neither
    /// speed was measured on this machine.
    fn default() -> Self {
        Speeds { bus: 12e9, cpu: 5e9 }
    }
}

/// The result of [`fit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The strategy as text.
    pub strategy: String,
    /// The reason for the choice, in one line.
    pub why: String,
}

/// Chooses a strategy. `candidates` are the formats of one model, from the most bits per weight (widest) to the fewest.
///
/// # Errors
/// `Memory` if the model fits nowhere; `Usage` if there are no candidates.
pub fn fit(candidates: &[Candidate], machine: &Machine) -> Result<Fitted> {
    let adapters: Vec<(&str, u64)> = machine.adapters.iter().map(|(id, free)| (id.as_str(), usable(*free))).collect();
    let host = usable(machine.host);
    let fitted = |strategy: String, why: String| Ok(Fitted { strategy, why });
    let narrowest =
        candidates.last().ok_or_else(|| Error::usage("expected at least 1 weight format to choose from, found an empty list"))?;

    if let Some((first, room)) = adapters.first()
        && let Some(c) = candidates.iter().find(|c| c.all() <= *room)
    {
        let is_known = machine.adapters[0].1.is_some();
        let why = if is_known {
            fits_on(first, *room, c, candidates)
        } else {
            format!("{first} does not report its free memory, so the model is expected to fit")
        };
        return fitted(format!("{first} {}", c.dtype), why);
    }
    for c in candidates {
        let shares = shares(&c.footprint, &adapters);
        if placed(&shares) == c.footprint.layers.len() {
            let (first, room) = adapters[0];
            let alone = format!("{first} has {} to use, and the model needs {} in {}", size(room), size(narrowest.all()), narrowest.dtype);
            return fitted(segments(c, &shares), format!("{alone}: the GPUs hold it together"));
        }
    }
    let shares = shares(&narrowest.footprint, &adapters);
    let on_cpu = adapters.iter().filter_map(|adapter| beside_experts(narrowest, *adapter, host)).min_by_key(|way| way.rest);
    if placed(&shares) > 0 || on_cpu.is_some() {
        let stream = adapters.iter().filter_map(|adapter| streamed(narrowest, *adapter, host)).min_by_key(|way| way.rest);
        let stream = stream.filter(|_| placed(&shares) > 0);
        let of = if on_cpu.is_some() { "the experts' weights" } else { "the weights" };
        let way = match (stream, on_cpu.or_else(|| beside_cpu(narrowest, &shares, host))) {
            (Some(s), Some(c)) if s.seconds(machine.speeds.bus) <= c.seconds(machine.speeds.cpu) => {
                Some((s, "the weights", "are streamed, which takes less time than computing on the CPU"))
            }
            (Some(_), Some(c)) => Some((c, of, "run on the CPU, which takes less time than streaming")),
            (Some(s), None) => Some((s, "the weights", "are streamed, because the host has no room to run them")),
            (None, Some(c)) => Some((c, of, "run on the CPU, because there is no room to stream")),
            (None, None) => None,
        };
        if let Some((way, of, how)) = way {
            return fitted(way.strategy, format!("{} of {of} fit on no GPU and {how}", size(way.rest)));
        }
    } else if let Some(c) = candidates.iter().find(|c| c.all() <= host) {
        let no_gpu = match (&machine.software, adapters.is_empty()) {
            (Some(name), true) => format!("the only adapter is {name}, a software adapter, which is slower than the CPU"),
            (None, true) => "no GPU was found".into(),
            (_, false) => "no GPU has room for a layer".into(),
        };
        return fitted(format!("cpu {}", c.dtype), format!("{no_gpu}; {}", fits_on("the host", host, c, candidates)));
    }
    Err(too_large(narrowest, machine))
}

/// Returns the reason why the whole model is on one device: `chosen` is the widest of `candidates` that fits. `room` is unlimited if it is unknown.
fn fits_on(device: &str, room: u64, chosen: &Candidate, candidates: &[Candidate]) -> String {
    let widest = &candidates[0];
    let room = if room > UNKNOWN { String::new() } else { format!(" of {} to use", size(room)) };
    let fits = format!("all layers fit on {device}: {}{room}", size(chosen.all()));
    if chosen.dtype == widest.dtype { fits } else { format!("{fits}; {} would need {}", widest.dtype, size(widest.all())) }
}

impl Candidate {
    fn all(&self) -> u64 {
        let n = self.footprint.layers.len();
        self.footprint.on_device(0..n, n).total()
    }
}

/// More bytes than any device has. A larger number means that a device does not report its memory.
const UNKNOWN: u64 = 1 << 60;

/// Returns how many of `free` bytes may be used: all but a sixteenth and 256 MiB. `None` (unknown) counts as unlimited.
fn usable(free: Option<u64>) -> u64 {
    const BLOCK: u64 = 256 << 20;
    // For `None`, the result is above `UNKNOWN`.
    free.map_or(u64::MAX, |free| free - free / 16).saturating_sub(BLOCK)
}

/// Id of a device, and the number of layers on this device.
type Share<'a> = (&'a str, usize);

/// Assigns layers to the adapters in order, to each as many as fit. Returns the adapters that hold at least one layer, with their numbers of
/// layers.
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

/// Returns the text of a strategy, such as `gpu:0 fp16 *13 -> gpu:1 fp16`. The last device needs no number of layers (`*13`), because it takes
/// all remaining layers.
fn segments(c: &Candidate, shares: &[Share<'_>]) -> String {
    let (last, others) = shares.split_last().expect("a device has a layer");
    let numbered = others.iter().map(|(id, n)| format!("{id} {} *{n} -> ", c.dtype));
    numbered.chain([format!("{} {}", last.0, c.dtype)]).collect()
}

/// A strategy that keeps some weights in host memory.
struct Way {
    strategy: String,
    /// Bytes of the weights in host memory.
    rest: u64,
    /// How many bytes of `rest` are read for every token.
    read: u64,
}

impl Way {
    /// Returns an estimate of the seconds per token: the time to read the weights in host memory at `speed` bytes per second.
    fn seconds(&self, speed: f64) -> f64 {
        self.read as f64 / speed
    }
}

/// Returns the strategy that runs the layers outside `shares` on the CPU. Returns `None` if `host` bytes are too few for these layers.
fn beside_cpu(c: &Candidate, shares: &[Share<'_>], host: u64) -> Option<Way> {
    let (first, total) = (placed(shares), c.footprint.layers.len());
    let cpu = c.footprint.on_device(first..total, total - first);
    let with_cpu: Vec<Share<'_>> = shares.iter().copied().chain([("cpu", total - first)]).collect();
    // A token reads one row of a table, and its own experts.
    let read = c.footprint.layers[first..].iter().map(|l| l.weights - l.table - l.idle).sum();
    (cpu.total() <= host).then(|| Way { strategy: segments(c, &with_cpu), rest: cpu.weights, read })
}

/// Returns the strategy that runs all layers on one adapter, except the experts of as few layers as possible, which run on the CPU. Returns `None` if
/// the model has no experts, or if the adapter or the host has too little memory.
fn beside_experts(c: &Candidate, (id, room): (&str, u64), host: u64) -> Option<Way> {
    let total = c.footprint.layers.len();
    let all = c.all();
    let with_experts = c.footprint.layers.iter().filter(|l| l.experts > 0).count();
    let n = (1..=with_experts).find(|&n| all - c.footprint.experts(0..total, n).weights <= room)?;
    let experts = c.footprint.experts(0..total, n);
    let layers = if n == with_experts { String::new() } else { format!(" *{n}") };
    (experts.weights + c.footprint.scratch <= host).then(|| Way {
        strategy: format!("{id} {}, experts cpu{layers}", c.dtype),
        rest: experts.weights,
        read: experts.weights - experts.idle,
    })
}

/// Returns the strategy that runs all layers on one adapter and streams the layers that do not fit in the adapter's memory. Returns `None` if the
/// adapter or the host has too little memory.
fn streamed(c: &Candidate, (id, room): (&str, u64), host: u64) -> Option<Way> {
    let total = c.footprint.layers.len();
    let resident = (0..total).rev().find(|&n| c.footprint.on_device(0..total, n).total() <= room)?;
    let rest = c.footprint.weights(resident..total);
    // Tables of streamed layers stay on the host, and only rows of them are copied.
    let read = c.footprint.layers[resident..].iter().map(|l| l.weights - l.table).sum();
    (rest <= host).then(|| Way { strategy: format!("{id} {} *{resident}+", c.dtype), rest, read })
}

fn too_large(narrowest: &Candidate, machine: &Machine) -> Error {
    let free = machine.adapters.iter().map(|(id, free)| (id.as_str(), *free)).chain([("cpu", machine.host)]);
    let listed: Vec<String> = free.map(|(id, free)| format!("{id} {}", free.map_or("unknown".into(), size))).collect();
    let text = format!(
        "the model needs {} of memory even with weights in {}; free memory: {}",
        size(narrowest.all()),
        narrowest.dtype,
        listed.join(", ")
    );
    Error::memory(text).hint("close other programs, or choose a smaller model, fewer texts at once or a smaller `context`")
}

#[cfg(test)]
mod tests;
