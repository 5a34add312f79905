"""Many prompts on a Ray cluster: a dataset of prompts or messages in, a dataset of texts out."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
from pyarrow import fs, parquet

from ..errors import ClosedError, DeviceError, InputError, WingbeatError
from .pool import resources
from .records import FIELDS, RESULT, request, result

if TYPE_CHECKING:
    from ray.data import Dataset

    from ..answer import Answer
    from ..model import Model

_log = logging.getLogger("wingbeat")
# The settings of a run, in the folder of its results. Readers of Parquet folders pass over names that begin with `_`.
_RUN = "_run.json"
# The options of a model that change the generated texts.
_OF_TEXTS = "dtype quant activations strategy lora lora_alpha vocab context cache_dtype state_dtype rope_theta group_norm_eps state_orientation format".split()


class RayBatch:
    """Generates a text for each row of a dataset. Each actor of a pool loads the model once.

    `model` is a path or a name, as for `Model`, or `embedded`; `options` are the fields of `Options`. `actors` is the size of the pool, or a
    smallest and a largest size. `ray_args` are resources of an actor, such as `num_cpus`, `num_gpus` or `resources={"vulkan": 1}` for GPUs that Ray
    does not know. Without `num_cpus`, an actor asks for 1 CPU, or for less if the pool would leave no CPU for the tasks that read.
    `autoscaling=True` allows a pool that is larger than the cluster is now, because Ray adds machines.
    `settings` are the fields of `Settings`. A row can set them, too: its columns are the fields of a line of `wingbeat batch`. `seed` is the seed of the
    run: a row's own seed follows from it and from the id.

    The result has the id, the columns `keep`, and the fields that `wingbeat batch` writes. A row that fails has an `error`, and the job goes on.

    Raises InputError if a setting is unknown or `actors` is wrong.
    """

    def __init__(
        self,
        model: str = "embedded",
        *,
        options: Mapping[str, Any] | None = None,
        download: bool = False,
        actors: int | tuple[int, int] = 1,
        ray_args: Mapping[str, Any] | None = None,
        autoscaling: bool = False,
        batch_size: int = 64,
        id_column: str = "id",
        keep: Sequence[str] = (),
        seed: int = 0,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in FIELDS or name in ("prompt", "tokens", "messages"):
                raise InputError(f"unknown setting {name!r}", field=name)
        least = actors if isinstance(actors, int) else min(actors)
        if least < 1 or batch_size < 1:
            name, found = ("actors", actors) if least < 1 else ("batch_size", batch_size)
            raise InputError(f"{name}: expected at least 1, found {found}", field=name)
        taken = {name for name, _ in RESULT} & {id_column, *keep}
        if taken:
            raise InputError(f"the results have a column {min(taken)!r} of their own: rename yours", field="keep")
        self._actors, self._batch_size = actors, batch_size
        self._ray_args, self._autoscaling = dict(ray_args or {}), autoscaling
        # The default of the command `wingbeat batch`.
        settings.setdefault("max_tokens", 128)
        options = {"slots": 16, **(options or {})}
        if options.get("device") == "cpu":
            # Actors on the same machine share its cores.
            options.setdefault("threads", max(1, math.ceil(self._ray_args.get("num_cpus", 1))))
        self._id_column = id_column
        self._worker: dict[str, Any] = {
            "model": model,
            "options": options,
            "download": download,
            "id_column": id_column,
            "keep": tuple(keep),
            "seed": seed,
            "settings": settings,
        }

    def __call__(self, dataset: Dataset) -> Dataset:
        """Returns the dataset of the results. Nothing runs before it is read.

        Raises InputError if the cluster can never run the pool.
        """
        return self._map(dataset, None, self._resources())

    def run(self, dataset: Dataset, folder: str, *, retry_errors: bool = False) -> dict[str, int]:
        """Writes the results into Parquet files of a folder, and skips rows whose ids have a result there. The folder may be of any file system that
        PyArrow knows, such as `s3://bucket/results`. All machines must see it.

        A file appears when a batch is complete, so an interrupted run is resumed by the same call; `_run.json` keeps its settings. Errors count as
        results; `retry_errors` removes them first. Returns numbers of results: `done` (texts of this run), `kept` (texts of earlier runs), and
        `failed` (all errors).

        Raises InputError if the folder has results of another model or of other settings, or if the cluster can never run the pool.
        """
        of_actor = self._resources()
        if "://" not in folder:
            folder = os.path.abspath(folder)
        of_texts = {name: value for name, value in self._worker["options"].items() if name in _OF_TEXTS}
        _check_run(folder, {**self._worker["settings"], **of_texts, **{name: self._worker[name] for name in ("model", "seed", "id_column", "keep")}})
        found, n_errors = _known(folder, self._id_column, retry_errors)
        known, column = ray.put(found), self._id_column

        def is_new(batch: pa.Table) -> pa.Table:
            done = ray.get(known)
            return batch.filter(pa.array([id not in done for id in batch.column(column).to_pylist()], pa.bool_()))

        rest = dataset.map_batches(is_new, batch_format="pyarrow", batch_size=None)
        counts = {"done": 0, "failed": n_errors, "kept": len(found) - n_errors}
        batches: Any = self._map(rest, folder, of_actor).iter_batches(batch_size=None, batch_format="pyarrow")
        for batch in batches:
            failed = batch.column("error").length() - batch.column("error").null_count
            counts["failed"] += failed
            counts["done"] += batch.num_rows - failed
        return counts

    def _sizes(self) -> tuple[int, int]:
        return (self._actors, self._actors) if isinstance(self._actors, int) else self._actors

    def _resources(self) -> dict[str, Any]:
        return resources(self._sizes()[0], self._ray_args, self._autoscaling)

    def _map(self, dataset: Dataset, folder: str | None, of_actor: Mapping[str, Any]) -> Dataset:
        least, most = self._sizes()
        pool = ray.data.ActorPoolStrategy(
            min_size=least,
            max_size=most,
            # A batch begins while the last texts of the previous batch end, so that no slot is idle.
            max_concurrent_calls_per_actor=2,
            enable_true_multi_threading=True,
        )
        # A block of many rows would keep all actors but one idle.
        return dataset.repartition(target_num_rows_per_block=self._batch_size).map_batches(
            _Worker,
            fn_constructor_kwargs={**self._worker, "folder": folder},
            compute=pool,
            batch_size=self._batch_size,
            batch_format="pyarrow",
            **of_actor,
        )


class _Worker:
    """An actor with a model."""

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        download: bool,
        id_column: str,
        keep: Sequence[str],
        seed: int,
        settings: Mapping[str, Any],
        folder: str | None,
    ) -> None:
        self._model = opened(model, download, options)
        self._id_column, self._keep, self._seed, self._settings, self._folder = id_column, keep, seed, settings, folder
        self._has_warned = False

    def __call__(self, table: pa.Table) -> pa.Table:
        if not self._has_warned:
            self._has_warned = True
            unused = [name for name in table.column_names if name not in FIELDS and name not in (self._id_column, *self._keep)]
            if unused:
                _log.warning("columns that are no fields of a request are not used: %s", ", ".join(unused))
        rows = table.to_pylist()
        results = [result(answer) for answer in self._answers(rows)]
        first = [name for name in (self._id_column, *self._keep) if name in table.column_names]
        columns = {name: table.column(name) for name in first}
        for name, kind in RESULT:
            columns[name] = pa.array([found.get(name) for found in results], kind)
        done = pa.table(columns)
        if self._folder is not None:
            _write(done, self._folder, self._id_column)
        return done

    def _answers(self, rows: list[dict[str, Any]]) -> Iterator[Answer | WingbeatError]:
        requests: list[dict[str, Any] | WingbeatError] = []
        for row in rows:
            try:
                requests.append(request(row, self._id_column, self._seed, self._settings))
            except InputError as e:
                requests.append(e)
        answers = self._model.batch((r for r in requests if not isinstance(r, WingbeatError)), errors="return")
        for asked in requests:
            answer = asked if isinstance(asked, WingbeatError) else next(answers)
            if isinstance(answer, (DeviceError, ClosedError)):
                # After such an error, this actor cannot run any other row.
                raise answer
            yield answer


def opened(model: str, download: bool, options: Mapping[str, Any]) -> Model:
    """Loads a model on this machine."""
    from ..model import Model

    if model == "embedded":
        return Model.embedded(progress=False, **options)
    return Model(model, download=download, progress=False, **options)


def _check_run(folder: str, run: Mapping[str, Any]) -> None:
    """Keeps the settings of a run in its folder. If the folder has results, compares them with the settings there."""
    files, path = _place(folder)
    files.create_dir(path, recursive=True)
    entries = files.get_file_info(fs.FileSelector(path))
    file, run = posixpath.join(path, _RUN), json.loads(json.dumps(run, default=str))
    if not any(info.extension == "parquet" for info in entries) or all(info.base_name != _RUN for info in entries):
        with _new(files, file) as to, files.open_output_stream(to) as stream:
            stream.write(json.dumps(run).encode())
        return
    with files.open_input_stream(file) as stream:
        known = json.loads(stream.read())
    for name in sorted({*known, *run}):
        if known.get(name) != run.get(name):
            text = f"{folder}: the results there have {name} = {known.get(name)!r}, and this run has {run.get(name)!r}"
            raise InputError(text, field=name, hint="use the same settings, or another folder")


def _known(folder: str, id_column: str, retry_errors: bool) -> tuple[frozenset[str | int], int]:
    """Returns the ids of the results in a folder, and the number of errors among them. With `retry_errors`, removes the errors first."""
    files, path = _place(folder)
    ids: set[str | int] = set()
    n_errors = 0
    for info in files.get_file_info(fs.FileSelector(path)):
        if info.extension != "parquet":
            continue
        try:
            table = parquet.read_table(info.path, filesystem=files)
            found, errors = table.column(id_column), table.column("error")
        except (OSError, KeyError, pa.ArrowException) as e:
            hint = "choose a folder of its own for the results"
            raise InputError(f"{info.path}: expected results with the column {id_column!r}: {e}", field="folder", hint=hint) from e
        if retry_errors and errors.null_count < table.num_rows:
            table = table.filter(errors.is_null())
            found, errors = table.column(id_column), table.column("error")
            if table.num_rows:
                _store(table, files, info.path)
            else:
                files.delete_file(info.path)
        ids.update(found.to_pylist())
        n_errors += table.num_rows - errors.null_count
    return frozenset(ids), n_errors


def _write(table: pa.Table, folder: str, id_column: str) -> None:
    """Writes the results that have an id. The name follows from the ids, so a batch that is done again replaces its file."""
    ids = table.column(id_column).to_pylist()
    table = table.filter(pa.array([isinstance(id, (str, int)) for id in ids], pa.bool_()))
    if table.num_rows:
        files, path = _place(folder)
        name = hashlib.sha256(json.dumps(table.column(id_column).to_pylist()).encode()).hexdigest()[:32]
        _store(table, files, posixpath.join(path, f"{name}.parquet"))


def _store(table: pa.Table, files: fs.FileSystem, target: str) -> None:
    with _new(files, target) as to:
        parquet.write_table(table, to, filesystem=files)


@contextmanager
def _new(files: fs.FileSystem, target: str) -> Iterator[str]:
    """Yields the name under which a new file is written. The complete file has the name `target`."""
    # Object stores show only complete objects, so they need no temporary name.
    to = f"{target}.part" if isinstance(files, fs.LocalFileSystem) else target
    yield to
    if to != target:
        files.move(to, target)


def _place(folder: str) -> tuple[fs.FileSystem, str]:
    return fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
