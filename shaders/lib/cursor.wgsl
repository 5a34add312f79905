// The cursor: the tokens of this step, their slots and their pages. The host writes it once per step (layout: src/tape/step.rs).
@group(2) @binding(0) var<uniform> cursor: array<vec4<u32>, 4096>;

struct Row {
    token: u32,
    // Index of the row's run.
    run: u32,
    // 1 if the row is the first row, or the last row, of its run.
    first: u32,
    last: u32,
}

// Consecutive tokens of one slot.
struct Run {
    // Rows of activations.
    first_row: u32,
    len: u32,
    // Pages of the recurrent state: read, written.
    page_in: u32,
    page_out: u32,
    // Half pages of the token-shift vectors: read, written. The two always differ.
    shift_in: u32,
    shift_out: u32,
    // Position of the first token in its text. Index of the slot's first entry in `blocks`.
    position: u32,
    blocks_at: u32,
}

fn n_tokens() -> u32 { return cursor[0].x; }
fn n_runs() -> u32 { return cursor[0].y; }
fn n_outputs() -> u32 { return cursor[0].z; }

fn row_at(t: u32) -> Row {
    let c = cursor[2u + t];
    return Row(c.x, c.y, c.z, c.w);
}

fn run_at(i: u32) -> Run {
    let a = cursor[cursor[0].w + 2u * i];
    let b = cursor[cursor[0].w + 2u * i + 1u];
    return Run(a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w);
}

// Returns the row of activations that output `o` reads.
fn output_row(o: u32) -> u32 { return cursor[cursor[1].x + o / 4u][o % 4u]; }

// Returns the rows of a product: tokens if `of_outputs` is 0, outputs if it is 1.
fn n_rows(of_outputs: u32) -> u32 { return select(n_tokens(), n_outputs(), of_outputs == 1u); }
