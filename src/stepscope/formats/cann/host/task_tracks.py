# SPDX-License-Identifier: Apache-2.0
"""Tasks as the runtime queued them: ids with batches, sizes of copies, models of captured streams (docs/formats/cann.md 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.cann.chips import UNSAID, Chip
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.api_events import RUNTIME, Ints
from stepscope.formats.cann.host.codes import COPY_DIRECTIONS, code_names
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.layouts import (
    CAPTURE_STREAM_INFO,
    MEMCPY_INFO,
    TASK_TRACK,
    TASK_TRACK_UNIQUE,
    TASK_TRACK_V2,
    TASK_TRACK_V2_UNIQUE,
)
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

_FLIP, _STREAM_DESTROYED = 98, 6
_STREAM_END = 0xFFFF  # flip number when a stream ends
_DEVICE_BITS, _DPU = 0x0FFF, 1
_WHOLE_RECORD = 40  # data length of records whose extension is filled
_MOST_DEVICES = 64
_MEMCPY = "MEMCPY_ASYNC"


@dataclass(frozen=True)
class Tracks:
    """Queued tasks by stamp; flips and ends of streams are not among them."""

    rows: npt.NDArray[Any]
    device: Ints
    stream: Ints
    task: Ints
    batch: Ints
    type: pl.Series  # String, name of the task type
    lost: tuple[pl.DataFrame, ...]

    def __len__(self) -> int:
        return len(self.rows)


def read_tracks(host: Part | None, words: Dictionaries, chip: Chip = UNSAID) -> Tracks:
    records = read_records(host, TASK_TRACK_UNIQUE if chip.unique_ids else TASK_TRACK)
    losses = list(records.lost)
    if not len(records):
        records = read_records(host, TASK_TRACK_V2_UNIQUE if chip.unique_ids else TASK_TRACK_V2)
        losses += records.lost
    rows = records.rows
    if len(rows) > 1 and (rows["stamp"][1:] < rows["stamp"][:-1]).any():
        rows = rows[np.argsort(rows["stamp"], kind="stable")]
    dpu = rows["device"] >> 12 == _DPU
    if dpu.any():
        losses.append(lost(issues.UNSUPPORTED_KIND, TASK_TRACK.file, int(dpu.sum()), "tasks of a DPU"))
    kind = rows["task_type"]
    flips = rows[(kind == _FLIP) & ~dpu]
    rows = rows[(kind != _FLIP) & (kind != _STREAM_DESTROYED) & ~dpu]
    device = (rows["device"] & _DEVICE_BITS).astype(np.int64)
    stream, task = rows["stream"].astype(np.int64), rows["task"].astype(np.int64)
    old = host is not None and host.has_old_driver
    batch = (
        np.zeros(len(rows), np.int64)
        if old or not chip.has_batches
        else _batches(device, stream, task, np.ascontiguousarray(rows["stamp"]), flips)
    )
    level = np.full(len(rows), RUNTIME)
    types = words.type_names(level, np.minimum(rows["task_type"], NONE32))
    return Tracks(rows, device, stream, task, batch, types, tuple(losses))


def _batches(device: Ints, stream: Ints, task: Ints, stamp: npt.NDArray[np.uint64], flips: npt.NDArray[Any]) -> Ints:
    """Flips of the stream before each task; tasks right before a flip that have numbers of the next round count as after it."""
    batch = np.zeros(len(device), np.int64)
    key = device << 32 | stream
    flip_key = (flips["device"] & _DEVICE_BITS).astype(np.int64) << 32 | flips["stream"]
    for one in np.unique(flip_key).tolist():
        mine, of_stream = np.flatnonzero(key == one), flips[flip_key == one]
        if not len(mine):
            continue
        numbers = task[mine]
        found = np.searchsorted(of_stream["stamp"], stamp[mine])
        for number, flip in enumerate(of_stream[: int(found.max())], 1):
            if flip["task"] and flip["flip"] != _STREAM_END:
                first = int(np.searchsorted(found, number))
                found[_round_begin(numbers, first, int(flip["task"])) : first] = number
        batch[mine] = found
    return batch


def _round_begin(numbers: Ints, first: int, flip: int) -> int:
    """Place of the first of the tasks right before `first` whose number is below the flip's."""
    step = 64
    while first > 0:
        low = max(first - step, 0)
        above = np.flatnonzero(numbers[low:first] >= flip)
        if len(above):
            return low + int(above[-1]) + 1
        first, step = low, step * 4
    return first


def kernel_sizes(tracks: Tracks) -> pl.DataFrame:
    """Blocks, or grid and block of a SIMT kernel, from records that carry them; null for all others."""
    rows = tracks.rows
    filled = rows["length"] == _WHOLE_RECORD
    sizes = np.zeros((len(rows), 8), np.uint16)
    if filled.any():
        sizes[filled] = np.ascontiguousarray(rows["extension"][filled]).view("<u2")
    simt = filled & tracks.type.is_in(["SIMT", "KERNEL_SIMT"]).to_numpy()
    plain = filled & ~simt & tracks.type.str.starts_with("KERNEL").to_numpy() & (sizes[:, 0] > 0)
    blocks = sizes[:, 0].astype(np.int64)
    mix = blocks * (sizes[:, 2] & 0x7)
    grids: dict[str, list[str | None]] = {"grid": [None] * len(rows), "block": [None] * len(rows)}
    for place in np.flatnonzero(simt).tolist():
        grids["grid"][place] = ",".join(map(str, sizes[place, :3].tolist()))
        grids["block"][place] = ",".join(map(str, sizes[place, 3:6].tolist()))
    return pl.DataFrame(
        {
            "block_num": pl.Series(blocks).set(pl.Series(~plain), None),
            "mix_block_num": pl.Series(mix).set(pl.Series(~plain), None),
            **{name: pl.Series(texts, dtype=pl.String) for name, texts in grids.items()},
        }
    )


def copies(host: Part | None, tracks: Tracks) -> tuple[pl.DataFrame, tuple[pl.DataFrame, ...]]:
    """Bytes and direction of each copy; a copy is identified by the thread and stamp of its task (docs/formats/cann.md 3.4)."""
    empty = pl.DataFrame({"bytes": pl.repeat(None, len(tracks), dtype=pl.Int64, eager=True)}).with_columns(
        pl.lit(None, pl.String).alias("copy_direction")
    )
    records = read_records(host, MEMCPY_INFO)
    tasks = np.flatnonzero((tracks.type == _MEMCPY).to_numpy())
    if not len(records) or not len(tasks):
        return empty, records.lost
    size, most, direction = _sizes(records.rows)
    copy_info = pl.DataFrame(
        {"tid": records.rows["tid"], "stamp": records.rows["stamp"], "size": size, "most": most, "direction": direction}
    ).unique(["tid", "stamp"], keep="last", maintain_order=True)
    # A large copy is cut: the tasks of one stamp take their shares in the order of their numbers.
    cut = pl.DataFrame(
        {
            "at": tasks,
            "tid": tracks.rows["tid"][tasks],
            "stamp": tracks.rows["stamp"][tasks],
            "batch": tracks.batch[tasks],
            "task": tracks.task[tasks],
        }
    ).sort("batch", "task", maintain_order=True)
    shares = cut.with_columns(pl.int_range(pl.len()).over("tid", "stamp").alias("before")).join(
        copy_info, on=["tid", "stamp"], how="left"
    )
    left = pl.col("size") - pl.col("before") * pl.col("most")
    shares = shares.filter((pl.col("before") == 0) | (left > 0)).select(
        "at", left.clip(0, pl.col("most")).alias("bytes"), "direction"
    )
    full = empty.select(pl.int_range(pl.len()).alias("at")).join(shares, on="at", how="left", maintain_order="left")
    return full.select("bytes", pl.col("direction").alias("copy_direction")), records.lost


def _sizes(rows: npt.NDArray[Any]) -> tuple[Ints, Ints, pl.Series]:
    """Size, largest size of one task, and direction, by either layout of the record."""
    behind = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), MEMCPY_INFO.size)[:, 40:48].any()
    is_new = not behind and (rows["direction_new"] < len(COPY_DIRECTIONS)).all() and (rows["device_new"] < _MOST_DEVICES).all()
    size = np.minimum(rows["bytes"], np.uint64(1 << 62)).astype(np.int64)
    direction = rows["direction_new"] if is_new else rows["direction"]
    most = np.minimum(rows["maximum"], np.uint64(1 << 40)).astype(np.int64)
    return size, size if is_new else np.where(most > 0, most, size), code_names(direction, COPY_DIRECTIONS, unknown=False)


def captured_models(host: Part | None, tracks: Tracks) -> tuple[Ints, tuple[pl.DataFrame, ...]]:
    """Model of tasks on streams that were captured into a graph; -1 elsewhere."""
    model = np.full(len(tracks), -1, np.int64)
    records = read_records(host, CAPTURE_STREAM_INFO)
    rows = records.rows[np.argsort(records.rows["stamp"], kind="stable")]
    batches: dict[tuple[int, int], int] = {}
    ranges: dict[tuple[int, int, int], list[int]] = {}
    handled: set[tuple[int, ...]] = set()
    for row in rows[["device", "model_stream", "stream", "model", "status", "stamp"]].tolist():
        device, stream, _, number, status, stamp = row
        if row in handled:
            continue
        handled.add(row)
        batch = batches.get((device, stream), 0)
        batches[device, stream] = batch + 1
        span = ranges.setdefault((device, stream, batch), [0, (1 << 64) - 1, number])
        span[status != 0], span[2] = stamp, number
    for (device, stream, batch), (begin, end, number) in ranges.items():
        mine = np.flatnonzero((tracks.device == device) & (tracks.stream == stream) & (tracks.batch == batch))
        stamp = tracks.rows["stamp"][mine]
        model[mine[(stamp >= np.uint64(begin)) & (stamp <= np.uint64(end))]] = number
    return model, records.lost
