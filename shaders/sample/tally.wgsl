// The second of three dispatches that sample a token per slot. Computes the masses of all ids for the first pass of the first search, and adds
// them up in bins. Later passes need few ids, so sample/draw does them alone. One workgroup per 1024 ids and slot; one lane per four ids.
import package::lib::cursor_rw::n_outputs;
import package::sample::bins::clear_bins;
import package::sample::filters::first_search;
import package::sample::params::{params, settings};
import package::sample::tallies::{extremes_of, add_bins};
import package::sample::window::{Row, add_quad_by_distance, add_quad_by_id, first_shift};

var<workgroup> is_idle: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = group.y;
    let s = settings[slot];
    let e = extremes_of(slot);
    let search = first_search(s, e);
    if lane == 0u { is_idle = select(0u, 1u, slot >= n_outputs() || !search.exists); }
    if workgroupUniformLoad(&is_idle) == 1u { return; }
    let row = Row(slot * params.quads, params.quads, e.largest);
    clear_bins(lane);
    let q = group.x * 256u + lane;
    if q < params.quads {
        let shift = first_shift(row, search);
        if search.is_by_id { add_quad_by_id(row, search.window, search.scale, q, q >> shift); }
        else { add_quad_by_distance(row, search.window, search.scale, q, 0u, shift); }
    }
    workgroupBarrier();
    add_bins(slot, lane);
}
