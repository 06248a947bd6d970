# SPDX-License-Identifier: Apache-2.0
"""Memory that operators took and gave back, as the runtime recorded it (docs/formats/cann.md 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.layouts import TASK_MEMORY_INFO
from stepscope.formats.cann.records import read_records


def read_op_memory(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, tuple[pl.DataFrame, ...]]:
    """Columns of table `memory_events`, component GE."""
    records = read_records(host, TASK_MEMORY_INFO)
    rows = records.rows
    size = np.ascontiguousarray(rows["bytes"])
    frame = pl.DataFrame(
        {
            "pid": pl.repeat(host.pid if host else None, len(rows), dtype=pl.Int64, eager=True),
            "tid": rows["tid"].astype(np.int64),
            "time_ns": host.clock.ns(np.ascontiguousarray(rows["stamp"])) if host else np.empty(0, np.int64),
            "component": pl.repeat("GE", len(rows), dtype=pl.String, eager=True),
            "device_type": pl.repeat("npu", len(rows), dtype=pl.String, eager=True),
            "device": pl.Series(rows["device"].astype(np.int64)).cast(pl.Int32, strict=False),  # null where damaged
            "action": pl.Series(size < 0).replace_strict({True: "free", False: "malloc"}, return_dtype=pl.String),
            "ptr": _clip_to_int64(rows["address"]),
            "bytes": size,
            "total_allocated": rows["allocated"].astype(np.float64),
            "total_reserved": rows["reserved"].astype(np.float64),
            "op_name": words.hashes.text(rows["op_name"]),
            "raw_device_type": rows["device_type"].astype(np.int64),
        }
    )
    return frame.sort("time_ns", maintain_order=True), records.lost


def _clip_to_int64(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Unsigned 64-bit numbers; larger ones become the largest Int64."""
    return np.asarray(np.minimum(numbers, np.uint64((1 << 63) - 1)).astype(np.int64))
