//! From the options to where each layer lies and in which format: a strategy string, `auto`, parts that a caller names, or one device.

use super::Options;
use super::fit::{Candidate, Fitted, Machine, Speeds, fit};
use super::needs::{Needs, Sizes};
use super::pages::Pages;
use super::place::PartOn;
use crate::error::{Error, Result};
use crate::exec::gpu::{AdapterKind, adapters};
use crate::exec::strategy::{Placed, Strategy};
use crate::exec::{Plan, assign_formats, host_memory};
use crate::quant;
use crate::tape::{BLOCK, Kind, Room, Source, Tape};

/// What a strategy came to.
pub struct Layout {
    /// Where layers lie; empty where all are on the device of the options.
    pub parts: Vec<PartOn>,
    /// What a user should know of it.
    pub notes: Vec<String>,
}

/// Formats that `auto` tries, widest first: as a strategy names them, and their plan.
const TRIED: [(&str, Option<&str>); 3] = [("fp16", None), ("fp16i8", Some("i8")), ("fp16i4", Some("i4"))];

/// Says where layers lie, and gives every matrix its format. A table that is streamed is of floats: only single rows of it come to the
/// device, without the scales of others.
pub fn lay_out(tape: &mut Tape, n_layer: usize, source: &dyn Source, options: &Options, context: Option<usize>) -> Result<Layout> {
    let Some(text) = &options.strategy else {
        let streams_table = options.parts.first().is_some_and(|p| p.layers.start == 0 && p.resident == 0);
        let plan = plan(options.quant.as_deref())?;
        assign_formats(&mut tape.matrices, source, &options.dtype, &if streams_table { plan.but(Kind::Embedding) } else { plan })?;
        return Ok(Layout { parts: options.parts.clone(), notes: Vec::new() });
    };
    if options.quant.is_some() || !options.parts.is_empty() {
        return Err(Error::usage("a strategy says formats and devices itself").hint("leave out --quant, or --strategy"));
    }
    let mut notes = Vec::new();
    let strategy = match text.trim().to_lowercase().as_str() {
        "auto" => {
            let Fitted { strategy, why } = fitted(tape, source, options, context)?;
            notes.push(format!("--strategy \"{strategy}\": {why}"));
            Strategy::parse(&strategy)?
        }
        _ => Strategy::parse(text)?,
    };
    let placed = strategy.place(n_layer)?;
    notes.extend(strategy.notes().iter().cloned());
    notes.extend(strategy.place_notes(n_layer));
    for part in &placed {
        let plan = plan(part.quant)?;
        let plan = if part.layers.start == 0 && part.resident == 0 { plan.but(Kind::Embedding) } else { plan };
        let own = tape.extent(&part.layers).matrices;
        assign_formats(&mut tape.matrices[own], source, part.dtype, &plan)?;
    }
    let part = |p: Placed| PartOn { device: p.device, layers: p.layers, resident: p.resident };
    Ok(Layout { parts: placed.into_iter().map(part).collect(), notes })
}

fn plan(quant: Option<&str>) -> Result<Plan> {
    quant.map_or(Ok(Plan::AS_FILED), Plan::parse)
}

/// What a session of one slot makes room for.
pub fn sizes(options: &Options, context: Option<usize>) -> Sizes {
    let blocks = context.map_or(0, |n| n.div_ceil(BLOCK));
    let room = Room { pages: Pages::new(1, true).len(), blocks, listed: blocks, context: blocks * BLOCK };
    // Activations grow with the steps that come: a chunk that nobody fills takes nothing.
    Sizes { room, tokens: options.chunk.min(Options::default().chunk), outputs: 1 }
}

/// The strategy that suits what memory is free on this machine.
pub fn fitted(tape: &Tape, source: &dyn Source, options: &Options, context: Option<usize>) -> Result<Fitted> {
    let f16 = quant::find("f16")?;
    let sizes = sizes(options, context);
    let candidate = |&(dtype, quant): &(&'static str, Option<&str>)| {
        let plan = plan(quant)?;
        let bytes = |m: &crate::tape::MatrixSpec| m.size_in(&|part| plan.of(part, source).unwrap_or(f16)) as u64;
        Ok(Candidate { dtype, needs: Needs::of(tape, &sizes, &bytes) })
    };
    let candidates = TRIED.iter().map(candidate).collect::<Result<Vec<_>>>()?;
    // A CPU that plays GPU is slower than the CPU.
    let real = adapters(options.backend).into_iter().enumerate().filter(|(_, a)| a.kind != AdapterKind::Cpu);
    let adapters = real.map(|(i, a)| (format!("gpu:{i}"), a.memory().and_then(|m| m.free))).collect();
    let machine = Machine { adapters, host: host_memory().and_then(|m| m.free), speeds: Speeds::default() };
    fit(&candidates, &machine)
}
