// Lists the indices of the inputs that are not zero, in order. A workgroup takes a chunk of 2048 inputs at a time, eight per lane. A lane's
// first entry is at the sum of the counts of all earlier lanes.
// Slot input: linear/input
import package::slot::input::x;

const LANES: u32 = 256u;
// The number of inputs in a chunk.
const CHUNK: u32 = 8u * LANES;
// The room of the list: up to 512 earlier entries and a whole chunk.
const ROOM: u32 = CHUNK + 512u;

var<workgroup> list: array<u32, ROOM>;
// The number of entries that each lane appends.
var<workgroup> counts: array<u32, LANES>;
// The number of entries that each group of 16 lanes appends.
var<workgroup> counts16: array<u32, LANES / 16u>;
// The number of entries in `list`.
var<workgroup> listed: u32;

// Appends the indices of the non-zero inputs among inputs k ..= k + CHUNK - 1 to `list`, which has `n` entries. Returns the new number of entries.
// The inputs are the `width` floats from vector `x_at` of x on. `append` contains barriers, so all lanes must call it. After the call, every lane may
// read the list.
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
