// Matrix times one vector that is mostly zeros. The matrix is column-major: `[k, rows / 8]` units of eight weights.
//   y[t, row] = epilogue(sum over k with x[t, k] != 0 of W[row, k] x[t, k])
// One workgroup per (8 x UNITS) rows and token. All lanes of the workgroup list the non-zero channels of x, in order. Then each slice of UNITS
// adjacent lanes reads the weights of one channel at a time: one unit of eight rows per lane. Slice i takes channels i, i + SLICES, ... of the
// list. The order of a sum depends only on x.
// Slot input: linear/input
// Slot weight: weight/f16, weight/f32, weight/i4, weight/i8, weight/i8rc, weight/nf4_table
import package::linear::stack::{segment_of, store};
import package::slot::input::{input_at, x};
import package::linear::nonzero::{CHUNK, LANES, ROOM, append, list};
import package::matrix::place::Place;
import package::matrix::columns::weight8;
import package::slot::weight::begin_weights;
import package::constants::UNITS;

const SLICES: u32 = LANES / UNITS;

var<workgroup> partial: array<vec4<f32>, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group, 8u * UNITS, 1u);
    if s.row >= s.rows || s.t0 >= s.n { return; }

    begin_weights(lane);
    let x_at = input_at(s.x_at, s.t0);
    let units = (s.rows + 7u) / 8u;
    let place = Place(s.codes, s.scales, units, s.k);
    let unit = s.row / 8u + lane % UNITS;
    var sums = mat2x4<f32>();
    var n = 0u; // channels in the list
    for (var k = 0u; k < s.k; k += CHUNK) {
        n = append(n, x_at, k, s.k, lane);
        // While the list has room for a whole chunk, another chunk is listed before any weights are read.
        if n + CHUNK <= ROOM && k + CHUNK < s.k { continue; }
        // A lane takes four channels at a time, so that four loads are in flight. Beyond the list, it repeats the last channel, multiplied by
        // zero.
        let end = select(0u, n, unit < units);
        for (var i = lane / UNITS; i < end; i += 4u * SLICES) {
            unroll q in 4 {
                let c$q = list[min(i + $qu * SLICES, n - 1u)];
                let w$q = weight8(place, c$q, unit);
                let v$q = select(0.0, x[x_at + c$q / 4u][c$q % 4u], i + $qu * SLICES < n);
            }
            unroll q in 4 { sums += w$q * v$q; }
        }
        n = 0u;
    }

    // Adds the sums of all slices in a fixed order. Each round adds the second half of the remaining lanes to the first half, until one
    // slice remains. Four rows of every unit are added at a time.
    for (var h = 0u; h < 2u; h++) {
        workgroupBarrier();
        partial[lane] = sums[h];
        workgroupBarrier();
        for (var half = LANES / 2u; half >= UNITS; half /= 2u) {
            if lane < half { partial[lane] += partial[lane + half]; }
            workgroupBarrier();
        }
        let row = s.row + 8u * (lane / 4u) + 4u * h + lane % 4u;
        if lane < 4u * UNITS && row < s.rows { store(s, s.t0, row, partial[lane / 4u][lane % 4u]); }
    }
}
