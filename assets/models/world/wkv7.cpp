// The recurrence of RWKV-7 and its gradient, for one sequence and one head of 64 channels in f32. `recurrence.py` compiles it.
//
//   S' = S diag(w) + (S a) b^T + v k^T,  y = S' r
//
// The state S [64, 64] is zero before token t if reset[t] != 0. r, w, k, v, a, b, y and the gradients point to the head's first
// channel of token 0; the channels of the next token are `stride` floats later. `sa` keeps S a of each token, and `kept` the state
// before every 16th token: `backward` computes the states between them again.
#include <cstring>
#include <vector>

typedef float Vector __attribute__((vector_size(64)));
enum {
    N = 64,     // channels of a head
    Q = N / 16, // vectors of a row
    CHUNK = 16, // tokens between two kept states
};

struct State {
    Vector row[N][Q];
};

static inline float sum(Vector x) {
    float s = 0;
    for (int i = 0; i < 16; i++) s += x[i];
    return s;
}

static inline float dot(const Vector *x, const Vector *y) {
    return sum(x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3]);
}

static inline void load(Vector *to, const float *from) { memcpy(to, from, N * sizeof(float)); }
static inline void store(float *to, const Vector *from) { memcpy(to, from, N * sizeof(float)); }
static inline void clear(State &state) { memset(&state, 0, sizeof state); }

// Updates a state by one token, and writes S a to `sa`.
static void step(State &state, const float *w_, const float *k_, const float *v, const float *a_, const float *b_, float *sa) {
    Vector w[Q], k[Q], a[Q], b[Q];
    load(w, w_);
    load(k, k_);
    load(a, a_);
    load(b, b_);
    for (int i = 0; i < N; i++) {
        Vector *s = state.row[i];
        float x = dot(s, a);
        sa[i] = x;
        for (int q = 0; q < Q; q++) s[q] = s[q] * w[q] + b[q] * x + k[q] * v[i];
    }
}

extern "C" void forward(int T, int stride, const int *reset, const float *r_, const float *w, const float *k, const float *v, const float *a,
                        const float *b, float *y, float *sa, float *kept) {
    State state;
    clear(state);
    for (int t = 0; t < T; t++) {
        if (reset[t]) clear(state);
        if (t % CHUNK == 0) memcpy(kept + (size_t)t / CHUNK * N * N, &state, sizeof state);
        size_t at = (size_t)t * stride;
        step(state, w + at, k + at, v + at, a + at, b + at, sa + at);
        Vector r[Q];
        load(r, r_ + at);
        for (int i = 0; i < N; i++) y[at + i] = dot(state.row[i], r);
    }
}

extern "C" void backward(int T, int stride, const int *reset, const float *r_, const float *w_, const float *k_, const float *v,
                         const float *a_, const float *b_, const float *sa, const float *kept, const float *dy, float *dr_, float *dw_,
                         float *dk_, float *dv, float *da_, float *db_) {
    std::vector<State> before(CHUNK), after(CHUNK); // the states before and after the tokens of a chunk
    State gradient;                                 // of the state after token t
    clear(gradient);
    for (int chunk = (T - 1) / CHUNK; chunk >= 0; chunk--) {
        int from = chunk * CHUNK, to = from + CHUNK < T ? from + CHUNK : T;
        for (int t = from; t < to; t++) {
            State &P = before[t - from], &S = after[t - from];
            if (t == from) memcpy(&P, kept + (size_t)chunk * N * N, sizeof P);
            else if (reset[t]) clear(P);
            else P = after[t - from - 1];
            S = P;
            size_t at = (size_t)t * stride;
            float unused[N];
            step(S, w_ + at, k_ + at, v + at, a_ + at, b_ + at, unused);
        }
        for (int t = to - 1; t >= from; t--) {
            State &P = before[t - from], &S = after[t - from];
            size_t at = (size_t)t * stride;
            if (t + 1 < T && reset[t + 1]) clear(gradient);
            Vector r[Q], w[Q], k[Q], a[Q], b[Q], dr[Q] = {}, dw[Q] = {}, dk[Q] = {}, da[Q] = {}, db[Q] = {};
            load(r, r_ + at);
            load(w, w_ + at);
            load(k, k_ + at);
            load(a, a_ + at);
            load(b, b_ + at);
            for (int i = 0; i < N; i++) {
                Vector *g = gradient.row[i], *p = P.row[i], *s = S.row[i], x[Q];
                for (int q = 0; q < Q; q++) {
                    dr[q] += s[q] * dy[at + i];
                    x[q] = g[q] + r[q] * dy[at + i];
                    dk[q] += x[q] * v[at + i];
                    db[q] += x[q] * sa[at + i];
                    dw[q] += x[q] * p[q];
                }
                dv[at + i] = dot(x, k);
                float dsa = dot(x, b);
                for (int q = 0; q < Q; q++) {
                    da[q] += p[q] * dsa;
                    g[q] = x[q] * w[q] + a[q] * dsa;
                }
            }
            store(dr_ + at, dr);
            store(dw_ + at, dw);
            store(dk_ + at, dk);
            store(da_ + at, da);
            store(db_ + at, db);
        }
    }
}
