# SPDX-License-Identifier: Apache-2.0
"""Host records that stand alone: operators' memory, fused operators, models, streams, threads (docs/formats/cann.md 3.3 to 3.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.host.api_events import MODEL, Apis
from stepscope.formats.cann.host.dictionaries import Dictionaries
from stepscope.formats.cann.host.operators import attach
from stepscope.formats.cann.host.tree import HostTree
from stepscope.formats.cann.layouts import (
    FUSION_OP_INFO,
    GRAPH_ID_MAP,
    LOGIC_STREAM_INFO,
    MC2_COMM_INFO,
    MULTI_THREAD,
    STATIC_OP_MEM,
    TASK_MEMORY_INFO,
)
from stepscope.formats.cann.records import read_records

Lost = tuple[pl.DataFrame, ...]


def read_op_memory(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, Lost]:
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
            "device": rows["device"].astype(np.int64),
            "action": pl.Series(size < 0).replace_strict({True: "free", False: "malloc"}, return_dtype=pl.String),
            "ptr": _small(rows["address"]),
            "bytes": size,
            "total_allocated": rows["allocated"].astype(np.float64),
            "total_reserved": rows["reserved"].astype(np.float64),
            "op_name": words.hashes.text(rows["op_name"]),
            "raw_device_type": rows["device_type"].astype(np.int64),
        }
    )
    return frame.sort("time_ns", maintain_order=True), records.lost


def read_static_memory(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, Lost]:
    records = read_records(host, STATIC_OP_MEM)
    rows = records.rows
    frame = pl.DataFrame(
        {
            "op_name": words.hashes.text(rows["op_name"]),
            "bytes": np.ascontiguousarray(rows["bytes"]),
            "life_start": _small(rows["life_start"]),
            "life_end": _small(rows["life_end"]),
            "total_allocated": _small(rows["allocated"]),
            "dynamic_op": words.hashes.text(rows["dynamic_op"]),
            "graph_id": rows["graph"].astype(np.int64),
        }
    )
    return frame, records.lost


def read_fusion_ops(host: Part | None, tree: HostTree, apis: Apis, words: Dictionaries) -> tuple[pl.DataFrame, Lost]:
    found = attach(host, tree, FUSION_OP_INFO, MODEL)
    rows = found.rows
    number = np.minimum(rows["count"], 8)
    flat = rows["ops"][np.arange(8) < number[:, None]]
    names = pl.Series(words.hashes.text(flat).fill_null("0"))
    ends = np.cumsum(number).tolist()
    joined = [",".join(names[end - count : end]) for end, count in zip(ends, number.tolist(), strict=True)]
    frame = pl.DataFrame(
        {
            "model_id": _small(apis.item[found.call]),
            "fusion_name": words.hashes.text(rows["op_name"]),
            "count": rows["count"].astype(np.int64),
            "op_names": pl.Series(joined, dtype=pl.String),
            **{f"{name}_bytes": _small(rows[f"{name}_bytes"]) for name in ("input", "output", "weight", "workspace", "total")},
        }
    )
    return frame, found.lost


def read_graph_ids(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, Lost]:
    records = read_records(host, GRAPH_ID_MAP)
    rows = records.rows
    frame = pl.DataFrame(
        {
            "model_name": words.hashes.text(rows["model_name"]),
            "graph_id": rows["graph"].astype(np.int64),
            "model_id": rows["model"].astype(np.int64),
        }
    )
    return frame, records.lost


def read_logic_streams(host: Part | None) -> tuple[pl.DataFrame, Lost]:
    records = read_records(host, LOGIC_STREAM_INFO)
    rows = records.rows
    number = np.minimum(rows["count"], 56)
    return pl.DataFrame(
        {
            "logic_stream": np.repeat(rows["logic"].astype(np.int64), number),
            "stream": rows["streams"][np.arange(56) < number[:, None]].astype(np.int64),
        }
    ), records.lost


def read_mc2_groups(host: Part | None, words: Dictionaries) -> tuple[pl.DataFrame, Lost]:
    records = read_records(host, MC2_COMM_INFO)
    rows = records.rows
    number = np.minimum(rows["count"], 8)
    frame = pl.DataFrame(
        {
            "group": pl.Series(np.ascontiguousarray(rows["group"])).cast(pl.String),
            "group_name": words.hashes.text(rows["group"], else_number=False),
            "rank_size": rows["rank_size"].astype(np.int64),
            "rank": rows["rank"].astype(np.int64),
            "global_rank": rows["global_rank"].astype(np.int64),
            "aicpu_stream": rows["aicpu_stream"].astype(np.int64),
            "streams": pl.Series(
                [row[:count] for row, count in zip(rows["streams"].tolist(), number.tolist(), strict=True)], dtype=pl.List(pl.Int64)
            ),
        }
    )
    return frame, records.lost


def read_sub_threads(host: Part | None) -> tuple[pl.DataFrame, Lost]:
    records = read_records(host, MULTI_THREAD)
    rows = records.rows
    number = np.minimum(rows["count"], 25)
    return pl.DataFrame(
        {
            "tid": np.repeat(rows["tid"].astype(np.int64), number),
            "sub_tid": rows["threads"][np.arange(25) < number[:, None]].astype(np.int64),
        }
    ), records.lost


def _small(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Unsigned 64-bit numbers; what does not fit is cut."""
    return np.asarray(np.minimum(numbers, np.uint64((1 << 63) - 1)).astype(np.int64))
