// The cursor: the buffer that describes a step's tokens, with their slots and state pages. A page is the memory of one slot's recurrent state.
// The host writes the cursor (layout: src/tape/step.rs). If the device samples, sample/draw updates it for the next step.
@group(2) @binding(0) var<uniform> cursor: array<vec4<u32>, 4096>;

// One token of the step.
struct Row {
    token: u32,
    // Index of the row's run.
    run: u32,
    // 1 if the row is the first row of its run.
    first: u32,
    // 1 if the row is the last row of its run.
    last: u32,
}

// Consecutive tokens of one slot.
struct Run {
    // Index of the run's first row in activations.
    first_row: u32,
    // The number of rows of the run.
    len: u32,
    // The page of the recurrent state that the run reads.
    page_in: u32,
    // The page of the recurrent state that the run writes.
    page_out: u32,
    // Index of the token-shift vectors that the run reads. A page holds two copies of these vectors. Copy h of page p has the index 2 p + h.
    shift_in: u32,
    // Index of the copy that the run writes. It always differs from `shift_in`, so that no workgroup overwrites vectors that another workgroup still
    // reads.
    shift_out: u32,
    // Position of the run's first token in its text.
    position: u32,
    // Index of the slot's first entry in the buffer `blocks` (attention/blocks).
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

// Returns the row of activations from which output `o` is computed. An output is a token whose logits are requested.
fn output_row(o: u32) -> u32 { return cursor[cursor[1].x + o / 4u][o % 4u]; }

// Returns the number of rows of a product: the number of tokens if `of_outputs` is 0, the number of outputs if `of_outputs` is 1.
fn n_rows(of_outputs: u32) -> u32 { return select(n_tokens(), n_outputs(), of_outputs == 1u); }
