// The filters top_n_sigma, top_k, top_p and min_p. Tokens are ordered by (d, id). d is the distance of a token's key from the largest key.
// A filter keeps the first tokens in this order, and returns them as a window.
import package::sample::fixed::{Scale, zero_scale, subtract, times};
import package::sample::settings::{Settings, GREEDY, HF, TOP_P, SIGMA};
import package::sample::sigma::{deviation};
import package::sample::select::{reach, find};
import package::sample::tallies::Extremes;
import package::sample::window::{Row, Window, Search, Aim, ALL, GIVEN, SHARE};

// Returns a slot's first search. It serves the slot's first filter or, if no filter searches, the choice of the token. `exists` is false if the slot
// needs no search. It is also false if the search depends on the standard deviation, which sample/tally does not compute.
fn first_search(s: Settings, e: Extremes) -> Search {
    let all = Window(0u, e.largest - e.smallest, ALL);
    let exists = e.largest != 0u && e.smallest != 0u && (s.flags & (GREEDY | SIGMA)) == 0u;
    let has_top_p = (s.flags & TOP_P) != 0u;
    if s.top_k != 0u && ((s.flags & HF) != 0u || !has_top_p) { return Search(exists, false, all, zero_scale()); }
    if has_top_p { return Search(exists, false, all, s.filter_scale); }
    return Search(exists, true, Window(0u, min(all.farthest, s.min_p_distance), ALL), s.draw_scale);
}

// Returns the tokens of the window `all` that pass all filters. With the flag HF, top_k comes before top_p. Otherwise top_p comes first, as in the
// official RWKV package, and also keeps all tokens that are as likely as the last token it keeps.
fn filtered(row: Row, all: Window, s: Settings, lane: u32) -> Window {
    let is_hf = (s.flags & HF) != 0u;
    var w = all;
    if (s.flags & SIGMA) != 0u {
        let farthest = times(deviation(row, lane), s.n_sigma);
        if farthest < w.farthest { w = Window(0u, farthest, ALL); }
    }
    for (var stage = 0u; stage < 2u; stage++) {
        if (stage == 0u) == is_hf {
            // With zero_scale() every token has the same mass. The aim is the mass of k tokens minus one unit, because the sum must exceed it.
            if s.top_k != 0u {
                w = narrowed(row, w, zero_scale(), Aim(GIVEN, subtract(vec2(s.top_k << 31u, s.top_k >> 1u), vec2(1u, 0u))), true, lane);
            }
        } else if (s.flags & TOP_P) != 0u {
            w = narrowed(row, w, s.filter_scale, Aim(SHARE, vec2(s.top_p, 0u)), is_hf, lane);
        }
    }
    if s.min_p_distance < w.farthest { w = Window(0u, s.min_p_distance, ALL); }
    return w;
}

// Returns the first tokens of `w`, up to the token at which the running sum of masses exceeds the aim. Returns `w` if the sum of all tokens
// does not exceed the aim. If `drops_ties` is false, the result also has all tokens that are as likely as that token.
fn narrowed(row: Row, w: Window, s: Scale, aim: Aim, drops_ties: bool, lane: u32) -> Window {
    let r = reach(row, w, s, aim, lane);
    if r.is_short { return w; }
    var last = select(ALL, w.last, r.distance == w.farthest);
    if drops_ties { last = find(row, Window(r.distance, r.distance, last), s, Aim(GIVEN, r.rest), lane); }
    return Window(0u, r.distance, last);
}
