# SPDX-License-Identifier: Apache-2.0
"""The framework's side of the device: marks of the task queue and events of the allocator (docs/formats/framework.md 4.2, 4.3)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.framework import records
from stepscope.formats.framework.layouts import KINDS
from stepscope.simnpu.records import COLLECTIVE, COPY_D2D, COPY_D2H, COPY_H2D, EVENT_RECORD, EVENT_WAIT, KERNEL, MARK

_NAMES = {
    COPY_H2D: "acl_memcpy_host_to_device",
    COPY_D2H: "acl_memcpy_device_to_host",
    COPY_D2D: "acl_memcpy_device_to_device",
    EVENT_RECORD: "record_event",
    EVENT_WAIT: "wait_event",
}
_MARK_NAMES = ("mstx_mark_op", "mstx_range_start_op", "mstx_range_end_op")
_NPU = 20  # c10's number of the device type
_MOMENTS = ("enqueue_start", "enqueue_end", "dequeue_start", "dequeue_end")


def prepare() -> None:
    """Load what `write_marks` and `write_memory` need: at the first call the columnar engine takes longer than many a job lives."""
    for name, columns in (("op_mark", {"name": ["x"]}), ("memory_usage", {"ptr": [0]})):
        for _ in records.encode(KINDS[name], pl.DataFrame(columns)):
            pass


def write_marks(framework: Path, tasks: npt.NDArray[Any], names: Mapping[int, str]) -> None:
    """Four marks for each task that went through the task queue; `names` are those of descriptions."""
    queued = tasks[tasks["enqueue_start"] > 0]
    if not len(queued):
        return
    name = _names(queued, names)
    threads = ("host_thread", "host_thread", "launch_thread", "launch_thread")
    correlation = queued["connection"].astype(np.int64)
    frames = [
        pl.DataFrame(
            {
                "time": queued[moment],
                "category": np.full(len(queued), category),
                "correlation_id": correlation if category else np.zeros(len(queued), np.int64),  # unknown when it begins
                "thread_id": queued[thread].astype(np.int64),
                "process_id": np.full(len(queued), os.getpid()),
                "name": name,
            }
        )
        for category, (moment, thread) in enumerate(zip(_MOMENTS, threads, strict=True))
    ]
    records.write(framework, {"op_mark": pl.concat(frames)}, append=True)


def write_memory(framework: Path, events: npt.NDArray[Any]) -> None:
    """One record per event of the device's allocator."""
    columns = {
        "ptr": events["address"].astype(np.int64),
        "time": events["time"],
        "alloc_size": events["size"],
        "total_allocated": events["allocated"],
        "total_reserved": events["reserved"],
        "total_active": events["active"],
        "stream": events["stream"].astype(np.int64),
        "device_type": np.full(len(events), _NPU, np.int8),
        "device_index": events["device"].astype(np.int8),
        "component_type": events["component"],
        "data_type": events["kind"],
        "thread_id": events["thread"].astype(np.int64),
        "process_id": np.full(len(events), os.getpid()),
    }
    frame = pl.DataFrame({name: np.ascontiguousarray(values) for name, values in columns.items()})
    records.write(framework, {"memory_usage": frame}, append=True)


def _names(tasks: npt.NDArray[Any], names: Mapping[int, str]) -> pl.Series:
    """The framework's name of a task: the operator's aclnn call, or the kind of copy."""
    code = np.where(np.isin(tasks["kind"], (KERNEL, COLLECTIVE)), 1000 + tasks["description"].astype(np.int64), tasks["kind"])
    code = np.where(tasks["kind"] == MARK, 100 + np.minimum(tasks["event"], 2), code)
    distinct, place = np.unique(code, return_inverse=True)
    texts = [_name(number, names) for number in distinct.tolist()]
    return pl.Series(texts, dtype=pl.String).gather(place)


def _name(code: int, names: Mapping[int, str]) -> str:
    if code >= 1000:
        return names.get(code - 1000, "")
    return _MARK_NAMES[code - 100] if code >= 100 else _NAMES[code]
