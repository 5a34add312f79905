"""The recurrence of RWKV-7 on the CPU for torch: `wkv7.cpp`, compiled when needed, on two threads."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

HEAD = 64  # channels of a head
CHUNK = 16  # tokens between two kept states, as in wkv7.cpp
FLOAT = 4  # bytes


def library() -> ctypes.CDLL:
    """Loads the library, and compiles it if the source is newer."""
    source = Path(__file__).with_name("wkv7.cpp")
    built = source.with_suffix(".so")
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        command = ["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", source, "-o", built]
        subprocess.run(command, check=True)
    return ctypes.CDLL(str(built))


LIBRARY = library()
THREADS = ThreadPoolExecutor(2)
Job = tuple[ctypes.c_void_p, list[ctypes.c_void_p], ctypes.c_void_p]


def jobs(reset: torch.Tensor, tensors: list[torch.Tensor], kept: torch.Tensor) -> Iterator[Job]:
    """Yields for each row and head the addresses of its resets, of its part of the tensors, and of its kept states."""
    B, T, D = tensors[0].shape
    heads = D // HEAD
    for row in range(B):
        for head in range(heads):
            at = FLOAT * (row * T * D + head * HEAD)
            addresses = [ctypes.c_void_p(tensor.data_ptr() + at) for tensor in tensors]
            states = FLOAT * (row * heads + head) * kept.shape[2] * kept.shape[3]
            yield ctypes.c_void_p(reset.data_ptr() + 4 * row * T), addresses, ctypes.c_void_p(kept.data_ptr() + states)


def run(function: Callable[[Job], Any], all_jobs: Iterator[Job]) -> None:
    """Runs a function for all jobs on the threads, and waits."""
    list(THREADS.map(function, all_jobs))


class Wkv(torch.autograd.Function):
    """Maps r, w, k, v, a, b [B, T, D] (f32, contiguous) and reset [B, T] (i32, 1 where a document begins) to y [B, T, D]."""

    @staticmethod
    def forward(ctx, r, w, k, v, a, b, reset):
        B, T, D = r.shape
        y, sa = torch.empty_like(r), torch.empty_like(r)
        kept = torch.empty(B, D // HEAD, (T + CHUNK - 1) // CHUNK, HEAD * HEAD)

        def one(job: Job) -> None:
            resets, addresses, states = job
            LIBRARY.forward(T, D, resets, *addresses, states)

        run(one, jobs(reset, [r, w, k, v, a, b, y, sa], kept))
        ctx.save_for_backward(r, w, k, v, a, b, reset, sa, kept)
        return y

    @staticmethod
    def backward(ctx, dy):
        r, w, k, v, a, b, reset, sa, kept = ctx.saved_tensors
        _, T, D = r.shape
        gradients = [torch.empty_like(r) for _ in range(6)]

        def one(job: Job) -> None:
            resets, addresses, states = job
            inputs, outputs = addresses[:7], addresses[7:]
            LIBRARY.backward(T, D, resets, *inputs, states, *outputs)

        run(one, jobs(reset, [r, w, k, v, a, b, sa, dy.contiguous(), *gradients], kept))
        return (*gradients, None)
