"""Write an RWKV-7 checkpoint (safetensors, official names) as a GGUF file for llama.cpp.

usage: rwkv7_gguf.py CHECKPOINT OUT.gguf [VOCAB.txt]

Matrices become f16, and vectors and low-rank matrices f32, as llama.cpp's converter stores them. VOCAB.txt is a
vocabulary of RWKV; without it, llama.cpp accepts and returns only token ids. Needs the packages gguf and safetensors.
"""

import ast
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

TOP = {
    "emb.weight": "token_embd.weight",
    "head.weight": "output.weight",
    "ln_out.weight": "output_norm.weight",
    "ln_out.bias": "output_norm.bias",
    "blocks.0.ln0.weight": "token_embd_norm.weight",
    "blocks.0.ln0.bias": "token_embd_norm.bias",
}
FUSED = [f"att.x_{c}" for c in "rwkvag"]
LOW_RANK = [f"att.{c}{i}" for c in "wavg" for i in "12"]


def name_in_block(part):
    if part == "ffn.x_k":
        return "channel_mix_lerp_k.weight"
    for official, name in [("att.ln_x", "time_mix_ln"), ("ln1", "attn_norm"), ("ln2", "attn_norm_2"), ("att.", "time_mix_"), ("ffn.", "channel_mix_")]:
        if part.startswith(official):
            name = part.replace(official, name, 1)
            return name if name.endswith((".weight", ".bias")) else name + ".weight"
    sys.exit(f"expected a tensor of RWKV-7, found {part}")


def add_vocab(file, path, size):
    """Store the tokens as llama.cpp's RWKV tokenizer reads them: each with escapes for bytes that are not printable ASCII."""
    texts = ["<s>"] + [f"<unused {i}>" for i in range(1, size)]
    for line in open(path, encoding="utf-8"):
        index, _, token = line.rpartition(" ")[0].partition(" ")
        token = ast.literal_eval(token)
        token = token.encode() if isinstance(token, str) else token
        texts[int(index)] = repr(token)[2:-1]
    file.add_tokenizer_model("rwkv")
    file.add_token_list(texts)
    file.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (size - 1))
    file.add_eos_token_id(0)
    file.add_bos_token_id(0)


def main(checkpoint, out, vocab_file=None):
    tensors = {name: tensor.astype(np.float32) for name, tensor in load_file(checkpoint).items()}
    n_layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blocks."))
    vocab, width = tensors["emb.weight"].shape

    def rank(name, block):
        return tensors[f"blocks.{block}.att.{name}"].shape[1]

    file = gguf.GGUFWriter(out, "rwkv7")
    file.add_context_length(1 << 20)
    file.add_embedding_length(width)
    file.add_block_count(n_layers)
    file.add_layer_norm_eps(1e-5)
    file.add_wkv_head_size(tensors["blocks.0.att.r_k"].shape[1])
    file.add_decay_lora_rank(rank("w1", 0))
    file.add_iclr_lora_rank(rank("a1", 0))
    file.add_value_residual_mix_lora_rank(rank("v1", n_layers - 1))
    file.add_gate_lora_rank(rank("g1", 0))
    file.add_feed_forward_length(tensors["blocks.0.ffn.key.weight"].shape[0])
    file.add_head_count(0)
    file.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    file.add_vocab_size(vocab)
    if vocab_file:
        add_vocab(file, vocab_file, vocab)
    else:
        file.add_tokenizer_model("no_vocab")

    for name, tensor in tensors.items():
        if name in TOP:
            file.add_tensor(TOP[name], tensor.astype(np.float16) if tensor.ndim == 2 else tensor)
            continue
        _, block, part = name.split(".", 2)
        if part in FUSED or block == "0" and part in ("att.v0", "att.v1", "att.v2"):
            continue
        if part in LOW_RANK:
            tensor = np.ascontiguousarray(tensor.T)
        elif part.endswith(".weight") and tensor.squeeze().ndim == 2:
            tensor = tensor.astype(np.float16)
        else:
            tensor = tensor.reshape(-1)
        file.add_tensor(f"blk.{block}.{name_in_block(part)}", tensor)
        # llama.cpp needs v0 to v2 in block 0, which has no such tensors. Its converter stores a0 to a2 under these names.
        if block == "0" and part in ("att.a0", "att.a1", "att.a2"):
            file.add_tensor(f"blk.0.{name_in_block(part.replace('.a', '.v'))}", tensor)
    for block in range(n_layers):
        lerps = np.stack([tensors[f"blocks.{block}.{part}"].reshape(1, 1, -1) for part in FUSED])
        file.add_tensor(f"blk.{block}.time_mix_lerp_fused.weight", lerps)

    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


main(*sys.argv[1:])
