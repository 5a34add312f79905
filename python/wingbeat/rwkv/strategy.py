"""The types of tensors that a strategy of the package asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Strategy:
    """The float types of a strategy's layers, as torch's tensors or as NumPy's arrays."""

    def __init__(self, text: str) -> None:
        self._dtypes: list[tuple[str, int | None]] = []
        for segment in text.lower().split("->"):
            dtype = re.search(r"\b(fp16|fp32|bf16)", segment)
            layers = re.search(r"\*\s*(\d+)(\+?)", segment)
            self._dtypes.append((dtype[1] if dtype else "fp32", int(layers[1]) if layers and not layers[2] else None))
        try:
            import torch
        except ImportError:
            torch = None
        self._torch: Any = torch

    def _dtype(self, layer: int) -> str:
        """Returns the type of a layer. A segment without a number of layers takes all following layers."""
        for dtype, layers in self._dtypes:
            if layers is None or layer < layers:
                return dtype
            layer -= layers
        return self._dtypes[-1][0]

    def tensor(self, array: NDArray[np.float32], layer: int | None) -> Any:
        """Returns an array as a tensor, with the type of a layer's activations, or with float32 if `layer` is None."""
        return self._cast(array, "fp32" if layer is None else self._dtype(layer))

    def logits(self, array: NDArray[np.float32], *, is_half: bool) -> Any:
        """Returns logits. RWKV-7 of the package returns them in the type of the strategy, its other versions in float32."""
        return self._cast(array, self._dtypes[-1][0] if is_half else "fp32")

    def _cast(self, array: NDArray[np.float32], dtype: str) -> Any:
        if self._torch is None:
            # NumPy has no bfloat16; float32 holds all its values.
            return array.astype(np.float16) if dtype == "fp16" else array
        tensor = self._torch.from_numpy(array)
        types = {"fp16": self._torch.float16, "bf16": self._torch.bfloat16}
        return tensor.to(types[dtype]) if dtype in types else tensor
