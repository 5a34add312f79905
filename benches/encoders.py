#!/usr/bin/env python3
"""Compares wingbeat's encoders of GGUF types with llama-quantize's, at equal size, on one model.

Usage: LLAMA_QUANTIZE=path benches/encoders.py MODEL --vocab VOCAB --calibrate TEXT --text TEXT [--types q4_k,…] [--tokens N]
Needs: python3 with numpy, target/release/wingbeat (or WINGBEAT=path), llama-quantize.

MODEL is a float model with rows of whole blocks of 256. Both programs write the same matrices in the same type, from one GGUF with f16 floats: llama-quantize with
--pure, so that no matrix gets another type. Sizes of the files are compared. Every file is scored by wingbeat on the CPU: perplexity of the text, and KL(float || quantised), in
nats per token. With an importance matrix, both programs read the same file, which `wingbeat imatrix` wrote.
"""
import argparse, json, math, os, pathlib, subprocess, sys, tempfile
import numpy as np

WINGBEAT = os.environ.get('WINGBEAT', 'target/release/wingbeat')
QUANTIZE = os.environ.get('LLAMA_QUANTIZE', 'llama-quantize')
# Matrices that stay floats: wingbeat's exceptions in a weight format, and the options of llama-quantize with the same meaning.
KEPT = {'': ('', []), 'layer 0 output f16': (',blocks.0.att.output=f16', ['--tensor-type', 'blk.0.time_mix_output=f16'])}


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f'{" ".join(map(str, command))}\n{done.stdout}{done.stderr}')
    return done.stdout


def log_softmax(rows):
    rows = rows - rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def score(model, vocab, windows, folder):
    """Returns log-probabilities after each token of every window except its last token, [tokens, vocabulary]."""
    rows = []
    for ids in windows:
        out = folder / 'logits.safetensors'
        run(WINGBEAT, 'score', '-m', model, '--vocab', vocab, '--device', 'cpu', '--tokens', ','.join(map(str, ids)), '--logits', out, '--force')
        bytes_ = out.read_bytes()
        n = int.from_bytes(bytes_[:8], 'little')
        info = json.loads(bytes_[8:8 + n])['logits']
        begin, end = info['data_offsets']
        logits = np.frombuffer(bytes_[8 + n + begin:8 + n + end], np.float32).reshape(info['shape'])
        rows.append(log_softmax(logits[:-1].astype(np.float64)).astype(np.float32))
    return np.concatenate(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('model')
    parser.add_argument('--vocab', required=True)
    parser.add_argument('--calibrate', required=True)
    parser.add_argument('--text', required=True)
    parser.add_argument('--types', default='q2_k,q3_k,q4_0,q4_1,iq4_nl,iq4_xs,q4_k,q5_0,q5_k,q6_k')
    parser.add_argument('--tokens', type=int, default=8192)
    parser.add_argument('--window', type=int, default=2048)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix='encoders-'))
    ids = json.loads(run(WINGBEAT, 'tokenize', '--vocab', args.vocab, '-f', args.text, '--json'))
    ids = (ids['tokens'] if isinstance(ids, dict) else ids)[:args.tokens]
    windows = [ids[i:i + args.window] for i in range(0, len(ids) - 1, args.window)]
    targets = np.concatenate([w[1:] for w in windows])
    floats, imatrix = folder / 'f16.gguf', folder / 'imatrix.gguf'
    run(WINGBEAT, 'convert', args.model, floats, '--layout', 'gguf', '--vocab', args.vocab)
    print(run(WINGBEAT, 'imatrix', '-m', args.model, '--vocab', args.vocab, '-f', args.calibrate, '-o', imatrix, '--json').strip(), file=sys.stderr)
    reference = score(floats, args.vocab, windows, folder)
    nll = lambda rows: -rows[np.arange(len(targets)), targets].astype(np.float64).mean()
    base = nll(reference)
    print(f'{len(targets)} tokens predicted, windows of {args.window}, perplexity of f16: {math.exp(base):.4f}\n')
    print('| type | kept | importance | encoder | bytes | loss % | KL mean |\n|:--|:--|:--|:--|--:|--:|--:|')
    for kind in args.types.split(','):
        for kept, (ours, theirs) in KEPT.items():
            if kept and kind not in ('q4_k', 'q3_k'):
                continue
            for importance in (False, True):
                made = {}
                for encoder in ('wingbeat', 'llama-quantize'):
                    out = folder / f'{encoder}.gguf'
                    out.unlink(missing_ok=True)
                    if encoder == 'wingbeat':
                        extra = ['--calibrate', imatrix] if importance else []
                        run(WINGBEAT, 'convert', floats, out, '--layout', 'gguf', '--quant', kind + ours, *extra)
                    else:
                        extra = ['--imatrix', imatrix] if importance else []
                        run(QUANTIZE, '--pure', *extra, *theirs, floats, out, kind.upper(), 2)
                    rows = score(out, args.vocab, windows, folder)
                    kl = (np.exp(reference.astype(np.float64)) * (reference - rows)).sum(1).mean()
                    made[encoder] = out.stat().st_size
                    loss = 100 * (math.exp(nll(rows) - base) - 1)
                    print(f'| {kind} | {kept or "-"} | {"yes" if importance else "no"} | {encoder} | {made[encoder]} | {loss:.4f} | {kl:.4e} |', flush=True)
                sizes = list(made.values())
                if abs(sizes[0] - sizes[1]) > 0.005 * sizes[1]:
                    print(f'sizes differ: {made}', file=sys.stderr)


if __name__ == '__main__':
    main()
