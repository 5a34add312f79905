"""Tests the drop-in for the package `rwkv`. Compares it with the package, if the package is installed."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, TINY

import wingbeat
from wingbeat.rwkv import PIPELINE, PIPELINE_ARGS, RWKV

VOCAB = MODELS.parents[1] / "assets" / "vocab" / "tiny.txt"
CONTEXT = "In the beginning God created the heaven and the earth."


def opened(version: int, strategy: str = "cpu fp32") -> RWKV:
    return RWKV(os.fspath(TINY[version]), strategy, verbose=False, vocab=VOCAB)


def numbers(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.detach().float().numpy() if hasattr(tensor, "detach") else tensor)


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_a_state_has_the_tensors_of_the_package(version: int) -> None:
    model = opened(version)
    tokens = list(range(3, 20))
    whole, state = model.forward(tokens, None)
    assert whole.shape == (model.args.vocab_size,) and len(state) == model.n_layer * (5 if version == 4 else 3)
    full, _ = model.forward(tokens, None, full_output=True)
    assert full.shape == (len(tokens), model.args.vocab_size) and np.allclose(numbers(full)[-1], numbers(whole), atol=1e-5)
    assert model.forward(tokens[:1], None, full_output=True)[0].shape == (model.args.vocab_size,)

    out, begun = model.forward(tokens[:5], model.generate_zero_state())
    clone = copy.deepcopy(begun)
    for token in tokens[5:]:
        out, same = model.forward(token, begun)
        assert same is begun
    assert np.allclose(numbers(out), numbers(whole), atol=1e-4)
    for ours, theirs in zip(begun, state, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and np.allclose(numbers(ours), numbers(theirs), atol=1e-3)
    assert np.allclose(numbers(model.forward(tokens[5:], clone)[0]), numbers(whole), atol=1e-4)
    model.inner.close()


def test_types_follow_the_strategy() -> None:
    for version in (6, 7):
        model = opened(version, "cpu fp16")
        out, state = model.forward([3, 4], None)
        half, single = str(state[0].dtype).removeprefix("torch."), str(state[1].dtype).removeprefix("torch.")
        assert (half, single) == ("float16", "float32")
        assert str(out.dtype).removeprefix("torch.") == ("float16" if version == 7 else "float32")
        model.inner.close()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda state: state[:-1], "expected 12 tensors, found 11"),
        (lambda state: [*state[:-1], np.zeros(3, np.float32)], r"state\[11\]: expected the shape"),
        (lambda state: [np.zeros(state[0].shape, np.int64), *state[1:]], r"state\[0\]: expected floats, found int64"),
    ],
)
def test_wrong_states_are_refused(spoil: Any, said: str) -> None:
    model = opened(6)
    state = model.generate_zero_state()
    said = said.replace("12", str(len(state))).replace("11", str(len(state) - 1))
    with pytest.raises(wingbeat.InputError, match=said):
        model.forward([1], spoil(state))
    for tokens in ([], [-1], [1 << 30], ["a"]):
        with pytest.raises(wingbeat.InputError):
            model.forward(tokens, None)
    model.inner.close()


def test_a_pipeline_continues_a_text() -> None:
    model = opened(7)
    pipeline = PIPELINE(model, os.fspath(VOCAB))
    pieces: list[str] = []
    args = PIPELINE_ARGS(temperature=0, alpha_frequency=0, alpha_presence=0, chunk_len=4)
    text = pipeline.generate(CONTEXT, token_count=12, args=args, callback=pieces.append)
    assert "".join(pieces) == text
    want = model.inner.generate(CONTEXT, max_tokens=12, temperature=0, presence_penalty=0, frequency_penalty=0, ignore_eos=True)
    assert text == want.text
    banned = want.tokens[0]
    other = pipeline.generate(CONTEXT, token_count=1, args=PIPELINE_ARGS(temperature=0, token_ban=[banned]))
    assert pipeline.encode(other) != [banned]
    assert pipeline.generate(CONTEXT, token_count=5, args=PIPELINE_ARGS(temperature=0, token_stop=[banned])) == ""
    assert pipeline.refine_context(" a \n\n b\u3000\r\n") == "\na\nb"
    assert pipeline.decode(pipeline.encode("é")[:1]) in ("é", "\ufffd")
    model.inner.close()


def test_calls_of_the_package_are_accepted() -> None:
    model = opened(7)
    want = numbers(model.forward([3], None)[0])
    for out, _ in (model.forward(np.int64(3), None), model.forward(idx=3), model([3]), model.forward(np.array([3]), None)):  # type: ignore[arg-type]
        assert np.array_equal(numbers(out), want)
    pipeline = PIPELINE(model, "rwkv_vocab_v20230424")
    assert pipeline.decode([0]) == pipeline.decode([65530]) == "\ufffd"
    text = "hello \ufffd world"
    assert pipeline.decode(pipeline.encode(text)) == text
    model.inner.close()


def test_install_makes_the_package_ours() -> None:
    code = (
        "import wingbeat.rwkv; wingbeat.rwkv.install()\n"
        "from rwkv.model import RWKV\nfrom rwkv.utils import PIPELINE, PIPELINE_ARGS\nimport rwkv\n"
        "import importlib.util, rwkv.rwkv_tokenizer\nassert importlib.util.find_spec('rwkv')\n"
        "assert RWKV is wingbeat.rwkv.RWKV is rwkv.model.RWKV and PIPELINE is rwkv.utils.PIPELINE\n"
        "model = RWKV(model=__import__('sys').argv[1].removesuffix('.safetensors'), strategy='cuda fp16' if False else 'cpu fp32')\n"
        "print(model.forward([1, 2], None)[0].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code, os.fspath(TINY[7])], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "2048" in done.stdout, done.stderr


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_the_package_says_the_same(version: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("rwkv")
    done = subprocess.run(
        [sys.executable, os.fspath(Path(__file__).with_name("against_package.py")), os.fspath(TINY[version]), os.fspath(VOCAB)],
        env={**os.environ, "RWKV_V7_ON": "1" if version == 7 else "0", "RWKV_JIT_ON": "0"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
