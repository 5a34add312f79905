// The step: which tokens, of which slots, on which pages. The host writes it once a step (src/tape/step.rs has the layout).
@group(2) @binding(0) var<uniform> cursor: array<vec4<u32>, 4096>;

struct Row {
    token: u32,
    run: u32,
    // 1 where this row is the first or the last of its run in this step.
    first: u32,
    last: u32,
}

struct Run {
    first_row: u32,
    len: u32,
    // Pages of the recurrent state, read and written.
    page_in: u32,
    page_out: u32,
    // Half pages of the token-shift vectors, read and written; never the same.
    shift_in: u32,
    shift_out: u32,
    // Of the first token, and where the slot's blocks begin.
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

// Row of activations whose logits are wanted as output `o`.
fn output_row(o: u32) -> u32 { return cursor[cursor[1].x + o / 4u][o % 4u]; }

// Rows that a matrix product has: 0 asks for tokens, 1 for outputs.
fn n_rows(of_outputs: u32) -> u32 { return select(n_tokens(), n_outputs(), of_outputs == 1u); }
