"""A model for lm-evaluation-harness: `python -m wingbeat.lm_eval run --model wingbeat --model_args path=…,device=…,quant=… --tasks …`.

The command `lm_eval` of version 0.4.13 finds models in its own list only. This module adds the model and runs the same command. In a program, `import
wingbeat.lm_eval` before `lm_eval.simple_evaluate(model="wingbeat", …)`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window, simple_parse_args_string
from tqdm import tqdm

from .answer import Answer
from .errors import InputError
from .model import Model
from .requests import Settings

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from typing_extensions import Self

# The device that the command passes if `--device` is not given. It is ignored, because the user has not chosen it.
_DEFAULT_DEVICE = "cuda:0"

# The number of requests whose shared beginnings are prefilled once. A larger number shares more, a smaller number shows progress sooner.
_TOGETHER = 1024

# A recurrent model has no limit. The windows of rolling likelihoods need one.
_NO_LIMIT = 1 << 30

_LOGGER = logging.getLogger("lm-eval")


@register_model("wingbeat")
class WingbeatLM(TemplateLM):  # type: ignore[misc]
    """`path` is a model as for `wingbeat.Model`, or `embedded`. All other arguments are options of the model. `batch_size` is the number of slots."""

    def __init__(
        self,
        path: str = "",
        pretrained: str = "",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        download: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        name = path or pretrained
        if not name:
            raise InputError("path: expected a model, found none", field="path", hint="use --model_args path=model.pth")
        if batch_size is not None and str(batch_size).isdigit():
            options.setdefault("slots", int(batch_size))
        self.model: Model = Model.embedded(**options) if name == "embedded" else Model(name, download=download, **options)
        self.batch_size: int = self.model.info.slots
        self.max_length: int = int(max_length or self.model.info.context or _NO_LIMIT)
        self.max_gen_toks: int = int(max_gen_toks)
        self._ignored: set[str] = set()

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Mapping[str, Any] | None = None) -> Self:
        """Opens the model that `--model_args` names, as one text."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None) -> Self:
        """Opens the model that `--model_args` names. The harness passes its own arguments in `additional_config`; the arguments of `--model_args` replace them."""
        of_harness = {name: value for name, value in (additional_config or {}).items() if value is not None}
        device = of_harness.pop("device", None)
        if device is not None and device != _DEFAULT_DEVICE and "strategy" not in arg_dict:
            of_harness["device"] = _device(str(device))
        return cls(**{**of_harness, **arg_dict})

    @property
    def tokenizer_name(self) -> str:
        """The hash of the weights, because the harness keeps its caches by this name."""
        return self.model.info.weights_hash

    @property
    def eot_token_id(self) -> int:
        """The token `<|endoftext|>`, which takes the place of an empty context."""
        return self.model.info.eot_token

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Returns the token ids of a text. Marks of chat formats are single tokens."""
        return self.model.tokenizer.encode(string, special=True)

    def tok_decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of token ids."""
        return self.model.tokenizer.decode(tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns the prompt that the model reads for messages."""
        return self.model.apply_template(chat_history, continue_final_message=None if add_generation_prompt else True)  # type: ignore[arg-type]

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Returns the architecture in place of a template, because the template is a part of the model's chat format."""
        return self.model.info.architecture if chat_template else None

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        found: list[tuple[float, bool]] = []
        with tqdm(total=len(requests), desc="Running loglikelihood requests", disable=disable_tqdm) as bar:
            # In this order, requests with a shared beginning are side by side.
            order = sorted(range(len(requests)), key=lambda i: requests[i][1])
            results: dict[int, tuple[float, bool]] = {}
            for begin in range(0, len(order), _TOGETHER):
                part = order[begin : begin + _TOGETHER]
                pairs = [self._fitted(requests[i][1], requests[i][2]) for i in part]
                results.update(zip(part, self.model.loglikelihoods(pairs), strict=True))
                bar.update(len(part))
            for i, (texts, _context, _continuation) in enumerate(requests):
                if texts is not None:
                    self.cache_hook.add_partial("loglikelihood", texts, results[i])
                found.append(results[i])
        return found

    def _fitted(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """Drops the beginning of a context that is too long for the model."""
        room = max(self.max_length - len(continuation), 1)
        return context[-room:], continuation

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Returns the log-likelihood of each whole text."""
        windows: list[tuple[None, list[int], list[int]]] = []
        counts: list[int] = []
        for (text,) in [request.args for request in requests]:
            of_text = get_rolling_token_windows(
                token_list=self.tok_encode(text), prefix_token=self.prefix_token_id, max_seq_len=self.max_length, context_len=1
            )
            before = len(windows)
            for window in of_text:
                context, rest = make_disjoint_window(window)
                windows.append((None, context, rest))
            counts.append(len(windows) - before)
        found = iter(self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm))
        sums = [sum(next(found)[0] for _ in range(count)) for count in counts]
        for (text,), logprob in zip([request.args for request in requests], sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), logprob)
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Returns the text that the model generates after each context."""
        texts: list[str] = []
        answers = self.model.batch(self._items(requests))
        with tqdm(total=len(requests), desc="Running generate_until requests", disable=disable_tqdm) as bar:
            for request, answer in zip(requests, answers, strict=True):
                assert isinstance(answer, Answer)
                texts.append(answer.text)
                self.cache_hook.add_partial("generate_until", request.args, answer.text)
                bar.update(1)
        return texts

    def _items(self, requests: list[Instance]) -> Iterator[Mapping[str, Any]]:
        pairs: list[Any] = [request.args for request in requests]
        for context, settings in pairs:
            asked: dict[str, Any] = dict(normalize_gen_kwargs(dict(settings), default_max_gen_toks=self.max_gen_toks))
            most = int(asked.pop("max_gen_toks"))
            until = [text for text in asked.pop("until", None) or [] if text]
            asked.pop("do_sample", None)
            for name in [name for name in asked if name not in Settings.__annotations__]:
                if name not in self._ignored:
                    self._ignored.add(name)
                    _LOGGER.warning("wingbeat: the generation setting %s=%r does not exist here and is ignored", name, asked[name])
                del asked[name]
            tokens = self.tok_encode(context) or [self.prefix_token_id]
            room = max(self.max_length - most, 1)
            # The harness expects the unchanged distribution, so turn off the penalties and the nucleus of the model's default settings.
            bare = {"top_p": 1.0, "top_k": 0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
            yield {**bare, **asked, "tokens": tokens[-room:], "stop": until, "max_tokens": most}


def _device(name: str) -> str:
    """Converts a device name of torch: `cuda:1` becomes `gpu:1`, `cuda` and `mps` become `gpu`. All other names stay."""
    kind, _, number = name.partition(":")
    return f"gpu:{number}" if kind == "cuda" and number else "gpu" if kind in ("cuda", "mps") else name


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
