#!/usr/bin/env python3
"""The official logits of the new embedded model, in the form of assets/golden/tiny-rwkv7.golden.safetensors and tiny_prompt.json.

    pip download rwkv==0.8.32 --no-deps && unzip -d package rwkv-0.8.32-py3-none-any.whl
    PYTHONPATH=package python3 golden.py out/world.safetensors world-vocab.txt out
Needs torch, numpy, safetensors and the PyPI package rwkv 0.8.32 (its class for RWKV-7, on the CPU in float32). Writes OUT/world.golden.safetensors and OUT/world_prompt.json.
"""
import json, os, sys, tempfile
os.environ.update(RWKV_V7_ON='1', RWKV_JIT_ON='0', RWKV_CUDA_ON='0')
import torch
from safetensors.torch import load_file, save_file
from rwkv.model import RWKV
import vocab

TEXT = ('\n\nOnce upon a time there was a fox named Rusty. He lived in the forest. One windy day, Rusty lost his red kite.\n\nUser: hello\n\nAssistant: Hello! How can I help you?'
        '\n\nUser: What is the opposite of hot?\n\nAssistant: The')
model_path, vocab_path, out = sys.argv[1:4]; words = vocab.Vocab(vocab_path); ids = words.encode(TEXT)
with tempfile.TemporaryDirectory() as folder:
    torch.save({k: t.float() for k, t in load_file(model_path).items()}, os.path.join(folder, 'm.pth')); model = RWKV(model=os.path.join(folder, 'm'), strategy='cpu fp32')
logits, state = model.forward(ids, None, True); greedy, last = [], logits[-1]
for _ in range(48): greedy.append(int(last.argmax())); last, state = model.forward([greedy[-1]], state)
save_file({'tokens': torch.tensor(ids, dtype=torch.int32), 'logits': logits.float().contiguous(), 'greedy': torch.tensor(greedy, dtype=torch.int32)}, os.path.join(out, 'world.golden.safetensors'))
json.dump({'text': TEXT, 'ids': ids}, open(os.path.join(out, 'world_prompt.json'), 'w'))
print(len(ids), 'tokens;', repr(words.decode(greedy)))
import train
m = train.Rwkv(); given = load_file(model_path)
with torch.no_grad():
    pairs = {'emb.weight': m.emb, 'head.weight': m.head, 'ln_out.weight': m.ln_out.weight, 'ln_out.bias': m.ln_out.bias, 'blocks.0.ln0.weight': m.ln0.weight, 'blocks.0.ln0.bias': m.ln0.bias}
    for i in range(train.L):
        for nm, mod in (('ln1', m.ln1[i]), ('ln2', m.ln2[i]), ('att', m.att[i]), ('ffn', m.ffn[i])):
            for k, p in mod.named_parameters(): pairs[f'blocks.{i}.{nm}.' + (k + '.weight' if k in ('key', 'value', 'receptance', 'output') else k)] = p
    for k, p in pairs.items(): p.copy_(given[k].float().view(p.shape))
    mine = m(torch.tensor([ids]))[0] @ m.head.T
print('largest difference from train.py:', (mine - logits).abs().max().item())
