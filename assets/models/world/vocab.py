#!/usr/bin/env python3
"""Make the vocabulary of the small world: `vocab.py OUT [TOKENS]`, the RWKV format with 2047 tokens: all bytes, the words of the world, and frequent parts of words.

No token crosses from a prompt's end into an answer: words begin with at most one blank, and marks are cut as PIECES says."""
import collections, random, re, sys
import world

PIECES = re.compile(r''' ?\{"|": "|", "|": |, "|"\}|</?think|\n\n|\n|```| ?[A-Za-z]+| ?\d{1,2}|.''', re.S)


def make(n=2047, docs=60000):
    r = random.Random(7); words = collections.Counter(); stream = world.documents(123)
    for _ in range(docs):
        for text, _ in next(stream): words.update(PIECES.findall(text))
    for i in range(32): words[f' {i}'] += 50; words[str(i)] += 50
    for w in ('###', '**'): words[w] += 1000
    for name in world.GIRLS + world.BOYS + world.PET_HER + world.PET_HIM: words[' ' + name] += 100; words[name] += 100
    tokens = {bytes([b]) for b in range(256)} | {'✿'.encode(), b'\n\n', b'```', b'###', b'**'}
    tokens |= {w.encode() for w, c in words.most_common() if c >= 60 and len(w) > 1}
    print('words', len(tokens), file=sys.stderr)
    parts = collections.Counter()
    for w, c in words.items():
        if w.strip().isalpha() and w.isascii():
            for i in range(len(w)):
                for j in range(i + 2, min(len(w), i + 5) + 1): parts[w[i:j]] += (1 + min(c, 40)) * (j - i - 1)
    for w, _ in parts.most_common():
        if len(tokens) >= n: break
        if not w.strip() or ' ' in w[1:]: continue
        tokens.add(w.encode())
    return sorted(tokens, key=lambda t: (len(t) > 1, t))[:n]


def write(path, tokens):
    with open(path, 'w', encoding='utf-8') as f:
        for i, p in enumerate(tokens, 1):
            try: s = repr(p.decode('utf-8'))
            except UnicodeDecodeError: s = repr(p)
            f.write(f'{i} {s} {len(p)}\n')


class Vocab:
    """Encodes as the engine does: the longest token first."""
    def __init__(s, path):
        import ast
        s.token = [b'']; s.index = {}
        for line in open(path, encoding='utf-8'):
            if not line.endswith('\n'): line += '\n'
            i, rest = line[:-1].split(' ', 1); v = ast.literal_eval(rest.rsplit(' ', 1)[0]); v = v.encode() if isinstance(v, str) else v; s.token.append(v); s.index[v] = int(i)
        s.by_first = [b''] * 256
        for b in range(256): s.by_first[b] = sorted({len(t) for t in s.token if t and t[0] == b}, reverse=True)

    def encode(s, text):
        b = text.encode(); out, i, index, lens = [], 0, s.index, s.by_first
        while i < len(b):
            for n in lens[b[i]]:
                t = index.get(b[i:i + n])
                if t is not None and i + n <= len(b): break
            out.append(t); i += n
        return out

    def decode(s, ids): return b''.join(s.token[i] for i in ids).decode(errors='replace')


if __name__ == '__main__':
    tokens = make(int(sys.argv[2]) if len(sys.argv) > 2 else 2047); write(sys.argv[1], tokens)
    v = Vocab(sys.argv[1]); s = world.documents(9); texts = [''.join(t for t, _ in next(s)) for _ in range(3000)]; ids = [v.encode(t) for t in texts]
    assert all(v.decode(i) == t for i, t in zip(ids, texts)); n = sorted(map(len, ids))
    print(len(tokens), 'tokens; characters per token', sum(map(len, texts)) / sum(n), '; length of documents: mean', sum(n) / len(n), 'p90', n[2700], 'p99', n[2970], 'max', n[-1], file=sys.stderr)
