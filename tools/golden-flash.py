"""Makes random models of GLM-4.7-Flash's kind in tests/models, with their logits, by `transformers`.

    pip install transformers torch
    python tools/golden-flash.py tests/models

Writes the folders flash, flash-groups and flash-stacked, and NAME.golden.safetensors for each: `tokens`, `logits` and `greedy` (the continuation
that follows). Weights are bf16; the router's weights and biases are f32, as `transformers` keeps them. `model.double()` computes the logits
from the stored weights: matrix products are f64, while norms, softmax, the router and the rotary angles stay f32. The script also computes the
formulas in float64 with numpy, and compares both. Written with transformers 5.24.0, torch 2.15.0 and numpy 2.4.6.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeLiteConfig, Glm4MoeLiteForCausalLM

N_TOKENS, N_GREEDY, VOCAB = 100, 12, 64
# The minimum gap between a choice and the next candidate: of routers in sigmoids, of greedy choices in logits. Seeds are chosen so that rounding
# changes no choice.
ROUTER_GAP, GREEDY_GAP = 2e-3, 2e-2
# The epsilon of the two norms of latents, which ignore `rms_norm_eps`.
LATENT_EPS = 1e-6
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=24,
             qk_rope_head_dim=8, v_head_dim=16, max_position_embeddings=512, pad_token_id=0, eos_token_id=[1, 2, 3],
             rope_parameters=dict(rope_type="default", rope_theta=1e6))
GROUPS = dict(n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2, norm_topk_prob=False, mlp_layer_types=["sparse", "dense", "sparse"],
              q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=40, moe_intermediate_size=24, intermediate_size=72)
# name: (seed, settings that differ, stacks experts)
MODELS = {
    "flash": (66, {}, False),
    "flash-groups": (77, GROUPS, False),
    "flash-stacked": (94, dict(q_lora_rank=None, intermediate_size=80), True),
}


def randomise(model, seed):
    """Replaces all weights, because the default norms and biases would hide mistakes."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            noise = torch.randn(p.shape)
            if name.endswith("e_score_correction_bias"):
                p.copy_(0.1 * noise)
            elif name.endswith("norm.weight"):
                p.copy_(1 + 0.25 * noise)
            elif p.ndim > 1:
                p.copy_((1.0 if "embed" in name or "head" in name else 1.5) * noise / p.shape[-1] ** 0.5)
            if name.endswith(("q_a_proj.weight", "kv_a_proj_with_mqa.weight")):
                p[: model.config.kv_lora_rank] *= 0.05  # small latents, so that the epsilon of their norms counts


def save(model, folder, is_stacked):
    """Casts all weights except the router's to bf16, and saves the model: with one tensor per expert, or with stacked experts if `is_stacked`."""
    routers = {n: t.clone() for n, t in model.state_dict().items() if ".gate.weight" in n or "e_score" in n}
    model.to(torch.bfloat16)
    for name, t in routers.items():
        owner, _, last = name.rpartition(".")
        getattr(model.get_submodule(owner), last).data = t
    model.save_pretrained(folder, save_original_format=not is_stacked)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def swiglu(x, gate, up, down):
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def rotate(x, theta):
    """Rotates the interleaved pairs of x [T, heads, size]."""
    size = x.shape[-1]
    angles = np.arange(len(x))[:, None, None] * theta ** (-np.arange(0, size, 2) / size)
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def attention(x, w, c):
    """Returns the latent attention of x [T, C], in the expanded form."""
    heads, nope, rank = c["num_attention_heads"], c["qk_nope_head_dim"], c["kv_lora_rank"]
    if c["q_lora_rank"]:
        q = rms(x @ w("q_a_proj.weight").T, w("q_a_layernorm.weight"), LATENT_EPS) @ w("q_b_proj.weight").T
    else:
        q = x @ w("q_proj.weight").T
    q = q.reshape(len(x), heads, -1)
    both = x @ w("kv_a_proj_with_mqa.weight").T
    latent = rms(both[:, :rank], w("kv_a_layernorm.weight"), LATENT_EPS)
    theta = c["rope_parameters"]["rope_theta"]
    kv = (latent @ w("kv_b_proj.weight").T).reshape(len(x), heads, -1)
    scores = np.einsum("thi,shi->hts", q[..., :nope], kv[..., :nope])
    scores += np.einsum("thi,si->hts", rotate(q[..., nope:], theta), rotate(both[:, None, rank:], theta)[:, 0])
    scores = scores / np.sqrt(q.shape[-1]) + np.triu(np.full((len(x), len(x)), -np.inf), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = np.einsum("hts,shi->thi", p / p.sum(-1, keepdims=True), kv[..., nope:])
    return y.reshape(len(x), -1) @ w("o_proj.weight").T


def top(scores, k, gaps):
    """Returns the indices of the k largest scores. Appends the gap to the next score to `gaps`."""
    order = np.argsort(-scores, kind="stable")
    if k < len(scores):
        gaps.append(scores[order[k - 1]] - scores[order[k]])
    return order[:k]


def experts(x, w, c, gaps):
    """Returns the chosen experts' and the shared expert's sum for x [T, C]."""
    n, size, n_group = c["n_routed_experts"], c["moe_intermediate_size"], c["n_group"]
    sigmoids = 1 / (1 + np.exp(-x @ w("gate.weight").T))
    y = swiglu(x, *(w(f"shared_experts.{p}_proj.weight") for p in ("gate", "up", "down")))
    for t, s in enumerate(sigmoids):
        ranks = s + w("gate.e_score_correction_bias")
        of_group = np.sort(ranks.reshape(n_group, -1), -1)[:, -2:].sum(-1)
        is_open = np.zeros(n_group, bool)
        is_open[top(of_group, c["topk_group"], gaps)] = True
        chosen = top(np.where(np.repeat(is_open, n // n_group), ranks, -np.inf), c["num_experts_per_tok"], gaps)
        total = s[chosen].sum() + 1e-20 if c["norm_topk_prob"] else 1.0
        for e in chosen:
            if w("experts.gate_up_proj") is not None:
                both = w("experts.gate_up_proj")[e]
                parts = both[:size], both[size:], w("experts.down_proj")[e]
            else:
                parts = (w(f"experts.{e}.{p}_proj.weight") for p in ("gate", "up", "down"))
            y[t] += c["routed_scaling_factor"] * s[e] / total * swiglu(x[t], *parts)
    return y


def reference(folder, tokens):
    """Returns the logits of the files in a folder, in float64, and the smallest gap of all routers' choices."""
    c = json.loads((folder / "config.json").read_text())
    tensors = {n: t.double().numpy() for n, t in load_file(folder / "model.safetensors").items()}
    x, gaps = tensors["model.embed_tokens.weight"][tokens], []
    for i, kind in enumerate(c["mlp_layer_types"]):
        of = lambda part: lambda name: tensors.get(f"model.layers.{i}.{part}.{name}")
        norm = lambda part: rms(x, of(part)("weight"), c["rms_norm_eps"])
        x = x + attention(norm("input_layernorm"), of("self_attn"), c)
        hat, mlp = norm("post_attention_layernorm"), of("mlp")
        x = x + (experts(hat, mlp, c, gaps) if kind == "sparse" else swiglu(hat, *(mlp(f"{p}_proj.weight") for p in ("gate", "up", "down"))))
    return rms(x, tensors["model.norm.weight"], c["rms_norm_eps"]) @ tensors["lm_head.weight"].T, min(gaps)


def main():
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    for name, (seed, settings, is_stacked) in MODELS.items():
        folder = target / name
        model = Glm4MoeLiteForCausalLM(Glm4MoeLiteConfig(**{**SIZES, **settings}))
        randomise(model, seed)
        save(model, folder, is_stacked)
        # Loads the saved model again in f32, because the rotary wave lengths of the model in memory were cast to bf16.
        model = Glm4MoeLiteForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
        model = model.double().eval()
        text = torch.randint(4, VOCAB, (N_TOKENS,), generator=torch.Generator().manual_seed(414)).tolist()
        greedy_gap = np.inf
        for _ in range(N_GREEDY + 1):
            with torch.no_grad():
                logits = model(torch.tensor([text]), use_cache=False).logits[0]
            best = logits[-1].topk(2)
            greedy_gap = min(greedy_gap, (best.values[0] - best.values[1]).item())
            text.append(best.indices[0].item())
        tokens, greedy = text[:N_TOKENS], text[N_TOKENS:-1]
        ours, router_gap = reference(folder, text[:-1])
        theirs = logits.numpy()
        error = ((ours - theirs) ** 2).sum() / (theirs**2).sum()
        print(f"{name}: spread {theirs.std():.2f}, numpy against transformers: nmse {error:.1e}, "
              f"gaps: router {router_gap:.1e}, greedy {greedy_gap:.1e}, greedy {greedy}")
        assert error < 1e-10 and router_gap > ROUTER_GAP and greedy_gap > GREEDY_GAP, name
        tensors = {"tokens": torch.tensor(tokens).int(), "greedy": torch.tensor(greedy).int(), "logits": logits[:N_TOKENS].float().contiguous()}
        save_file(tensors, target / f"{name}.golden.safetensors")


main()
