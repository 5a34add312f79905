// The cursor of `lib/cursor`, bound as storage: the kernel `sample/draw` writes the cursor of the next step.
@group(2) @binding(0) var<storage, read_write> cursor: array<vec4<u32>>; // [4096]

fn n_outputs() -> u32 { return cursor[0].z; }

// Returns the row of activations from which output `o` is computed. An output is a token whose logits are requested.
fn output_row(o: u32) -> u32 { return cursor[cursor[1].x + o / 4u][o % 4u]; }

// Changes the cursor so that row `row` of the next step is `token`, at the next position of its text. The row must be the only row of its run.
// In the next step, the run reads the pages that it wrote in this step.
fn advance(row: u32, token: u32) {
    cursor[2u + row].x = token;
    let run = cursor[0].w + 2u * cursor[2u + row].y;
    cursor[run].z = cursor[run].w;
    let shift_out = cursor[run + 1u].y;
    cursor[run + 1u].x = shift_out;
    cursor[run + 1u].y = shift_out ^ 1u;
    cursor[run + 1u].z += 1u;
}
