"""Makes the random GLM models of tests/models, with their logits, by `transformers`.

    pip install transformers torch
    python tools/glm-models.py tests/models

Weights are bf16, so that the files are small. The logits are computed with the same weights in f32. Written with transformers 5.23.0.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Glm4Config, Glm4ForCausalLM, Glm4vConfig, Glm4vForConditionalGeneration, GlmConfig, GlmForCausalLM

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_key_value_heads=2, max_position_embeddings=512,
             rms_norm_eps=1e-5, pad_token_id=1, eos_token_id=[1, 2, 3])
VISION = dict(depth=1, hidden_size=16, num_heads=2, image_size=8, patch_size=4, out_hidden_size=32, intermediate_size=16)


def rope(factor, **more):
    return dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=factor, **more)


def models():
    """Yields each model with its name. Only the heads of GLM-4.1V are width / heads channels wide."""
    heads = dict(num_attention_heads=4, head_dim=16, attention_bias=False)
    # GLM-4-32B-0414 and GLM-Z1-32B-0414: two more norms per layer, no biases
    yield "glm-32b", Glm4ForCausalLM(Glm4Config(**SIZES, **heads, rope_parameters=rope(0.5)))
    # GLM-Edge: whole heads are rotated, no biases, the embedding is the head
    yield "glm-edge", GlmForCausalLM(GlmConfig(**SIZES, **heads, rope_parameters=rope(1.0), tie_word_embeddings=True))
    # Heads of 12 and 20 channels, which kernels pad to 16 and 24: with biases, then with whole heads rotated
    odd = dict(num_attention_heads=4, attention_bias=True)
    yield "glm-heads-12", Glm4ForCausalLM(Glm4Config(**SIZES, **odd, head_dim=12, rope_parameters=rope(0.5)))
    yield "glm-heads-20", GlmForCausalLM(GlmConfig(**SIZES, **odd, head_dim=20, rope_parameters=rope(1.0)))
    # GLM-4.1V and GLM-4.6V-Flash: sections of rotary embeddings, other names, a vision encoder
    text = dict(**SIZES, num_attention_heads=4, rope_parameters=rope(0.5, mrope_section=[1, 0, 1]))
    yield "glm-41v", Glm4vForConditionalGeneration(Glm4vConfig(text_config=text, vision_config=VISION, image_token_id=4, video_token_id=5))


def randomise(model):
    """Replaces all weights, because the default norms and biases would hide mistakes."""
    torch.manual_seed(414)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape)
            if p.ndim > 1:
                p.copy_(noise / p.shape[-1] ** 0.5)
            else:
                p.copy_(0.5 * noise if name.endswith("bias") else 1 + 0.25 * noise)


torch.set_num_threads(1)
folder = Path(sys.argv[1])
tokens = torch.tensor([[(7 * i * i + 3 * i + 11) % 64 for i in range(24)]])
tokens[tokens == 4] = 6  # 4 and 5 are the ids of images and videos in GLM-4.1V
tokens[tokens == 5] = 7
for name, model in models():
    randomise(model)
    model.to(torch.bfloat16).save_pretrained(folder / name)
    # A model that is only cast to f32 would keep the rotary wave lengths in bf16.
    model = type(model).from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(tokens).logits[0]
    save_file({"tokens": tokens[0].int(), "logits": logits.contiguous()}, folder / f"{name}.golden.safetensors")
    print(name, logits.abs().max().item())
