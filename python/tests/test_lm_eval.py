"""Tests the model for lm-evaluation-harness: compares the wheel with the server and with a reference in torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import MODELS, SMALL_WORLD

import wingbeat

lm_eval = pytest.importorskip("lm_eval")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TQDM_DISABLE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

VOCAB = MODELS.parents[1] / "assets" / "vocab" / "small-world.txt"
DOCS = [
    {"text": "Once upon a time there was a", "choices": [" fox named Luna", " green purple"], "answer": 0},
    {"text": "The opposite of hot is", "choices": [" cold", " the banana machine"], "answer": 0},
    {"text": "She lived in the", "choices": [" garden", " xylophone"], "answer": 0},
]
COMMON = """
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
doc_to_text: "{{{{text}}}}"
target_delimiter: ""
num_fewshot: 0
"""
CHOICES = 'task: choices\noutput_type: multiple_choice\ndoc_to_choice: "{{{{choices}}}}"\ndoc_to_target: "{{{{answer}}}}"\nmetric_list:\n  - metric: acc\n'
TEXTS = 'task: texts\noutput_type: generate_until\ndoc_to_target: "{{{{choices[0]}}}}"\ngeneration_kwargs:\n  until: ["."]\n  max_gen_toks: 12\n  do_sample: false\nmetric_list:\n  - metric: exact_match\n'
ROLLING = 'task: rolling\noutput_type: loglikelihood_rolling\ndoc_to_target: "{{{{text}}}}"\nmetric_list:\n  - metric: word_perplexity\n'

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tasks."""
    folder = tmp_path_factory.mktemp("tasks")
    os.environ["HF_HOME"] = os.fspath(folder)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    for task in (CHOICES, TEXTS, ROLLING):
        (folder / (task[6:11].strip() + ".yaml")).write_text((task + COMMON).format(data=data))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    import lm_eval.tasks

    import wingbeat.lm_eval  # noqa: F401  registers the model

    tasks = lm_eval.tasks.TaskManager(include_path=os.fspath(folder), include_defaults=False)
    options = {"path": "embedded", "device": "cpu", "dtype": "f32"}
    return lm_eval.simple_evaluate(  # type: ignore[no-any-return]
        model="wingbeat", model_args=options, tasks=["choices", "texts", "rolling"], task_manager=tasks, batch_size=4, log_samples=True, bootstrap_iters=0
    )


def pairs(samples: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    return [
        (sample["doc"]["text"], choice, float(answer[0][0]))
        for sample in samples
        for choice, answer in zip(sample["doc"]["choices"], sample["resps"], strict=True)
    ]


def test_log_likelihoods_equal_a_reference_in_torch(found: dict[str, Any]) -> None:
    pytest.importorskip("rwkv")
    import torch

    pytest.importorskip("safetensors")
    code = (
        "import json, sys, torch\nfrom safetensors.torch import load_file\nfrom rwkv.model import RWKV\n"
        "torch.save({k: v.float() for k, v in load_file(sys.argv[1]).items()}, sys.argv[2] + '/official.pth')\n"
        "model = RWKV(model=sys.argv[2] + '/official', strategy='cpu fp32')\nresults = []\n"
        "for context, rest in json.loads(sys.argv[3]):\n"
        "    logits = torch.atleast_2d(model.forward(context + rest, None, True)[0]).double().log_softmax(-1)\n"
        "    results.append(sum(float(logits[len(context) - 1 + i, token]) for i, token in enumerate(rest)))\n"
        "print('RESULT', json.dumps(results))"
    )
    tokenizer = wingbeat.Tokenizer.open(VOCAB)
    asked = []
    for context, rest, _ in pairs(found["samples"]["choices"]):
        whole, begin = tokenizer.encode(context + rest), tokenizer.encode(context)
        asked.append((whole[: len(begin)], whole[len(begin) :]))
    folder = Path(os.environ["HF_HOME"])
    done = subprocess.run(
        [sys.executable, "-c", code, os.fspath(SMALL_WORLD), os.fspath(folder), json.dumps(asked)],
        env={**os.environ, "RWKV_V7_ON": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    line = re.search(r"RESULT (.*)", done.stdout)
    assert line and torch, done.stderr
    for (_, _, ours), theirs in zip(pairs(found["samples"]["choices"]), json.loads(line[1]), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4 * max(1, abs(theirs)))
    assert found["results"]["choices"]["acc,none"] > 0.6


def wait_for(url: str) -> None:
    """Waits until the server has loaded its model."""
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_the_server_says_the_same(found: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "wingbeat", "serve", "--device", "cpu", "--dtype", "f32", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = ""
        while not url:
            line = server.stderr.readline()
            assert line, "the server ended"
            address = re.search(r"http://[0-9.]+:[1-9][0-9]*", line)
            url = address[0] if address else ""
        wait_for(f"{url}/health")
        tokenizer = wingbeat.Tokenizer.open(VOCAB)
        for context, rest, ours in pairs(found["samples"]["choices"]):
            body = json.dumps({"prompt": context + rest, "echo": True, "logprobs": 1, "max_tokens": 0}).encode()
            request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as response:
                logprobs = json.load(response)["choices"][0]["logprobs"]["token_logprobs"]
            assert ours == pytest.approx(sum(logprobs[len(tokenizer.encode(context)) :]), abs=1e-4 * max(1, abs(ours)))
    finally:
        server.terminate()
        server.communicate()


def test_texts_and_rolling_likelihoods(found: dict[str, Any]) -> None:
    with wingbeat.Model.embedded(device="cpu", dtype="f32") as model:
        for sample in found["samples"]["texts"]:
            want = model.generate(sample["doc"]["text"], max_tokens=12, stop=["."], temperature=0, presence_penalty=0, frequency_penalty=0)
            assert sample["resps"][0][0] == want.text
        for sample in found["samples"]["rolling"]:
            tokens = [model.info.eot_token, *model.tokenizer.encode(sample["doc"]["text"])]
            want_sum = sum(logprob for logprob in model.score(tokens).logprobs if logprob is not None)
            answer = sample["resps"][0]
            answer = answer[0] if isinstance(answer, (list, tuple)) else answer
            assert float(answer) == pytest.approx(want_sum, abs=1e-3)


@pytest.mark.parametrize("arguments", ["--model_args path=embedded,device=cpu", "--model_args path=embedded,batch_size=4 --device cpu --batch_size 2"])
def test_the_command_of_the_page_runs(folder: Path, arguments: str) -> None:
    command = [sys.executable, "-m", "wingbeat.lm_eval", "run", "--model", "wingbeat", *arguments.split()]
    command += ["--include_path", os.fspath(folder), "--tasks", "choices", "texts", "--output_path", os.fspath(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\|choices *\|.*\|acc *\|.*\| *1(?:\.0+)?\|", done.stdout) and re.search(r"\|texts *\|", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("arguments", "harness", "device", "slots"),
    [
        ("path=embedded,device=cpu", "cuda:0", "cpu", 3),
        ("path=embedded,device=cpu,batch_size=5", "cuda:1", "cpu", 5),
        ("path=embedded", "cpu", "cpu", 3),
        ("path=embedded,strategy=cpu fp32", "cuda:0", "cpu", 3),
        ("path=embedded,strategy=cpu fp32", "cpu", "cpu", 3),
    ],
)
def test_arguments_of_the_model_replace_those_of_the_harness(arguments: str, harness: str, device: str, slots: int) -> None:
    from lm_eval.utils import simple_parse_args_string

    from wingbeat.lm_eval import WingbeatLM

    beside = {"device": harness, "batch_size": 3, "max_batch_size": None}
    for made in (WingbeatLM.create_from_arg_string(arguments, beside), WingbeatLM.create_from_arg_obj(simple_parse_args_string(arguments), beside)):
        info = made.model.info
        assert (info.device.id, info.slots, made.batch_size) == (device, slots, slots)
        made.model.close()


def test_devices_of_torch_are_gpus() -> None:
    from wingbeat.lm_eval import _device

    assert [_device(name) for name in ("cuda", "cuda:1", "mps", "cpu", "gpu:2")] == ["gpu", "gpu:1", "gpu", "cpu", "gpu:2"]
