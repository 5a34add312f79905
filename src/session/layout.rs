//! Determines the device and the weight format of each layer, from a strategy (given or `auto`), from the option `parts`, or from the option
//! `device`.

use super::fit::{Candidate, Fitted, Machine, Speeds, fit};
use super::footprint::{DeviceBytes, adapter_id, as_assigned, by_device};
use super::footprint::{Footprint, Sizes};
use super::options::{CHUNK, ExpertsOn, Options, PartOn};
use super::pages::Pages;
use crate::error::{Error, Result};
use crate::exec::gpu::{AdapterKind, adapters_async};
use crate::exec::mapped_bytes;
use crate::exec::strategy::{PlacedLayers, Strategy, StrategyChoice};
use crate::exec::{QuantPlan, assign_formats, host_memory};
use crate::quant;
use crate::tape::{Capacity, MatrixKind, MatrixPart, MatrixSpec, Source, TOKENS_PER_BLOCK, Tape};
use crate::tensor::DType;

/// The devices that run a model's layers, and notes for the user about this choice.
pub struct Layout {
    /// Groups of consecutive layers with their devices. Empty if all layers are on the device that the options name.
    pub parts: Vec<PartOn>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Weight formats that `auto` tries, widest first. A strategy names the format after the float type, as `i8` in `fp16i8`. The empty text means
/// floats.
const TRIED: [&str; 3] = ["", "i8", "i4"];

/// Chooses the devices of the layers and sets the format of every matrix. Embedding tables that stay in host memory are stored as floats. A step
/// uploads only single rows, and quantised formats store scales apart from the rows.
///
/// # Errors
/// `Usage` if an option does not fit the model or another option; `Memory` if `auto` finds no placement.
pub async fn lay_out(tape: &mut Tape, n_layer: usize, source: &dyn Source, options: &Options, context: Option<usize>) -> Result<Layout> {
    let Some(strategy) = &options.strategy else {
        let in_host = options.parts.iter().any(|p| tape.has_tables_in_host(&p.layers, p.resident));
        let plan = plan_of(options.quant.clone(), in_host);
        assign_formats(&mut tape.matrices, source, options.dtype, &plan)?;
        return Ok(Layout { parts: options.parts.clone(), notes: Vec::new() });
    };
    if options.quant.is_some() || !options.parts.is_empty() {
        let other = if options.quant.is_some() { "quant" } else { "parts" };
        return Err(Error::usage(format!(
            "`strategy` and `{other}` cannot be combined: a strategy determines the devices and weight formats of all layers"
        ))
        .hint(format!("use either `strategy` or `{other}`")));
    }
    let mut notes = Vec::new();
    let strategy = match strategy {
        StrategyChoice::Auto => {
            let Fitted { strategy, why } = fitted(tape, source, options, context).await?;
            notes.push(format!("`strategy={strategy:?}`: {why}"));
            strategy.parse::<Strategy>()?
        }
        StrategyChoice::Given(strategy) => strategy.clone(),
    };
    let placed = strategy.assign(n_layer)?;
    notes.extend(strategy.notes().iter().cloned());
    notes.extend(strategy.place_notes(n_layer));
    if placed.iter().any(|p| p.experts.is_some()) && tape.matrices.iter().all(|m| m.n_used.is_none()) {
        return Err(Error::usage("the strategy places experts, but the model has no experts")
            .field("strategy")
            .hint("leave out the comma and the place of the experts"));
    }
    let mut parts = Vec::new();
    for part in placed {
        let away = part.experts.as_ref().and_then(|experts| tape.experts_from(&part.layers, experts.layers));
        assign_segment(tape, source, &part, away)?;
        // On the device of their layers, the experts need no part of their own.
        let experts = part.experts.filter(|experts| away.is_some() && adapter_id(&experts.device) != adapter_id(&part.device));
        let experts = experts.map(|e| Ok::<_, Error>(ExpertsOn { device: e.device.parse()?, layers: e.layers })).transpose()?;
        parts.push(PartOn { device: part.device.parse()?, layers: part.layers, resident: part.resident, experts });
    }
    Ok(Layout { parts, notes })
}

/// Sets the formats of a segment's matrices. From layer `away` on, experts have a format of their own; with `None`, no experts do.
fn assign_segment(tape: &mut Tape, source: &dyn Source, part: &PlacedLayers, away: Option<usize>) -> Result<()> {
    let in_host = tape.has_tables_in_host(&part.layers, part.resident);
    let plan = |quant: Option<&str>| Ok::<_, Error>(plan_of(quant.map(str::parse).transpose()?, in_host));
    let here = (part.dtype, plan(part.quant)?);
    let there = part.experts.as_ref().map_or_else(|| Ok(here.clone()), |experts| Ok::<_, Error>((experts.dtype, plan(experts.quant)?)))?;
    let own = tape.extent(&part.layers).matrices;
    let away_from = away.map_or(own.end, |layer| tape.extent(&(layer..layer + 1)).matrices.start);
    assign_formats(&mut tape.matrices[own.start..away_from], source, here.0, &here.1)?;
    for group in tape.matrices[away_from..own.end].chunk_by_mut(|a, b| a.n_used.is_some() == b.n_used.is_some()) {
        let (dtype, plan) = if group[0].n_used.is_some() { &there } else { &here };
        assign_formats(group, source, *dtype, plan)?;
    }
    Ok(())
}

/// Returns the quantisation plan that `quant` asks for. `in_host` is true if the embedding tables stay in host memory. The plan then does not
/// quantise the tables.
fn plan_of(quant: Option<QuantPlan>, in_host: bool) -> QuantPlan {
    let plan = quant.unwrap_or_default();
    if in_host { plan.but(MatrixKind::Embedding) } else { plan }
}

/// Returns the sizes that determine the memory of a session with one slot.
pub fn sizes(options: &Options, context: Option<usize>) -> Sizes {
    let blocks = context.map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK));
    let room = Capacity { pages: Pages::new(1, true).len(), blocks, listed: blocks, context: blocks * TOKENS_PER_BLOCK };
    // Buffers of activations grow when a step is larger than all earlier steps. So a chunk of more than `CHUNK` tokens takes memory only when a
    // prompt fills the chunk.
    Sizes { room, tokens: options.chunk.unwrap_or(CHUNK).min(CHUNK), outputs: 1 }
}

/// The id of each device, and the bytes that a session with one slot needs on this device.
pub type BytesByDevice = Vec<(String, DeviceBytes)>;

/// Sets the formats of a tape's matrices. Returns the bytes of each device, empty if `options` have neither a strategy nor parts, and notes for the
/// user about the placement.
///
/// # Errors
/// `Usage` if a strategy or a plan does not fit the model; `Memory` if `auto` finds no placement.
pub fn bytes_by_device(
    tape: &mut Tape,
    n_layer: usize,
    source: &dyn Source,
    options: &Options,
    context: Option<usize>,
) -> Result<(BytesByDevice, Vec<String>)> {
    let layout = crate::exec::wait::block_on(lay_out(tape, n_layer, source, options, context))?;
    let id = |experts: &ExpertsOn| experts.device.to_string();
    let place = |part: &PartOn| part.placed(part.device.to_string(), part.experts.as_ref().map(id), tape.n_layers());
    let placed: Vec<PlacedLayers> = layout.parts.iter().map(place).collect();
    let footprint = Footprint::of(tape, &sizes(options, context), &as_assigned).with_mapped(tape, &placed, &|m| mapped_bytes(m, source))?;
    Ok((by_device(&placed, &|_| &footprint), layout.notes))
}

/// Returns the strategy that `auto` chooses for the free memory of this machine.
///
/// # Errors
/// The errors of [`fit`].
pub async fn fitted(tape: &Tape, source: &dyn Source, options: &Options, context: Option<usize>) -> Result<Fitted> {
    let f16 = quant::find("f16")?;
    let sizes = sizes(options, context);
    // Matrices in other float types than f16 may have floats outside its range. A strategy's dtype `fp16` would refuse them; `bf16` stores a matrix
    // as f32 if one of its floats is outside this range, and otherwise as f16. Parts that are missing or quantised have no such floats.
    let is_half = |part: &MatrixPart| matches!(source.dtype(&part.tensor), None | Some(DType::F16 | DType::Coded(_)));
    let float = if tape.matrices.iter().flat_map(|m| &m.parts).all(is_half) { "fp16" } else { "bf16" };
    let candidate = |quant: &&str| {
        let plan = if quant.is_empty() { QuantPlan::default() } else { quant.parse()? };
        let bytes = |m: &MatrixSpec| m.size_in(&|part| plan.of(part, source).unwrap_or(f16)) as u64;
        Ok(Candidate { dtype: format!("{float}{quant}"), footprint: Footprint::of(tape, &sizes, &bytes) })
    };
    let candidates = TRIED.iter().map(candidate).collect::<Result<Vec<_>>>()?;
    // A software adapter is slower than the CPU executor, so `auto` ignores software adapters.
    let all = adapters_async(options.backend).await;
    let real = all.iter().enumerate().filter(|(_, a)| a.kind != AdapterKind::Cpu);
    let adapters = real.map(|(i, a)| (format!("gpu:{i}"), a.memory().and_then(|m| m.free))).collect();
    let software = all.iter().find(|a| a.kind == AdapterKind::Cpu).map(|a| a.name.clone());
    let machine = Machine { adapters, software, host: host_memory().and_then(|m| m.free), speeds: Speeds::default() };
    fit(&candidates, &machine)
}
