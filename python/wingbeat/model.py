"""Models: load one, generate, compute vectors, scores and logits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from math import exp
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from . import _progress
from .answer import Answer, Ranked, Score
from .batch import Batch
from .errors import ClosedError
from .events import Score as ScoreEvent
from .events import Vector
from .generation import Generation
from .info import DeviceInfo, ModelInfo
from .requests import body, not_single, option_texts, token_ids
from .states import States
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self, Unpack

    from ._native import Model as NativeModel
    from .batch import Item
    from .requests import Options, PathLike, Prompt, Request, Settings, Tokens


class Model:
    """A model on its device, with an engine that runs many requests at once. Threads and tasks can share a model.

    `model` is the path of a checkpoint (.pth, .safetensors, .gguf, a folder), the name of a published model such as `rwkv7-g1-1.5b`, or
    `hf:OWNER/REPO[/FILE]`. A model that is not on this disk is downloaded with `download=True`. `progress` is called with a stage, the work that is done
    and all work; by default, tqdm shows bars if it is installed, and False shows nothing. `options` are the fields of `Options`.

    Raises FileError, ModelError, InputError, DeviceError or OutOfMemoryError.
    """

    def __init__(
        self,
        model: PathLike,
        *,
        download: bool = False,
        progress: _progress.Progress | bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._open("path", os.fspath(model), download, progress, options)

    @classmethod
    def embedded(cls, *, progress: _progress.Progress | bool | None = None, **options: Unpack[Options]) -> Self:
        """Loads `small-world`, the model of 2 million parameters that the package contains."""
        model = cls.__new__(cls)
        model._open("embedded", "", False, progress, options)
        return model

    @classmethod
    def synthetic(cls, name: str, *, progress: _progress.Progress | bool | None = None, **options: Unpack[Options]) -> Self:
        """Makes a model with random weights and the sizes of a published model, such as `rwkv7-0.1b`, to measure speed."""
        model = cls.__new__(cls)
        model._open("synthetic", name, False, progress, options)
        return model

    def _open(
        self, kind: str, name: str, download: bool, progress: _progress.Progress | bool | None, options: Mapping[str, Any]
    ) -> None:
        from ._native import Model as Native

        if sys.platform == "linux":
            # A layer of Mesa that sorts GPUs prints to stderr whenever Vulkan starts. The command `wingbeat` disables the layer, too.
            os.environ.setdefault("NODEVICE_SELECT", "1")
        options = dict(options)
        if options.get("device") is None and options.get("strategy") is None and os.environ.get("WINGBEAT_DEVICE"):
            options["device"] = os.environ["WINGBEAT_DEVICE"]
        bars = _progress.bars() if progress is None or progress is True else None
        tell = progress if callable(progress) else bars
        try:
            self._native: NativeModel = Native.load(kind, name, option_texts(options), download, tell)
        finally:
            if bars is not None:
                bars.close()
        fields = json.loads(self._native.info())
        fields.update(notes=tuple(fields["notes"]), device=DeviceInfo(**fields["device"]))
        self._info = ModelInfo(**fields)
        self._states = States(self._native)
        self._tokenizer = Tokenizer(self._native)

    @property
    def info(self) -> ModelInfo:
        """Sizes and formats of the model, and its device."""
        return self._info

    @property
    def states(self) -> States:
        """The named states."""
        return self._states

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        return self._tokenizer

    @overload
    def generate(self, prompt: Prompt | None = None, *, stream: Literal[False] = False, **request: Unpack[Request]) -> Answer: ...

    @overload
    def generate(self, prompt: Prompt | None = None, *, stream: Literal[True], **request: Unpack[Request]) -> Generation: ...

    def generate(self, prompt: Prompt | None = None, *, stream: bool = False, **request: Unpack[Request]) -> Answer | Generation:
        """Continues a text or token ids, or answers `messages`.

        Returns the whole answer, or with `stream=True` its events: for a `for` loop, an `async for` loop, or `await`. `request` has the fields of
        `Request`: settings of the sampler, `max_tokens`, `stop`, `n`, `logprobs`, a grammar or schema, tools, names of states.

        Raises InputError if a field is wrong, and BusyError if too many requests wait.
        """
        generation = self._submit(prompt, request)
        return generation if stream else generation.result()

    def batch(
        self,
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        window: int | None = None,
        errors: Literal["raise", "return"] = "raise",
        **settings: Unpack[Settings],
    ) -> Batch:
        """Runs many requests at once. Returns an iterator over their answers, in the order of the requests.

        An item is a prompt, a list of messages, or a mapping with the fields of `Request` and `prompt` or `tokens`. Items are taken only as slots need
        them: at most `window` at once, twice the number of slots by default. `errors="return"` returns the error of a request in place of its answer.
        """
        self._check_open()
        not_single(items, "items")
        return Batch(self._submit, items, 2 * self._info.slots if window is None else window, errors, settings)

    def score(self, text: Prompt) -> Score:
        """Returns how likely a text or a list of token ids is."""
        return next(iter(self.scores([text])))

    def scores(self, texts: Iterable[Prompt]) -> list[Score]:
        """Returns how likely each text is, several texts at a time."""
        not_single(texts, "texts")
        answers = self.batch(texts, echo=True, logprobs=0, max_tokens=0)
        return [_score(cast(Answer, answer)) for answer in answers]

    def embed(self, texts: str | Sequence[str] | Sequence[Sequence[int]], *, pooling: Literal["last", "mean"] | None = None) -> NDArray[np.float32]:
        """Returns one vector per text: `[texts, n_embd]`, or `[n_embd]` for a single text."""
        import numpy as np

        self._check_open()
        is_single = isinstance(texts, str)
        inputs = [texts] if isinstance(texts, str) else [text if isinstance(text, str) else token_ids(text) for text in texts]
        vectors = np.zeros((len(inputs), self._info.n_embd), dtype=np.float32)
        if inputs:
            for event in self._submit(None, {"input": inputs, "pooling": pooling}):
                if isinstance(event, Vector):
                    vectors[event.index] = event.vector
        return vectors[0] if is_single else vectors

    def rerank(self, query: str, documents: Sequence[str]) -> list[Ranked]:
        """Returns the documents with their scores for a query, best first. Needs a model that was opened with `reranker`."""
        self._check_open()
        not_single(documents, "documents")
        documents = list(documents)
        if not documents:
            return []
        scored = [event for event in self._submit(None, {"query": query, "documents": documents}) if isinstance(event, ScoreEvent)]
        ranked = [Ranked(event.index, 1 / (1 + exp(-event.logit)), event.logit, documents[event.index]) for event in scored]
        return sorted(ranked, key=lambda document: (-document.logit, document.index))

    def logits(self, tokens: Prompt) -> NDArray[np.float32]:
        """Returns the logits after each token: `[tokens, n_vocab]`."""
        ids = self._tokenizer.encode(tokens) if isinstance(tokens, str) else token_ids(tokens)
        return self._native.logits(ids)

    def loglikelihoods(self, requests: Iterable[tuple[Tokens, Tokens]]) -> list[tuple[float, bool]]:
        """Returns how likely each continuation is after its context: the sum of its log-probabilities, and whether all its tokens are the most likely ones.

        `requests` are pairs of token ids, a context of at least one token and its continuation. Beginnings that several contexts share are read once.
        """
        return self._native.loglikelihoods([(token_ids(context, "context"), token_ids(rest, "continuation")) for context, rest in requests])

    @overload
    def apply_template(self, messages: Sequence[Mapping[str, Any]], *, tokenize: Literal[False] = False, **settings: Unpack[Settings]) -> str: ...

    @overload
    def apply_template(self, messages: Sequence[Mapping[str, Any]], *, tokenize: Literal[True], **settings: Unpack[Settings]) -> list[int]: ...

    def apply_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: bool = False, **settings: Unpack[Settings]
    ) -> str | list[int]:
        """Returns the prompt that the model reads for messages, as text or as token ids."""
        fields = {**settings, "messages": messages}
        ids = self._native.prompt_tokens(body(None, fields))
        return ids if tokenize else self._tokenizer.decode(ids, special=True)

    def stats(self) -> dict[str, int]:
        """Returns the engine's numbers: slots, free_slots, running, paused, waiting, swapped, cached (entries of the prefix cache),
        and tokens (generated)."""
        return cast("dict[str, int]", json.loads(self._native.stats()))

    def close(self) -> None:
        """Ends running texts and frees the model's memory. A closed model refuses every other call."""
        self._native.close()

    def _check_open(self) -> None:
        if self._native.is_closed:
            raise ClosedError("the model is closed")

    def _submit(self, prompt: Prompt | None, request: Mapping[str, Any]) -> Generation:
        return Generation(self._native.submit(body(prompt, request)))

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._native.is_closed else self._info.device.name
        return f"<wingbeat.Model {self._info.name} ({self._info.architecture}, {self._info.dtype}) on {state}>"


def _score(answer: Answer) -> Score:
    prompt = answer.prompt
    if prompt is None or prompt.first is None:
        return Score((), ())
    return Score((prompt.first, *(token.id for token in prompt.logprobs)), (None, *(token.logprob for token in prompt.logprobs)))
