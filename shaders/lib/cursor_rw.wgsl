// The step of `lib/cursor`, for the kernel that writes the next one: the same buffer, bound as storage.
@group(2) @binding(0) var<storage, read_write> cursor: array<vec4<u32>>; // [4096]

fn n_outputs() -> u32 { return cursor[0].z; }

// Row of activations whose logits are wanted as output `o`.
fn output_row(o: u32) -> u32 { return cursor[cursor[1].x + o / 4u][o % 4u]; }

// In the next step the row reads this token, one position on; its run, of which it is the only row, reads the pages that this step
// wrote.
fn advance(row: u32, token: u32) {
    cursor[2u + row].x = token;
    let run = cursor[0].w + 2u * cursor[2u + row].y;
    cursor[run].z = cursor[run].w;
    let shift_out = cursor[run + 1u].y;
    cursor[run + 1u].x = shift_out;
    cursor[run + 1u].y = shift_out ^ 1u;
    cursor[run + 1u].z += 1u;
}
