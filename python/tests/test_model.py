"""Texts, vectors, scores and logits of the embedded model."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import MODELS, SMALL_WORLD, TINY

import wingbeat
from wingbeat.events import Done, Prompt, Started, Text

PROMPT = "Once upon a time"


def test_a_text_is_whole_or_comes_in_pieces(model: wingbeat.Model) -> None:
    answer = model.generate(PROMPT, max_tokens=12, temperature=0)
    assert answer.text and str(answer) == answer.text
    assert (answer.finish_reason, len(answer.tokens), answer.usage.completion_tokens) == ("length", 12, 12)
    events = list(model.generate(PROMPT, max_tokens=12, temperature=0, stream=True))
    assert isinstance(events[0], Started) and isinstance(events[-1], Done)
    assert "".join(event.text for event in events if isinstance(event, Text)) == answer.text
    assert events[-1].tokens == answer.tokens
    by_ids = model.generate(model.tokenizer.encode(PROMPT), max_tokens=12, temperature=0)
    assert by_ids.text == answer.text
    by_array = model.generate(np.array(model.tokenizer.encode(PROMPT)), max_tokens=12, temperature=0)
    assert by_array.tokens == answer.tokens


def test_guesses_change_no_text(model: wingbeat.Model) -> None:
    prompt = "Once upon a time there was a fox named Luna. She lived in the forest. Once upon a time there was a fox named Luna. She lived"
    plain = model.generate(prompt, max_tokens=40, seed=5, temperature=0)
    assert (plain.timings.drafted, plain.timings.accepted) == (0, 0)
    with wingbeat.Model.embedded(device="cpu", dtype="f32", speculate="ngram", draft_tokens=4) as guessing:
        answer = guessing.generate(prompt, max_tokens=40, seed=5, temperature=0)
        assert answer.tokens == plain.tokens
        assert 0 <= answer.timings.accepted <= answer.timings.drafted and answer.timings.drafted > 0
        assert guessing.generate(prompt, max_tokens=40, seed=5, temperature=0, speculate="off").timings.drafted == 0
    with wingbeat.Model.embedded(device="cpu", dtype="f32", draft=SMALL_WORLD, draft_quant="i8", draft_tokens=2) as guessing:
        answer = guessing.generate(prompt, max_tokens=40, seed=5, temperature=0)
        assert answer.tokens == plain.tokens and answer.timings.accepted > 0
    with pytest.raises(wingbeat.WingbeatError, match="no memory for guesses"):
        model.generate(prompt, speculate="ngram")
    with pytest.raises(wingbeat.WingbeatError, match="draft needs a draft model"):
        wingbeat.Model.embedded(device="cpu", speculate="draft")


def test_a_request_has_the_fields_of_the_server(model: wingbeat.Model) -> None:
    answer = model.generate(PROMPT, n=3, seed=7, max_tokens=6, logprobs=2, stop=[" the"], logit_bias={10: -5.0})
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.seed for choice in answer.choices] == [7, 8, 9]
    first = answer.logprobs[0]
    assert first.logprob <= 0 and len(first.top) == 2 and first.text == first.bytes.decode("utf-8", "replace")
    same = model.generate(PROMPT, n=3, seed=7, max_tokens=6, logprobs=2, stop=[" the"], logit_bias={10: -5.0})
    assert [choice.text for choice in same.choices] == [choice.text for choice in answer.choices]
    chosen = model.generate(PROMPT, choice=["yes", "no"], max_tokens=8)
    assert chosen.text in ("yes", "no") and chosen.choices[0].complete
    chat = model.generate(messages=[{"role": "user", "content": "light"}], max_tokens=8, temperature=0)
    assert chat.usage.prompt_tokens > 1
    with pytest.raises(wingbeat.InputError) as e:
        model.generate(PROMPT, tempo=1)  # type: ignore[call-overload]
    assert e.value.field == "tempo" and e.value.hint


def test_answers_of_a_batch_come_in_order(model: wingbeat.Model) -> None:
    taken: list[int] = []

    def prompts():  # type: ignore[no-untyped-def]
        for i in range(12):
            taken.append(i)
            yield PROMPT + " " * i

    batch = model.batch(prompts(), max_tokens=5, temperature=0, window=3)
    first = next(batch)
    assert isinstance(first, wingbeat.Answer) and len(taken) == 3
    rest = list(batch)
    alone = [model.generate(PROMPT + " " * i, max_tokens=5, temperature=0).text for i in range(12)]
    assert [str(answer) for answer in [first, *rest]] == alone
    mixed = [PROMPT, {"prompt": PROMPT, "max_tokens": -7}, [{"role": "user", "content": "light"}], {"tokens": [5, 6], "max_tokens": 1}]
    found = list(model.batch(mixed, errors="return", max_tokens=2))
    assert [type(answer) for answer in found] == [wingbeat.Answer, wingbeat.InputError, wingbeat.Answer, wingbeat.Answer]
    with pytest.raises(wingbeat.InputError):
        list(model.batch(mixed, max_tokens=2))


def test_a_list_is_not_a_text(model: wingbeat.Model) -> None:
    for call in (lambda: model.batch("ab"), lambda: model.scores("ab"), lambda: model.rerank("q", "abc"), lambda: model.batch({"prompt": "a"})):
        with pytest.raises(wingbeat.InputError, match="expected a list"):
            call()
    with pytest.raises(wingbeat.InputError, match="None"):
        list(model.batch(["a", None, "b"], max_tokens=1))  # type: ignore[list-item]


def test_a_cancelled_generation_has_no_answer(model: wingbeat.Model) -> None:
    generation = model.generate(PROMPT, n=2, max_tokens=3, ignore_eos=True, stream=True)
    for event in generation:
        if isinstance(event, Done):
            generation.cancel()
    with pytest.raises(wingbeat.InputError, match="cancelled"):
        generation.result()
    whole = model.generate(PROMPT, n=2, max_tokens=3, ignore_eos=True, stream=True)
    with whole:
        answer = whole.result()
    assert whole.result() == answer and len(answer.choices) == 2
    dropped = wingbeat.Model.embedded(device="cpu").generate(PROMPT, max_tokens=2, logprobs=1, stream=True).result()
    assert all(token.bytes for token in dropped.logprobs)


def test_logits_are_rows_of_an_array(model: wingbeat.Model) -> None:
    tokens = model.tokenizer.encode("In the beginning God created the heaven")
    logits = model.logits(tokens)
    assert logits.shape == (len(tokens), model.info.n_vocab) and logits.dtype == np.float32
    score = model.score(tokens)
    log_sums = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    want = [float(logits[t, token] - log_sums[t]) for t, token in enumerate(tokens[1:])]
    assert score.tokens == tuple(tokens) and score.logprobs[0] is None
    assert np.allclose([float(x or 0) for x in score.logprobs[1:]], want, atol=1e-4)
    assert score.perplexity == pytest.approx(np.exp(score.nll)) and score.n == len(tokens) - 1
    likely, is_greedy = model.loglikelihoods([(tokens[:3], tokens[3:])])[0]
    assert likely == pytest.approx(sum(want[2:]), abs=1e-3) and not is_greedy
    for _ in range(30):
        with pytest.raises(wingbeat.InputError, match=r"requests\[1\].*out of range"):
            model.loglikelihoods([([1], [2]), ([1], [1 << 30])])
    assert model.logits(tokens).shape == logits.shape
    assert len(model.scores(["a", "In the", PROMPT])) == 3


def test_vectors_have_the_length_one(model: wingbeat.Model) -> None:
    vectors = model.embed([PROMPT, "And God said", PROMPT])
    assert vectors.shape == (3, model.info.n_embd)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5) and np.allclose(vectors[0], vectors[2], atol=1e-6)
    assert model.embed(PROMPT).shape == (model.info.n_embd,)
    assert model.embed([]).shape == (0, model.info.n_embd)
    assert not np.allclose(model.embed(PROMPT, pooling="mean"), vectors[0], atol=1e-3)
    with pytest.raises(wingbeat.InputError):
        model.rerank("q", ["d"])
    assert model.rerank("q", []) == []


def test_documents_are_ranked_as_by_their_package() -> None:
    folder = MODELS / "tiny-embedding"
    package = json.loads((folder / "golden.json").read_text())
    options = {"device": "cpu", "dtype": "f32", "vocab": folder / "vocab.txt"}
    with wingbeat.Model(folder / "embedding.pth", reranker=folder / "reranker.pth", **options) as model:  # type: ignore[arg-type]
        ranked = model.rerank(package["query"], package["documents"])
        assert [document.index for document in ranked] == [2, 0, 1] and ranked[0].document == package["documents"][2]
        assert np.allclose([document.logit for document in ranked], sorted(package["logits"], reverse=True), atol=1e-4)
        assert all(0 < document.score < 1 for document in ranked)
        with pytest.raises(wingbeat.InputError):
            model.generate(PROMPT)
    with wingbeat.Model(folder / "embedding.pth", normalise=False, task="classification", **options) as model:  # type: ignore[arg-type]
        assert np.allclose(model.embed(package["texts"]), package["vectors"]["classification"], atol=1e-3)


def test_ids_are_exact(model: wingbeat.Model) -> None:
    text = "In the beginning – naïve 日本 🐦\n\n"
    ids = model.tokenizer.encode(text)
    assert model.tokenizer.decode(ids) == text and model.tokenizer.decode_bytes(ids) == text.encode()
    assert model.tokenizer.encode(b"\xff\xfe") and model.tokenizer.decode(ids[0])
    world = wingbeat.Tokenizer.open("world")
    assert world.decode(world.encode(text)) == text
    with pytest.raises(wingbeat.FileError):
        wingbeat.Tokenizer.open("/nowhere/vocab.txt")
    with pytest.raises(wingbeat.InputError):
        world.decode([1 << 20])


def test_a_template_is_text_or_ids(model: wingbeat.Model) -> None:
    messages = [{"role": "user", "content": "light"}]
    text = model.apply_template(messages)
    assert "light" in text and model.apply_template(messages, tokenize=True) == model.tokenizer.encode(text)


def test_attention_has_a_context(glm: wingbeat.Model) -> None:
    assert glm.info.context
    shared = list(range(40))
    found = glm.loglikelihoods([(shared + [n], [5, 6]) for n in range(4)] + [([7], [])])
    alone = [glm.loglikelihoods([(shared + [n], [5, 6])])[0] for n in range(4)]
    assert np.allclose([pair[0] for pair in found[:4]], [pair[0] for pair in alone], atol=1e-4) and found[4] == (0.0, True)
    with pytest.raises(wingbeat.InputError):
        glm.logits([1] * (glm.info.context + 1))
    with pytest.raises(wingbeat.ModelError):
        glm._native.forward([1], [], False)


def test_states_continue_a_text(model: wingbeat.Model, tmp_path: Path) -> None:
    whole = model.generate(PROMPT, max_tokens=10, temperature=0)
    first = model.generate(PROMPT, max_tokens=4, temperature=0, save_state="four")
    saved = first.choices[0].state
    assert saved == model.states.list()[0] and "four" in model.states and len(model.states) == 1
    rest = model.generate("", state="four", max_tokens=6, temperature=0)
    assert first.text + rest.text == whole.text
    model.states.save("four", tmp_path / "four.state")
    state = pickle.loads(pickle.dumps(model.states["four"]))
    assert state.data == (tmp_path / "four.state").read_bytes() and state == wingbeat.State.load(tmp_path / "four.state")
    state.save(tmp_path / "again.state")
    model.states["again"] = state
    model.states.load("file", tmp_path / "again.state")
    model.states.fork("file", "fork")
    for name in ("again", "file", "fork"):
        assert model.generate("", state=name, max_tokens=6, temperature=0).text == rest.text
    del model.states["again"]
    model.states.delete("file")
    assert sorted(model.states) == ["fork", "four"]
    with pytest.raises(KeyError):
        model.states["again"]
    with pytest.raises(wingbeat.InputError):
        model.states.delete("again")
    model.states.clear()
    assert len(model.states) == 0
    with wingbeat.Model(Path(__file__).parents[2] / "tests/models/tiny-rwkv6.safetensors", device="cpu") as other:
        with pytest.raises(wingbeat.ModelError):
            other.states["four"] = state


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([1.5], "expected a list of token ids"),
        ([True], "expected a list of token ids"),
        ([-1], "expected ids of at least 0, found -1"),
        (np.array([1.0]), "expected whole numbers, found an array of float64"),
        (np.array([[1]]), "expected an array of one dimension, found 2"),
        ([1 << 30], "out of range"),
        ([1 << 32], "out of range"),
        (b"In the", "expected a list of token ids"),
        ([], "expected at least 1 token"),
        (7, "expected a list of token ids"),
    ],
)
def test_wrong_tokens_are_refused(model: wingbeat.Model, tokens: object, said: str) -> None:
    with pytest.raises(wingbeat.InputError, match=said):
        model.logits(tokens)  # type: ignore[arg-type]


def test_wrong_options_and_files_are_refused(tmp_path: Path) -> None:
    for options, field in [
        ({"quant": "i3"}, "quant"),
        ({"device": "gpu:x"}, "device"),
        ({"colour": "red"}, "colour"),
        ({"slots": 0}, "slots"),
        ({"context": [1]}, "context"),
        ({"lora_alpha": 8}, "lora"),
        ({"pooling": "first"}, "pooling"),
        ({"task": "x"}, "task"),
        ({"threads": 0}, "threads"),
        ({"strategy": "cpu fp32"}, "device"),
    ]:
        with pytest.raises(wingbeat.InputError) as e:
            wingbeat.Model.embedded(**{"device": "cpu", **options})  # type: ignore[arg-type]
        assert (e.value.field or "").startswith(field), e.value
    with pytest.raises(wingbeat.InputError, match="states_folder") as unknown:
        wingbeat.Model.embedded(state_folder=".")  # type: ignore[call-arg]
    assert unknown.value.field == "state_folder"
    with wingbeat.Model.embedded(device=None, slots=np.int64(2), strategy="cpu fp32") as model:  # type: ignore[arg-type]
        assert model.info.slots == 2
        with pytest.raises(wingbeat.FileError) as no_state:
            model.states["q"] = b"no state"
        assert "wingbeat:" not in str(no_state.value) and "Session::" not in str(no_state.value)
    for call in (lambda: model.embed([]), lambda: model.rerank("q", []), lambda: model.batch([]), model.__enter__):
        with pytest.raises(wingbeat.ClosedError):
            call()
    with pytest.raises(wingbeat.FileError):
        wingbeat.Model("/nowhere/model.pth")
    with pytest.raises(wingbeat.FileError) as missing:
        wingbeat.Model("rwkv7-g1-1.5b")
    assert "`download=True`" in str(missing.value)
    (tmp_path / "model.safetensors").write_bytes(b"no model")
    with pytest.raises(wingbeat.WingbeatError, match="model.safetensors"):
        wingbeat.Model(tmp_path / "model.safetensors")
    copied = pickle.loads(pickle.dumps(missing.value))
    assert type(copied) is wingbeat.FileError and copied.hint == missing.value.hint
    assert copy.copy(missing.value).args == missing.value.args


def test_a_closed_model_refuses(caplog: pytest.LogCaptureFixture) -> None:
    model = wingbeat.Model.embedded(device="cpu", slots=1)
    running = model.generate(PROMPT, max_tokens=100_000, ignore_eos=True, stream=True)
    next(running)
    waiting = model.generate(PROMPT, max_tokens=1, stream=True)
    model.close()
    model.close()
    last = running.result()
    assert last.choices[0].finish == "interrupted"
    with pytest.raises(wingbeat.WingbeatError):
        waiting.result()
    for call in (lambda: model.generate(PROMPT), lambda: model.logits([1]), lambda: model.states.list(), model.stats):
        with pytest.raises(wingbeat.ClosedError, match="the model is closed"):
            call()
    assert "closed" in repr(model)


def test_progress_and_log(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, int, int]] = []
    caplog.set_level(logging.DEBUG, "wingbeat")
    with wingbeat.Model.synthetic("rwkv7-0.1b", device="cpu", quant="i8", slots=1, progress=lambda *at: told.append(at)) as model:
        assert told[-1][0] == "weights" and told[-1][1] == told[-1][2] > 0
        assert model.info.n_layer == 12 and model.info.dtype.startswith("i8") and model.info.device.id == "cpu"
    wingbeat.Model(TINY[4], device="cpu").close()
    assert any(record.name == "wingbeat" and "tensors in 1 files" in record.getMessage() for record in caplog.records)

    def refuse(stage: str, done: int, total: int) -> None:
        raise KeyError(stage)

    with pytest.raises(KeyError):
        wingbeat.Model.synthetic("rwkv7-0.1b", device="cpu", progress=refuse)


def test_a_prompt_has_log_probabilities(model: wingbeat.Model) -> None:
    answer = model.generate(PROMPT, echo=True, logprobs=0, max_tokens=0)
    assert isinstance(answer.prompt, Prompt) and answer.prompt.first == model.tokenizer.encode(PROMPT)[0]
    assert answer.choices[0].prompt_logprobs == answer.prompt.logprobs
