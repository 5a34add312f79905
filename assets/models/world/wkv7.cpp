// The recurrence of RWKV-7 for one thread: heads of 64, row by row. All arrays are [T][64 per head] with a stride; f32.
//   S' = S diag(w) + (S a) b^T + v k^T,  y = S' r.  Where reset[t] != 0 the state is zero before token t.
// Compile: g++ -O3 -march=native -ffast-math -shared -fPIC wkv7.cpp -o wkv7.so
#include <cstring>
#include <vector>
typedef float V __attribute__((vector_size(64)));
enum { N = 64, Q = 4, C = 16 };
static inline float sum(V x) { float s = 0; for (int i = 0; i < 16; i++) s += x[i]; return s; }
static inline void load(V *d, const float *p) { memcpy(d, p, N * 4); }
struct State { V s[N][Q]; };
static void step(State &S, const float *w_, const float *k_, const float *v, const float *a_, const float *b_, float *sa) {
    V w[Q], k[Q], a[Q], b[Q]; load(w, w_); load(k, k_); load(a, a_); load(b, b_);
    for (int i = 0; i < N; i++) {
        V *s = S.s[i]; float x = sum(s[0] * a[0] + s[1] * a[1] + s[2] * a[2] + s[3] * a[3]); sa[i] = x;
        for (int q = 0; q < Q; q++) s[q] = s[q] * w[q] + b[q] * x + k[q] * v[i];
    }
}
extern "C" void forward(int T, int stride, const int *reset, const float *r_, const float *w, const float *k, const float *v, const float *a, const float *b,
                        float *y, float *sa, float *kept) {
    State S; memset(&S, 0, sizeof S);
    for (int t = 0; t < T; t++) {
        if (reset[t]) memset(&S, 0, sizeof S);
        if (t % C == 0) memcpy(kept + (size_t)t / C * N * N, &S, sizeof S);
        size_t o = (size_t)t * stride; step(S, w + o, k + o, v + o, a + o, b + o, sa + o);
        V r[Q]; load(r, r_ + o);
        for (int i = 0; i < N; i++) { V *s = S.s[i]; y[o + i] = sum(s[0] * r[0] + s[1] * r[1] + s[2] * r[2] + s[3] * r[3]); }
    }
}
extern "C" void backward(int T, int stride, const int *reset, const float *r_, const float *w_, const float *k_, const float *v, const float *a_, const float *b_,
                         const float *sa, const float *kept, const float *dy, float *dr_, float *dw_, float *dk_, float *dv, float *da_, float *db_) {
    std::vector<State> all(C + 1); State D; memset(&D, 0, sizeof D); float none[N];
    for (int c = (T - 1) / C; c >= 0; c--) {
        int from = c * C, to = from + C < T ? from + C : T;
        memcpy(&all[0], kept + (size_t)c * N * N, sizeof(State));
        for (int t = from; t < to; t++) {             // all[j] is the state before token from + j, after a reset
            if (t > from && reset[t]) memset(&all[t - from], 0, sizeof(State));
            size_t o = (size_t)t * stride; all[t - from + 1] = all[t - from]; step(all[t - from + 1], w_ + o, k_ + o, v + o, a_ + o, b_ + o, none);
            if (t + 1 < to && reset[t + 1]) { }       // the copy for the gradient of r is overwritten below, so keep it apart
            if (t + 1 < to && reset[t + 1]) {         // r's gradient needs the state before the reset: compute it at once
                V dr[Q] = {}; for (int i = 0; i < N; i++) for (int q = 0; q < Q; q++) dr[q] += all[t - from + 1].s[i][q] * dy[o + i];
                memcpy(dr_ + o, dr, N * 4);
            }
        }
        for (int t = to - 1; t >= from; t--) {
            size_t o = (size_t)t * stride; State &P = all[t - from], &S = all[t - from + 1]; bool apart = t + 1 < to && reset[t + 1];
            if (t + 1 < T && reset[t + 1]) memset(&D, 0, sizeof D);
            V r[Q], w[Q], k[Q], a[Q], b[Q], dr[Q] = {}, dw[Q] = {}, dk[Q] = {}, da[Q] = {}, db[Q] = {};
            load(r, r_ + o); load(w, w_ + o); load(k, k_ + o); load(a, a_ + o); load(b, b_ + o);
            for (int i = 0; i < N; i++) {
                float g = dy[o + i], vi = v[o + i], si = sa[o + i]; V *d = D.s[i], *p = P.s[i], *s = S.s[i], x[Q];
                for (int q = 0; q < Q; q++) { dr[q] += s[q] * g; x[q] = d[q] + r[q] * g; dk[q] += x[q] * vi; db[q] += x[q] * si; dw[q] += x[q] * p[q]; }
                dv[o + i] = sum(x[0] * k[0] + x[1] * k[1] + x[2] * k[2] + x[3] * k[3]);
                float ds = sum(x[0] * b[0] + x[1] * b[1] + x[2] * b[2] + x[3] * b[3]);
                for (int q = 0; q < Q; q++) { da[q] += p[q] * ds; d[q] = x[q] * w[q] + a[q] * ds; }
            }
            if (!apart) memcpy(dr_ + o, dr, N * 4);
            memcpy(dw_ + o, dw, N * 4); memcpy(dk_ + o, dk, N * 4); memcpy(da_ + o, da, N * 4); memcpy(db_ + o, db, N * 4);
        }
    }
}
