# SPDX-License-Identifier: Apache-2.0
"""Digests of many text captures at once, from their small files: one query for a batch of ranks, where reading all of a rank's
files takes a hundred times as long.

Only captures whose files leave no choice are read this way; the others are left to the general way, which gives the same digest.
What only the timeline tells (launches, what the host did) is not in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import orjson
import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.read.batch import Batch, digests_of_batch
from stepscope.formats.ascend import kernel_details, step_trace_time
from stepscope.formats.ascend.cells import to_duration_ns, to_ns
from stepscope.formats.ascend.communication import keys
from stepscope.render.csv_file import NOT_KNOWN

BATCH = 256  # ranks per query
BATCH_BYTES = 32 << 20  # of their kernel_details.csv
OUTPUT = "ASCEND_PROFILER_OUTPUT"
TIMELINES = {"trace_view.json", "trace_view.json.gz"}
MOST_BYTES = 64 << 20  # of kernel_details.csv: with larger ones a batch is not small
_INFO = re.compile(r"profiler_info_(\d+)\.json")
_COLUMNS = {item.key: item for item in kernel_details.COLUMNS}
_WANTED = ("step", "name", "op_type", "core", "start_ns", "duration_ns", "input_shapes", "stream")
_NEEDED = ("step", "name", "start_ns", "duration_ns")
_MINDSPORE = "_ascend_ms"  # its files have columns of their own
_MORE = ("memory_record.csv", "operator_memory.csv", "task_time.csv")


@dataclass
class _Files:
    """The small files of one rank."""

    path: str
    rank: int
    metadata: dict[str, Any]
    groups: dict[tuple[int, str], str]  # by step and name of a call
    kernels: bytes
    preparing: dict[int, float]
    shallow: bool  # other files of the capture say more


@dataclass(frozen=True)
class LeanDigest:
    """The digest of a capture; `shallow` when its timeline would tell more."""

    rank: int
    digests: Digests
    shallow: bool


def read_lean(paths: Sequence[str], *, deep: bool = False) -> dict[str, LeanDigest]:
    """Digests by path, for the captures that can be read this way.

    Args:
        deep: leave out captures that have more to tell than their small files.
    """
    found: dict[str, LeanDigest] = {}
    batch: list[_Files] = []
    size = 0
    for path in paths:
        files = _files(path, deep)
        if files is None:
            continue
        batch.append(files)
        size += len(files.kernels)
        if len(batch) == BATCH or size > BATCH_BYTES:
            found.update(_digests(batch))
            batch, size = [], 0
    found.update(_digests(batch))
    return found


def _files(path: str, deep: bool) -> _Files | None:
    """The files of a capture; None when it is not of this kind, or something in them is not as it should be."""
    folder = f"{path}/{OUTPUT}"
    if path.endswith(_MINDSPORE):
        return None
    try:
        names = {entry.name for entry in os.scandir(folder)}
        beside = list(os.scandir(path))
        numbers = [match for entry in beside if (match := _INFO.fullmatch(entry.name))]
        further = any(entry.is_dir() and entry.name not in (OUTPUT, "logs") for entry in beside)
    except OSError:
        return None
    if kernel_details.FILE not in names or len(numbers) != 1 or any(name.endswith(".db") for name in names):
        return None
    # Raw data or a store in a folder beside, the timeline, and what of memory was recorded.
    shallow = further or not TIMELINES.isdisjoint(names) or any(name in names for name in _MORE)
    if deep and shallow:
        return None
    try:
        kernels = _content(f"{folder}/{kernel_details.FILE}")
        if len(kernels) > MOST_BYTES or not kernels.endswith(b"\n") or b"\0" in kernels:
            return None
        metadata = _object(f"{path}/profiler_metadata.json")
        groups = _groups(_object(f"{folder}/{keys.FILE}") if keys.FILE in names else {})
        preparing = _preparing(_content(f"{folder}/{step_trace_time.FILE}") if step_trace_time.FILE in names else b"")
    except (OSError, ValueError, KeyError, AttributeError, IndexError):
        return None
    return _Files(path, int(numbers[0][1]), metadata, groups, kernels, preparing, shallow)


def _content(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        size = os.fstat(file).st_size
        content = os.read(file, size)
    finally:
        os.close(file)
    if len(content) != size:
        raise OSError("the file changed while it was read")
    return content


def _object(path: str) -> dict[str, Any]:
    try:
        found = orjson.loads(_content(path))
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _groups(document: dict[str, Any]) -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}
    for step, kinds in document.items():
        number = int(step.removeprefix("step"))
        for operators in kinds.values():
            for name in operators:
                operator, at, group = name.partition("@")
                if at and found.setdefault((number, operator), group) != group:
                    raise ValueError("two groups have a call of this name")
    return found


def _preparing(content: bytes) -> dict[int, float]:
    """How long the first task of each step was prepared."""
    lines = content.decode().split("\n")
    names = lines[0].strip().split(",")
    title = step_trace_time.VALUES[-1].title
    if title not in names:
        return {}
    found: dict[int, float] = {}
    for line in lines[1:]:
        if line.strip():
            cells = line.strip().split(",")
            step = int(cells[names.index("Step")])
            found[step] = max(found.get(step, 0.0), float(cells[names.index(title)]) * 1000.0)
    return found


@cache
def _header(line: bytes) -> dict[str, str] | None:
    """Title of each wanted column; None when a needed one is missing or a title is there twice."""
    titles = [name.strip() for name in line.decode("utf-8", "replace").strip().split(",")]
    found = {key: next((name for name in _COLUMNS[key].names if name in titles), "") for key in _WANTED}
    if len(set(titles)) != len(titles) or any(not found[key] for key in _NEEDED):
        return None
    factors = [_COLUMNS["duration_ns"].names[found["duration_ns"]]]
    return {key: title for key, title in found.items() if title} if factors == [1000.0] else None


def _digests(batch: Sequence[_Files]) -> dict[str, LeanDigest]:
    if not batch:
        return {}
    tasks = _tasks(batch)
    if tasks is None:
        if len(batch) == 1:
            return {}
        # One bad file spoils the parse of all: find it by halves.
        half = len(batch) // 2
        return {**_digests(batch[:half]), **_digests(batch[half:])}
    frame, whole = tasks
    kept = [files for place, files in enumerate(batch) if place in whole]
    if len(kept) < len(batch):
        return _digests(kept)
    preparing = {(place, step): ns for place, files in enumerate(batch) for step, ns in files.preparing.items()}
    made = digests_of_batch(Batch([files.rank for files in batch], [files.metadata for files in batch], frame, preparing))
    return {
        files.path: LeanDigest(files.rank, digests, files.shallow)
        for files, digests in zip(batch, made, strict=True)
        if digests is not None
    }


def _tasks(batch: Sequence[_Files]) -> tuple[pl.DataFrame, set[int]] | None:
    """Rows of all ranks as a batch has them, and which of the ranks are as they should be."""
    by_header: dict[bytes, list[int]] = {}
    for place, files in enumerate(batch):
        by_header.setdefault(files.kernels[: files.kernels.index(b"\n") + 1], []).append(place)
    frames = []
    for line, places in by_header.items():
        titles = _header(line)
        if titles is None:
            continue
        bodies = [batch[place].kernels[len(line) :] for place in places]
        frame = _parsed(line, bodies, titles)
        if frame is None:
            return None
        counts = [body.count(b"\n") for body in bodies]
        frames.append(frame.with_columns(pl.Series("place", np.repeat(places, counts), dtype=pl.Int64)))
    if not frames:
        return pl.DataFrame(), set()
    rows = pl.concat(frames, how="diagonal").sort("place", maintain_order=True)
    for key in ("op_type", "core", "input_shapes"):
        if key not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.String).alias(key))
    start = to_ns(rows["start_ns"])
    driven = pl.col("name").str.ends_with("AivKernel") | pl.col("name").str.ends_with("AicpuKernel")
    rows = rows.with_columns(
        start_ns=start,
        end_ns=start + rows.select(to_duration_ns(pl.col("duration_ns")).floor().cast(pl.Int64)).to_series(),
        shapes=pl.col("input_shapes").str.replace_all('"', "", literal=True).replace("", None),
        call=pl.col("core").is_in(kernel_details.COMMUNICATION).fill_null(False),
        driven=driven.fill_null(False),
    )
    rows = rows.with_columns(group=_groups_of_calls(batch, rows))
    # A rank is as it should be when every cell that counts was read, and every call has its group or none has one.
    odd = pl.col("driven") | pl.any_horizontal(pl.col("step", "name", "start_ns", "end_ns").is_null())
    lists = [bool(files.groups) for files in batch]
    listed = pl.Series(lists, dtype=pl.Boolean).gather(rows["place"])
    odd = odd | (pl.col("call") & pl.col("group").is_null() & listed)
    bad = set(rows.filter(odd)["place"].unique().to_list())
    return rows, set(rows["place"].unique().to_list()) - bad


def _parsed(line: bytes, bodies: Sequence[bytes], titles: dict[str, str]) -> pl.DataFrame | None:
    types = {
        "step": pl.Int64, "name": pl.String, "op_type": pl.String, "core": pl.String, "start_ns": pl.String,
        "duration_ns": pl.Float64, "input_shapes": pl.String, "stream": pl.String,
    }  # fmt: skip
    try:
        frame = pl.read_csv(
            b"".join([line, *bodies]), columns=list(titles.values()), schema_overrides={titles[key]: types[key] for key in titles},
            null_values=[NOT_KNOWN, ""],
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    if frame.height != sum(body.count(b"\n") for body in bodies):
        return None
    return frame.rename({title: key for key, title in titles.items()})


def _groups_of_calls(batch: Sequence[_Files], rows: pl.DataFrame) -> pl.Series:
    listed = [(place, *key, group) for place, files in enumerate(batch) for key, group in files.groups.items()]
    known = pl.DataFrame(listed, schema={"place": pl.Int64, "step": pl.Int64, "name": pl.String, "group": pl.String}, orient="row")
    joined = rows.select("place", "step", "name", "call").join(
        known, on=["place", "step", "name"], how="left", maintain_order="left"
    )
    return joined.select(pl.when("call").then("group")).to_series()
