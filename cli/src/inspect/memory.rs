//! The memory that a model needs, computed from its recorded program (tape) without reading weights.

use serde::Serialize;
use std::collections::BTreeMap;
use wingbeat::error::Result;
use wingbeat::low_level::exec::{FloatChoice, QuantPlan, assign_formats};
use wingbeat::low_level::quant::Float;
use wingbeat::low_level::session::footprint::{Footprint, Sizes, as_assigned};
use wingbeat::low_level::session::{Options, session_sizes};
use wingbeat::low_level::tape::{Capacity, Source, Tape};

/// The memory that a model needs on one device, in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryReport {
    pub weights: u64,
    /// The bytes of the states and caches of a session with one slot.
    pub state: u64,
    /// The bytes of each further slot: its recurrent state, or its keys and values for the whole context.
    pub state_per_slot: u64,
    /// The bytes of all other buffers: the activations of a step with a prompt chunk of the default length, and buffers whose size depends
    /// only on the context.
    pub scratch: u64,
    /// The sum of `weights`, `state` and `scratch`: the memory of a session with one slot.
    pub total: u64,
}

/// Returns the memory that a model needs with the weight formats that `tape` has. `context` is the number of tokens that one slot has room for,
/// or 0 for a recurrent model.
pub(super) fn memory(tape: &Tape, context: usize) -> MemoryReport {
    let one = session_sizes(&Options::default(), (context > 0).then_some(context));
    let footprint = Footprint::of(tape, &one, &as_assigned);
    let all = 0..footprint.layers.len();
    let further = Sizes { room: Capacity { pages: 1, ..one.room }, ..one };
    let (weights, state, scratch) = (footprint.weights(all.clone()), footprint.slots(all.clone()), footprint.scratch);
    let state_per_slot = Footprint::of(tape, &further, &as_assigned).slots(all);
    MemoryReport { weights, state, state_per_slot, scratch, total: weights + state + scratch }
}

/// Returns for each format the number of bytes that all weights of `tape` would take in this format. The formats are `f32`, `f16` and every
/// value of the option `quant` except `keep`. Leaves the tape in the last format.
///
/// # Errors
/// The errors of [`assign_formats`].
pub fn weights_by_format(tape: &mut Tape, source: &dyn Source) -> Result<BTreeMap<&'static str, u64>> {
    let mut found = BTreeMap::new();
    for float in [Float::F32, Float::F16] {
        tape.store_as(float.format());
        found.insert(float.format().name(), memory(tape, 0).weights);
    }
    for name in QuantPlan::names() {
        assign_formats(&mut tape.matrices, source, FloatChoice::Exactly(Float::F16), &name.parse()?)?;
        found.insert(name, memory(tape, 0).weights);
    }
    Ok(found)
}
