"""lm-evaluation-harness (`local-completions`) against a server: its log-likelihoods must equal the results of `wingbeat score`."""

import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="wingbeat-tests-")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TQDM_DISABLE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

import lm_eval  # noqa: E402
import lm_eval.tasks  # noqa: E402
import server  # noqa: E402
from server import BINARY, Server, folder  # noqa: E402

logging.disable(logging.WARNING)
DOCS = [
    {"text": "In the beginning God created the", "choices": [" heaven and the earth", " green purple"], "answer": 0},
    {"text": "And the LORD said unto", "choices": [" Moses", " the banana machine"], "answer": 0},
    {"text": "And the evening and the", "choices": [" morning", " xylophone"], "answer": 0},
]
TASK = """
task: tiny
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""


def score(text):
    """Returns the log-probabilities of a text's tokens, from the command line. The first is None."""
    command = [BINARY, "score", "--json", "--device", "cpu", text]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["logprobs"]


def likelihood(context, continuation):
    """Returns the log-likelihood of the continuation's tokens. Both texts are tokenized together, as in the harness."""
    return sum(score(context + continuation)[len(score(context)) :])


def evaluate(concurrent, batch):
    with folder() as path:
        data = pathlib.Path(path) / "data.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
        (pathlib.Path(path) / "tiny.yaml").write_text(TASK.format(data=data))
        arguments = {"model": "any", "base_url": f"{served.url}/v1/completions", "tokenizer_backend": "remote", "num_concurrent": concurrent, "max_retries": 1}
        tasks = lm_eval.tasks.TaskManager(include_path=path, include_defaults=False)
        done = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=["tiny"], task_manager=tasks, batch_size=batch, log_samples=True, bootstrap_iters=0)
    return done["samples"]["tiny"], done["results"]["tiny"]["acc,none"]


def likelihoods_equal_score(concurrent=1, batch=1):
    samples, accuracy = evaluate(concurrent, batch)
    wrong = []
    for sample in samples:
        doc = sample["doc"]
        for choice, resp in zip(doc["choices"], sample["resps"]):
            found, expected = resp[0][0], likelihood(doc["text"], choice)
            if abs(found - expected) > 1e-3 * max(1, abs(expected)):
                wrong.append(f"{doc['text'] + choice!r}: expected {expected:.5f}, found {found:.5f}")
    assert not wrong, "; ".join(wrong)
    assert accuracy > 0.6, f"accuracy: expected at least 2 of 3, found {accuracy}"


def likelihoods_of_batches_equal_score():
    likelihoods_equal_score(concurrent=4, batch=3)


if __name__ == "__main__":
    try:
        with Server("--deterministic") as served:
            server.run(likelihoods_equal_score, likelihoods_of_batches_equal_score)
    finally:
        shutil.rmtree(os.environ["HF_HOME"], ignore_errors=True)
