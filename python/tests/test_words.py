"""Tests the texts that a user of Python reads: hints that name Python's arguments, objects that describe themselves, and nothing on stderr. Also
tests which keys a model may write for a schema."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MODELS, TINY, run

import wingbeat

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name"],
}
WILD = {"max_tokens": 60, "temperature": 1.5, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}


def test_hints_name_what_python_has(model: wingbeat.Model, tmp_path: Path) -> None:
    state = tmp_path / "a.state"
    model.generate("In the beginning", max_tokens=1, save_state="words")
    model.states.save("words", state)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: wingbeat.Model(state), "`model.states.load(name, path)`"),
        (lambda: wingbeat.Model(state), "`python -m wingbeat chat --load`"),
        (lambda: model.states.load("x", TINY[6]), "`model.generate(…, save_state=name)`"),
        (lambda: wingbeat.Model("rwkv7-g1-1.5b"), "`download=True`"),
        (lambda: wingbeat.Model.embedded(device="cpu", draft_tokens=3), '`speculate="auto"`'),
        (lambda: wingbeat.Model(MODELS / "tiny-glm4", device="cpu", context=8).logits(range(20)), "`context`"),  # type: ignore[arg-type]
    ]
    for call, here in cases:
        with pytest.raises(wingbeat.WingbeatError) as found:
            call()
        hint = str(found.value.hint)
        assert here in hint and "::" not in hint and hint in str(found.value), hint
    with pytest.raises(wingbeat.InputError, match=r"^name: unknown synthetic model") as found:
        wingbeat.Model.synthetic("x")
    assert found.value.field == "name"


@pytest.mark.skipif(sys.platform != "linux", reason="hides the drivers of Vulkan on Linux")
def test_without_a_gpu_the_hint_is_a_command_of_this_python(tmp_path: Path) -> None:
    code = (
        "import wingbeat\n"
        "try:\n    wingbeat.Model.embedded(device='gpu')\n    print('opened')\n"
        "except wingbeat.DeviceError as e:\n    print(e.hint)"
    )
    none = os.fspath(tmp_path / "none.json")
    done = run(code, env={**os.environ, "VK_DRIVER_FILES": none, "VK_ICD_FILENAMES": none})
    if done.stdout == "opened\n":
        pytest.skip("there is a GPU without Vulkan")
    assert "`python -m wingbeat doctor`" in done.stdout and '`device="cpu"`' in done.stdout, done


def test_a_state_describes_itself(model: wingbeat.Model) -> None:
    model.generate("In the beginning", max_tokens=1, save_state="described")
    state = model.states["described"]
    known = next(state for state in model.states.list() if state.name == "described")
    assert repr(state) == f"<wingbeat.State rwkv7, {known.n_tokens} tokens, {len(state)} bytes>"
    assert repr(pickle.loads(pickle.dumps(state))) == repr(state)
    for wrong in (b"", b"hello", b"\xff" * 20, b"\x02" + bytes(7) + b"[]", b"\x14" + bytes(7) + b'{"__metadata__":null}'):
        assert repr(wingbeat.State(wrong)) == f"<wingbeat.State {len(wrong)} bytes>"


def test_opening_a_model_prints_nothing() -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "NODEVICE_SELECT", "WINGBEAT_DEVICE")}
    done = run("import wingbeat\nwingbeat.Model.embedded(progress=False).generate('a', max_tokens=1)", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "rule",
    [
        lambda schema: {"json_schema": schema},
        lambda schema: {"json_schema": json.dumps(schema)},
        lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}},
    ],
)
def test_a_schema_allows_no_invented_keys(model: wingbeat.Model, rule: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    def texts(schema: dict[str, Any]) -> list[str]:
        items = [{"prompt": "A king: ", "seed": seed, **rule(schema)} for seed in range(12)]
        return [answer.text for answer in model.batch(items, **WILD)]  # type: ignore[arg-type, union-attr]

    assert all({"name"} <= json.loads(text).keys() <= {"name", "age"} for text in texts(SCHEMA))
    # The same model invents keys where a schema allows them.
    assert any(json.loads(text).keys() - {"name", "age"} for text in texts({**SCHEMA, "additionalProperties": True}))


def test_a_tool_allows_no_invented_arguments(model: wingbeat.Model) -> None:
    def keys(parameters: dict[str, Any]) -> set[str]:
        tools = [{"type": "function", "function": {"name": "register", "parameters": parameters}}]
        asked = {"messages": [{"role": "user", "content": "light"}], "tools": tools, "tool_choice": "required"}
        answers = [model.generate(**asked, **WILD, seed=seed) for seed in range(8)]  # type: ignore[arg-type]
        return {key for answer in answers for call in answer.tool_calls for key in json.loads(call.arguments)}

    assert keys(SCHEMA) == {"name", "age"}
    assert keys({**SCHEMA, "additionalProperties": True}) - {"name", "age"}
