// The filters, each as the last token it keeps in the order (d, id).
import package::sample::fixed::{Scale, ZERO_SCALE, subtract, times};
import package::sample::settings::{Settings, HF, TOP_P, SIGMA};
import package::sample::sigma::{deviation};
import package::sample::select::{Row, Window, Aim, ALL, GIVEN, SHARE, reach, find};

// What top_n_sigma, top_p, top_k and min_p leave. top_p is before top_k in the official package's order, and keeps what is as likely as the last.
fn filtered(row: Row, all: Window, s: Settings, lane: u32) -> Window {
    let is_hf = (s.flags & HF) != 0u;
    var w = all;
    if (s.flags & SIGMA) != 0u {
        let farthest = times(deviation(row, lane), s.n_sigma);
        if farthest < w.farthest { w = Window(0u, farthest, ALL); }
    }
    for (var stage = 0u; stage < 2u; stage++) {
        if (stage == 0u) == is_hf {
            // k times the mass that every token has under this scale; less one unit, which the sum must exceed
            if s.top_k != 0u {
                w = narrowed(row, w, ZERO_SCALE, Aim(GIVEN, subtract(vec2(s.top_k << 31u, s.top_k >> 1u), vec2(1u, 0u))), true, lane);
            }
        } else if (s.flags & TOP_P) != 0u {
            w = narrowed(row, w, s.filter_scale, Aim(SHARE, vec2(s.top_p, 0u)), is_hf, lane);
        }
    }
    if s.min_p_distance < w.farthest { w = Window(0u, s.min_p_distance, ALL); }
    return w;
}

// The fewest tokens of `w` whose mass exceeds the aim; without `drops_ties` also those as likely as the last of them.
fn narrowed(row: Row, w: Window, s: Scale, aim: Aim, drops_ties: bool, lane: u32) -> Window {
    let r = reach(row, w, s, aim, lane);
    if r.is_short { return w; }
    var last = select(ALL, w.last, r.distance == w.farthest);
    if drops_ties { last = find(row, Window(r.distance, r.distance, last), s, Aim(GIVEN, r.rest), lane); }
    return Window(0u, r.distance, last);
}
