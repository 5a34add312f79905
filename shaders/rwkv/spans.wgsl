// Spans of the recurrence. A span is up to SPAN consecutive tokens of one run. Only the last span of a run is shorter.
import package::lib::cursor::{n_runs, run_at};

const SPAN: u32 = 16u;

struct Span {
    // Index of the span's first token.
    first: u32,
    // The number of tokens of the span. 0 if the step has no span with this index.
    n: u32,
}

// Returns span `i` of the step. The index counts the spans of all runs, in the order of the runs.
fn span_at(i: u32) -> Span {
    var rest = i;
    for (var r = 0u; r < n_runs(); r++) {
        let run = run_at(r);
        let spans = (run.len + SPAN - 1u) / SPAN;
        if rest < spans { return Span(run.first_row + rest * SPAN, min(SPAN, run.len - rest * SPAN)); }
        rest -= spans;
    }
    return Span(0u, 0u);
}
