"""Named states of a model, with which later texts can begin."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .events import SavedState

if TYPE_CHECKING:
    from ._native import Model as NativeModel
    from .requests import PathLike


@dataclass(frozen=True, slots=True)
class State:
    """A state outside its model. Can be pickled, and written to a file that the command `wingbeat`, its server and the npm package read."""

    data: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        described = self._described()
        parts = [f"{described[name]}{after}" for name, after in (("architecture", ""), ("n_tokens", " tokens")) if name in described]
        return f"<wingbeat.State {', '.join([*parts, f'{len(self.data)} bytes'])}>"

    def _described(self) -> dict[str, Any]:
        """Returns the metadata of the file (docs/state-files.md), or an empty mapping if these bytes are no state file."""
        end = 8 + int.from_bytes(self.data[:8], "little")
        try:
            described = json.loads(self.data[8:end])["__metadata__"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
        return described if isinstance(described, dict) else {}

    def save(self, path: PathLike) -> None:
        """Writes the state to a file."""
        part = f"{os.fspath(path)}.part"
        with open(part, "wb") as file:
            file.write(self.data)
        os.replace(part, path)

    @classmethod
    def load(cls, path: PathLike) -> State:
        """Reads a state from a file."""
        with open(path, "rb") as file:
            return cls(file.read())


class States(MutableMapping[str, State]):
    """The named states of a model: a mapping of names to `State`. `generate(save_state=name)` saves a state.
    `generate(state=name)` begins with it."""

    def __init__(self, native: NativeModel) -> None:
        self._native = native

    def list(self) -> list[SavedState]:
        """Returns the names of all states, with their numbers of tokens and bytes."""
        return [SavedState(*state) for state in self._native.states()]

    def save(self, name: str, path: PathLike) -> None:
        """Writes a state to a file.

        Raises InputError if the name is unknown, or if the file exists and is not a state.
        """
        self._native.save_state(name, os.fspath(path))

    def load(self, name: str, source: PathLike | bytes | bytearray | memoryview | State) -> SavedState:
        """Keeps a state under a name. `source` is the path of a file, a `State`, or the bytes of a file. Replaces an older state of this name.

        Raises ModelError if the state belongs to other weights.
        """
        if isinstance(source, State):
            source = source.data
        if isinstance(source, (bytes, bytearray, memoryview)):
            return SavedState(*self._native.import_state(name, bytes(source)))
        return SavedState(*self._native.load_state(name, os.fspath(source)))

    def fork(self, name: str, to: str) -> SavedState:
        """Copies a state to another name."""
        return SavedState(*self._native.fork_state(name, to))

    def delete(self, name: str) -> None:
        """Deletes a state, and its file.

        Raises InputError if the name is unknown.
        """
        self._native.delete_state(name)

    def __getitem__(self, name: str) -> State:
        return State(self._native.state_bytes(self._known(name)))

    def __setitem__(self, name: str, state: State | bytes) -> None:
        self.load(name, state)

    def __delitem__(self, name: str) -> None:
        self.delete(self._known(name))

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _, _ in self._native.states()])

    def __len__(self) -> int:
        return len(self._native.states())

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def _known(self, name: str) -> str:
        if name not in self:
            raise KeyError(name)
        return name

    def __repr__(self) -> str:
        return f"States({[state.name for state in self.list()]})"
