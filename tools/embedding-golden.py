#!/usr/bin/env python3
"""Writes tests/models/tiny-embedding: a random EmbeddingRWKV, its reranker, a vocabulary of bytes, and what the package computes from them.

Run: python tools/embedding-golden.py FOLDER   (needs torch, and rwkv-emb 0.2.6 without its dependencies)

The package computes in f16 on CUDA, with heads of 64 channels. This script changes the package's source: f32, the CPU, heads of 16 channels, and a
plain loop in place of the CUDA kernel. The last id ends a text, like 65535, the last id of the World vocabulary.
"""
import json, math, os, sys, types, importlib.util, importlib.machinery

os.environ["PYTORCH_JIT"] = "0"
import torch

C, F, S, V, LAYERS, RANK = 32, 64, 16, 258, 3, 8
EOS = V - 1
PATCHES = [('"cuda"', '"cpu"'), ("'cuda'", "'cpu'"), ("torch.half", "torch.float"), ("args.head_size = 64", f"args.head_size = {S}"),
           ("HEAD_SIZE = 64", f"HEAD_SIZE = {S}"), ("self.eos_token_id = 65535", f"self.eos_token_id = {EOS}")]


class Patched(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        text = super().get_data(path).decode()
        for old, new in PATCHES:
            text = text.replace(old, new)
        return text.encode()

    def get_code(self, name):
        return self.source_to_code(self.get_data(self.path), self.path)


def package():
    """Loads the package's modules with the patches."""
    import torch.utils.cpp_extension
    torch.utils.cpp_extension.load = lambda **_: None
    stub = types.ModuleType("transformers")
    stub.SiglipVisionModel = stub.SiglipVisionConfig = None
    sys.modules["transformers"] = stub
    root = importlib.util.find_spec("rwkv_emb").submodule_search_locations[0]
    for name in ["reference.rwkv7", "model"]:
        full = f"rwkv_emb.{name}"
        loader = Patched(full, os.path.join(root, *name.split(".")) + ".py")
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(full, loader))
        sys.modules[full] = module
        loader.exec_module(module)
    return sys.modules["rwkv_emb.model"]


def wkv(b, t, c, h, state, r, w, k, v, a, bb, y):
    """Computes the formula of the CUDA kernel: S ← S diag(w) + (S a) bᵀ + v kᵀ, y = S r. `state` changes in place."""
    n = c // h
    r, w, k, v, a, bb = (x.view(b, t, h, n) for x in (r, torch.exp(-math.exp(-0.5) * w), k, v, a, bb))
    s, out = state.view(b, h, n, n), y.view(b, t, h, n)
    for i in range(t):
        sa = (s @ a[:, i, :, :, None])
        s.copy_(s * w[:, i, :, None, :] + sa * bb[:, i, :, None, :] + v[:, i, :, :, None] * k[:, i, :, None, :])
        out[:, i] = (s @ r[:, i, :, :, None])[..., 0]


random = torch.Generator().manual_seed(20260)


def near(centre, scale, *shape):
    return (centre + scale * torch.randn(*shape, generator=random)).half()


def block(prefix, layer, f, rank):
    p, at, ff = f"{prefix}blocks.{layer}.", f"{prefix}blocks.{layer}.att.", f"{prefix}blocks.{layer}.ffn."
    z = {}
    for norm in ["ln1", "ln2"] + ["ln0"] * (layer == 0) + ["att.ln_x"]:
        z[f"{p}{norm}.weight"], z[f"{p}{norm}.bias"] = near(1, 0.1, C), near(0, 0.1, C)
    for mix in "rwkvag":
        z[f"{at}x_{mix}"] = near(0.5, 0.2, 1, 1, C)
    for pair, bias in [("w", -1.0), ("a", 0.0), ("v", 0.0), ("g", None)]:
        if pair == "v" and layer == 0:
            continue
        z[f"{at}{pair}1"], z[f"{at}{pair}2"] = near(0, C**-0.5, C, rank), near(0, rank**-0.5, rank, C)
        if bias is not None:
            z[f"{at}{pair}0"] = near(bias, 0.5, 1, 1, C)
    z[f"{at}k_k"], z[f"{at}k_a"], z[f"{at}r_k"] = near(0.85, 0.1, 1, 1, C), near(1, 0.1, 1, 1, C), near(0, 0.3, C // S, S)
    for matrix in ["receptance", "key", "value", "output"]:
        z[f"{at}{matrix}.weight"] = near(0, C**-0.5, C, C)
    z[f"{ff}x_k"], z[f"{ff}key.weight"], z[f"{ff}value.weight"] = near(0.5, 0.2, 1, 1, C), near(0, C**-0.5, f, C), near(0, f**-0.5, C, f)
    return z


def norm(name):
    return {f"{name}.weight": near(1, 0.1, C), f"{name}.bias": near(0, 0.1, C)}


def embedding():
    z = {"rwkv.emb.weight": near(0, 1, V, C), **norm("rwkv.ln_out")}
    for layer in range(LAYERS):
        z |= block("rwkv.", layer, F, RANK)
    for task in ["cls_head", "sts_head", "retr_head"]:
        z |= {f"head.{task}.fc1.weight": near(0, C**-0.5, C, C), f"head.{task}.fc2.weight": near(0, C**-0.5, C, C), **norm(f"head.{task}.norm")}
    return z


def reranker():
    z = {"reranker.token.weight": near(0, 1, 1, C), **norm("reranker.ln_out"), "reranker_layer_idx": [0, 2]}
    for layer in range(2):
        z |= block("reranker.", layer, 4 * C, 32)
    return z | {"reranker.head.0.weight": near(0, C**-0.5, C, C), "reranker.head.0.bias": near(0, 0.3, C), "reranker.head.2.weight": near(0, C**-0.5, 1, C)}


def main(folder):
    ops = torch.library.Library("rwkv7_state_fwd_fp16", "DEF")
    ops.define("forward(int B, int T, int C, int H, Tensor s, Tensor r, Tensor w, Tensor k, Tensor v, Tensor a, Tensor b, Tensor y) -> ()")
    ops.impl("forward", wkv, "CPU")
    model = package()
    paths = [os.path.join(folder, name) for name in ("embedding.pth", "reranker.pth")]
    torch.save(embedding(), paths[0])
    torch.save(reranker(), paths[1])
    # Ids 1 to 256 are the single bytes; id 257 has no text.
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as f:
        f.writelines(f"{byte + 1} {bytes([byte])!r} 1\n" for byte in range(256))

    emb, rank = model.EmbeddingRWKV(paths[0]), model.RWKVReRanker(paths[1])
    ids = lambda text: [byte + 1 for byte in text.encode()] + [EOS]
    tasks = {"classification": "[CLS]", "similarity": "[STS]", "retrieval": "[RETR]"}
    numbers = lambda x: [round(v, 7) for v in x.flatten().tolist()]
    texts = ["a wing", "Zwei Flügel schlagen.", "x"]
    found = {"texts": texts, "vectors": {task: [numbers(emb.forward(ids(t), None, task_type=key)[0]) for t in texts] for task, key in tasks.items()}}
    # Two ends in one text: the package takes the mean over both.
    found["two_ends"] = {"tokens": ids("a wing") + ids("x"), "vector": numbers(emb.forward(ids("a wing") + ids("x"), None)[0])}
    found["query"], found["documents"] = "Who flies?", ["Birds fly.", "Stones lie.", "The wing of a bird beats, and the bird flies."]
    logits = []
    for document in found["documents"]:
        text = f"Instruct: Given a query, retrieve documents that answer the query\nDocument: {document}\nQuery: {found['query']}"
        logits += numbers(rank.forward(emb.forward([ids(text)], None)[1][1]))
    found["logits"] = logits
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
        json.dump(found, f, ensure_ascii=False)
        f.write("\n")


main(sys.argv[1])
