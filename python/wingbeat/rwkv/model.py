"""The class `RWKV` of the package `rwkv`."""

from __future__ import annotations

import types
from collections.abc import MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..model import Model
from ..requests import is_single, token_ids
from .strategy import Strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    State = MutableSequence[Any]


class RWKV:
    """A model that is called with tokens and a state.

    `model` is the path of a checkpoint, with or without `.pth`. `strategy` is a string of ChatRWKV such as `cuda fp16`; `cuda`, `mps` and `dml` mean the
    first GPU of any vendor. Tensors are torch's if torch is installed, else NumPy's. The version of the model is found in the file, so `RWKV_V7_ON` and the
    other variables of the package change nothing. `options` are options of `wingbeat.Model`, such as `vocab`.
    """

    def __init__(self, model: str, strategy: str, verbose: bool = True, **options: Any) -> None:
        self._strategy = Strategy(strategy)
        options.setdefault("slots", 1)
        # Only `forward` uses the model, and `forward` does not use the prefix cache.
        options.setdefault("prefix_cache", False)
        self.inner: Model = Model(model, strategy=strategy, progress=None if verbose else False, **options)
        """The `wingbeat.Model`, for everything that this class does not have."""
        info = self.inner.info
        if not info.architecture.startswith("rwkv"):
            raise InputError(f"expected a model of the RWKV family, found {info.architecture}")
        self.version: int = int(info.architecture[4])
        self._shapes = self._of_package(self.inner._native.shapes())
        self.n_layer: int = info.n_layer
        self.n_embd: int = info.n_embd
        self.args: types.SimpleNamespace = types.SimpleNamespace(
            MODEL_NAME=model, strategy_string=strategy, n_layer=info.n_layer, n_embd=info.n_embd, vocab_size=info.n_vocab
        )
        if self.version >= 5:
            self.n_head: int = self._shapes[1][0]
            self.head_size: int = self._shapes[1][1]
            self.args.n_head, self.args.head_size = self.n_head, self.head_size

    def forward(
        self, tokens: int | Sequence[int] | None = None, state: State | None = None, full_output: bool = False, *, idx: int | Sequence[int] | None = None
    ) -> tuple[Any, State]:
        """Reads tokens after a state, and returns the logits and the state.

        The logits are `[n_vocab]` after the last token, or with `full_output` and several tokens `[tokens, n_vocab]`. `state` is changed in place, as in the
        package; None begins a text. A state has 3 tensors per layer (5 for RWKV-4): `copy.deepcopy` clones it. `idx` is the package's other name of `tokens`.
        """
        asked: Any = idx if tokens is None else tokens
        ids = token_ids([asked] if is_single(asked) else asked)
        full = full_output and len(ids) > 1
        logits, states = self.inner._native.forward(ids, None if state is None else self._flat(state), full)
        new = self._tensors(states)
        if state is None:
            state = new
        else:
            state[:] = new
        out = logits if full else logits[0]
        return self._strategy.logits(out, is_half=self.version == 7), state

    def __call__(self, tokens: int | Sequence[int], state: State | None = None, full_output: bool = False) -> tuple[Any, State]:
        """Does what `forward` does."""
        return self.forward(tokens, state, full_output)

    def generate_zero_state(self) -> State:
        """Returns the state before the first token."""
        return [self._tensor(i, np.full(shape, self._zero(i), dtype=np.float32)) for i, shape in enumerate(self._shapes)]

    def _per_layer(self) -> int:
        return 5 if self.version == 4 else 3

    def _zero(self, i: int) -> float:
        """Returns the initial value of a state. The running exponent of RWKV-4 begins at -1e30, in place of minus infinity."""
        return -1e30 if self.version == 4 and i % 5 == 3 else 0.0

    def _of_package(self, shapes: Sequence[tuple[str, Sequence[int]]]) -> list[tuple[int, ...]]:
        """Returns the shapes of the package's tensors. For RWKV-4, the package has one tensor per row of a matrix state."""
        of_package: list[tuple[int, ...]] = []
        for _, shape in shapes:
            if self.version == 4 and len(shape) == 2:
                of_package += [(shape[1],)] * shape[0]
            else:
                of_package.append(tuple(shape))
        return of_package

    def _flat(self, state: State) -> list[NDArray[np.float32]]:
        """Returns our states for the package's tensors.

        Raises InputError if the number, a shape or a type is wrong.
        """
        if len(state) != len(self._shapes):
            raise InputError(f"state: expected {len(self._shapes)} tensors, found {len(state)}", field="state")
        arrays = [self._array(i, tensor) for i, tensor in enumerate(state)]
        if self.version == 4:
            layers = [arrays[i : i + 5] for i in range(0, len(arrays), 5)]
            return [flat for xx, aa, bb, pp, ffn in layers for flat in (xx, np.concatenate([aa, bb, pp]), ffn)]
        return [np.ascontiguousarray(self._turned(array)).reshape(-1) for array in arrays]

    def _array(self, i: int, tensor: Any) -> NDArray[np.float32]:
        array = tensor.detach().float().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)
        if array.dtype.kind != "f":
            raise InputError(f"state[{i}]: expected floats, found {array.dtype}", field=f"state[{i}]")
        if array.shape != self._shapes[i]:
            raise InputError(f"state[{i}]: expected the shape {self._shapes[i]}, found {array.shape}", field=f"state[{i}]")
        return array.astype(np.float32, copy=False)

    def _tensors(self, states: Sequence[NDArray[np.float32]]) -> State:
        """Returns the package's tensors for our states."""
        arrays: list[NDArray[np.float32]] = []
        for i, state in enumerate(states):
            if self.version == 4:
                arrays += list(state.reshape(3, -1)) if i % 3 == 1 else [state]
            else:
                arrays.append(np.ascontiguousarray(self._turned(state.reshape(self._shapes[i]))))
        return [self._tensor(i, array) for i, array in enumerate(arrays)]

    def _turned(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """Swaps the axes of matrices of RWKV-5 and 6: `[key, value]` in the package, `[value, key]` here. RWKV-7 has `[value, key]` in both."""
        return array.swapaxes(1, 2) if array.ndim == 3 and self.version < 7 else array

    def _tensor(self, i: int, array: NDArray[np.float32]) -> Any:
        # The token-shift vectors are first and last in a layer. They have the type of the layer's activations.
        per_layer = self._per_layer()
        is_shift = i % per_layer in (0, per_layer - 1)
        return self._strategy.tensor(array, i // per_layer if is_shift else None)
