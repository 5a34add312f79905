#!/usr/bin/env python3
"""Compares GGUF files of `wingbeat convert --layout gguf` with llama.cpp: tokens of a text, and logits after each of its tokens.

    pip install llama-cpp-python numpy safetensors gguf
    python tools/check_gguf.py [--wingbeat PROGRAM] [--dtype f32|f16] [--quant KIND] [--vocab FILE] [--most NMSE] CHECKPOINT ...

For each checkpoint, the script writes a GGUF file to a temporary folder, reads it with `gguf.GGUFReader`, and runs the text through llama.cpp and
through wingbeat (`score --logits` of the original checkpoint, on the CPU). It prints the normalised mean squared error of the logits, and ends with 1 if
tokens differ or if an error is above --most. The defaults are --dtype f32 and --most 1e-6. With --quant, wingbeat runs the GGUF file itself.

With --vocab none, the files have no vocabulary, and the input is a list of ids.

To use a llama.cpp of your own: LLAMA_CPP_LIB_PATH=FOLDER names the folder of libllama.so, and PYTHONPATH the source of llama-cpp-python.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import load_file

TEXT = "In the beginning God created the heaven and the earth.\n\tAnd the earth was without form, and void; 'tis \"so\" \\n é 你好 \x01."


def reference(program, model, out, extra):
    """Return the ids of an input and the logits after each id, as wingbeat computes them on the CPU."""
    device = ["--device", "cpu", "--force", "--cache-dtype", "f32"]
    command = [program, "score", "-m", model, "--logits", out, *device, *extra]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    tensors = load_file(out)
    return tensors["tokens"].reshape(-1).astype(np.int64), tensors["logits"].astype(np.float64)


def tokenized(program, vocab):
    """Return wingbeat's ids of the text, without the ids that begin a prompt of GLM-4."""
    command = [program, "tokenize", *vocab, "-p", TEXT]
    out = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [int(i) for i in out.split()]


def llama(path, text, ids):
    """Return llama.cpp's ids of a text, and its logits after each of `ids`."""
    kv = {"type_k": 0, "type_v": 0}  # F32
    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, logits_all=True, n_gpu_layers=0, verbose=False, **kv)
    own = model.tokenize(text.encode(), add_bos=False, special=False) if text else ids
    model.eval([int(i) for i in ids])
    return own, np.array(model.scores[: len(ids)], dtype=np.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--wingbeat", default="wingbeat")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--quant")
    parser.add_argument("--vocab")
    parser.add_argument("--most", type=float, default=1e-6)
    args = parser.parse_args()
    vocab = ["--vocab", args.vocab] if args.vocab else []
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for checkpoint in args.checkpoints:
            path, out = Path(folder) / "model.gguf", Path(folder) / "logits.safetensors"
            flags = ["--layout", "gguf", "--dtype", args.dtype, "--force"] + (["--quant", args.quant] if args.quant else [])
            command = [args.wingbeat, "convert", checkpoint, path, *flags, *vocab]
            subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
            reader = gguf.GGUFReader(path)
            kinds = {}
            for tensor in reader.tensors:
                kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
            model, extra = (path, ["--quant", "keep"]) if args.quant else (checkpoint, [] if args.vocab == "none" else vocab)
            # The vocabularies of the test models are small, so all ids are below 60.
            extra = [*extra, "--tokens", ",".join(str(i * 7 % 60) for i in range(48))] if args.vocab == "none" else [*extra, "-p", TEXT]
            ids, ours = reference(args.wingbeat, model, out, [*extra, "--dtype", "f32"])
            found, theirs = llama(path, "" if args.vocab == "none" else TEXT, ids)
            wanted = ids if args.vocab == "none" else tokenized(args.wingbeat, vocab or ["-m", checkpoint])
            nmse = ((ours - theirs) ** 2).sum() / (ours**2).sum()
            tokens = "equal" if list(found) == list(wanted) else "DIFFERENT"
            architecture = reader.fields["general.architecture"].contents()
            same = (ours.argmax(1) == theirs.argmax(1)).mean()
            print(f"{checkpoint}: {architecture}, {json.dumps(kinds)}: {len(ids)} tokens {tokens}, nmse {nmse:.2e}, same top token {same:.0%}")
            bad |= tokens != "equal" or not nmse <= args.most
    sys.exit(bad)


main()
