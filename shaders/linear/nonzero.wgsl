// Lists where a row of x is not zero: 2048 inputs at a time, eight a lane, in order, by a count and a sum of counts before.
import package::slot::input::x;

const LANES: u32 = 256u;
// Inputs looked at together, and what the list holds: a whole chunk, behind a few that were listed before.
const CHUNK: u32 = 8u * LANES;
const ROOM: u32 = CHUNK + 512u;

var<workgroup> list: array<u32, ROOM>;
// Of every lane, of every 16 lanes, and of the whole list.
var<workgroup> counts: array<u32, LANES>;
var<workgroup> counts16: array<u32, LANES / 16u>;
var<workgroup> listed: u32;

// Appends those among inputs k .. k + CHUNK - 1, of `width`, to a list of n; gives its new length. A barrier before and after.
fn append(n: u32, x_at: u32, k: u32, width: u32, lane: u32) -> u32 {
    let first = k + 8u * lane;
    var found = 0u; // bit e: input first + e is not zero
    for (var h = 0u; h < 2u; h++) {
        if first + 4u * h < width {
            let four = x[x_at + first / 4u + h];
            for (var e = 0u; e < 4u; e++) {
                if four[e] != 0.0 && first + 4u * h + e < width { found |= 1u << (4u * h + e); }
            }
        }
    }
    counts[lane] = countOneBits(found);
    workgroupBarrier();
    if lane < LANES / 16u {
        var sum = 0u;
        for (var i = 0u; i < 16u; i++) { sum += counts[16u * lane + i]; }
        counts16[lane] = sum;
    }
    workgroupBarrier();
    var at = n;
    for (var i = 0u; i < lane / 16u; i++) { at += counts16[i]; }
    for (var i = lane / 16u * 16u; i < lane; i++) { at += counts[i]; }
    for (var e = 0u; e < 8u; e++) {
        if ((found >> e) & 1u) == 1u {
            list[at] = first + e;
            at++;
        }
    }
    if lane == LANES - 1u { listed = at; }
    return workgroupUniformLoad(&listed);
}
