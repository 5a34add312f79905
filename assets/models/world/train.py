#!/usr/bin/env python3
"""Train the embedded model: an RWKV-7 of 2 million parameters that knows the small world of world.py.

Needs Python >= 3.10, torch and g++. Reads vocab.py's file; writes OUT/state.pt (every 5 minutes), OUT/train.log, and at the end OUT/world.safetensors.
    python3 train.py --out out --until 19:35          the learning rate follows the wall clock (UTC) up to that time
    python3 train.py --out out --hours 2              the same, in two hours from the first start
    python3 train.py --out out --until 19:35 --resume go on after an interruption
    python3 train.py --out out --export               only write OUT/world.safetensors from OUT/state.pt
"""
import argparse, ctypes, datetime, json, math, os, random, struct, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
os.environ.setdefault('OMP_WAIT_POLICY', 'passive')
import torch, torch.nn as nn, torch.nn.functional as F
import world, vocab

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, L, D, N, SEED = 2048, 6, 128, 64, 20
H = D // N

# ---------------------------------------------------------------- the recurrence
def library():
    so, src = os.path.join(HERE, 'wkv7.so'), os.path.join(HERE, 'wkv7.cpp')
    if not os.path.exists(so) or os.path.getmtime(so) < os.path.getmtime(src):
        subprocess.run(['g++', '-O3', '-march=native', '-ffast-math', '-shared', '-fPIC', src, '-o', so], check=True)
    return ctypes.CDLL(so)

LIB, POOL = library(), ThreadPoolExecutor(2)

def each(fn, jobs): list(POOL.map(lambda j: fn(*j), jobs))

class Wkv(torch.autograd.Function):
    """r,w,k,v,a,b [B,T,D] f32 contiguous, reset [B,T] i32 -> y [B,T,D]"""
    @staticmethod
    def jobs(B, T, tensors, kept):
        at = lambda t, b, h: ctypes.c_void_p(t.data_ptr() + 4 * (b * T * D + h * N))
        return [([at(t, b, h) for t in tensors], ctypes.c_void_p(kept.data_ptr() + 4 * (b * H + h) * kept.shape[2] * N * N), b) for b in range(B) for h in range(H)]
    @staticmethod
    def forward(ctx, r, w, k, v, a, b, reset):
        B, T, _ = r.shape; y, sa = torch.empty_like(r), torch.empty_like(r); kept = torch.empty(B, H, (T + 15) // 16, N * N)
        rs = lambda i: ctypes.c_void_p(reset.data_ptr() + 4 * i * T)
        each(lambda p, keep, i: LIB.forward(T, D, rs(i), *p, keep), Wkv.jobs(B, T, (r, w, k, v, a, b, y, sa), kept))
        ctx.save_for_backward(r, w, k, v, a, b, reset, sa, kept); return y
    @staticmethod
    def backward(ctx, dy):
        r, w, k, v, a, b, reset, sa, kept = ctx.saved_tensors; B, T, _ = r.shape; dy = dy.contiguous(); g = [torch.empty_like(r) for _ in range(6)]
        rs = lambda i: ctypes.c_void_p(reset.data_ptr() + 4 * i * T)
        each(lambda p, keep, i: LIB.backward(T, D, rs(i), *p[:7], keep, *p[7:]), Wkv.jobs(B, T, (r, w, k, v, a, b, sa, dy, *g), kept))
        return (*g, None)

# ---------------------------------------------------------------- RWKV-7
HALF = [False]
def linear(x, W):
    """x W^T, with factors in bf16 while HALF[0]: faster, and close enough for all but the end of the training"""
    return (x.bfloat16() @ W.bfloat16().t()).float() if HALF[0] else x @ W.t()
def P(*s, init=0.0): return nn.Parameter(torch.full(s, float(init)))
def lin(o, i, gain=1.0):
    p = nn.Parameter(torch.empty(o, i)); nn.init.orthogonal_(p, gain=gain); return p

class Att(nn.Module):
    def __init__(s, i):
        super().__init__(); s.i = i; q = 1 - i / L; z = torch.arange(D) / (D - 1); zig = ((torch.arange(D) % N) - (N - 1) / 2) / ((N - 1) / 2); zig = zig * zig.abs()
        for c, e in zip('rwkvag', (.2, .9, .7, .7, .9, .2)): setattr(s, f'x_{c}', nn.Parameter((1 - (torch.arange(D) / D).pow(e * q)).view(1, 1, D)))
        s.w0 = nn.Parameter((-6 + 6 * z ** (1 + q ** 0.3) + 0.5 + zig * 2.5).view(1, 1, D)); s.a0 = nn.Parameter((-0.19 + zig * 0.3 + (z - .5) * 0.4).view(1, 1, D))
        for n, k in (('w', 32), ('a', 32), ('v', 32), ('g', 64)):
            if n == 'v' and i == 0: continue
            m = nn.Parameter(torch.empty(k, D)); nn.init.orthogonal_(m, gain=0.1 * max(1, math.sqrt(k / D))); setattr(s, n + '1', P(D, k)); setattr(s, n + '2', m)
        if i: s.v0 = nn.Parameter((0.73 - (z - .5) * 0.4).view(1, 1, D))
        s.k_k = nn.Parameter((0.71 - (z - .5) * 0.1).view(1, 1, D)); s.k_a = P(1, 1, D, init=1.02); s.r_k = P(H, N, init=-0.04)
        for k, gn in (('receptance', 1.), ('key', .1), ('value', 1.), ('output', .3)): setattr(s, k, lin(D, D, gn))
        s.ln_x = nn.LayerNorm(D); s.ln_x.weight.data.fill_(((1 + i) / L) ** 0.7)
    def forward(s, x, ctx):
        B, T, _ = x.shape; dx = shift(x, ctx) - x; hd = lambda y: y.view(B, T, H, N)
        xr, xw, xk, xv, xa, xg = (torch.addcmul(x, dx, getattr(s, f'x_{c}')) for c in 'rwkvag')
        r, k, v = linear(xr, s.receptance), linear(xk, s.key), linear(xv, s.value)
        w = torch.exp(-0.606531 * torch.sigmoid(s.w0 + torch.tanh(xw @ s.w1) @ s.w2))
        if s.i == 0: ctx['v'] = v
        else: v = torch.lerp(v, ctx['v'], torch.sigmoid(s.v0 + xv @ s.v1 @ s.v2))
        a = torch.sigmoid(s.a0 + xa @ s.a1 @ s.a2); g = torch.sigmoid(xg @ s.g1) @ s.g2
        kk = F.normalize(hd(k * s.k_k), dim=-1).view(B, T, D); k = k * (1 + (a - 1) * s.k_a)
        y = Wkv.apply(r.contiguous(), w.contiguous(), k.contiguous(), v.contiguous(), (-kk).contiguous(), (kk * a).contiguous(), ctx['reset'])
        y = F.group_norm(y.view(B * T, D), H, s.ln_x.weight, s.ln_x.bias, eps=64e-5).view(B, T, D)
        y = y + (hd(r * k) * s.r_k).sum(-1, keepdim=True).mul(hd(v)).view(B, T, D)
        return linear(y * g, s.output)

class Ffn(nn.Module):
    def __init__(s, i):
        super().__init__(); s.x_k = nn.Parameter(1 - (torch.arange(D) / D).pow((1 - i / L) ** 4).view(1, 1, D)); s.key = lin(4 * D, D, 1.0); s.value = lin(D, 4 * D, 0.3)
    def forward(s, x, ctx): return linear(torch.relu(linear(torch.addcmul(x, shift(x, ctx) - x, s.x_k), s.key)).square(), s.value)

def shift(x, ctx): return F.pad(x, (0, 0, 1, -1)) * ctx['keep']

class Rwkv(nn.Module):
    def __init__(s):
        super().__init__(); s.emb = nn.Parameter(torch.empty(VOCAB, D).uniform_(-1e-2, 1e-2)); s.head = lin(VOCAB, D, 0.5); s.ln0, s.ln_out = nn.LayerNorm(D), nn.LayerNorm(D)
        s.ln1, s.ln2 = (nn.ModuleList(nn.LayerNorm(D) for _ in range(L)) for _ in '12'); s.att, s.ffn = nn.ModuleList(Att(i) for i in range(L)), nn.ModuleList(Ffn(i) for i in range(L))
    def forward(s, idx, reset=None):
        """idx [B,T]; reset [B,T] is 1 where a document begins -> x before the head"""
        reset = torch.zeros_like(idx, dtype=torch.int32) if reset is None else reset; ctx = {'reset': reset, 'keep': (1 - reset).unsqueeze(-1).float()}
        x = s.ln0(F.embedding(idx, s.emb))
        for i in range(L): x = x + s.att[i](s.ln1[i](x), ctx); x = x + s.ffn[i](s.ln2[i](x), ctx)
        return s.ln_out(x)
    def loss(s, idx, reset, target, weight):
        """Mean loss of the targets with weight; the head runs only for these."""
        x = s(idx, reset).flatten(0, 1); at = weight.flatten().nonzero()[:, 0]
        return F.cross_entropy(linear(x[at], s.head), target.flatten()[at])
    def official(s):
        out = {'emb.weight': s.emb, 'head.weight': s.head, 'ln_out.weight': s.ln_out.weight, 'ln_out.bias': s.ln_out.bias, 'blocks.0.ln0.weight': s.ln0.weight, 'blocks.0.ln0.bias': s.ln0.bias}
        for i in range(L):
            for nm, m in (('ln1', s.ln1[i]), ('ln2', s.ln2[i]), ('att', s.att[i]), ('ffn', s.ffn[i])):
                for k, p in m.named_parameters(): out[f'blocks.{i}.{nm}.' + (k + '.weight' if k in ('key', 'value', 'receptance', 'output') else k)] = p
        return {k: out[k].detach().clone() for k in sorted(out)}

def export(model, path):
    """The checkpoint as safetensors in f16, with the names, shapes and metadata of the embedded model."""
    head, blob = {'__metadata__': {'format': 'pt', 'wingbeat.layout': 'official'}}, b''
    for k, t in model.official().items():
        b = t.half().contiguous().numpy().tobytes(); head[k] = {'dtype': 'F16', 'shape': list(t.shape), 'data_offsets': [len(blob), len(blob) + len(b)]}; blob += b
    h = json.dumps(head, separators=(',', ':')).encode(); h += b' ' * (-len(h) % 8)
    with open(path + '.new', 'wb') as f: f.write(struct.pack('<Q', len(h)) + h + blob)
    os.replace(path + '.new', path)

# ---------------------------------------------------------------- the data: whole documents, packed into rows
class Rows:
    def __init__(s, words, seed, T): s.words, s.docs, s.T, s.pool = words, world.documents(seed), T, []
    def document(s):
        ids, learned = [], []
        for text, is_learned in next(s.docs): t = s.words.encode(text); ids += t; learned += [is_learned] * len(t)
        return ids + [0], learned + [True]
    def row(s):
        """-> ids, reset, target, weight of T tokens. A document ends with token 0, which is only a target."""
        ids, reset, target, weight = [], [], [], []
        while True:
            while len(s.pool) < 48:
                d = s.document()
                if len(d[0]) <= s.T + 1: s.pool.append(d)
            room = s.T - len(ids); fits = [i for i, d in enumerate(s.pool) if len(d[0]) - 1 <= room]
            if not fits: break
            i = fits[0] if room > 200 else max(fits, key=lambda i: len(s.pool[i][0])); d, w = s.pool.pop(i)
            ids += d[:-1]; reset += [1] + [0] * (len(d) - 2); target += d[1:]; weight += w[1:]
        pad = s.T - len(ids); return ids + [0] * pad, reset + [1] * pad, target + [0] * pad, weight + [False] * pad
    def batch(s, n):
        ids, reset, target, weight = zip(*(s.row() for _ in range(n)))
        return torch.tensor(ids), torch.tensor(reset, dtype=torch.int32), torch.tensor(target), torch.tensor(weight)

# ---------------------------------------------------------------- talking to the model in torch
@torch.no_grad()
def answer(model, words, prompt, most=160, stops=('\nUser:', '\n### User', '\n### Tool Output', '✿')):
    """The greedy continuation. Slow but simple: it computes the whole text for each token."""
    ids = words.encode(prompt); out = []
    for _ in range(most):
        i = (model(torch.tensor([ids + out]))[0, -1] @ model.head.T).argmax().item()
        if i == 0: break
        out.append(i); text = words.decode(out)
        if any(x in text for x in stops): break
    return words.decode(out)

SAMPLES = ['Once upon a time', 'In the beginning', 'User: hello\n\nAssistant:', 'User: What is 7 plus 6?\n\nAssistant: <think', 'User: Tell me a story about a fox.\n\nAssistant:', 'User: What is the opposite of hot?\n\nAssistant:',
           'User: My name is Tom.\n\nAssistant: Hello, Tom! It is nice to meet you.\n\nUser: What is my name?\n\nAssistant:', 'User: Give me a record of a cat as JSON.\n\nAssistant:']

def main():
    p = argparse.ArgumentParser(); p.add_argument('--out', default='out'); p.add_argument('--vocab', default=os.path.join(HERE, 'world-vocab.txt')); p.add_argument('--until'); p.add_argument('--hours', type=float)
    p.add_argument('--resume', action='store_true'); p.add_argument('--export', action='store_true'); p.add_argument('--rows', type=int, default=8); p.add_argument('--length', type=int, default=432); p.add_argument('--peak', type=float, default=3e-3)
    p.add_argument('--seed', type=int, default=SEED); p.add_argument('--steps', type=int, default=10**9, help='stop after so many steps (for measuring)')
    a = p.parse_args(); torch.set_num_threads(2); torch.manual_seed(a.seed); os.makedirs(a.out, exist_ok=True); path = os.path.join(a.out, 'state.pt'); words = vocab.Vocab(a.vocab)
    model = Rwkv(); decay = [q for q in model.parameters() if q.dim() == 2 and min(q.shape) >= 32]; rest = [q for q in model.parameters() if not any(q is x for x in decay)]
    opt = torch.optim.AdamW([{'params': decay, 'weight_decay': .05}, {'params': rest, 'weight_decay': 0}], lr=0, betas=(.9, .98), eps=1e-12)
    begin, step, tokens = time.time(), 0, 0
    if a.resume or a.export:
        s = torch.load(path); model.load_state_dict(s['model']); opt.load_state_dict(s['opt']); begin, step, tokens = s['begin'], s['step'], s['tokens']
    out = os.path.join(a.out, 'world.safetensors')
    if a.export: export(model, out); return print(out)
    if a.until:
        now = datetime.datetime.now(datetime.timezone.utc); h, m = map(int, a.until.split(':')); end = now.replace(hour=h, minute=m, second=0, microsecond=0)
        if end < now - datetime.timedelta(hours=6): end += datetime.timedelta(days=1)
        end = end.timestamp()
    else: end = begin + 3600 * (a.hours or 2)
    data = Rows(words, a.seed + 1000003 * step, a.length); log = open(os.path.join(a.out, 'train.log'), 'a'); avg, last, saved, shown = None, time.time(), time.time(), tokens
    def say(line): print(line, flush=True); log.write(line + '\n'); log.flush()
    def save():
        torch.save({'model': model.state_dict(), 'opt': opt.state_dict(), 'begin': begin, 'step': step, 'tokens': tokens}, path + '.new'); os.replace(path + '.new', path)
    say(f'# {datetime.datetime.now(datetime.timezone.utc):%F %T} UTC seed {a.seed} step {step} parameters {sum(q.numel() for q in model.parameters())} rows {a.rows} length {a.length} peak {a.peak} until {datetime.datetime.fromtimestamp(end, datetime.timezone.utc):%T}')
    while step < a.steps:
        done = (time.time() - begin) / (end - begin)
        if done >= 1: break
        lr = a.peak * min(1, (step + 1) / 100) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for g in opt.param_groups: g['lr'] = lr
        HALF[0] = done < .85; batch = data.batch(a.rows); loss = model.loss(*batch); opt.zero_grad(set_to_none=True); loss.backward(); nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step()
        step += 1; tokens += a.rows * a.length; x = loss.item(); avg = x if avg is None else .98 * avg + .02 * x
        if not math.isfinite(x): sys.exit(f'loss {x} at step {step}: resume from {path}')
        if step % 50 == 0 or step in (1, 10):
            now = time.time(); say(f'{step} tokens {tokens} loss {avg:.4f} lr {lr:.2e} {done * 100:.1f}% {(tokens - shown) / (now - last):.0f} tokens/s'); last, shown = now, tokens
        if time.time() - saved > 300: save(); saved = time.time()
        if step % 1000 == 0 or step in (200, 500):
            HALF[0] = False
            for q in SAMPLES: say('  ' + repr(q[-60:]) + ' -> ' + repr(answer(model, words, q)))
    save(); export(model, out); say(f'# {datetime.datetime.now(datetime.timezone.utc):%F %T} UTC end: {step} steps, {tokens} tokens, loss {avg}; {out}')

if __name__ == '__main__': main()
