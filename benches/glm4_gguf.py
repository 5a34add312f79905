"""Write a GLM-4 checkpoint (safetensors of `wingbeat bench --synthetic glm4-… --write`) as a GGUF file for llama.cpp.

usage: glm4_gguf.py CHECKPOINT OUT.gguf

Matrices become f16 and vectors f32. The file has no vocabulary: llama.cpp accepts and returns only token ids. Needs the packages gguf and safetensors.
"""

import json
import sys

import gguf
import numpy as np
from safetensors import safe_open

TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight",
}
IN_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def name_of(tensor):
    if tensor in TOP:
        return TOP[tensor]
    _, _, block, part = tensor.split(".", 3)
    part, kind = part.rsplit(".", 1)
    if part not in IN_BLOCK:
        sys.exit(f"expected a tensor of GLM-4, found {tensor}")
    return f"blk.{block}.{IN_BLOCK[part]}.{kind}"


def main(checkpoint, out):
    file = gguf.GGUFWriter(out, "chatglm")
    with safe_open(checkpoint, "np") as tensors:
        facts = json.loads(tensors.metadata()["wingbeat.glm"])
        names = list(tensors.keys())
        vocab, width = tensors.get_slice("model.embed_tokens.weight").get_shape()
        file.add_context_length(facts["max_context"])
        file.add_embedding_length(width)
        file.add_block_count(1 + max(int(name.split(".")[2]) for name in names if name.startswith("model.layers.")))
        file.add_feed_forward_length(tensors.get_slice("model.layers.0.mlp.down_proj.weight").get_shape()[1])
        file.add_head_count(facts["n_head"])
        file.add_head_count_kv(facts["n_kv_head"])
        file.add_layer_norm_rms_eps(facts["rms_norm_eps"])
        file.add_rope_dimension_count(facts["rotary_size"])
        file.add_rope_freq_base(facts["rope_theta"])
        file.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        file.add_vocab_size(vocab)
        file.add_tokenizer_model("no_vocab")
        for name in names:
            tensor = tensors.get_tensor(name)
            file.add_tensor(name_of(name), tensor.astype(np.float16 if tensor.ndim == 2 else np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


main(*sys.argv[1:])
